"""Verify-skip: steps on which the policy is left out, and what acts in its place (HeiSD, adaptive verify-skip).

Three policies behind one interface, and the plain repetition of the last action as the baseline that they must beat.
All keep a budget, never change the gripper's class, and never act on a first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vla_sd_ros.actions.bins import ActionBins, Ids
from vla_sd_ros.decoding.config import SkipConfig
from vla_sd_ros.decoding.memory import EpisodeMemory
from vla_sd_ros.decoding.perception import Perception
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.retrieval.skip_calibration import SkipCalibration
from vla_sd_ros.verification.acceptance import GRIPPER, deviation_in_bins, gripper_is_open

#: Factors of the bounds after an episode that succeeded, and after one that failed: trust is lost faster than won.
WIDEN, NARROW = 1.05, 0.8
MAX_TRUST = 2.0
#: Change of the disagreement over three steps that counts as none (the authors' code: 0.01 of a normalised action).
FLAT_BINS = 1.28
SPREAD_STEPS = 3


@dataclass(frozen=True)
class SimilarityBounds:
    """How near the nearest demonstration must be for a skip, as the episodes so far have it.

    Attributes:
        min_similarity: expected cosine of the hidden states.
        max_distance_m: between the end effectors.
    """

    min_similarity: float
    max_distance_m: float

    def scaled(self, factor: float) -> SimilarityBounds:
        """Bounds that let through more (above 1) or less (below 1)."""
        return SimilarityBounds(1.0 - (1.0 - self.min_similarity) * factor, self.max_distance_m * factor)


class SkipPolicy:
    """Proposes an action without the policy, or nothing.

    Args:
        config: which rule, what action, which budget.
        bins: of the policy.
        calibration: for ``similarity``; None elsewhere.

    Raises:
        ValueError: ``similarity`` without a calibration.
    """

    def __init__(self, config: SkipConfig, bins: ActionBins, calibration: SkipCalibration | None = None) -> None:
        if config.kind == "similarity" and calibration is None:
            raise ValueError("skip: similarity needs a calibration; make one with: vla-sd calibrate")
        self._config = config
        self._bins = bins
        self._calibration = calibration
        self._trust = 1.0

    def propose(self, memory: EpisodeMemory, perception: Perception) -> Ids | None:
        """Tokens, int64 [7], of an action to take unverified; None: decode."""
        last, config = memory.history.last(), self._config
        if last is None or memory.decoded == 0 or memory.skipped_in_a_row >= config.max_in_a_row:
            return None
        if memory.deviation_bins > config.max_deviation_bins:
            return None
        if config.kind == "similarity" and not self._is_similar(memory, perception):
            return None
        if config.kind == "ambiguity" and not self._is_unambiguous(memory, perception):
            return None
        tokens = self._action(memory, perception, last)
        if tokens is None:
            return None
        if gripper_is_open(tokens[GRIPPER], self._bins) != gripper_is_open(last[GRIPPER], self._bins):
            return None
        change = np.abs(deviation_in_bins(tokens[:GRIPPER], last[:GRIPPER], self._bins)).max()
        # A copy: what the history and the index hold is not the caller's.
        return tokens.copy() if change <= config.max_change_bins else None

    def end_episode(self, success: bool) -> None:
        """Lets the bounds of ``similarity`` follow the outcome, up to twice what was calibrated."""
        if self._config.adapt:
            self._trust = min(self._trust * (WIDEN if success else NARROW), MAX_TRUST)

    @property
    def bounds(self) -> SimilarityBounds | None:
        """The bounds in force; None where the rule has none."""
        if self._calibration is None:
            return None
        return SimilarityBounds(self._calibration.min_similarity, self._calibration.max_distance_m).scaled(self._trust)

    def _is_similar(self, memory: EpisodeMemory, perception: Perception) -> bool:
        here, bounds = memory.newest_position(), self.bounds
        if not perception.neighbours or here is None or bounds is None or self._calibration is None:
            return False
        nearest = perception.neighbours[0]
        distance_m = float(np.linalg.norm(here - nearest.position))
        return bool(
            self._calibration.may_skip(nearest.similarity, distance_m, bounds.min_similarity, bounds.max_distance_m)
        )

    def _is_unambiguous(self, memory: EpisodeMemory, perception: Perception) -> bool:
        """Falling disagreement: skip; rising: decode; flat: take turns."""
        if len(perception.neighbours) < 2:
            return False
        spread = spread_bins(perception.neighbours, self._bins)
        if spread > self._config.max_spread_bins:
            return False
        if len(memory.spreads) < SPREAD_STEPS - 1:
            return False
        change = spread - memory.spreads[-(SPREAD_STEPS - 1)]
        return change < -FLAT_BINS or (change <= FLAT_BINS and memory.skipped_in_a_row == 0)

    def _action(self, memory: EpisodeMemory, perception: Perception, last: Ids) -> Ids | None:
        action, anchor = self._config.action, memory.anchor
        if action == "repeat":
            return last
        if action == "nearest":
            return perception.neighbours[0].tokens if perception.neighbours else None
        if anchor is None or memory.anchor_tokens is None or memory.skipped_in_a_row >= len(anchor.next_tokens):
            return None
        ahead = anchor.next_tokens[memory.skipped_in_a_row]
        if action == "lookahead":
            return ahead
        # Ids fall as values rise, and both differences are of ids: the change is the demonstration's.
        changed = memory.anchor_tokens + (ahead - anchor.tokens)
        changed = np.clip(changed, self._bins.first_id, self._bins.vocab_size - 1)
        changed[GRIPPER] = ahead[GRIPPER]
        return np.asarray(changed, dtype=np.int64)


def spread_bins(neighbours: Sequence[Neighbour], bins: ActionBins) -> float:
    """Disagreement of neighbours: mean distance of their six values from their mean, in bins."""
    actions = bins.bin_of(np.stack([neighbour.tokens for neighbour in neighbours]))[:, :GRIPPER]
    return float(np.linalg.norm(actions - actions.mean(axis=0), axis=1).mean())
