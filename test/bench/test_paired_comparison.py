"""Paired differences of success, and ratios of time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.bench.paired import newcombe_interval, paired_difference, ratio_of_means

outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


def test_the_interval_agrees_with_a_large_published_sample() -> None:
    # Agresti, Categorical Data Analysis: approval in two surveys of 1600 people; Wald's interval 0.021 to 0.059.
    low, high = newcombe_interval(both=794, only_ours=150, only_theirs=86, neither=570)
    assert (low, high) == pytest.approx((0.021, 0.059), abs=2e-3)


def test_the_same_outcomes_differ_by_nothing_and_narrowly_so() -> None:
    same = [True] * 135 + [False] * 15
    found = paired_difference(same, same)
    assert (found.difference, found.p_value, found.pairs) == (0.0, 1.0, 150)
    assert -0.03 < found.low < 0.0 < found.high < 0.03


def test_one_sided_losses_are_significant() -> None:
    found = paired_difference([True] * 140 + [False] * 10, [True] * 150)
    assert found.difference == pytest.approx(-10 / 150)
    assert found.high < 0.0
    assert found.p_value == pytest.approx(2 * 0.5**10)


@given(outcomes)
def test_the_interval_holds_the_difference_and_turns_round_with_it(pairs: list[tuple[bool, bool]]) -> None:
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = paired_difference(ours, theirs), paired_difference(theirs, ours)
    assert -1.0 <= one.low <= one.difference + 1e-12
    assert one.difference - 1e-12 <= one.high <= 1.0
    assert (other.difference, other.low, other.high) == pytest.approx((-one.difference, -one.high, -one.low))
    assert 0.0 < one.p_value == pytest.approx(other.p_value)


def test_unpaired_outcomes_are_refused() -> None:
    with pytest.raises(ValueError, match="the same number"):
        paired_difference([True], [])


def test_a_ratio_of_means_weighs_every_step_the_same() -> None:
    ratio, low, high = ratio_of_means([(100.0, 10), (900.0, 10)], [(10.0, 10), (20.0, 1)])
    assert ratio == pytest.approx(50.0 / (30.0 / 11))
    assert low <= ratio <= high


@given(st.floats(0.1, 10.0), st.lists(st.tuples(st.floats(1.0, 1e4), st.integers(1, 300)), min_size=1, max_size=20))
def test_a_constant_ratio_has_no_width(factor: float, sums: list[tuple[float, int]]) -> None:
    slower = [(total * factor, steps) for total, steps in sums]
    assert ratio_of_means(slower, sums) == pytest.approx((factor, factor, factor))
