"""The end effector's recent path: twist, length and curvature over a window of poses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.actions.rotation import angular_difference
from vla_sd_ros.safety.freshness import NS_PER_S

# Steps shorter than this are sensor noise: they have a length but no direction, so they do not turn the path.
MIN_STEP_M = 1e-4


class InvalidPose(ValueError):
    """A pose that cannot be used; it is rejected whole."""


@dataclass(frozen=True)
class PathStatistics:
    """What the window says.

    Attributes:
        linear_velocity: float64 [3], m/s; zero until two poses are known.
        angular_velocity: float64 [3], rad/s, base axes.
        path_length_m: sum of the steps' lengths.
        curvature_per_m: total turning angle over path length, 1/m; 0 on a line, at rest, and below noise.
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
            InvalidPose: on values that are not finite, or a quaternion that is not a rotation.
        """
        place = np.asarray(position, dtype=np.float64)
        turn = np.asarray(orientation, dtype=np.float64)
        if place.shape != (3,) or not np.isfinite(place).all():
            raise InvalidPose(f"position must be three finite numbers: {place.tolist()}")
        if turn.shape != (4,) or not np.isfinite(turn).all() or abs(np.linalg.norm(turn) - 1.0) > 0.01:
            raise InvalidPose(f"orientation must be a unit quaternion: {turn.tolist()}")
        if self._poses and stamp_ns - self._poses[-1][0] > self._max_gap_ns:
            self._poses.clear()
        self._poses.append((stamp_ns, place, turn / np.linalg.norm(turn)))
        while self._poses[-1][0] - self._poses[0][0] > self._window_ns:
            self._poses.popleft()
        return self._describe()

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
    """Mean curvature of a polyline, float [n, 3] in metres: total turning angle over length, 1/m.

    Zero for fewer than two steps longer than ``MIN_STEP_M``, on a straight line and at rest.
    """
    steps = np.diff(np.asarray(points, dtype=np.float64), axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    moving = lengths > MIN_STEP_M
    if moving.sum() < 2:
        return 0.0
    directions = steps[moving] / lengths[moving, None]
    # atan2 of sine and cosine: exact for small angles, where arccos of a dot product is not.
    sines = np.linalg.norm(np.cross(directions[:-1], directions[1:]), axis=1)
    cosines = np.einsum("ij,ij->i", directions[:-1], directions[1:])
    return float(np.arctan2(sines, cosines).sum() / lengths[moving].sum())
