"""What a closed-loop comparison of decoders plays, and what names one of its episodes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vla_sd_ros.bench.decoder_choice import DecoderChoice
from vla_sd_ros.policy.precision import choose_dtype
from vla_sd_ros.sim.suites import MAX_STEPS

#: Presets that differ in one part each, the plain decoder in front.
ABLATIONS: Final[dict[str, tuple[str, ...]]] = {
    "heisd": ("ar", "heisd_boundary", "heisd_skip", "heisd"),
    "kerv": ("ar", "kerv_threshold", "kerv_compensation", "kerv"),
}
# A policy and a world take seconds to load; decoders that learn from outcomes do so within a piece.
EPISODES_PER_PIECE: Final = 10
DIGEST_DIGITS: Final = 24


@dataclass(frozen=True)
class EpisodeSetting:
    """How every episode is played, whatever decodes.

    Attributes:
        dtype: auto, float32 or bfloat16.
        camera_px: side of the camera's image.
        crop_fraction: share of the side that the policy's view keeps.
        max_steps: step limit; 0 takes the suite's own.
        disturb: whether the object is pushed when the hand has come near.
        generate_every: in the reference decoder's episodes, so many control periods apart transformers' ``generate``
            is timed on the same image; 0: never.
    """

    dtype: str = "auto"
    camera_px: int = 224
    crop_fraction: float = 0.875
    max_steps: int = 0
    disturb: bool = False
    generate_every: int = 0

    @property
    def dtype_in_use(self) -> str:
        """The precision that ``dtype`` means on this machine's processor."""
        return str(choose_dtype(self.dtype, "cpu")).removeprefix("torch.")

    def step_limit(self, suite: str) -> int:
        """Control periods after which an episode of the suite has failed."""
        return self.max_steps or MAX_STEPS[suite]


@dataclass(frozen=True)
class Slot:
    """One episode that is to be played, by one decoder."""

    decoder: DecoderChoice
    suite: str
    task_id: int
    initial_state: int
    shadow: bool


@dataclass(frozen=True)
class Piece:
    """What one worker plays in one go: some initial states of one task, each by every decoder in turn.

    Every decoder meets the same state under the same load of the machine, so that differences are paired.
    """

    suite: str
    task_id: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class BenchPlan:
    """What is compared with what.

    Attributes:
        policy: checkpoint directory.
        decoders: the first one called ``ar`` or ``autoregressive``, or else the first, is the reference.
        tasks: (suite, index) of each task.
        initial_states: indices of LIBERO's own initial states, for every task.
        shadow: how many of them, from the first, are shadowed.
        setting: the same for every episode.

    Raises:
        ValueError: without decoders, tasks or states, or where two decoders share a label.
    """

    policy: Path
    decoders: tuple[DecoderChoice, ...]
    tasks: tuple[tuple[str, int], ...]
    initial_states: tuple[int, ...] = tuple(range(50))
    shadow: int = 0
    setting: EpisodeSetting = EpisodeSetting()

    def __post_init__(self) -> None:
        labels = [decoder.label for decoder in self.decoders]
        if not (labels and self.tasks and self.initial_states):
            raise ValueError("a comparison needs at least one decoder, one task and one initial state")
        if len(set(labels)) != len(labels):
            raise ValueError(f"decoders: the labels {labels} must differ")

    @property
    def reference(self) -> str:
        """Label of the decoder that the others are compared with."""
        labels = [decoder.label for decoder in self.decoders]
        return next((label for label in labels if label in ("ar", "autoregressive")), labels[0])

    def slots(self) -> Iterator[Slot]:
        """Every episode, decoders in turn for every initial state of every task."""
        for suite, task_id in self.tasks:
            for count, state in enumerate(self.initial_states):
                for decoder in self.decoders:
                    yield Slot(decoder, suite, task_id, state, count < self.shadow)

    def key(self, slot: Slot, policy_fingerprint: str) -> str:
        """Names an episode by everything that its outcome hangs on.

        Args:
            slot: the episode.
            policy_fingerprint: SHA-256 of the policy's weights.
        """
        parts = (
            slot.decoder.digest,
            policy_fingerprint,
            slot.suite,
            slot.task_id,
            slot.initial_state,
            slot.shadow,
            self.setting if slot.decoder.label == self.reference else replace(self.setting, generate_every=0),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:DIGEST_DIGITS]


def pieces_of(slots: Sequence[Slot], jobs: int) -> list[Piece]:
    """Cuts what is left to play into pieces for workers: at most ten initial states of one task each.

    Args:
        slots: in the order of :meth:`BenchPlan.slots`.
        jobs: workers; where there is little to play the pieces are small enough that each has some.
    """
    groups: dict[tuple[str, int], dict[int, list[Slot]]] = {}
    for slot in slots:
        groups.setdefault((slot.suite, slot.task_id), {}).setdefault(slot.initial_state, []).append(slot)
    in_all = sum(len(states) for states in groups.values())
    size = max(1, min(EPISODES_PER_PIECE, -(-in_all // jobs)))
    pieces = []
    for (suite, task_id), states in groups.items():
        each = list(states.values())
        for first in range(0, len(each), size):
            chunk = [slot for state in each[first : first + size] for slot in state]
            pieces.append(Piece(suite, task_id, tuple(chunk)))
    return pieces
