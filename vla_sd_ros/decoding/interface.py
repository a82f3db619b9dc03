"""What a decoder is and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.decoding.stage_times import StageTimes
from vla_sd_ros.types import KinematicState, Observation


@dataclass(frozen=True)
class DecodeCounts:
    """What an action cost.

    Attributes:
        forward_passes: forwards of the language model, the prefill included; 0 where no model ran.
        verified_passes: those that verified a draft; the denominator of the acceptance length.
        accepted_tokens: tokens that those passes advanced by, the verifier's own bonus token included.
        relaxed_tokens: accepted tokens that are not the verifier's own choice; 0 where decoding is lossless.
    """

    forward_passes: int
    verified_passes: int = 0
    accepted_tokens: int = 0
    relaxed_tokens: int = 0

    @property
    def acceptance_length(self) -> float:
        """Tokens per verified pass; not a number where nothing was verified."""
        return self.accepted_tokens / self.verified_passes if self.verified_passes else float("nan")


@dataclass(frozen=True)
class DecodeReport:
    """Why an action was decoded as it was, and what it let through.

    Attributes:
        region: ``confident`` or ``cautious``, as the gate judged; empty where a decoder has no gate.
        gate_score: what the gate compared with its threshold; not a number where it had nothing to judge by.
        near_contact: whether the guard held that the gripper is about to act, or has just acted.
        skipped: whether the language model was left out.
        skipped_in_a_row: such actions in a row, this one included.
        degraded: why the decoder fell back to a safer way; empty where it did not.
        sources: where each token comes from, 7 names: a drafter's, or ``policy`` for the verifier's own choice.
        deviation_bins: token of the action minus the verifier's choice at the same place, in bins, 7 of them; 0 where
            the token is the verifier's own, and where nothing was verified.
        deviation_m: length of the position part of that deviation.
        deviation_rad: length of the rotation part.
        threshold_bins: radius of acceptance that was in force; 0 where decoding is strict.
    """

    region: str = ""
    gate_score: float = float("nan")
    near_contact: bool = False
    skipped: bool = False
    skipped_in_a_row: int = 0
    degraded: str = ""
    sources: tuple[str, ...] = ("policy",) * N_DOF
    deviation_bins: tuple[int, ...] = (0,) * N_DOF
    deviation_m: float = 0.0
    deviation_rad: float = 0.0
    threshold_bins: int = 0


@dataclass(frozen=True)
class DecodedAction:
    """One action.

    Attributes:
        tokens: token ids, int64 [7]: x, y, z, three rotation values, gripper.
        values: un-normalised, float64 [7], in the units of the policy's statistics (SI for the demo policy).
        mode: name of the decoder or of the path it took.
        stage_times: where the time went.
        counts: forwards and acceptance.
        report: why it was decoded so.

    Raises:
        ValueError: on wrong shapes or dtypes, or values that are not finite.
    """

    tokens: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    mode: str
    stage_times: StageTimes
    counts: DecodeCounts
    report: DecodeReport = DecodeReport()

    def __post_init__(self) -> None:
        for name, array, dtype in (("tokens", self.tokens, np.int64), ("values", self.values, np.float64)):
            if array.shape != (N_DOF,) or array.dtype != dtype:
                raise ValueError(f"{name}: {array.dtype} {array.shape}; legal: {np.dtype(dtype)} ({N_DOF},)")
        if not np.isfinite(self.values).all():
            raise ValueError(f"values are not finite: {self.values.tolist()}")


class Decoder(Protocol):
    """Turns an observation into an action."""

    def decode(self, observation: Observation, state: KinematicState | None) -> DecodedAction:
        """Decodes one action.

        A decode that raises leaves nothing behind that a later one could see.

        Args:
            observation: what the robot sees and shall do.
            state: where the arm is; None where it is not known (some decoders need it).

        Raises:
            EmptyInstruction: there is nothing to do; hold.
            ValueError: the observation does not fit the policy.
        """
        ...

    def reset(self) -> None:
        """Forgets the past: a new episode, another instruction, a jump in time."""
        ...

    def end_episode(self, success: bool) -> None:
        """Learns how the episode ended, and forgets the rest of it."""
        ...
