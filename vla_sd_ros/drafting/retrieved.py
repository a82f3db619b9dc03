"""Drafts what the nearest demonstrations did (HeiSD)."""

from __future__ import annotations

from itertools import product

import numpy as np

from vla_sd_ros.drafting.context import DraftContext
from vla_sd_ros.verification.draft_tree import DraftTree, chain, merge

SOURCE = "retrieval"
#: Where rotation begins: a position of one neighbour may be followed by the rotation of another, never half of it.
ROTATION = 3


class RetrievalDrafter:
    """One chain per neighbour, and, if wanted, one per pair of position and rotation.

    The gripper is the rotation's neighbour's: it is not combined.

    Args:
        cross_combine: whether positions and rotations are combined (HeiSD, section 3.3).
    """

    def __init__(self, cross_combine: bool = False) -> None:
        self._cross_combine = cross_combine

    def draft(self, context: DraftContext) -> DraftTree | None:
        """A tree of at most K chains, or K squared; None without neighbours."""
        found = [neighbour.tokens for neighbour in context.neighbours]
        trees = [chain(tokens, SOURCE) for tokens in found]
        if self._cross_combine:
            pairs = ((a, b) for a, b in product(found, found) if a is not b)
            trees += [chain(np.concatenate([a[:ROTATION], b[ROTATION:]]), SOURCE) for a, b in pairs]
        return merge(trees)
