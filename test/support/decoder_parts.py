"""Decoders put together by hand, with drafts that a test dictates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.decoding.config import DecoderConfig, StepConfig
from vla_sd_ros.decoding.drafted import DraftedDecoder
from vla_sd_ros.decoding.gate import always
from vla_sd_ros.decoding.jacobi import JacobiCompletion
from vla_sd_ros.decoding.parts import DecoderParts, StepParts
from vla_sd_ros.decoding.perception import Search
from vla_sd_ros.decoding.skip import SkipPolicy
from vla_sd_ros.decoding.speculative import LearnedDraft, SpeculativeCompletion
from vla_sd_ros.drafting.context import DraftContext, Drafter
from vla_sd_ros.drafting.hold_last import HoldLastDrafter
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.types import KinematicState, Observation
from vla_sd_ros.verification.acceptance import AcceptanceRule, Strict
from vla_sd_ros.verification.draft_tree import DraftTree

INSTRUCTION = "put the bowl on the plate"


def observation(seed: int, size_px: int = 28) -> Observation:
    """Noise for an image."""
    image = np.random.default_rng(seed).integers(0, 256, (size_px, size_px, 3), dtype=np.uint8)
    return Observation({"camera": image}, INSTRUCTION, stamp_ns=seed)


def state_at(step: int, position: Sequence[float] = (0.4, 0.0, 0.3)) -> KinematicState:
    """An arm at rest somewhere."""
    return KinematicState(
        stamp_ns=step * 50_000_000,
        position=np.array(position, dtype=np.float64),
        orientation=np.array([0.0, 0.0, 0.0, 1.0]),
        linear_velocity=np.zeros(3),
        angular_velocity=np.zeros(3),
        gripper_opening=1.0,
    )


class Dictated:
    """Drafts what a function says."""

    def __init__(self, function: Callable[[DraftContext], DraftTree | None]) -> None:
        self._function = function

    def draft(self, context: DraftContext) -> DraftTree | None:
        """The function's tree."""
        return self._function(context)


def neighbour(tokens: np.ndarray, steps_to_gripper_change: int = 100, similarity: float = 1.0) -> Neighbour:
    """A demonstrated frame whose future repeats it."""
    return Neighbour(
        similarity=similarity,
        tokens=tokens,
        next_tokens=np.tile(tokens, (N_DOF, 1)),
        position=np.array([0.4, 0.0, 0.3], dtype=np.float32),
        gripper_open=True,
        steps_to_gripper_change=steps_to_gripper_change,
        episode=0,
        step=0,
    )


def make_parts(
    policy: LoadedPolicy,
    step: StepConfig,
    drafters: Sequence[Drafter] = (HoldLastDrafter(),),
    rule: AcceptanceRule | None = None,
    learned: LearnedDraft | None = None,
    tolerance_bins: int = 0,
) -> StepParts:
    """One way of decoding."""
    jacobi, speculative = None, None
    if step.completion.kind == "jacobi":
        tolerance = np.array([tolerance_bins] * (N_DOF - 1) + [0], dtype=np.int64)
        jacobi = JacobiCompletion(policy.model, policy.bins, tolerance)
    else:
        chosen = rule or Strict()

        def speculative() -> SpeculativeCompletion:
            return SpeculativeCompletion(policy.model, policy.bins, chosen, chosen, learned)

    skip = None if step.skip is None else SkipPolicy(step.skip, policy.bins)
    return StepParts(step, tuple(drafters), jacobi, speculative, skip, None, None)


def make_decoder(
    policy: LoadedPolicy,
    cautious: StepParts,
    confident: StepParts | None = None,
    search: Search | None = None,
    **config: object,
) -> DraftedDecoder:
    """A decoder; with ``confident``, its gate is always open."""
    gate = {"kind": "always"} if confident is not None else None
    whole = DecoderConfig.model_validate(
        {
            "kind": "drafted",
            "gate": gate,
            "confident": None if confident is None else confident.config.model_dump(),
            "cautious": cautious.config.model_dump(),
            **config,
        }
    )
    parts = DecoderParts(whole, None if gate is None else always, confident, cautious, search, 3)
    return DraftedDecoder(policy, parts)
