from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from message_makers import ARM_JOINTS, ARM_POSITIONS, FINGER_JOINTS, joint_state, pose
from node_process import NodeProcess
from probe import Probe
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import JointState

from vla_sd_ros.msg import KinematicState
from vla_sd_ros.ros.stamps import nanoseconds

SECOND_NS = 10**9
PERIOD_NS = 50_000_000
SKEW_S = 0.02


class Arm:
    """A kinematic state node in a namespace of its own, and the two ends of it."""

    def __init__(self, probe: Probe, namespace: str) -> None:
        self.probe, self.namespace = probe, namespace
        self.states: list[Any] = probe.listen(KinematicState, f"/{namespace}/kinematic_state")
        self._joints = probe.connect(JointState, f"/{namespace}/joint_states")
        self._poses = probe.connect(PoseStamped, f"/{namespace}/end_effector_pose")

    def send(self, joints: JointState | None = None, at: PoseStamped | None = None) -> None:
        if joints is not None:
            self._joints.publish(joints)
        if at is not None:
            self._poses.publish(at)

    def warm_up(self) -> Arm:
        """Sends until states and diagnostics arrive: then every pair of ends has found each other."""
        self.probe.repeat(
            lambda: self.send(joint_state(stamp_ns := time.time_ns()), pose(stamp_ns)),
            until=lambda: self.states and self.probe.reasons(self.namespace),
        )
        self.probe.spin_for(0.1)
        return self

    def state_at(self, stamp_ns: int) -> Any:
        return self.probe.wait_until(
            lambda: next((state for state in self.states if nanoseconds(state.header.stamp) == stamp_ns), None),
            what="a kinematic state",
        )


@pytest.fixture(scope="module")
def arm(probe: Probe) -> Iterator[Arm]:
    with NodeProcess("kinematic_state_node", arguments=("-r", "__ns:=/wall")):
        yield Arm(probe, "wall").warm_up()


@pytest.fixture
def refused(arm: Arm, probe: Probe) -> Any:
    """Sends what must be refused, checks the reason, and that the next good state is the next state."""

    def check(joints: JointState | None, at: PoseStamped | None, *reason: str) -> None:
        before = len(arm.states)
        probe.forget_diagnostics()
        arm.send(joints, at)
        probe.wait_for_reason(*reason, node="wall")
        assert len(arm.states) == before
        stamp_ns = time.time_ns()
        arm.send(joint_state(stamp_ns), pose(stamp_ns))
        arm.state_at(stamp_ns)

    probe.spin_for(2 * SKEW_S)  # so that nothing sent now belongs to what was sent before
    return check


def test_joints_in_any_order_come_out_in_the_configured_one(arm: Arm) -> None:
    names = [*FINGER_JOINTS, *reversed(ARM_JOINTS), "gantry"]
    positions = [0.01, 0.01, *reversed(ARM_POSITIONS), float("nan")]
    velocities = [0.0, 0.0, *np.arange(7.0), 0.0]
    stamp_ns = time.time_ns()
    arm.send(joint_state(stamp_ns, names, positions, velocities), pose(stamp_ns))
    state = arm.state_at(stamp_ns)
    assert list(state.joint_names) == ARM_JOINTS
    assert state.joint_positions.tolist() == pytest.approx(ARM_POSITIONS)
    assert state.joint_velocities.tolist() == pytest.approx(np.arange(7.0)[::-1])
    assert state.gripper_opening == pytest.approx(0.25)
    assert state.header.frame_id == "panda_link0"


def test_joints_and_pose_that_lie_apart_make_no_state(arm: Arm, probe: Probe) -> None:
    probe.spin_for(0.1)
    before, stamp_ns = len(arm.states), time.time_ns()
    arm.send(joint_state(stamp_ns - 50_000_000), pose(stamp_ns))
    probe.spin_for(0.1)
    assert len(arm.states) == before


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_joint_that_is_not_finite_is_refused(refused: Any, value: float) -> None:
    stamp_ns = time.time_ns()
    positions = [*ARM_POSITIONS[:6], value, 0.04, 0.04]
    refused(joint_state(stamp_ns, positions=positions), pose(stamp_ns), "not finite", "panda_joint7")


def test_a_missing_joint_is_refused_by_name(refused: Any) -> None:
    stamp_ns = time.time_ns()
    refused(
        joint_state(stamp_ns, ARM_JOINTS, ARM_POSITIONS), pose(stamp_ns), "panda_finger_joint1", "not in the message"
    )


def test_a_pose_in_another_frame_is_refused(refused: Any) -> None:
    stamp_ns = time.time_ns()
    refused(joint_state(stamp_ns), pose(stamp_ns, frame="world"), "'world'", "legal: 'panda_link0'")


def test_a_pose_that_is_none_is_refused(refused: Any) -> None:
    stamp_ns = time.time_ns()
    refused(joint_state(stamp_ns), pose(stamp_ns, orientation=(0, 0, 0, 0)), "unit quaternion")


@pytest.mark.parametrize(("offset_s", "reason"), [(-1.0, "older"), (10.0, "future")])
def test_a_state_of_another_clock_is_refused(refused: Any, offset_s: float, reason: str) -> None:
    stamp_ns = time.time_ns() + int(offset_s * SECOND_NS)
    refused(joint_state(stamp_ns), pose(stamp_ns), "end_effector_pose", reason)


class Played:
    """An arm on simulated time, played step by step."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.arm = probe, Arm(probe, "played")

    def play(self, first_s: int, steps: int, joint_step: float = 0.0, turn_step: float = 0.0) -> Any:
        """The last state of a way along x with 0.01 m, and what else is given, per period of 0.05 s."""
        for step in range(steps):
            stamp_ns = first_s * SECOND_NS + step * PERIOD_NS
            joints = joint_state(
                stamp_ns, positions=[*(position + joint_step * step for position in ARM_POSITIONS), 0.04, 0.04]
            )
            turn = Rotation.from_rotvec([0.0, 0.0, np.pi - turn_step / 2 + turn_step * step]).as_quat()
            self._show(stamp_ns, joints, pose(stamp_ns, (0.3 + 0.01 * step, 0.0, 0.3), turn))
        return self.arm.states[-1]

    def _show(self, stamp_ns: int, joints: JointState, at: PoseStamped) -> None:
        self.probe.repeat(
            lambda: (self.probe.set_clock(stamp_ns), self.arm.send(joints, at)),
            until=lambda: self.arm.states and nanoseconds(self.arm.states[-1].header.stamp) == stamp_ns,
            period_s=0.01,
        )


@pytest.fixture(scope="module")
def played(probe: Probe) -> Iterator[Played]:
    parameters = {
        "use_sim_time": True,
        "metric.form": "curvature",
        "metric.radius_m": [0.0, 1.0],
        "metric.path_length_m": [0.0, 0.28],
    }
    with NodeProcess("kinematic_state_node", parameters, ("-r", "__ns:=/played")):
        yield Played(probe)


def test_what_has_not_arrived_is_named(probe: Probe, played: Played) -> None:
    probe.wait_for_reason("nothing has arrived on joint_states", "end_effector_pose", node="played")


def test_velocities_come_from_the_stamps_where_the_driver_sends_none(played: Played) -> None:
    state = played.play(10, 3, joint_step=0.02, turn_step=0.01)
    assert state.joint_velocities.tolist() == pytest.approx([0.4] * 7)
    twist = state.end_effector_twist
    assert (twist.linear.x, twist.linear.y, twist.linear.z) == pytest.approx((0.2, 0.0, 0.0))
    assert (twist.angular.x, twist.angular.y, twist.angular.z) == pytest.approx((0.0, 0.0, 0.2), abs=1e-6)


def test_a_jump_back_in_time_begins_a_new_window_and_is_counted_once(played: Played) -> None:
    before = played.play(100, 4)
    assert before.path_length_m == pytest.approx(0.03) and before.time_jumps == 0
    first = played.play(50, 1)
    assert first.path_length_m == 0.0 and first.end_effector_twist.linear.x == 0.0
    after = played.play(52, 3)
    assert after.time_jumps == 1
    assert after.path_length_m == pytest.approx(0.02)


def test_the_metric_is_published_once_its_window_is_full(played: Played) -> None:
    assert np.isnan(played.play(200, 14).fused_metric)
    assert played.play(210, 15).fused_metric == pytest.approx(0.75, abs=0.01)  # straight, half of the longest path


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"metric.form": "round"}, "metric.form"),
        ({"metric.form": "curvature"}, "radius_m"),
        (
            {
                "metric.form": "paper",
                "metric.window": 31,
                "metric.radius_m": [0.0, 1.0],
                "metric.path_length_m": [0.0, 0.3],
            },
            "window_s = 0.75",
        ),
    ],
)
def test_a_metric_that_cannot_be_computed_ends_the_node_with_the_reason(
    parameters: dict[str, object], named: str
) -> None:
    with NodeProcess("kinematic_state_node", parameters, ("-r", "__ns:=/refused")) as process:
        assert process.wait() == 1
        assert named in process.log


def test_an_unknown_parameter_ends_the_node_and_says_which_are_legal() -> None:
    with NodeProcess("kinematic_state_node", {"arm_joint": ["a"]}, ("-r", "__ns:=/refused")) as process:
        assert process.wait() == 1
        assert "unknown parameters ['arm_joint']" in process.log and "'arm_joints'" in process.log
