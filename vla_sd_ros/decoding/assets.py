"""What was derived from a checkpoint and lies beside it: index, drafter, calibration; loaded when first needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vla_sd_ros.decoding.config import GateConfig, Rule
from vla_sd_ros.decoding.gate import AcceptanceGate, FusedMetricGate
from vla_sd_ros.decoding.memory import EpisodeMemory
from vla_sd_ros.decoding.parts import Threshold
from vla_sd_ros.decoding.perception import Perception, Search
from vla_sd_ros.drafting.kalman_draft import KalmanDrafter
from vla_sd_ros.drafting.learned import LearnedDrafter
from vla_sd_ros.drafting.learned_checkpoint import DRAFTER_FOLDER, load_drafter
from vla_sd_ros.kinematics.calibration import CALIBRATION_FILE, Calibration, load_calibration
from vla_sd_ros.kinematics.fused_metric import FusedMetric
from vla_sd_ros.kinematics.kalman import KalmanModel
from vla_sd_ros.kinematics.variability import AuthorsSchedule, VariabilityThreshold
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.retrieval.acceptance_model import AcceptanceModel, acceptance_features
from vla_sd_ros.retrieval.index import INDEX_FOLDER, is_milvus, load_index
from vla_sd_ros.retrieval.keys import key_from_features
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.retrieval.skip_calibration import SkipCalibration

#: Probability from which the calibrated gate is confident where no other is named.
DEFAULT_PROBABILITY = 0.8


class DerivedAssets:
    """Index, drafter and calibration of one policy.

    Args:
        policy: whose folder they lie in.
    """

    def __init__(self, policy: LoadedPolicy) -> None:
        self._policy = policy

    @cached_property
    def calibration(self) -> Calibration:
        """Of the kinematics and the gates.

        Raises:
            FileNotFoundError: it was not made.
            InvalidCalibration: it belongs to another checkpoint.
        """
        return load_calibration(self._beside(CALIBRATION_FILE), self._policy.fingerprint)

    @cached_property
    def drafter(self) -> LearnedDrafter:
        """The learned drafter; raises :class:`~vla_sd_ros.drafting.learned_checkpoint.DrafterError`."""
        return load_drafter(self._beside(DRAFTER_FOLDER), self._policy)

    def kalman(self, model: KalmanModel) -> KalmanDrafter:
        """Drafts by a Kalman filter with the noise of the demonstrations."""
        return KalmanDrafter(self.calibration.kalman[model].action_filter(model))

    def search(self, location: str) -> Search:
        """A search in the index: a folder, a URL, or, where it is empty, ``index`` beside the checkpoint."""
        place = location if is_milvus(location) else Path(location or self._beside(INDEX_FOLDER))
        index = load_index(place, self._policy.fingerprint)
        metadata = index.metadata

        def search(
            instruction: str, features: npt.NDArray[np.float32], position: npt.NDArray[np.float64] | None, k: int
        ) -> Sequence[Neighbour]:
            key = key_from_features(features, metadata.block_widths, position if metadata.with_position else None)
            return index.search(instruction, key, k)

        return search

    def threshold(self, rule: Rule) -> Threshold | None:
        """The radius that follows the episode, for the rule that has one."""
        if rule.kind != "variability":
            return None
        if rule.schedule == "authors":
            return AuthorsSchedule(rule.max_bins, rule.min_bins, rule.horizon_steps)
        reference = self.calibration.variability["kalman"].reference
        return VariabilityThreshold(rule.min_bins, rule.max_bins, reference=reference)

    def fused_metric_gate(self, gate: GateConfig) -> FusedMetricGate:
        """HeiSD's boundary, by default at the median of the demonstrations.

        Raises:
            ValueError: no threshold is named, and the calibrated ones hold for another weight.
            KeyError: the form, the window or the quantile was not calibrated.
        """
        calibrated = self.calibration.metric(gate.form, gate.window)
        if gate.threshold is None and gate.alpha != calibrated.alpha:
            raise ValueError(f"alpha: {gate.alpha} has no calibrated threshold; legal: {calibrated.alpha}, or name one")
        metric = FusedMetric(gate.form, gate.window, gate.alpha, ranges=calibrated.ranges)
        return FusedMetricGate(
            metric, calibrated.threshold(gate.quantile) if gate.threshold is None else gate.threshold
        )

    def acceptance_gate(self, threshold: float | None) -> AcceptanceGate:
        """The calibrated gate.

        Raises:
            ValueError: it was not calibrated.
        """
        if self.calibration.acceptance is None:
            raise ValueError("the acceptance gate is not calibrated; make it with: vla-sd calibrate")
        model = AcceptanceModel.from_json(self.calibration.acceptance)

        def probability(memory: EpisodeMemory, perception: Perception) -> float:
            state = perception.state
            speed = math.nan if state is None else float(np.linalg.norm(state.linear_velocity))
            curvature = math.nan if state is None else state.curvature_per_m
            return float(model.probability(acceptance_features(perception.neighbours, speed, curvature)))

        return AcceptanceGate(probability, DEFAULT_PROBABILITY if threshold is None else threshold)

    def skip_calibration(self) -> SkipCalibration:
        """Of verify-skip by similarity.

        Raises:
            ValueError: it was not calibrated.
        """
        if self.calibration.skip is None:
            raise ValueError("verify-skip by similarity is not calibrated; make it with: vla-sd calibrate")
        return SkipCalibration.from_json(self.calibration.skip)

    def _beside(self, name: str) -> Path:
        if self._policy.folder is None:
            raise ValueError(f"a policy in memory has no {name}; legal: a policy loaded from a folder")
        return self._policy.folder / name
