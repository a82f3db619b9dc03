"""Draft trees: several guesses of the coming action tokens that share their beginnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_DOF, Ids

NO_PARENT = -1


@dataclass(frozen=True, eq=False)
class DraftTree:
    """Guessed tokens, each after the one that it follows.

    A node's depth counts from 0, so in a tree that follows the prompt it is the degree of freedom that it guesses.

    Attributes:
        tokens: action token ids, int64 [N].
        parents: index of the node before each, int64 [N], smaller than the node's own; -1: it is first.
        sources: name of the drafter of each node, N of them.

    Raises:
        ValueError: where the arrays do not describe a tree, or it is deeper than an action.
    """

    tokens: Ids
    parents: npt.NDArray[np.int64]
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        count = len(self.tokens)
        for name, array in (("tokens", self.tokens), ("parents", self.parents)):
            if array.shape != (count,) or array.dtype != np.int64:
                raise ValueError(f"{name}: {array.dtype} {array.shape}; legal: int64 ({count},)")
        if len(self.sources) != count:
            raise ValueError(f"sources: {len(self.sources)} names for {count} nodes")
        if count and ((self.parents < NO_PARENT) | (self.parents >= np.arange(count))).any():
            raise ValueError(f"parents must come before their children: {self.parents.tolist()}")
        depths = np.zeros(count, dtype=np.int64)
        for node, parent in enumerate(self.parents.tolist()):
            depths[node] = depths[parent] + 1 if parent >= 0 else 0
        if count and depths.max() >= N_DOF:
            raise ValueError(f"draft of depth {depths.max() + 1}; legal: up to {N_DOF}")
        object.__setattr__(self, "_depths", depths)

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.tokens)

    @property
    def depths(self) -> npt.NDArray[np.int64]:
        """Depth of each node, int64 [N]."""
        depths: npt.NDArray[np.int64] = self.__dict__["_depths"]
        return depths

    def path(self, node: int) -> list[int]:
        """Nodes from the first to this one."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def children(self, node: int) -> list[int]:
        """Nodes that follow this one; those that are first for -1."""
        return [int(child) for child in np.flatnonzero(self.parents == node)]

    def leaves(self) -> list[int]:
        """Nodes that none follows."""
        return sorted(set(range(len(self))) - set(self.parents.tolist()))

    def ancestors(self) -> npt.NDArray[np.bool_]:
        """Which nodes each node follows, itself included: bool [N, N]."""
        mask = np.eye(len(self), dtype=np.bool_)
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                mask[node] |= mask[parent]
        return mask


def chain(tokens: npt.ArrayLike, source: str) -> DraftTree:
    """One guess, int64 [n], without alternatives."""
    ids = np.asarray(tokens, dtype=np.int64)
    return DraftTree(ids, np.arange(len(ids), dtype=np.int64) - 1, (source,) * len(ids))


def merge(trees: Iterable[DraftTree | None], max_nodes: int | None = None) -> DraftTree | None:
    """One tree of several; equal beginnings become one, and the first to guess a token is its source.

    Args:
        trees: most trusted first; None where a drafter had nothing to say.
        max_nodes: later nodes are left out, and with them what follows them.

    Returns:
        None where no tree had a node.
    """
    tokens: list[int] = []
    parents: list[int] = []
    sources: list[str] = []
    known: dict[tuple[int, int], int] = {}
    for tree in trees:
        if tree is None:
            continue
        renamed: list[int | None] = []
        for token, parent, source in zip(tree.tokens.tolist(), tree.parents.tolist(), tree.sources, strict=True):
            above = NO_PARENT if parent < 0 else renamed[parent]
            if above is None:
                renamed.append(None)
                continue
            node = known.get((above, token))
            if node is None and (max_nodes is None or len(tokens) < max_nodes):
                node = known[above, token] = len(tokens)
                tokens.append(token)
                parents.append(above)
                sources.append(source)
            renamed.append(node)
    if not tokens:
        return None
    return DraftTree(np.array(tokens, dtype=np.int64), np.array(parents, dtype=np.int64), tuple(sources))


def truncate(tree: DraftTree, depth: int) -> DraftTree | None:
    """The nodes of less than a depth; None where there are none."""
    kept = np.flatnonzero(tree.depths < depth)
    if not len(kept):
        return None
    renamed = np.full(len(tree) + 1, NO_PARENT, dtype=np.int64)  # the last entry stands for NO_PARENT
    renamed[kept] = np.arange(len(kept))
    sources: Sequence[str] = [tree.sources[node] for node in kept]
    return DraftTree(tree.tokens[kept], renamed[tree.parents[kept]], tuple(sources))
