"""Random draft trees for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from vla_sd_ros.verification.draft_tree import DraftTree


@st.composite
def draft_trees(draw: st.DrawFn, first_id: int, max_nodes: int = 16, max_depth: int = 6) -> DraftTree:
    """Trees of action ids from ``first_id`` on; siblings differ."""
    count = draw(st.integers(1, max_nodes))
    parents: list[int] = []
    tokens: list[int] = []
    depths: list[int] = []
    used: set[tuple[int, int]] = set()
    for _ in range(count):
        above = [node for node in range(len(tokens)) if depths[node] < max_depth - 1]
        parent = draw(st.sampled_from([-1, *above]))
        token = first_id + draw(st.integers(0, 255))
        if (parent, token) in used:
            continue
        used.add((parent, token))
        parents.append(parent)
        tokens.append(token)
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return DraftTree(np.array(tokens, dtype=np.int64), np.array(parents, dtype=np.int64), ("test",) * len(tokens))
