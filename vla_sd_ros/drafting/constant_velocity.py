"""Drafts the last action, changed once more as it changed last."""

from __future__ import annotations

import numpy as np

from vla_sd_ros.actions.bins import N_BINS
from vla_sd_ros.drafting.context import DraftContext
from vla_sd_ros.verification.draft_tree import DraftTree, chain

SOURCE = "constant_velocity"


class ConstantVelocityDrafter:
    """Twice the last bins minus those before; the gripper's token is held. Nothing before the second action."""

    def draft(self, context: DraftContext) -> DraftTree | None:
        """A chain of seven tokens."""
        tokens = context.history.tokens()
        if len(tokens) < 2:
            return None
        before, last = context.bins.bin_of(tokens[-2:])
        ahead = np.clip(2 * last - before, 0, N_BINS - 2)
        drafted = context.bins.vocab_size - 1 - ahead
        drafted[-1] = tokens[-1, -1]
        return chain(drafted, SOURCE)
