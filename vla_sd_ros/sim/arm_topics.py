"""The simulated robot's side of ROS: the topics that a real arm and its camera publish and take.

Out: ``camera/image_raw``, ``joint_states``, ``end_effector_pose``, ``/clock`` (in lockstep). In: ``twist_command``,
``gripper_command``. Commands are kept with their arrival times on the monotonic clock, so that latency is measured
where the image left and the command came in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped, TwistStamped
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from trajectory_msgs.msg import JointTrajectory

from vla_sd_ros.msg import VlaAction
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.arrays import as_byte_array
from vla_sd_ros.ros.diagnostics import Diagnostics
from vla_sd_ros.ros.stamps import nanoseconds, stamp_from
from vla_sd_ros.safety.freshness import NS_PER_S
from vla_sd_ros.sim.world import FINGER_JOINT_NAMES, LiberoWorld

BASE_FRAME = "panda_link0"
CAMERA_FRAME = "agentview_optical_frame"
# Half of a finger's travel: a commanded position above it opens.
GRIPPER_THRESHOLD_M = 0.02
# An action and the command it causes arrive this close to each other, in either order, or the action was refused.
SAME_CAUSE_S = 0.02


@dataclass(frozen=True)
class ReceivedCommand:
    """What the arm was last told.

    Attributes:
        stamp_ns: stamp of the command.
        twist: float64 [6], m/s and rad/s, base axes.
        arrived_s: monotonic clock.
    """

    stamp_ns: int
    twist: np.ndarray[Any, np.dtype[np.float64]]
    arrived_s: float


class ArmTopics:
    """Publishes what the robot's drivers would, and keeps the newest command.

    Args:
        node: owns the publishers and subscriptions.
        diagnostics: told of commands that a real controller would refuse.
        simulated_time: whether ``/clock`` is published.
    """

    def __init__(self, node: Node, diagnostics: Diagnostics, simulated_time: bool) -> None:
        self._diagnostics = diagnostics
        self._images = node.create_publisher(Image, "camera/image_raw", qos.reliable(depth=1))
        self._joints = node.create_publisher(JointState, "joint_states", qos.reliable())
        self._poses = node.create_publisher(PoseStamped, "end_effector_pose", qos.reliable())
        self._clock = node.create_publisher(Clock, "/clock", qos.reliable()) if simulated_time else None
        self._node = node
        self._twists = node.create_subscription(TwistStamped, "twist_command", self._on_twist, qos.reliable())
        node.create_subscription(JointTrajectory, "gripper_command", self._on_gripper, qos.reliable())
        node.create_subscription(VlaAction, "vla_action", self._on_action, qos.reliable())
        self._changed = threading.Condition()
        self._twist: ReceivedCommand | None = None
        self._gripper: tuple[int, bool] | None = None
        self._action_arrivals_s: dict[int, float] = {}
        self._action_published_s: dict[int, float] = {}
        # The gripper is commanded once per accepted action; twists come at the control rate as well.
        self._command_arrivals_s: dict[int, float] = {}

    def wait_for_peers(self, timeout_s: float, should_stop: Callable[[], bool]) -> bool:
        """Waits until somebody takes the images, the joints and the poses and somebody sends twists."""
        give_up_s = time.monotonic() + timeout_s
        publishers = (self._images, self._joints, self._poses)
        while time.monotonic() < give_up_s and not should_stop():
            heard = all(publisher.get_subscription_count() > 0 for publisher in publishers)
            if heard and self._node.count_publishers(self._twists.topic_name) > 0:
                return True
            time.sleep(0.05)
        return False

    def publish_clock(self, time_ns: int) -> None:
        """Publishes simulated time, where this robot has it."""
        if self._clock is not None:
            self._clock.publish(Clock(clock=stamp_from(time_ns)))

    def publish_state(self, world: LiberoWorld, time_ns: int) -> None:
        """Publishes joints and end-effector pose, as of now."""
        stamp = stamp_from(time_ns)
        joints = JointState(
            name=list(world.joint_names),
            position=world.joint_positions().tolist(),
            velocity=world.joint_velocities().tolist(),
        )
        joints.header.stamp = stamp
        pose = PoseStamped()
        pose.header.stamp = stamp
        pose.header.frame_id = BASE_FRAME
        place, turn = pose.pose.position, pose.pose.orientation
        place.x, place.y, place.z = world.end_effector_position().tolist()
        turn.x, turn.y, turn.z, turn.w = world.end_effector_quaternion().tolist()
        self._joints.publish(joints)
        self._poses.publish(pose)

    def publish_image(self, rgb: np.ndarray[Any, np.dtype[np.uint8]], time_ns: int) -> float:
        """Publishes a camera image; returns the monotonic time at which it left."""
        height, width, _ = rgb.shape
        message = Image(height=height, width=width, encoding="rgb8", step=width * 3, data=as_byte_array(rgb))
        message.header.stamp = stamp_from(time_ns)
        message.header.frame_id = CAMERA_FRAME
        left_s = time.monotonic()
        self._images.publish(message)
        return left_s

    def wait_for_command(self, stamp_ns: int, timeout_s: float) -> ReceivedCommand | None:
        """The command for the observation of ``stamp_ns``, twist and gripper both; None where it does not come."""
        with self._changed:
            came = self._changed.wait_for(
                lambda: (
                    self._twist is not None
                    and self._twist.stamp_ns == stamp_ns
                    and self._gripper is not None
                    and self._gripper[0] == stamp_ns
                ),
                timeout_s,
            )
            return self._twist if came else None

    def newest_command(self) -> ReceivedCommand | None:
        """The command that a velocity controller would hold now."""
        with self._changed:
            return self._twist

    def gripper_is_open(self) -> bool:
        """What the gripper was last told; open before anything was."""
        with self._changed:
            return self._gripper is None or self._gripper[1]

    def forget(self) -> None:
        """Forgets every command: an episode begins with the arm at rest and the gripper open."""
        with self._changed:
            self._twist = self._gripper = None
            self._action_arrivals_s.clear()
            self._action_published_s.clear()
            self._command_arrivals_s.clear()

    def action_published_s(self, stamp_ns: int) -> float | None:
        """Monotonic time at which the action for ``stamp_ns`` was published, by a decoder on this machine."""
        with self._changed:
            return self._action_published_s.get(stamp_ns)

    def command_arrival_s(self, stamp_ns: int) -> float | None:
        """Monotonic arrival time of the command for the observation of ``stamp_ns``; None where there was none.

        In lockstep the command has the observation's stamp. In real time it has its own: the nearest one counts.
        """
        with self._changed:
            action_s = self._action_arrivals_s.get(stamp_ns)
            if stamp_ns in self._command_arrivals_s:
                return self._command_arrivals_s[stamp_ns]
            if action_s is None:
                return None
            nearest = min(self._command_arrivals_s.values(), key=lambda at: abs(at - action_s), default=None)
        return nearest if nearest is not None and abs(nearest - action_s) < SAME_CAUSE_S else None

    def _on_twist(self, message: Any) -> None:
        linear, angular = message.twist.linear, message.twist.angular
        twist = np.array([linear.x, linear.y, linear.z, angular.x, angular.y, angular.z])
        if message.header.frame_id != BASE_FRAME or not np.isfinite(twist).all():
            self._diagnostics.fault("command_rejected", f"twist in frame {message.header.frame_id!r}: {twist.tolist()}")
            return
        with self._changed:
            self._twist = ReceivedCommand(nanoseconds(message.header.stamp), twist, time.monotonic())
            self._changed.notify_all()

    def _on_gripper(self, message: Any) -> None:
        fingers = [name for name in message.joint_names if name in FINGER_JOINT_NAMES]
        positions = message.points[-1].positions if message.points else []
        if not fingers or len(positions) != len(message.joint_names) or not np.isfinite(positions).all():
            self._diagnostics.fault("command_rejected", f"gripper trajectory of {list(message.joint_names)} is refused")
            return
        with self._changed:
            opened = positions[list(message.joint_names).index(fingers[0])] > GRIPPER_THRESHOLD_M
            stamp_ns = nanoseconds(message.header.stamp)
            self._gripper = (stamp_ns, bool(opened))
            self._command_arrivals_s[stamp_ns] = time.monotonic()
            self._changed.notify_all()

    def _on_action(self, message: Any) -> None:
        with self._changed:
            stamp_ns = nanoseconds(message.header.stamp)
            self._action_arrivals_s[stamp_ns] = time.monotonic()
            self._action_published_s[stamp_ns] = message.stats.published_steady_ns / NS_PER_S
