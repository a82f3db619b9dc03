"""Drafts the last action again."""

from __future__ import annotations

from vla_sd_ros.drafting.context import DraftContext
from vla_sd_ros.verification.draft_tree import DraftTree, chain

SOURCE = "hold_last"


class HoldLastDrafter:
    """The last action's tokens; nothing before the first action."""

    def draft(self, context: DraftContext) -> DraftTree | None:
        """A chain of seven tokens."""
        last = context.history.last()
        return None if last is None else chain(last, SOURCE)
