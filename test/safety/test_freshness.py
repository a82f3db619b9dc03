from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.safety.freshness import NS_PER_S, FreshnessLimits, StampGuard, StampVerdict

NOW = 1_700_000_000 * NS_PER_S
LIMITS = FreshnessLimits(max_age_s=0.2, max_future_s=0.1, jump_back_s=1.0)
ages_ms = st.integers(-5000, 5000)


def ms(value: float) -> int:
    return int(value * 1e6)


@given(ages_ms)
def test_a_first_stamp_is_fresh_just_within_the_limits_of_both_directions(age_ms: int) -> None:
    verdict = StampGuard(LIMITS).judge(NOW - ms(age_ms), NOW)
    expected = StampVerdict.STALE if age_ms > 200 else StampVerdict.FUTURE if age_ms < -100 else StampVerdict.FRESH
    assert verdict is expected


@pytest.mark.parametrize("now_ns", [0, -1])
def test_nothing_is_fresh_before_the_clock_has_started(now_ns: int) -> None:
    assert StampGuard(LIMITS).judge(ms(50), now_ns) is StampVerdict.NO_CLOCK


def test_a_message_without_a_stamp_is_refused_even_at_the_start_of_simulated_time() -> None:
    assert StampGuard(LIMITS).judge(0, ms(50)) is StampVerdict.UNSTAMPED
    assert StampGuard(LIMITS).judge(0, NOW) is StampVerdict.UNSTAMPED


def test_simulated_time_may_begin_small() -> None:
    assert StampGuard(LIMITS).judge(1, 1) is StampVerdict.FRESH


@pytest.mark.parametrize("other_clock_s", [-3600.0, 3600.0, -1.6e9, 1.7e9])
def test_stamps_of_another_clock_are_refused(other_clock_s: float) -> None:
    verdict = StampGuard(LIMITS).judge(NOW + int(other_clock_s * NS_PER_S), NOW)
    assert verdict in (StampVerdict.STALE, StampVerdict.FUTURE)


def test_an_equal_or_slightly_earlier_stamp_is_out_of_order() -> None:
    guard = StampGuard(LIMITS)
    assert guard.judge(NOW, NOW) is StampVerdict.FRESH
    assert guard.judge(NOW, NOW) is StampVerdict.OUT_OF_ORDER
    assert guard.judge(NOW - ms(100), NOW) is StampVerdict.OUT_OF_ORDER
    assert guard.judge(NOW + ms(1), NOW) is StampVerdict.FRESH


def test_a_looped_bag_is_a_time_jump_and_the_stream_goes_on_from_there() -> None:
    guard = StampGuard(LIMITS)
    for second in (10, 11, 12):
        assert guard.judge(second * NS_PER_S, second * NS_PER_S) is StampVerdict.FRESH
    assert guard.judge(2 * NS_PER_S, 2 * NS_PER_S) is StampVerdict.TIME_JUMP
    assert guard.judge(2 * NS_PER_S + ms(50), 2 * NS_PER_S + ms(50)) is StampVerdict.FRESH
    assert guard.time_jumps == 1


def test_a_stamp_from_before_the_jump_is_refused_after_it() -> None:
    guard = StampGuard(LIMITS)
    guard.judge(100 * NS_PER_S, 100 * NS_PER_S)
    guard.judge(2 * NS_PER_S, 2 * NS_PER_S)
    assert guard.judge(100 * NS_PER_S + 1, 2 * NS_PER_S + ms(50)) is StampVerdict.FUTURE


def test_a_refused_stamp_is_not_remembered() -> None:
    guard = StampGuard(LIMITS)
    assert guard.judge(NOW + 10 * NS_PER_S, NOW) is StampVerdict.FUTURE
    assert guard.judge(NOW, NOW) is StampVerdict.FRESH


def test_after_a_reset_the_same_stamp_is_fresh_again() -> None:
    guard = StampGuard(LIMITS)
    guard.judge(NOW, NOW)
    guard.reset()
    assert guard.judge(NOW, NOW) is StampVerdict.FRESH


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(-500, 500)), max_size=40))
def test_accepted_stamps_only_go_back_where_a_time_jump_was_counted(steps: list[tuple[int, int]]) -> None:
    guard, last_ns, jumps = StampGuard(LIMITS), None, 0
    for now_ms, offset_ms in steps:
        stamp_ns = ms(now_ms + offset_ms)
        verdict = guard.judge(stamp_ns, ms(now_ms))
        if verdict is StampVerdict.TIME_JUMP:
            jumps += 1
            assert last_ns is not None and last_ns - stamp_ns > NS_PER_S
        elif verdict is StampVerdict.FRESH:
            assert last_ns is None or stamp_ns > last_ns
        else:
            continue
        last_ns = stamp_ns
    assert guard.time_jumps == jumps
