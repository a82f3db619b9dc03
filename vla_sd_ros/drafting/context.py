"""What a drafter is given, and what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vla_sd_ros.actions.bins import ActionBins
from vla_sd_ros.drafting.history import ActionHistory
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.types import KinematicState
from vla_sd_ros.verification.draft_tree import DraftTree


@dataclass(frozen=True)
class DraftContext:
    """All that is known before the language model runs.

    Attributes:
        bins: tokens to values.
        history: the actions of this episode.
        state: where the arm is; None where it is not known.
        neighbours: what the demonstrations say, most similar first; empty where they were not asked.
    """

    bins: ActionBins
    history: ActionHistory
    state: KinematicState | None = None
    neighbours: Sequence[Neighbour] = ()


class Drafter(Protocol):
    """Guesses all seven tokens of the coming action before the language model runs."""

    def draft(self, context: DraftContext) -> DraftTree | None:
        """A tree of guesses that follow the prompt, or None where there is nothing to guess from."""
        ...
