"""What a drafted decoder is put together from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from vla_sd_ros.actions.bins import Ids
from vla_sd_ros.decoding.config import DecoderConfig, StepConfig
from vla_sd_ros.decoding.gate import Gate
from vla_sd_ros.decoding.jacobi import JacobiCompletion
from vla_sd_ros.decoding.perception import Search
from vla_sd_ros.decoding.skip import SkipPolicy
from vla_sd_ros.decoding.speculative import SpeculativeCompletion
from vla_sd_ros.drafting.context import DraftContext, Drafter


class Threshold(Protocol):
    """A radius of acceptance that follows the episode."""

    @property
    def radius_bins(self) -> int:
        """The radius in force."""
        ...

    def update(self, deviations: Sequence[float]) -> None:
        """Takes the deviations of an action's accepted tokens, normalised."""
        ...

    def reset(self) -> None:
        """Begins an episode."""
        ...


@dataclass(frozen=True)
class StepParts:
    """One way of decoding an action.

    Attributes:
        config: what was asked for.
        drafters: most trusted first.
        jacobi: completion; None where it is speculative.
        speculative: makes the completion, whose rule may follow the threshold of the moment.
        skip: None: never.
        threshold: of the acceptance rule; None where it is fixed.
        tail: predicts the tail after the first error; None: never.
    """

    config: StepConfig
    drafters: tuple[Drafter, ...]
    jacobi: JacobiCompletion | None
    speculative: Callable[[], SpeculativeCompletion] | None
    skip: SkipPolicy | None
    threshold: Threshold | None
    tail: Callable[[DraftContext], Ids | None] | None


@dataclass(frozen=True)
class DecoderParts:
    """A whole decoder.

    Attributes:
        config: what was asked for.
        gate: None: every step is cautious.
        confident: None without a gate.
        cautious: every other step.
        search: in the demonstrations; None where they are not asked.
        neighbours: how many are asked for.
    """

    config: DecoderConfig
    gate: Gate | None
    confident: StepParts | None
    cautious: StepParts
    search: Search | None
    neighbours: int
