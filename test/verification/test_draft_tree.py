from __future__ import annotations

import numpy as np
import pytest
from draft_trees import draft_trees
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.verification.draft_tree import DraftTree, chain, merge, truncate


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(int(tree.tokens[node]) for node in tree.path(leaf)) for leaf in range(len(tree))}


@given(draft_trees(100))
def test_a_node_sees_itself_and_its_ancestors_and_no_other(tree: DraftTree) -> None:
    mask = tree.ancestors()
    for node in range(len(tree)):
        assert set(np.flatnonzero(mask[node])) == set(tree.path(node))
        assert tree.depths[node] == len(tree.path(node)) - 1


@given(st.lists(draft_trees(100), min_size=1, max_size=4))
def test_a_merged_tree_holds_every_path_of_its_parts_once(trees: list[DraftTree]) -> None:
    merged = merge([*trees, None])
    assert merged is not None
    assert paths(merged) == set().union(*map(paths, trees))
    assert len(paths(merged)) == len(merged)


@given(draft_trees(100), st.integers(1, 6))
def test_truncating_keeps_what_is_shallow_enough(tree: DraftTree, depth: int) -> None:
    kept = truncate(tree, depth)
    expected = {path for path in paths(tree) if len(path) <= depth}
    assert (paths(kept) if kept is not None else set()) == expected


@given(draft_trees(100), st.integers(1, 20))
def test_a_budget_of_nodes_never_leaves_a_node_without_its_parent(tree: DraftTree, budget: int) -> None:
    small = merge([tree], budget)
    assert small is not None
    assert len(small) <= budget
    assert paths(small) <= paths(tree)


def test_the_first_to_guess_a_token_is_its_source() -> None:
    merged = merge([chain([1, 2], "first"), chain([1, 3], "second")])
    assert merged is not None
    assert merged.sources == ("first", "first", "second")


def test_nothing_to_guess_makes_no_tree() -> None:
    assert merge([None, None]) is None


@pytest.mark.parametrize(
    ("tokens", "parents", "complaint"),
    [
        ([1, 2], [0, -1], "parents must come before"),
        ([1], [-2], "parents must come before"),
        ([1] * 8, list(range(-1, 7)), "depth 8"),
    ],
)
def test_what_is_no_tree_is_refused(tokens: list[int], parents: list[int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        DraftTree(np.array(tokens), np.array(parents), ("test",) * len(tokens))
