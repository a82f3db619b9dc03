"""Messages as a robot's drivers would send them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from geometry_msgs.msg import PoseStamped
from sensor_msgs.msg import CompressedImage, Image, JointState

from vla_sd_ros.msg import KinematicState, Observation, VlaAction
from vla_sd_ros.ros.arrays import as_byte_array
from vla_sd_ros.ros.stamps import stamp_from

BASE_FRAME = "panda_link0"
ARM_JOINTS = [f"panda_joint{number}" for number in range(1, 8)]
FINGER_JOINTS = ["panda_finger_joint1", "panda_finger_joint2"]
ARM_POSITIONS = [0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.7]


def image(
    pixels: np.ndarray, encoding: str = "rgb8", stamp_ns: int = 0, step: int | None = None, frame: str = "optical"
) -> Image:
    """An image of rows as they lie in memory, uint8 [height, width(, channels)]; ``step`` pads them."""
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    step = rows.shape[1] if step is None else step
    padded = np.full((height, max(step, rows.shape[1])), 0xAA, dtype=np.uint8)
    padded[:, : rows.shape[1]] = rows
    message = Image(height=height, width=width, encoding=encoding, step=step, data=as_byte_array(padded))
    message.header.stamp = stamp_from(stamp_ns)
    message.header.frame_id = frame
    return message


def compressed(
    pixels_bgr: np.ndarray, extension: str = ".png", form: str = "", stamp_ns: int = 0, quality: int = 95
) -> CompressedImage:
    """A PNG or JPEG of OpenCV's pixels (BGR, or grey)."""
    options = [cv2.IMWRITE_JPEG_QUALITY, quality] if extension == ".jpg" else []
    _, data = cv2.imencode(extension, pixels_bgr, options)
    message = CompressedImage(format=form or extension[1:], data=as_byte_array(data))
    message.header.stamp = stamp_from(stamp_ns)
    message.header.frame_id = "optical"
    return message


def colour_card(height: int = 224, width: int = 224) -> np.ndarray:
    """Red, green over blue, white: uint8 RGB [height, width, 3], told apart in every channel order."""
    card = np.zeros((height, width, 3), dtype=np.uint8)
    card[: height // 2, : width // 2] = (230, 20, 40)
    card[: height // 2, width // 2 :] = (20, 210, 60)
    card[height // 2 :, : width // 2] = (30, 50, 220)
    card[height // 2 :, width // 2 :] = (240, 240, 240)
    return card


def joint_state(
    stamp_ns: int,
    names: Sequence[str] = (*ARM_JOINTS, *FINGER_JOINTS),
    positions: Sequence[float] = (*ARM_POSITIONS, 0.04, 0.04),
    velocities: Sequence[float] = (),
) -> JointState:
    """Joint positions, rad and m; by default an open gripper and no velocities."""
    message = JointState(name=list(names), position=list(positions), velocity=list(velocities))
    message.header.stamp = stamp_from(stamp_ns)
    return message


def pose(
    stamp_ns: int,
    position: Sequence[float] = (0.4, 0.0, 0.3),
    orientation: Sequence[float] = (0.0, 0.0, 0.0, 1.0),
    frame: str = BASE_FRAME,
) -> PoseStamped:
    """An end-effector pose."""
    message = PoseStamped()
    message.header.stamp = stamp_from(stamp_ns)
    message.header.frame_id = frame
    point, turn = message.pose.position, message.pose.orientation
    point.x, point.y, point.z = map(float, position)
    turn.x, turn.y, turn.z, turn.w = map(float, orientation)
    return message


def kinematic_state(
    stamp_ns: int, position: Sequence[float] = (0.4, 0.0, 0.3), frame: str = BASE_FRAME
) -> KinematicState:
    """An arm at rest with its gripper open."""
    message = KinematicState(
        gripper_opening=1.0,
        joint_names=ARM_JOINTS,
        joint_positions=ARM_POSITIONS,
        joint_velocities=[0.0] * 7,
        window_s=0.75,
    )
    message.header.stamp = stamp_from(stamp_ns)
    message.header.frame_id = frame
    point = message.end_effector_pose.position
    point.x, point.y, point.z = map(float, position)
    message.end_effector_pose.orientation.w = 1.0
    return message


def vla_action(
    stamp_ns: int,
    values: Sequence[float] = (0.01, 0.0, -0.005, 0.0, 0.0, 0.02, 1.0),
    period_s: float = 0.05,
    frame: str = BASE_FRAME,
) -> VlaAction:
    """An action of the policy."""
    message = VlaAction(values=np.asarray(values, dtype=np.float64), period_s=period_s)
    message.header.stamp = stamp_from(stamp_ns)
    message.header.frame_id = frame
    return message


def observation(stamp_ns: int, rgb: np.ndarray, views: Sequence[str] = ("camera",)) -> Observation:
    """An observation of the same picture, uint8 [size, size, 3], in every view."""
    size = rgb.shape[0]
    message = Observation(view_names=list(views), height_px=size, width_px=rgb.shape[1])
    message.header.stamp = stamp_from(stamp_ns)
    message.header.frame_id = "optical"
    message.rgb = as_byte_array(np.stack([rgb] * len(views)))
    return message


def pixels_of(message: Any) -> np.ndarray:
    """The pictures of an observation, uint8 [views, height, width, 3]."""
    shape = (len(message.view_names), message.height_px, message.width_px, 3)
    return np.frombuffer(message.rgb, dtype=np.uint8).reshape(shape)
