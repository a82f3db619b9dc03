from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.safety.command_gate import ArmCommand, CommandGate, Rejection
from vla_sd_ros.safety.freshness import NS_PER_S
from vla_sd_ros.safety.limits import CommandLimits
from vla_sd_ros.types import KinematicState

START = 1_000 * NS_PER_S
PERIOD_S = 0.05
LIMITS = CommandLimits(
    max_linear_speed=1.0, max_angular_speed=2.0, workspace_min_m=(0.2, -0.4, 0.0), workspace_max_m=(0.8, 0.4, 0.6)
)
STOPPED_S = LIMITS.action_hold_s + LIMITS.stop_time_s
FORWARD = [0.01, 0.0, 0.0, 0.0, 0.0, 0.05, 1.0]


def after(seconds: float) -> int:
    return START + round(seconds * NS_PER_S)


def state(stamp_ns: int, position: tuple[float, ...] = (0.5, 0.0, 0.3)) -> KinematicState:
    level = np.array([0.0, 0.0, 0.0, 1.0])
    return KinematicState(stamp_ns, np.asarray(position), level, np.zeros(3), np.zeros(3), 1.0)


def ready_gate(position: tuple[float, ...] = (0.5, 0.0, 0.3), limits: CommandLimits = LIMITS) -> CommandGate:
    gate = CommandGate(limits)
    gate.observe(state(START, position))
    return gate


def speed(command: ArmCommand) -> float:
    return float(np.linalg.norm(command.linear))


def why_not(gate: CommandGate, values: Any, period_s: float = PERIOD_S, stamp_ns: int = START) -> str:
    judged = gate.submit(values, period_s, stamp_ns, START)
    assert isinstance(judged, Rejection)
    assert gate.command_at(START).at_rest
    return judged.reason


def test_an_action_becomes_the_twist_that_makes_its_displacement_in_its_period() -> None:
    gate = ready_gate()
    judged = gate.submit([0.01, -0.02, 0.005, 0.0, 0.05, -0.025, 0.0], PERIOD_S, START, START)
    assert isinstance(judged, ArmCommand)
    assert judged.linear == pytest.approx([0.2, -0.4, 0.1])
    assert judged.angular == pytest.approx([0.0, 1.0, -0.5])
    assert judged.gripper_opening == 0.0
    sent = gate.command_at(START)
    assert sent.linear.tolist() == judged.linear.tolist() and sent.gripper_opening is None


@pytest.mark.parametrize("index", range(7))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_not_finite_rejects_the_whole_action(index: int, value: float) -> None:
    values = list(FORWARD)
    values[index] = value
    assert "not finite" in why_not(ready_gate(), values)


@pytest.mark.parametrize("values", [FORWARD[:6], [*FORWARD, 0.0], [], 0.0, [FORWARD], [[0.0]] * 7])
def test_an_action_of_a_wrong_length_is_rejected(values: Any) -> None:
    assert "shape" in why_not(ready_gate(), values)


@pytest.mark.parametrize("values", [["a"] * 7, None, [[0.0], 0.0]])
def test_an_action_that_is_no_array_of_numbers_is_rejected(values: Any) -> None:
    assert why_not(ready_gate(), values)


@pytest.mark.parametrize("period_s", [0.0, -0.05, float("nan"), float("inf")])
def test_an_impossible_period_is_rejected(period_s: float) -> None:
    assert "control period" in why_not(ready_gate(), FORWARD, period_s)


@pytest.mark.parametrize("gripper", [-1.0, -0.01, 1.01, 255.0])
def test_a_gripper_value_of_another_convention_is_rejected(gripper: float) -> None:
    assert "gripper" in why_not(ready_gate(), [*FORWARD[:6], gripper])


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([0.051, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], "linear"),
        ([0.03, 0.03, 0.03, 0.0, 0.0, 0.0, 1.0], "linear"),
        ([0.0, 0.0, 0.0, 0.0, -0.101, 0.0, 1.0], "angular"),
        ([1e300, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], "linear"),
        # Normalised values that nobody un-normalised.
        ([0.9, -0.4, 0.2, 0.0, 0.1, 0.3, 1.0], "linear"),
    ],
)
def test_too_fast_an_action_is_rejected_and_never_scaled(values: list[float], name: str) -> None:
    assert f"{name} speed" in why_not(ready_gate(), values)


def test_the_same_displacement_in_a_shorter_period_is_too_fast() -> None:
    assert isinstance(ready_gate().submit(FORWARD, PERIOD_S, START, START), ArmCommand)
    assert "linear speed" in why_not(ready_gate(), FORWARD, period_s=0.005)


def test_a_speed_at_exactly_the_limit_passes() -> None:
    judged = ready_gate().submit([0.05, 0.0, 0.0, 0.0, 0.0, 0.1, 1.0], PERIOD_S, START, START)
    assert isinstance(judged, ArmCommand)


@pytest.mark.parametrize(
    ("stamp_s", "reason"),
    [(-0.351, "older"), (0.101, "future"), (-1000.0, "zero"), (-900.0, "older"), (3600, "future")],
)
def test_an_action_of_another_time_is_rejected(stamp_s: float, reason: str) -> None:
    assert reason in why_not(ready_gate(), FORWARD, stamp_ns=after(stamp_s))


@pytest.mark.parametrize("stamp_s", [-0.349, 0.0, 0.099])
def test_an_action_within_the_age_limits_passes(stamp_s: float) -> None:
    assert isinstance(ready_gate().submit(FORWARD, PERIOD_S, after(stamp_s), START), ArmCommand)


def test_an_action_is_not_taken_twice_nor_out_of_order() -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    for stamp_ns in (START, START - 1):
        judged = gate.submit(FORWARD, PERIOD_S, stamp_ns, after(0.01))
        assert isinstance(judged, Rejection) and "not newer" in judged.reason


def test_without_a_kinematic_state_nothing_moves() -> None:
    assert "no kinematic state" in why_not(CommandGate(LIMITS), FORWARD)


@pytest.mark.parametrize("stamp_s", [-0.151, 0.101, -1000.0, 1e6])
def test_a_state_of_another_time_lets_nothing_move(stamp_s: float) -> None:
    gate = CommandGate(LIMITS)
    gate.observe(state(after(stamp_s)))
    assert "kinematic state" in why_not(gate, FORWARD)


def test_a_state_that_is_not_finite_lets_nothing_move() -> None:
    assert "not finite" in why_not(ready_gate(position=(0.5, float("nan"), 0.3)), FORWARD)


def test_before_the_clock_has_started_nothing_moves() -> None:
    gate = CommandGate(LIMITS)
    gate.observe(state(0))
    judged = gate.submit(FORWARD, PERIOD_S, 0, 0)
    assert isinstance(judged, Rejection) and "clock" in judged.reason


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_an_action_that_would_leave_the_workspace_is_rejected(axis: int, side: float) -> None:
    position = [0.5, 0.0, 0.3]
    position[axis] = (LIMITS.upper if side > 0 else LIMITS.lower)[axis] - side * 0.005
    values = [0.0] * 7
    values[axis] = side * 0.01
    assert "leave the workspace" in why_not(ready_gate(tuple(position)), values)
    values[axis] = -side * 0.01
    assert isinstance(ready_gate(tuple(position)).submit(values, PERIOD_S, START, START), ArmCommand)


@pytest.mark.parametrize(
    ("step", "accepted"),
    [
        ([-0.01, 0.0, 0.0], True),
        ([-0.01, 0.01, 0.0], True),
        ([0.01, 0.0, 0.0], False),
        ([0.0, 0.01, 0.0], False),
        ([0.0, 0.0, 0.0], False),
    ],
)
def test_from_outside_the_workspace_only_the_way_back_is_open(step: list[float], accepted: bool) -> None:
    judged = ready_gate((0.85, 0.0, 0.3)).submit([*step, 0.0, 0.0, 0.0, 1.0], PERIOD_S, START, START)
    assert isinstance(judged, ArmCommand) == accepted


def test_the_way_back_goes_on_until_the_arm_is_inside() -> None:
    gate = ready_gate((0.85, 0.0, 0.3))
    gate.submit([-0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], PERIOD_S, START, START)
    gate.observe(state(after(0.05), (0.83, 0.0, 0.3)))
    assert gate.command_at(after(0.05)).linear == pytest.approx([-0.4, 0.0, 0.0])


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.1))
def test_an_accepted_motion_never_carries_the_arm_out_of_the_workspace(speed_m_s: float, gap_m: float) -> None:
    gate = ready_gate()
    x, tick_s = LIMITS.upper[0] - gap_m, 0.01
    gate.observe(state(START, (x, 0.0, 0.3)))
    gate.submit([speed_m_s * PERIOD_S, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], PERIOD_S, START, START)
    for tick in range(40):
        now = after(tick * tick_s)
        gate.observe(state(now, (x, 0.0, 0.3)))
        x += gate.command_at(now).linear[0] * tick_s
    assert x <= LIMITS.upper[0] + 2 * tick_s * speed_m_s


def test_an_accepted_action_moves_for_its_hold_and_then_decays_to_rest() -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    times = np.arange(0.0, 0.4, 0.005)
    speeds = []
    for seconds in times:
        gate.observe(state(after(seconds)))
        speeds.append(speed(gate.command_at(after(seconds))))
    speeds = np.asarray(speeds)
    assert speeds[times <= LIMITS.action_hold_s] == pytest.approx(0.2)
    assert (np.diff(speeds) <= 1e-12).all()
    assert (np.diff(speeds)[speeds[:-1] > 0.0] >= -0.2 * 0.005 / LIMITS.stop_time_s - 1e-9).all(), "a jump to rest"
    assert not speeds[times >= STOPPED_S].any()


def test_a_rejected_action_does_not_prolong_the_motion() -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    for tick in range(1, 60):
        now = after(tick * 0.005)
        gate.observe(state(now))
        gate.submit([float("nan")] * 7, PERIOD_S, now, now)
        command = gate.command_at(now)
    assert command.at_rest


def test_a_state_that_stops_coming_stops_the_arm_though_actions_go_on() -> None:
    gate = ready_gate()
    for tick in range(0, 60):
        now = after(tick * 0.01)
        gate.submit(FORWARD, PERIOD_S, now, now)
        command = gate.command_at(now)
    assert command.at_rest


def test_once_begun_a_stop_is_not_taken_back_by_a_new_state() -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    gate.stop(after(0.01))
    gate.observe(state(after(0.05)))
    slower = speed(gate.command_at(after(0.05)))
    assert 0.0 < slower < 0.2
    assert speed(gate.command_at(after(0.06))) < slower


def test_a_stop_decays_monotonically_and_is_over_in_time() -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    gate.stop(after(0.02))
    speeds = [speed(gate.command_at(after(0.02 + 0.01 * tick))) for tick in range(16)]
    assert speeds == sorted(speeds, reverse=True) and speeds[0] == pytest.approx(0.2) and speeds[-1] == 0.0


@pytest.mark.parametrize("elapsed_s", [0.05, 0.15, 0.2])
@pytest.mark.parametrize("jump_s", [0.021, 0.15, 2.0, 900.0])
def test_a_clock_that_jumps_back_stops_the_arm_at_once(elapsed_s: float, jump_s: float) -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    gate.observe(state(after(elapsed_s)))
    assert not gate.command_at(after(elapsed_s)).at_rest
    for later_s in (0.0, 0.05, elapsed_s):
        now = after(elapsed_s - jump_s + later_s)
        gate.observe(state(now))
        assert gate.command_at(now).at_rest


def test_a_clock_that_is_set_back_a_little_does_not_speed_the_arm_up() -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    gate.observe(state(after(0.15)))
    slower = speed(gate.command_at(after(0.2)))
    assert speed(gate.command_at(after(0.185))) <= slower


def test_an_action_after_a_looped_bag_is_refused_once_and_then_taken() -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    begin = after(-900.0)
    gate.observe(state(begin))
    judged = gate.submit(FORWARD, PERIOD_S, begin, begin)
    assert isinstance(judged, Rejection) and "time jumped back" in judged.reason
    assert gate.command_at(begin).at_rest
    assert isinstance(gate.submit(FORWARD, PERIOD_S, begin + 1, begin + 1), ArmCommand)


def test_a_reset_forgets_motion_and_state() -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    gate.reset()
    assert gate.command_at(after(0.01)).at_rest
    assert isinstance(gate.submit(FORWARD, PERIOD_S, after(0.01), after(0.01)), Rejection)


values = st.lists(st.floats(-0.06, 0.06), min_size=6, max_size=6).map(lambda six: [*six, 1.0]) | st.lists(
    st.floats(allow_nan=True, allow_infinity=True), max_size=9
)
events = st.tuples(
    st.integers(1, 120),  # ms since the event before
    st.sampled_from(["tick", "tick", "state", "action"]),
    values,
    st.sampled_from([PERIOD_S, PERIOD_S, 0.01, 1.0, 0.0, float("nan")]),
    st.integers(-400, 150),  # ms, offset of the stamp from the clock
)


@given(st.lists(events, max_size=60))
def test_whatever_comes_the_speed_keeps_its_limits_and_the_arm_rests_in_time(sequence: list[tuple]) -> None:
    gate = CommandGate(LIMITS)
    now, accepted_ns, accepted = START, None, None
    for elapsed_ms, kind, action, period_s, offset_ms in sequence:
        now += elapsed_ms * 1_000_000
        if kind == "state":
            gate.observe(state(now + min(offset_ms, 0) * 100_000))
        elif kind == "action":
            judged = gate.submit(action, period_s, now + offset_ms * 1_000_000, now)
            if isinstance(judged, ArmCommand):
                accepted_ns, accepted = now, judged
        command = gate.command_at(now)
        assert np.isfinite(command.linear).all() and np.isfinite(command.angular).all()
        assert speed(command) <= LIMITS.max_linear_speed * 1.001
        assert np.linalg.norm(command.angular) <= LIMITS.max_angular_speed * 1.001
        if accepted is None or accepted_ns is None or now - accepted_ns >= STOPPED_S * NS_PER_S:
            assert command.at_rest
        else:
            assert speed(command) <= speed(accepted) + 1e-12
            assert np.linalg.norm(command.angular) <= np.linalg.norm(accepted.angular) + 1e-12


@given(st.integers(1, 60), st.integers(1, 40))
def test_a_stop_lasts_no_longer_than_its_time_however_often_it_is_asked_for(period_ms: int, stops: int) -> None:
    gate = ready_gate()
    gate.submit(FORWARD, PERIOD_S, START, START)
    begin = after(0.05)
    for tick in range(stops):
        gate.observe(state(begin + tick * period_ms * 1_000_000))
        gate.stop(begin + tick * period_ms * 1_000_000)
    assert gate.command_at(begin + round(LIMITS.stop_time_s * NS_PER_S)).at_rest
