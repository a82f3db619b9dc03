from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import TwistStamped
from message_makers import FINGER_JOINTS, kinematic_state, vla_action
from node_process import NodeProcess
from probe import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, Probe
from trajectory_msgs.msg import JointTrajectory

from vla_sd_ros.msg import KinematicState, VlaAction
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.stamps import nanoseconds

ACTION_SOURCE = Path(__file__).parents[1] / "support" / "action_source.py"
PERIOD_S = 0.05
HOLD_S, STOP_S = 0.1, 0.15
FORWARD = (0.01, 0.0, -0.005, 0.0, 0.0, 0.02, 1.0)
FORWARD_TWIST = [0.2, 0.0, -0.1, 0.0, 0.0, 0.4]


def twist_of(message: TwistStamped) -> list[float]:
    linear, angular = message.twist.linear, message.twist.angular
    return [linear.x, linear.y, linear.z, angular.x, angular.y, angular.z]


class Commander:
    """A command node in a namespace of its own, and its ends."""

    def __init__(self, probe: Probe, namespace: str) -> None:
        self.probe, self.namespace, self.name = probe, namespace, f"{namespace}/command_node"
        # (arrival on the monotonic clock, message)
        self.twists: list[TwistStamped] = probe.listen(TwistStamped, f"/{namespace}/twist_command")
        self.grippers: list[JointTrajectory] = probe.listen(JointTrajectory, f"/{namespace}/gripper_command")

    def change(self, transition: int) -> bool:
        return self.probe.change_state(self.name, transition)

    def activate(self) -> Commander:
        """Configures, activates, and makes sure that every pair of ends has found each other."""
        assert self.change(CONFIGURE) and self.change(ACTIVATE)
        self.move_until(lambda: self.twists and self.grippers and self.probe.reasons(self.namespace))
        self.rest()
        return self

    def act(self, values: Sequence[float] = FORWARD, **other: Any) -> int:
        """Sends a state and an action of now; returns their stamp."""
        stamp_ns = time.time_ns()
        self.send(kinematic_state(stamp_ns), vla_action(**{"stamp_ns": stamp_ns, "values": values, **other}))
        return stamp_ns

    def send(self, state: KinematicState | None, action: VlaAction | None) -> None:
        if state is not None:
            self.probe.connect(KinematicState, f"/{self.namespace}/kinematic_state").publish(state)
            # Two topics keep no order between them: the state must be there before the action.
            self.probe.spin_for(0.01)
        if action is not None:
            self.probe.connect(VlaAction, f"/{self.namespace}/vla_action").publish(action)

    def move_until(self, condition: Any) -> Any:
        """Actions at 20 Hz, each with a state, until the condition holds."""
        return self.probe.repeat(self.act, until=condition, period_s=PERIOD_S)

    def rest(self) -> None:
        """Waits until the arm was told to rest and silence fell, and forgets what was said."""
        self.probe.wait_until(lambda: self.twists and not any(twist_of(self.twists[-1])), what="a zero twist")
        count = -1
        while count != len(self.twists):
            count = len(self.twists)
            self.probe.spin_for(0.1)
        self.twists.clear()
        self.grippers.clear()

    def refuse(self, state: KinematicState | None, action: VlaAction | None, *reason: str) -> None:
        """Sends what must be refused: nothing moves, and the diagnostics say why."""
        self.probe.forget_diagnostics()
        self.send(state, action)
        self.probe.wait_for_reason(*reason, node=self.namespace)
        assert not self.twists and not self.grippers


@pytest.fixture(scope="module")
def commander(probe: Probe) -> Iterator[Commander]:
    with NodeProcess("command_node", arguments=("-r", "__ns:=/calm")):
        yield Commander(probe, "calm").activate()


@pytest.fixture
def resting(commander: Commander) -> Commander:
    commander.twists.clear()
    commander.grippers.clear()
    return commander


def test_an_action_becomes_a_twist_in_the_base_frame_and_a_gripper_position(resting: Commander) -> None:
    stamp_ns = resting.act()
    resting.probe.wait_until(lambda: resting.twists and resting.grippers, what="a command")
    first = resting.twists[0]
    assert twist_of(first) == pytest.approx(FORWARD_TWIST)
    assert first.header.frame_id == "panda_link0" and nanoseconds(first.header.stamp) >= stamp_ns
    gripper = resting.grippers[0]
    assert list(gripper.joint_names) == FINGER_JOINTS
    assert [list(point.positions) for point in gripper.points] == [[0.04, 0.04]]
    resting.rest()


def test_a_closing_action_commands_the_closed_position(resting: Commander) -> None:
    resting.act([*FORWARD[:6], 0.0])
    resting.probe.wait_until(lambda: resting.grippers, what="a gripper command")
    assert list(resting.grippers[0].points[-1].positions) == [0.0, 0.0]
    resting.rest()


def test_when_the_actions_stop_the_twist_decays_to_zero_and_then_there_is_silence(resting: Commander) -> None:
    resting.act()
    began_ns = time.time_ns()

    # The states go on: it is the actions that stop.
    def still_alive() -> None:
        resting.send(kinematic_state(time.time_ns()), None)

    resting.probe.repeat(
        still_alive, until=lambda: resting.twists and not any(twist_of(resting.twists[-1])), period_s=0.01
    )
    speeds = np.array([np.linalg.norm(twist_of(twist)[:3]) for twist in resting.twists])
    stamps_s = np.array([(nanoseconds(twist.header.stamp) - began_ns) / 1e9 for twist in resting.twists])
    assert (np.diff(speeds) <= 1e-9).all(), "the speed rises"
    assert len(set(np.round(speeds[speeds > 0.0], 6))) >= 3, "a jump to rest"
    first_zero_s = stamps_s[speeds == 0.0][0]
    assert first_zero_s <= HOLD_S + STOP_S + 0.1
    resting.probe.spin_for(0.3)
    after = len(resting.twists)
    assert not any(twist_of(resting.twists[-1])) and (speeds == 0.0).sum() <= 4
    resting.probe.spin_for(0.2)
    assert len(resting.twists) == after


def test_when_the_states_stop_the_arm_stops_though_actions_go_on(resting: Commander) -> None:
    resting.act()
    resting.probe.wait_until(lambda: resting.twists)
    resting.probe.repeat(
        lambda: resting.send(None, vla_action(time.time_ns())),
        until=lambda: not any(twist_of(resting.twists[-1])),
        period_s=PERIOD_S,
    )
    resting.probe.wait_for_reason("kinematic state is", "old", node="calm")
    resting.rest()


def test_when_the_process_that_sends_the_actions_is_killed_the_arm_stops(resting: Commander) -> None:
    probe = resting.probe

    def keep_the_state() -> None:
        resting.send(kinematic_state(time.time_ns()), None)

    source = subprocess.Popen([sys.executable, str(ACTION_SOURCE), "/calm/vla_action"])
    try:
        probe.repeat(keep_the_state, until=lambda: len(resting.twists) > 3 and any(twist_of(resting.twists[-1])))
    finally:
        source.kill()
        source.wait()
    killed_s = time.monotonic()
    probe.repeat(keep_the_state, until=lambda: not any(twist_of(resting.twists[-1])))
    assert time.monotonic() - killed_s < HOLD_S + STOP_S + 0.3
    resting.rest()


@pytest.mark.parametrize(
    ("values", "other", "reason"),
    [
        ([float("nan"), *FORWARD[1:]], {}, "the action is not finite"),
        ([*FORWARD[:6], float("inf")], {}, "the action is not finite"),
        ([0.9, -0.3, 0.2, 0.0, 0.0, 0.1, 1.0], {}, "linear speed"),
        (FORWARD, {"period_s": 0.0}, "control period is 0.0 s"),
        (FORWARD, {"frame": "world"}, "frame 'world'; legal: 'panda_link0'"),
        (FORWARD, {"stamp_ns": 1}, "older than the allowed age"),
    ],
)
def test_a_bad_action_moves_nothing_and_the_diagnostics_say_why(
    resting: Commander, values: Sequence[float], other: dict[str, Any], reason: str
) -> None:
    stamp_ns = time.time_ns()
    action = vla_action(**{"stamp_ns": stamp_ns, "values": values, **other})
    resting.refuse(kinematic_state(stamp_ns), action, reason)


def test_an_action_out_of_the_workspace_or_on_an_old_state_is_refused(resting: Commander) -> None:
    stamp_ns = time.time_ns()
    resting.refuse(kinematic_state(stamp_ns, (1.099, 0.0, 0.3)), vla_action(stamp_ns), "leave the workspace")
    resting.probe.spin_for(0.2)
    resting.refuse(None, vla_action(time.time_ns()), "the kinematic state is", "s old")


def test_a_state_in_another_frame_is_not_believed(resting: Commander) -> None:
    resting.probe.spin_for(0.2)
    stamp_ns = time.time_ns()
    resting.refuse(kinematic_state(stamp_ns, frame="world"), None, "state is in frame 'world'; legal: 'panda_link0'")
    resting.refuse(None, vla_action(time.time_ns()), "the kinematic state is", "s old")


def test_a_best_effort_publisher_of_states_is_named_in_the_diagnostics(resting: Commander) -> None:
    node = resting.probe.node
    unheard = node.create_publisher(KinematicState, "/calm/kinematic_state", qos.sensor_data())
    resting.probe.wait_for_reason("kinematic_state", "QoS", "RELIABILITY", node="calm")
    node.destroy_publisher(unheard)


def test_a_deactivated_node_stops_the_arm_and_an_inactive_one_sends_nothing(resting: Commander) -> None:
    resting.move_until(lambda: len(resting.twists) > 3)
    assert resting.change(DEACTIVATE)
    resting.probe.wait_until(lambda: not any(twist_of(resting.twists[-1])), what="a zero twist")
    resting.probe.wait_for_reason("deactivated", node="calm")
    resting.rest()
    for _ in range(5):
        resting.act()
        resting.probe.spin_for(PERIOD_S)
    assert not resting.twists and not resting.grippers

    assert resting.change(ACTIVATE)
    resting.refuse(None, vla_action(time.time_ns()), "no kinematic state has arrived")
    resting.move_until(lambda: any(any(twist_of(twist)) for twist in resting.twists))
    assert resting.change(DEACTIVATE) and resting.change(CLEANUP) and resting.change(CONFIGURE)
    assert resting.change(ACTIVATE)
    resting.move_until(lambda: any(twist_of(resting.twists[-1])))
    resting.rest()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_motion_sends_zero_twists_and_ends_the_node(
    probe: Probe, number: signal.Signals
) -> None:
    with NodeProcess("command_node", arguments=("-r", f"__ns:=/{number.name.lower()}")) as process:
        commander = Commander(probe, number.name.lower()).activate()
        commander.move_until(lambda: len(commander.twists) > 3)
        assert any(twist_of(commander.twists[-1]))
        process.signal(number)
        probe.wait_until(lambda: not process.running, what="the end of the node")
        probe.spin_for(0.2)
        assert process.wait() == 0
        assert not any(twist_of(commander.twists[-1]))
        assert "Traceback" not in process.log


def test_a_rate_of_zero_is_refused_without_simulated_time(probe: Probe) -> None:
    with NodeProcess("command_node", {"control_rate_hz": 0.0}, ("-r", "__ns:=/rateless")):
        rateless = Commander(probe, "rateless")
        assert not rateless.change(CONFIGURE)
        probe.wait_for_reason("control_rate_hz = 0.0", "use_sim_time", node="rateless")


def test_a_missing_limit_refuses_the_configuration_by_name(probe: Probe) -> None:
    with NodeProcess("command_node", arguments=("-r", "__ns:=/limitless"), params_file=None):
        limitless = Commander(probe, "limitless")
        assert not limitless.change(CONFIGURE)
        probe.wait_for_reason("limits.workspace_min_m is not set", "base_frame", node="limitless")
        assert not limitless.change(ACTIVATE)


@pytest.fixture(scope="module")
def simulated(probe: Probe) -> Iterator[Commander]:
    with NodeProcess("command_node", {"use_sim_time": True}, ("-r", "__ns:=/simulated")):
        commander = Commander(probe, "simulated")
        assert commander.change(CONFIGURE) and commander.change(ACTIVATE)
        yield commander


def step(commander: Commander, time_ns: int) -> None:
    commander.probe.set_clock(time_ns)
    commander.send(kinematic_state(time_ns), vla_action(time_ns))


def test_nothing_moves_before_the_clock_has_started(simulated: Commander) -> None:
    simulated.probe.repeat(
        lambda: simulated.send(kinematic_state(10**9), vla_action(10**9)),
        until=lambda: any("the clock has not started" in text for text in simulated.probe.reasons("simulated")),
        period_s=PERIOD_S,
    )
    assert not simulated.twists


def test_a_clock_that_jumps_back_stops_the_arm_and_motion_begins_anew(simulated: Commander) -> None:
    start, probe = 100 * 10**9, simulated.probe
    times = iter(range(start, start + 10**12, int(PERIOD_S * 1e9)))
    probe.repeat(
        lambda: step(simulated, next(times)),
        until=lambda: simulated.twists and any(twist_of(simulated.twists[-1])),
    )
    probe.forget_diagnostics()
    probe.set_clock(50 * 10**9)
    probe.wait_until(lambda: not any(twist_of(simulated.twists[-1])), what="a zero twist")
    probe.wait_for_reason("the clock jumped back", node="simulated")
    times = iter(range(51 * 10**9, 99 * 10**9, int(PERIOD_S * 1e9)))
    probe.repeat(lambda: step(simulated, next(times)), until=lambda: any(twist_of(simulated.twists[-1])))


def test_simulated_time_that_goes_on_without_actions_ends_the_motion(simulated: Commander) -> None:
    probe, times = simulated.probe, iter(range(200 * 10**9, 900 * 10**9, int(PERIOD_S * 1e9)))
    stamp_ns = 0

    def move() -> None:
        nonlocal stamp_ns
        stamp_ns = next(times)
        step(simulated, stamp_ns)

    probe.repeat(move, until=lambda: simulated.twists and any(twist_of(simulated.twists[-1])))
    probe.repeat(
        lambda: probe.set_clock(stamp_ns + int((HOLD_S + STOP_S) * 1e9) + 1),
        until=lambda: not any(twist_of(simulated.twists[-1])),
    )


def test_simulated_time_that_dies_in_the_middle_of_a_motion_stops_the_arm(simulated: Commander) -> None:
    probe, times = simulated.probe, iter(range(1000 * 10**9, 2000 * 10**9, int(PERIOD_S * 1e9)))
    probe.repeat(
        lambda: step(simulated, next(times)), until=lambda: simulated.twists and any(twist_of(simulated.twists[-1]))
    )
    probe.wait_until(lambda: not any(twist_of(simulated.twists[-1])), what="a zero twist")
    probe.wait_for_reason("simulated time stands still", node="simulated")
