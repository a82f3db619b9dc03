"""command_node (lifecycle): actions in, arm commands out; the last check before the arm, in a process of its own.

Commands are a TwistStamped (MoveIt Servo, or a Cartesian velocity controller) and a JointTrajectory of the gripper.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

from geometry_msgs.msg import TwistStamped
from pydantic import BaseModel, ConfigDict, Field
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vla_sd_ros.msg import KinematicState, VlaAction
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.kinematic_messages import state_from_message
from vla_sd_ros.ros.lifecycle import ManagedNode
from vla_sd_ros.ros.parameters import read_parameters
from vla_sd_ros.ros.run import run_nodes
from vla_sd_ros.ros.stamps import nanoseconds, now_ns, stamp_from
from vla_sd_ros.ros.subscriptions import subscribe
from vla_sd_ros.safety.command_gate import CLOCK_SLACK_NS, ArmCommand, CommandGate, Rejection, at_rest
from vla_sd_ros.safety.limits import CommandLimits

# Zero twists sent once the arm is at rest, so that a lost one does not matter; then silence.
REST_MESSAGES = 4
# How long a stop waits for the arm's driver to have received them.
REST_ACKNOWLEDGED_S = 0.3
# Simulated time that stands still for this long has died, and no deceleration would ever end.
CLOCK_DEAD_S = 0.5


class CommandConfig(BaseModel):
    """Parameters of the command node.

    Attributes:
        base_frame: frame that actions and states must be expressed in.
        control_rate_hz: rate of the twists. 0 sends one command per accepted action and nothing between: only for a
            simulation in lockstep, whose time stands still between commands.
        gripper_joints: joints of the gripper that are commanded.
        gripper_closed: position of each gripper joint when closed (m or rad).
        gripper_open: position of each gripper joint when open.
        gripper_time_s: time the gripper is given to get there.
        limits: what may pass.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    base_frame: Annotated[str, Field(min_length=1)]
    control_rate_hz: Annotated[float, Field(ge=0.0, le=1000.0)] = 50.0
    gripper_joints: Annotated[list[str], Field(min_length=1)]
    gripper_closed: float
    gripper_open: float
    gripper_time_s: Annotated[float, Field(gt=0.0)] = 0.3
    limits: CommandLimits


class CommandNode(ManagedNode):
    """Feeds the gate and sends what it lets through."""

    def __init__(self) -> None:
        super().__init__("command_node")
        self._config: CommandConfig | None = None
        self._gate: CommandGate | None = None
        self._active = False
        self._rest_messages_left = 0
        self._last_now_ns = 0
        self._clock_moved_s = 0.0
        self._entities: list[tuple[Any, Any]] = []

    def set_up(self) -> None:
        """Reads the limits and connects."""
        config = read_parameters(self, CommandConfig)
        if config.control_rate_hz == 0.0 and not self.get_parameter("use_sim_time").value:
            raise ValueError("parameter control_rate_hz = 0.0: legal only with use_sim_time; a real arm needs a rate")
        self._config, self._gate = config, CommandGate(config.limits)
        self._twists = self.create_publisher(TwistStamped, "twist_command", qos.reliable())
        self._grippers = self.create_publisher(JointTrajectory, "gripper_command", qos.reliable())
        self._entities = [(self._twists, self.destroy_publisher), (self._grippers, self.destroy_publisher)]
        for message_type, topic, callback in (
            (KinematicState, "kinematic_state", self._on_state),
            (VlaAction, "vla_action", self._on_action),
        ):
            subscription = subscribe(self, message_type, topic, callback, qos.reliable(), self.diagnostics)
            self._entities.append((subscription, self.destroy_subscription))

    def start(self) -> None:
        """Begins to send commands."""
        config, gate = self._configured()
        gate.reset()
        self._rest_messages_left = 0
        self._active = True
        if config.control_rate_hz > 0.0:
            # A steady clock: the stop must come also where simulated time stands still or /clock floods the executor.
            steady = Clock(clock_type=ClockType.STEADY_TIME)
            timer = self.create_timer(1.0 / config.control_rate_hz, self._on_tick, clock=steady)
            self._entities.append((timer, self.destroy_timer))

    def halt(self) -> None:
        """Sends zero twists and stops sending."""
        was_active, self._active = self._active, False
        for entity, destroy in [pair for pair in self._entities if pair[1] == self.destroy_timer]:
            destroy(entity)
            self._entities.remove((entity, destroy))
        if was_active and self._gate is not None:
            self._gate.reset()
            for _ in range(REST_MESSAGES):
                self._send_twist(at_rest(), now_ns(self))
            # What lies in this process's shared memory is lost where it ends before the arm has read it.
            self._twists.wait_for_all_acked(Duration(seconds=REST_ACKNOWLEDGED_S))

    def tear_down(self) -> None:
        """Disconnects."""
        for entity, destroy in self._entities:
            destroy(entity)
        self._entities = []
        self._config = self._gate = None

    def _configured(self) -> tuple[CommandConfig, CommandGate]:
        if self._config is None or self._gate is None:
            raise RuntimeError("the node is not configured")
        return self._config, self._gate

    def _on_state(self, message: Any) -> None:
        config, gate = self._configured()
        if message.header.frame_id != config.base_frame:
            self.diagnostics.fault(
                "state_rejected", f"state is in frame {message.header.frame_id!r}; legal: {config.base_frame!r}"
            )
            return
        try:
            gate.observe(state_from_message(message))
        except ValueError as error:
            self.diagnostics.fault("state_rejected", str(error))

    def _on_action(self, message: Any) -> None:
        if not self._active:
            return
        config, gate = self._configured()
        if message.header.frame_id != config.base_frame:
            self._reject(f"action is in frame {message.header.frame_id!r}; legal: {config.base_frame!r}")
            return
        stamp_ns, now = nanoseconds(message.header.stamp), self._now()
        judged = gate.submit(message.values, message.period_s, stamp_ns, now)
        if isinstance(judged, Rejection):
            self._reject(judged.reason)
            return
        # Simulated time may reach this node later than an action made at that time.
        self._send_twist(judged, max(now, stamp_ns))
        self._send_gripper(judged, max(now, stamp_ns))
        self._rest_messages_left = REST_MESSAGES

    def _reject(self, reason: str) -> None:
        self.diagnostics.fault("action_rejected", reason)

    def _on_tick(self) -> None:
        _, gate = self._configured()
        now = self._now()
        command = gate.command_at(now)
        if not command.at_rest and time.monotonic() - self._clock_moved_s > CLOCK_DEAD_S:
            gate.reset()
            self.diagnostics.fault("clock_stands_still", "simulated time stands still; the arm stops")
            command = at_rest()
        if command.at_rest:
            if self._rest_messages_left == 0:
                return
            self._rest_messages_left -= 1
        self._send_twist(command, now)

    def _now(self) -> int:
        """The clock; where it jumped back, the gate starts anew at rest, since no age before the jump has a meaning."""
        _, gate = self._configured()
        now = now_ns(self)
        if now < self._last_now_ns - CLOCK_SLACK_NS:
            gate.reset()
            self.diagnostics.fault("time_jump", "the clock jumped back; the arm stops")
        if now != self._last_now_ns:
            self._clock_moved_s = time.monotonic()
        self._last_now_ns = now
        return now

    def _send_twist(self, command: ArmCommand, time_ns: int) -> None:
        message = TwistStamped()
        message.header.stamp = stamp_from(time_ns)
        message.header.frame_id = self._configured()[0].base_frame
        linear, angular = message.twist.linear, message.twist.angular
        linear.x, linear.y, linear.z = command.linear.tolist()
        angular.x, angular.y, angular.z = command.angular.tolist()
        self._twists.publish(message)

    def _send_gripper(self, command: ArmCommand, time_ns: int) -> None:
        config, _ = self._configured()
        if command.gripper_opening is None:
            return
        span = config.gripper_open - config.gripper_closed
        position = config.gripper_closed + command.gripper_opening * span
        point = JointTrajectoryPoint(positions=[position] * len(config.gripper_joints))
        point.time_from_start = Duration(seconds=config.gripper_time_s).to_msg()
        message = JointTrajectory(joint_names=list(config.gripper_joints), points=[point])
        message.header.stamp = stamp_from(time_ns)
        message.header.frame_id = config.base_frame
        self._grippers.publish(message)


def main(args: Sequence[str] | None = None) -> int:
    """Runs the node until a signal."""
    return run_nodes([CommandNode], args)
