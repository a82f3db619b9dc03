"""Growth of a draft tree by beam search: EAGLE-2's dynamic tree (Li et al. 2024), for any scorer of next tokens.

Every level extends the best nodes of the one before; all children are candidates, and the best of all levels stay. The
greedy chain, the most likely token after the most likely token, is always among both, which EAGLE-2 does not promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import Ids
from vla_sd_ros.verification.draft_tree import NO_PARENT, DraftTree

Scores = npt.NDArray[np.float64]
Children = tuple[Ids, Scores]
Extend = Callable[[Ids, npt.NDArray[np.int64]], Children]
"""(tokens [K] of the beam, row [K] of each one's parent in the beam before) -> likeliest tokens [K, C] and their log
probabilities [K, C], likeliest first. The beam before the first has one row."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """All nodes of a growth, parents before their children.

    Attributes:
        tokens: int64 [N].
        parents: int64 [N]; -1: first.
        scores: log probability of the path to each node, float64 [N]; never above its parent's.
        greedy: nodes of the greedy chain, from the first on.
    """

    tokens: Ids
    parents: npt.NDArray[np.int64]
    scores: Scores
    greedy: tuple[int, ...]


def grow(first: Children, extend: Extend, depth: int, beam_width: int) -> Candidates:
    """Grows a tree level by level.

    Args:
        first: likeliest tokens [C] and their log probabilities [C], likeliest first.
        extend: scores what follows the nodes of a beam; called once per level but the last.
        depth: levels, at least 1.
        beam_width: nodes that are extended per level.

    Raises:
        ValueError: where a log probability is not a number, or above 0 by more than rounding.
    """
    tokens: list[int] = []
    parents: list[int] = []
    scores: list[float] = []
    greedy: list[int] = []
    previous: list[int] = []
    beam = [NO_PARENT]
    children = first[0][None], first[1][None]
    for level in range(depth):
        if level:
            rows = np.array([previous.index(parents[node]) for node in beam], dtype=np.int64)
            children = extend(np.array([tokens[node] for node in beam], dtype=np.int64), rows)
        if not (children[1] <= 1e-4).all():
            raise ValueError("log probabilities must be numbers up to 0")
        above = np.array([scores[node] if node >= 0 else 0.0 for node in beam])
        reached = above[:, None] + np.minimum(children[1], 0.0)
        offset, width = len(tokens), reached.shape[1]
        tokens += children[0].reshape(-1).tolist()
        parents += np.repeat(beam, width).tolist()
        scores += reached.reshape(-1).tolist()
        greedy.append(offset)  # the greedy chain is the first row of every beam, its best child the first column
        best = np.argsort(-reached.reshape(-1), kind="stable")
        chosen = [0, *(int(child) for child in best if child)][:beam_width]
        previous, beam = beam, [offset + child for child in chosen]
    return Candidates(np.array(tokens, dtype=np.int64), np.array(parents), np.array(scores), tuple(greedy))


def rerank(candidates: Candidates, total: int) -> npt.NDArray[np.int64]:
    """The greedy chain and the most likely of the other nodes, ``total`` at most; with a node its parent.

    Returns:
        Indices in ascending order, int64 [min(N, total)].
    """
    chain = candidates.greedy[:total]
    taken = set(chain)
    # Stable, and parents come first: of equal scores the parent's stands before its child's.
    order = np.argsort(-candidates.scores, kind="stable")
    others = [int(node) for node in order if int(node) not in taken]
    return np.array(sorted([*chain, *others[: total - len(chain)]]), dtype=np.int64)


def build_tree(candidates: Candidates, total: int, source: str) -> DraftTree:
    """The draft tree of the nodes that :func:`rerank` keeps."""
    kept = rerank(candidates, total)
    renamed = np.full(len(candidates.tokens) + 1, NO_PARENT, dtype=np.int64)  # the last entry stands for NO_PARENT
    renamed[kept] = np.arange(len(kept))
    return DraftTree(candidates.tokens[kept], renamed[candidates.parents[kept]], (source,) * len(kept))
