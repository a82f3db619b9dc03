"""KinematicState: the message and the core's type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.kinematics.path import MAX_NORM_ERROR
from vla_sd_ros.msg import KinematicState as KinematicStateMessage
from vla_sd_ros.ros.stamps import nanoseconds, stamp_from
from vla_sd_ros.types import KinematicState


def message_from_state(
    state: KinematicState, joint_velocities: Values, frame: str, window_s: float
) -> KinematicStateMessage:
    """The state as a message in ``frame``; ``joint_velocities`` in the order of ``state.joint_positions``."""
    message = KinematicStateMessage(
        gripper_opening=state.gripper_opening,
        joint_names=list(state.joint_positions),
        joint_positions=list(state.joint_positions.values()),
        joint_velocities=joint_velocities.tolist(),
        window_s=window_s,
        path_length_m=state.path_length_m,
        curvature_per_m=state.curvature_per_m,
        fused_metric=state.fused_metric,
    )
    message.header.stamp = stamp_from(state.stamp_ns)
    message.header.frame_id = frame
    pose, twist = message.end_effector_pose, message.end_effector_twist
    pose.position.x, pose.position.y, pose.position.z = state.position.tolist()
    turn = pose.orientation
    turn.x, turn.y, turn.z, turn.w = state.orientation.tolist()
    twist.linear.x, twist.linear.y, twist.linear.z = state.linear_velocity.tolist()
    twist.angular.x, twist.angular.y, twist.angular.z = state.angular_velocity.tolist()
    return message


def state_from_message(message: Any) -> KinematicState:
    """The message as the core's type.

    Raises:
        ValueError: where a value is not finite, the quaternion is no rotation, or names and positions of the joints
            do not fit together; the state is rejected whole.
    """
    if len(message.joint_names) != len(message.joint_positions):
        raise ValueError(f"{len(message.joint_names)} joint names but {len(message.joint_positions)} positions")
    pose, twist = message.end_effector_pose, message.end_effector_twist
    place, turn = pose.position, pose.orientation
    state = KinematicState(
        stamp_ns=nanoseconds(message.header.stamp),
        position=np.array([place.x, place.y, place.z]),
        orientation=np.array([turn.x, turn.y, turn.z, turn.w]),
        linear_velocity=np.array([twist.linear.x, twist.linear.y, twist.linear.z]),
        angular_velocity=np.array([twist.angular.x, twist.angular.y, twist.angular.z]),
        gripper_opening=float(message.gripper_opening),
        joint_positions=dict(zip(message.joint_names, message.joint_positions, strict=True)),
        path_length_m=float(message.path_length_m),
        curvature_per_m=float(message.curvature_per_m),
        fused_metric=float(message.fused_metric),
    )
    scalars = (state.gripper_opening, state.path_length_m, state.curvature_per_m, *state.joint_positions.values())
    parts = (state.position, state.orientation, state.linear_velocity, state.angular_velocity, np.array(scalars))
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError("kinematic state is not finite")
    if not (math.isnan(state.fused_metric) or 0.0 <= state.fused_metric <= 1.0):
        raise ValueError(f"fused_metric: {state.fused_metric}; legal: 0 to 1, or not a number where it is not known")
    if abs(np.linalg.norm(state.orientation) - 1.0) > MAX_NORM_ERROR:
        raise ValueError(f"orientation must be a unit quaternion: {state.orientation.tolist()}")
    return state
