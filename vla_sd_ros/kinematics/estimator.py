"""Joins joint states and end-effector poses of the same instant into one kinematic state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.kinematics.clock import NS_PER_S
from vla_sd_ros.kinematics.fused_metric import FusedMetric
from vla_sd_ros.kinematics.joints import JointReader, JointSample
from vla_sd_ros.kinematics.path import PathStatistics, PoseHistory
from vla_sd_ros.kinematics.position_window import EndEffectorPositions
from vla_sd_ros.types import KinematicState

#: Window of the path statistics, and the gap that begins a new one, where no others are named.
WINDOW_S = 0.75
MAX_GAP_S = 0.5


@dataclass(frozen=True)
class GripperCalibration:
    """Where the gripper's joints stand when it is closed and open, summed over the finger joints (m or rad)."""

    closed: float
    open: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.closed) and math.isfinite(self.open)):
            raise ValueError(f"gripper: closed {self.closed} and open {self.open} must be finite")
        if self.closed == self.open:
            raise ValueError(f"gripper: closed and open positions are both {self.open}; they must differ")

    def opening(self, position: float) -> float:
        """0 closed to 1 open, clipped."""
        return float(np.clip((position - self.closed) / (self.open - self.closed), 0.0, 1.0))


class KinematicEstimator:
    """Pairs the newest joint state with the newest pose and follows the path.

    Args:
        arm_joints: joint names of the arm, in the wanted order.
        finger_joints: joint names of the gripper.
        gripper: what their sum means.
        window_s: window of the path statistics.
        max_gap_s: gap after which the window starts anew.
        max_skew_s: joints and pose further apart than this do not describe one instant.
        metric: the fused metric; None: not computed.
        metric_period_s: time from one of its positions to the next: the control period that it was calibrated with.

    Raises:
        ValueError: where the metric's window is longer than ``window_s``.
    """

    def __init__(
        self,
        arm_joints: Sequence[str],
        finger_joints: Sequence[str],
        gripper: GripperCalibration,
        window_s: float = WINDOW_S,
        max_gap_s: float = MAX_GAP_S,
        max_skew_s: float = 0.02,
        metric: FusedMetric | None = None,
        metric_period_s: float = 0.05,
    ) -> None:
        if metric is not None and (metric.window - 1) * metric_period_s > window_s:
            raise ValueError(
                f"window_s: {window_s}; legal: at least {(metric.window - 1) * metric_period_s:g}, "
                f"for {metric.window} positions of the fused metric, {metric_period_s} s apart"
            )
        self._arm_joints = tuple(arm_joints)
        self._reader = JointReader([*arm_joints, *finger_joints])
        self._gripper = gripper
        self._history = PoseHistory(window_s, max_gap_s)
        self._metric = metric
        self._metric_period_s = metric_period_s
        self._max_skew_ns = int(max_skew_s * NS_PER_S)
        self._joints: JointSample | None = None
        self._pose: tuple[int, Values, Values, PathStatistics] | None = None
        self._published_ns = 0

    def add_joints(
        self, names: Sequence[str], positions: npt.ArrayLike, velocities: npt.ArrayLike, stamp_ns: int
    ) -> tuple[KinematicState, JointSample] | None:
        """Takes a joint state; returns a new kinematic state where one is complete.

        Raises:
            InvalidJointState: as ``JointReader.read``.
        """
        self._joints = self._reader.read(names, positions, velocities, stamp_ns)
        return self._complete()

    def add_pose(
        self, position: npt.ArrayLike, orientation: npt.ArrayLike, stamp_ns: int
    ) -> tuple[KinematicState, JointSample] | None:
        """Takes an end-effector pose in the base frame; returns a new kinematic state where one is complete.

        Raises:
            InvalidPose: as ``PoseHistory.add``.
        """
        statistics = self._history.add(stamp_ns, position, orientation)
        place = np.asarray(position, dtype=np.float64)
        turn = np.asarray(orientation, dtype=np.float64)
        self._pose = (stamp_ns, place, turn / np.linalg.norm(turn), statistics)
        return self._complete()

    def reset(self) -> None:
        """Forgets everything: after a time jump nothing before it may mix with what comes."""
        self._reader.reset()
        self._history.reset()
        self._joints = None
        self._pose = None
        self._published_ns = 0

    def _complete(self) -> tuple[KinematicState, JointSample] | None:
        if self._joints is None or self._pose is None:
            return None
        stamp_ns, position, orientation, path = self._pose
        if abs(stamp_ns - self._joints.stamp_ns) > self._max_skew_ns or stamp_ns <= self._published_ns:
            return None
        self._published_ns = stamp_ns
        arm = len(self._arm_joints)
        state = KinematicState(
            stamp_ns=stamp_ns,
            position=position,
            orientation=orientation,
            linear_velocity=path.linear_velocity,
            angular_velocity=path.angular_velocity,
            gripper_opening=self._gripper.opening(float(self._joints.positions[arm:].sum())),
            joint_positions=dict(zip(self._arm_joints, self._joints.positions[:arm].tolist(), strict=True)),
            path_length_m=path.path_length_m,
            curvature_per_m=path.curvature_per_m,
            fused_metric=self._fused_metric(),
        )
        return state, self._joints

    def _fused_metric(self) -> float:
        if self._metric is None:
            return math.nan
        positions = self._history.sampled(self._metric_period_s, self._metric.window)
        return math.nan if positions is None else self._metric.value(EndEffectorPositions(positions))
