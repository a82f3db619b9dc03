from __future__ import annotations

import numpy as np
import pytest
from draft_trees import draft_trees
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.actions.bins import ActionBins
from vla_sd_ros.actions.statistics import ActionStatistics
from vla_sd_ros.verification.acceptance import (
    GRIPPER,
    AcceptanceRule,
    Physical,
    SequenceWise,
    Strict,
    TokenRadius,
    bin_size_si,
    deviation_in_bins,
)
from vla_sd_ros.verification.draft_tree import DraftTree, chain, merge

BINS = ActionBins(400)
FIRST = BINS.first_id
MIDDLE = FIRST + 128
STATISTICS = ActionStatistics(
    q01=np.array([-0.05] * 3 + [-0.2] * 3 + [0.0]),
    q99=np.array([0.05] * 3 + [0.2] * 3 + [1.0]),
    mask=np.array([True] * 6 + [False]),
)
OPEN, CLOSED = (int(BINS.ids_from_normalised(value)) for value in (1.0, 0.0))
RULES: list[AcceptanceRule] = [
    Strict(),
    TokenRadius(9, BINS),
    SequenceWise(30, 15, BINS),
    Physical(0.005, 0.03, BINS, STATISTICS),
]


def action(*offsets: int, gripper: int = OPEN) -> np.ndarray:
    """Six tokens some ids away from the middle, and a gripper."""
    return np.array([MIDDLE + offset for offset in offsets] + [gripper], dtype=np.int64)


TARGET = action(0, 0, 0, 0, 0, 0)


def accepted(rule: AcceptanceRule, draft: np.ndarray, target: np.ndarray = TARGET) -> int:
    return len(rule.judge(chain(draft, "test"), target).path)


@given(st.data())
def test_every_rule_accepts_a_path_from_the_first_node_and_tells_its_deviation(data: st.DataObject) -> None:
    tree: DraftTree = data.draw(draft_trees(FIRST))
    targets = FIRST + np.array(data.draw(st.lists(st.integers(0, 255), min_size=len(tree), max_size=len(tree))))
    for rule in RULES:
        verdict = rule.judge(tree, targets)
        if verdict.path:
            assert tree.path(verdict.path[-1]) == list(verdict.path)
        expected = deviation_in_bins(tree.tokens, targets, BINS)[list(verdict.path)] if verdict.path else []
        assert list(verdict.deviation_bins) == list(expected)


@given(st.data())
def test_the_strict_rule_accepts_what_all_others_accept_too(data: st.DataObject) -> None:
    tree: DraftTree = data.draw(draft_trees(FIRST))
    choices = st.sampled_from([0, 0, 0, 1, -1, 40])
    noise = np.array(data.draw(st.lists(choices, min_size=len(tree), max_size=len(tree))))
    targets = np.clip(tree.tokens + noise, FIRST, FIRST + 255)
    exact = len(Strict().judge(tree, targets).path)
    for rule in RULES[1:]:
        assert len(rule.judge(tree, targets).path) >= exact


@given(st.data(), st.integers(0, 40))
def test_no_accepted_token_is_farther_than_the_radius(data: st.DataObject, radius: int) -> None:
    tree: DraftTree = data.draw(draft_trees(FIRST))
    targets = np.clip(tree.tokens + data.draw(st.integers(-60, 60)), FIRST, FIRST + 255)
    verdict = TokenRadius(radius, BINS).judge(tree, targets)
    assert all(abs(deviation) <= radius for deviation in verdict.deviation_bins)


def test_the_sequence_rule_bounds_the_sum_of_a_group_not_its_mean() -> None:
    rule = SequenceWise(30, 15, BINS)
    assert accepted(rule, action(15, 15, 0, 0, 0, 0)) == 7
    assert accepted(rule, action(15, 15, 1, 0, 0, 0)) == 0
    assert accepted(rule, action(16, 0, 0, 0, 0, 0)) == 0


def test_a_rejected_group_keeps_its_strictly_equal_beginning() -> None:
    rule = SequenceWise(30, 15, BINS)
    assert accepted(rule, action(0, 0, 16, 0, 0, 0)) == 2
    assert accepted(rule, action(5, 0, 0, 0, 40, 0)) == 4


def test_a_single_token_may_be_farther_off_than_a_token_wise_radius_allows() -> None:
    assert accepted(SequenceWise(30, 15, BINS), action(14, 0, 0, 0, 0, 0)) == 7
    assert accepted(TokenRadius(9, BINS), action(14, 0, 0, 0, 0, 0)) == 0


@pytest.mark.parametrize("rule", RULES)
def test_the_gripper_is_accepted_by_its_class_and_by_nothing_else(rule: AcceptanceRule) -> None:
    assert accepted(rule, action(0, 0, 0, 0, 0, 0, gripper=CLOSED)) == GRIPPER
    near_the_border = [int(BINS.ids_from_normalised(value)) for value in (0.49, 0.51)]
    draft, target = action(0, 0, 0, 0, 0, 0, gripper=near_the_border[0]), TARGET.copy()
    target[GRIPPER] = near_the_border[1]
    assert accepted(rule, draft, target) == GRIPPER, "three bins apart, and yet another class"


def test_among_equally_long_chains_the_closest_wins() -> None:
    far, near = action(9, 9, 9, 9, 9, 9), action(1, 1, 1, 1, 1, 1)
    tree = merge([chain(far, "far"), chain(near, "near")])
    assert tree is not None
    targets = np.array([MIDDLE if depth < GRIPPER else OPEN for depth in tree.depths])
    for rule in RULES[1:]:
        path = rule.judge(tree, targets).path
        assert {tree.sources[node] for node in path} == {"near"}


def test_physical_bounds_are_metres_and_radians_of_each_degree_of_freedom() -> None:
    rule = Physical(0.005, 0.03, BINS, STATISTICS)
    metre_bins, radian_bins = 0.1 / 255, 0.4 / 255
    assert accepted(rule, action(int(0.005 / metre_bins), 0, 0, 0, 0, 0)) == 7
    assert accepted(rule, action(int(0.005 / metre_bins) + 1, 0, 0, 0, 0, 0)) == 0
    assert accepted(rule, action(0, 0, 0, int(0.03 / radian_bins), 0, 0)) == 7
    assert accepted(rule, action(0, 0, 0, int(0.03 / radian_bins) + 1, 0, 0)) == 3


def test_a_tree_may_begin_in_the_middle_of_an_action() -> None:
    rule = SequenceWise(30, 15, BINS)
    rest = chain(action(0, 0, 14, 14, 2, 0)[2:6], "test")
    assert len(rule.judge(rest, TARGET[2:6], first_dof=2).path) == 4
    assert len(rule.judge(chain(action(0, 0, 14, 14, 14, 14)[2:6], "test"), TARGET[2:6], first_dof=2).path) == 1


def test_a_greater_value_has_a_positive_deviation_though_its_id_is_smaller() -> None:
    assert deviation_in_bins(np.array([MIDDLE - 3]), np.array([MIDDLE]), BINS)[0] == 3


def test_a_bin_of_the_gripper_is_worth_nothing_in_metres() -> None:
    np.testing.assert_allclose(bin_size_si(STATISTICS), [0.1 / 255] * 3 + [0.4 / 255] * 3 + [0.0])


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: TokenRadius(-1, BINS), "radius_bins"),
        (lambda: SequenceWise(-1, 15, BINS), "max_sum_bins"),
        (lambda: SequenceWise(30, -1, BINS), "max_each_bins"),
        (lambda: Physical(float("nan"), 0.1, BINS, STATISTICS), "position_m"),
        (lambda: Physical(0.1, -0.1, BINS, STATISTICS), "rotation_rad"),
    ],
)
def test_bounds_out_of_range_are_refused_by_name(make: object, key: str) -> None:
    with pytest.raises(ValueError, match=key):
        make()  # type: ignore[operator]
