"""kinematic_state_node: joint states and end-effector poses in, one KinematicState out, in the robot's base frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from geometry_msgs.msg import PoseStamped
from pydantic import BaseModel, ConfigDict, Field, model_validator
from rclpy.node import Node
from sensor_msgs.msg import JointState

from vla_sd_ros.kinematics.estimator import GripperCalibration, KinematicEstimator
from vla_sd_ros.kinematics.fused_metric import FusedMetric, MetricForm, MetricRanges
from vla_sd_ros.kinematics.joints import InvalidJointState, JointSample
from vla_sd_ros.kinematics.path import InvalidPose
from vla_sd_ros.msg import KinematicState as KinematicStateMessage
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.diagnostics import Diagnostics
from vla_sd_ros.ros.kinematic_messages import message_from_state
from vla_sd_ros.ros.parameters import read_parameters
from vla_sd_ros.ros.run import run_nodes
from vla_sd_ros.ros.stamps import nanoseconds, now_ns
from vla_sd_ros.ros.subscriptions import subscribe
from vla_sd_ros.safety.freshness import FreshnessLimits, StampGuard, StampVerdict
from vla_sd_ros.types import KinematicState


class MetricConfig(BaseModel):
    """Parameters of the fused metric, as ``vla-sd calibrate`` found them.

    Attributes:
        form: which radius; ``none``: the metric is not computed.
        window: positions that it looks at.
        period_s: time from one of them to the next: the policy's control period.
        alpha: weight of the radius.
        radius_m: lowest radius of the demonstrations, and the 95th percentile.
        path_length_m: the same of the length of the path over the window.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    form: MetricForm | Literal["none"] = "none"
    window: Annotated[int, Field(ge=3)] = 15
    period_s: Annotated[float, Field(gt=0.0)] = 0.05
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    radius_m: tuple[float, float] = (0.0, 0.0)
    path_length_m: tuple[float, float] = (0.0, 0.0)

    @model_validator(mode="after")
    def _ranges_are_given(self) -> MetricConfig:
        self.metric()
        return self

    def metric(self) -> FusedMetric | None:
        """The metric; None where there is none."""
        if self.form == "none":
            return None
        ranges = MetricRanges(radius_m=self.radius_m, path_length_m=self.path_length_m)
        return FusedMetric(self.form, self.window, self.alpha, ranges=ranges)


class KinematicStateConfig(BaseModel):
    """Parameters of the kinematic state node.

    Attributes:
        arm_joints: joint names of the arm, in the order to publish; the driver's order does not matter.
        finger_joints: joint names of the gripper.
        gripper_closed: sum of the finger joints' positions when closed (m or rad).
        gripper_open: the same when open.
        base_frame: frame that poses must be expressed in; another one is refused, not guessed.
        window_s: window of path length and curvature; not shorter than that of the fused metric.
        max_age_s: older joint states and poses are rejected.
        max_skew_s: joints and pose further apart than this do not describe one instant.
        metric: of the fused metric.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    arm_joints: Annotated[list[str], Field(min_length=1)]
    finger_joints: Annotated[list[str], Field(min_length=1)]
    gripper_closed: float
    gripper_open: float
    base_frame: Annotated[str, Field(min_length=1)]
    window_s: Annotated[float, Field(gt=0.0)] = 0.75
    max_age_s: Annotated[float, Field(gt=0.0)] = 0.2
    max_skew_s: Annotated[float, Field(gt=0.0)] = 0.02
    metric: MetricConfig = MetricConfig()

    @model_validator(mode="after")
    def _window_holds_the_metrics(self) -> KinematicStateConfig:
        metric = self.metric
        needed_s = (metric.window - 1) * metric.period_s
        if metric.form != "none" and needed_s > self.window_s:
            raise ValueError(f"window_s = {self.window_s} is shorter than the {needed_s:g} of metric.window")
        return self


class KinematicStateNode(Node):
    """Checks order, age and values; publishes ``kinematic_state`` where joints and pose describe one instant."""

    def __init__(self) -> None:
        super().__init__("kinematic_state_node")
        self._config = read_parameters(self, KinematicStateConfig)
        self._diagnostics = Diagnostics(self)
        self._estimator = KinematicEstimator(
            self._config.arm_joints,
            self._config.finger_joints,
            GripperCalibration(self._config.gripper_closed, self._config.gripper_open),
            window_s=self._config.window_s,
            max_skew_s=self._config.max_skew_s,
            metric=self._config.metric.metric(),
            metric_period_s=self._config.metric.period_s,
        )
        limits = FreshnessLimits(self._config.max_age_s)
        self._joint_guard, self._pose_guard = StampGuard(limits), StampGuard(limits)
        self._publisher = self.create_publisher(KinematicStateMessage, "kinematic_state", qos.reliable())
        for message_type, topic, callback in (
            (JointState, "joint_states", self._on_joints),
            (PoseStamped, "end_effector_pose", self._on_pose),
        ):
            subscribe(self, message_type, topic, callback, qos.sensor_data(), self._diagnostics)
            self._diagnostics.expect(topic)

    def _on_joints(self, message: Any) -> None:
        if not self._may_use(message, self._joint_guard, "joint_states"):
            return
        try:
            complete = self._estimator.add_joints(
                message.name, message.position, message.velocity, nanoseconds(message.header.stamp)
            )
        except InvalidJointState as error:
            self._diagnostics.fault("joint_state_rejected", str(error))
            return
        self._publish(complete)

    def _on_pose(self, message: Any) -> None:
        if message.header.frame_id != self._config.base_frame:
            self._diagnostics.fault(
                "pose_rejected", f"pose is in frame {message.header.frame_id!r}; legal: {self._config.base_frame!r}"
            )
            return
        if not self._may_use(message, self._pose_guard, "end_effector_pose"):
            return
        point, turn = message.pose.position, message.pose.orientation
        try:
            complete = self._estimator.add_pose(
                np.array([point.x, point.y, point.z]),
                np.array([turn.x, turn.y, turn.z, turn.w]),
                nanoseconds(message.header.stamp),
            )
        except InvalidPose as error:
            self._diagnostics.fault("pose_rejected", str(error))
            return
        self._publish(complete)

    def _may_use(self, message: Any, guard: StampGuard, topic: str) -> bool:
        verdict = guard.judge(nanoseconds(message.header.stamp), now_ns(self))
        self._diagnostics.heard(topic)
        if verdict is StampVerdict.TIME_JUMP:
            self._estimator.reset()
            for other in (self._joint_guard, self._pose_guard):
                if other is not guard:
                    other.reset()  # its next stamp is the same jump, not a second one
            self._diagnostics.fault("time_jump", f"stamps of {topic} jumped back; the history starts anew")
            return True
        if verdict is not StampVerdict.FRESH:
            self._diagnostics.fault(f"{topic}_rejected", f"{topic}: stamp is {verdict.value}")
            return False
        return True

    def _publish(self, complete: tuple[KinematicState, JointSample] | None) -> None:
        if complete is None:
            return
        state, joints = complete
        velocities = joints.velocities[: len(self._config.arm_joints)]
        message = message_from_state(state, velocities, self._config.base_frame, self._config.window_s)
        message.time_jumps = self._joint_guard.time_jumps + self._pose_guard.time_jumps
        self._publisher.publish(message)


def main(args: Sequence[str] | None = None) -> int:
    """Runs the node until a signal."""
    return run_nodes([KinematicStateNode], args)
