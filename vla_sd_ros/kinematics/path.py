"""The end effector's recent path: twist, length and curvature over a window of poses."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.actions.rotation import angular_difference
from vla_sd_ros.kinematics.clock import NS_PER_S

# The path is looked at in steps of at least this length. Shorter ones have no direction that sensor noise (1e-5 m)
# would not decide, and at 1 kHz every step of a slow arm is shorter.
MIN_STEP_M = 5e-3
#: A quaternion whose length differs from 1 by more is no rotation but a fault.
MAX_NORM_ERROR = 0.01
#: Stamps of a driver that publishes at a steady rate vary by so much.
STAMP_TOLERANCE_S = 2e-3


class InvalidPose(ValueError):
    """A pose that cannot be used; it is rejected whole."""


@dataclass(frozen=True)
class PathStatistics:
    """What the window says.

    Attributes:
        linear_velocity: float64 [3], m/s; zero until two poses are known.
        angular_velocity: float64 [3], rad/s, base axes.
        path_length_m: sum of the steps' lengths.
        curvature_per_m: mean curvature of the path, 1/m; 0 on a line, at rest, and below noise.
    """

    linear_velocity: Values
    angular_velocity: Values
    path_length_m: float
    curvature_per_m: float


class PoseHistory:
    """The poses of the last ``window_s`` seconds, by stamp.

    Args:
        window_s: length of the window.
        max_gap_s: a gap in time longer than this starts a new window: nothing is differentiated across it.
    """

    def __init__(self, window_s: float, max_gap_s: float) -> None:
        self._window_ns = int(window_s * NS_PER_S)
        self._max_gap_ns = int(max_gap_s * NS_PER_S)
        self._poses: deque[tuple[int, Values, Values]] = deque()

    def add(self, stamp_ns: int, position: npt.ArrayLike, orientation: npt.ArrayLike) -> PathStatistics:
        """Adds a pose and describes the window that ends with it.

        Args:
            stamp_ns: newer than that of the pose before.
            position: float [3], m, base frame.
            orientation: quaternion (x, y, z, w), float [4], of unit length within 1 %.

        Raises:
            InvalidPose: on values that are not finite, a quaternion that is not a rotation, or a stamp out of order.
        """
        place = np.asarray(position, dtype=np.float64)
        turn = np.asarray(orientation, dtype=np.float64)
        if place.shape != (3,) or not np.isfinite(place).all():
            raise InvalidPose(f"position must be three finite numbers: {place.tolist()}")
        if turn.shape != (4,) or not np.isfinite(turn).all() or abs(np.linalg.norm(turn) - 1.0) > MAX_NORM_ERROR:
            raise InvalidPose(f"orientation must be a unit quaternion: {turn.tolist()}")
        if self._poses and stamp_ns <= self._poses[-1][0]:
            raise InvalidPose(f"stamp {stamp_ns} ns is not newer than the pose before, of {self._poses[-1][0]} ns")
        if self._poses and stamp_ns - self._poses[-1][0] > self._max_gap_ns:
            self._poses.clear()
        self._poses.append((stamp_ns, place, turn / np.linalg.norm(turn)))
        while self._poses[-1][0] - self._poses[0][0] > self._window_ns:
            self._poses.popleft()
        return self._describe()

    def sampled(self, period_s: float, count: int) -> Values | None:
        """Positions one period apart, the newest last, between the poses' own by linear interpolation.

        Args:
            period_s: from one to the next.
            count: how many, at least 1.

        Returns:
            float64 [count, 3], m, base frame; None where the window does not reach back so far.
        """
        if not self._poses:
            return None
        stamps_ns = np.array([stamp_ns for stamp_ns, _, _ in self._poses])
        ages_s = (stamps_ns - stamps_ns[-1]) / NS_PER_S
        wanted_s = period_s * np.arange(1 - count, 1)
        if wanted_s[0] < ages_s[0] - STAMP_TOLERANCE_S:
            return None
        points = np.stack([place for _, place, _ in self._poses])
        return np.stack([np.interp(wanted_s, ages_s, axis) for axis in points.T], axis=1)

    def reset(self) -> None:
        """Forgets everything: after a time jump."""
        self._poses.clear()

    def _describe(self) -> PathStatistics:
        if len(self._poses) < 2:
            return PathStatistics(np.zeros(3), np.zeros(3), 0.0, 0.0)
        (earlier_ns, earlier, earlier_turn), (later_ns, later, later_turn) = self._poses[-2], self._poses[-1]
        elapsed_s = (later_ns - earlier_ns) / NS_PER_S
        points = np.stack([place for _, place, _ in self._poses])
        return PathStatistics(
            linear_velocity=(later - earlier) / elapsed_s,
            angular_velocity=angular_difference(later_turn, earlier_turn) / elapsed_s,
            path_length_m=float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum()),
            curvature_per_m=path_curvature(points),
        )


def path_curvature(points: npt.ArrayLike) -> float:
    """Mean curvature of a polyline, float [n, 3] in metres: turning angle over the length it is turned on, 1/m.

    Zero for fewer than two steps of ``MIN_STEP_M``, on a straight line and at rest; independent of the sampling rate.
    """
    steps = np.diff(_thinned(np.asarray(points, dtype=np.float64)), axis=0)
    if len(steps) < 2:
        return 0.0
    lengths = np.linalg.norm(steps, axis=1)
    directions = steps / lengths[:, None]
    # atan2 of sine and cosine: exact for small angles, where arccos of a dot product is not.
    sines = np.linalg.norm(np.cross(directions[:-1], directions[1:]), axis=1)
    cosines = np.einsum("ij,ij->i", directions[:-1], directions[1:])
    # Each turn belongs to half of the step before and half of the one after it.
    turned_on = lengths.sum() - (lengths[0] + lengths[-1]) / 2.0
    return float(np.arctan2(sines, cosines).sum() / turned_on)


def _thinned(points: Values) -> Values:
    """The points that are at least ``MIN_STEP_M`` from the one kept before."""
    kept: list[list[float]] = []
    for point in points.tolist():
        if not kept or math.dist(point, kept[-1]) >= MIN_STEP_M:
            kept.append(point)
    return np.asarray(kept, dtype=np.float64).reshape(-1, 3)
