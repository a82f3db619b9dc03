"""Which sizes a forward is padded to: few enough to capture them all before the arm moves.

A pass over a few tokens takes as long as reading the weights, however few they are; a prefill, some hundred positions
long, pays for every padded one, and comes in finer steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Queries of a short pass: one decoded token, a chain, a tree.
SHORT: Final = (1, 8, 16, 32, 64)
#: Longer passes are multiples of this.
STEP: Final = 16


@dataclass(frozen=True, order=True)
class Bucket:
    """Shape of one graph.

    Attributes:
        rows: queries.
        outputs: last queries whose states are computed; all of them in a short pass.
    """

    rows: int
    outputs: int


def padded(rows: int) -> int:
    """The least size of a bucket that holds so many rows."""
    return next((size for size in SHORT if rows <= size), -(-rows // STEP) * STEP)


def bucket_for(rows: int, outputs: int) -> Bucket:
    """The bucket of a forward of ``rows`` queries, the last ``outputs`` of which are wanted."""
    size = padded(rows)
    return Bucket(size, size if size <= SHORT[-1] else min(size, padded(outputs)))


def buckets_of_an_action(shortest_prefix: int, longest_prefix: int, nodes: int) -> list[Bucket]:
    """Every bucket that decoding an action can ask for, largest first.

    Args:
        shortest_prefix: positions of image and prompt.
        longest_prefix: the same; the cache need not hold more than it and the nodes.
        nodes: tokens of the largest draft; the draft is verified in the prefill, or below one token after it.
    """
    sizes = range(nodes + 1)
    prefills = {
        bucket_for(prefix + draft, draft + 1)
        for prefix in range(shortest_prefix, longest_prefix + 1)
        for draft in sizes
    }
    after = {bucket_for(1 + draft, 1 + draft) for draft in sizes}
    return sorted(prefills | after, reverse=True)
