"""The types that travel between the rooms: what the robot saw, where it was.

Stamps are nanoseconds of the header's clock (ROS time: wall, simulated or of a bag), never of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Rgb = npt.NDArray[np.uint8]
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Observation:
    """What the policy sees at one instant.

    Attributes:
        views: camera name to RGB, uint8 [H, W, 3], row 0 at the top.
        instruction: the task in natural language, cleaned (NFC, stripped, not empty).
        stamp_ns: capture time of the oldest view, nanoseconds.
    """

    views: Mapping[str, Rgb]
    instruction: str
    stamp_ns: int


@dataclass(frozen=True)
class KinematicState:
    """Where the arm is and how it moves, in the robot's base frame.

    Attributes:
        stamp_ns: time of the measurement, nanoseconds.
        position: end-effector position, float64 [3], metres.
        orientation: unit quaternion, float64 [4], (x, y, z, w).
        linear_velocity: float64 [3], metres per second.
        angular_velocity: float64 [3], radians per second.
        gripper_opening: 0 closed to 1 open.
        joint_positions: joint name to radians.
        path_length_m: length of the end effector's path over the window.
        curvature_per_m: mean curvature of that path; 0 on a line and at rest.
        fused_metric: HeiSD's F, 0 (slow, curved) to 1 (fast, straight); not a number where it is not calibrated or its
            window is not full.
    """

    stamp_ns: int
    position: Vector
    orientation: Vector
    linear_velocity: Vector
    angular_velocity: Vector
    gripper_opening: float
    joint_positions: Mapping[str, float] = field(default_factory=dict)
    path_length_m: float = 0.0
    curvature_per_m: float = 0.0
    fused_metric: float = float("nan")
