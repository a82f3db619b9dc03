"""HeiSD's kinematic fused metric: is the arm on a fast, straight way (large) or in a slow, curved, fine one (small)?

``F = alpha * Norm(R) + (1 - alpha) * Norm(D)`` over the last positions of the end effector (HeiSD, section 3.4): R is a
radius of curvature, D the length of the path, and Norm the min-max normalisation of demonstrations, clipped at their
95th percentile. D is the length of the path as the paper has it; the authors' code sums distances to the last position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, ConfigDict
from scipy.optimize import least_squares

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.kinematics.path import MIN_STEP_M, path_curvature
from vla_sd_ros.kinematics.position_window import EndEffectorPositions

MetricForm = Literal["paper", "authors", "curvature"]

MIN_POSITIONS = 3
#: Radius that stands for a straight line: over the 0.1 m to 0.2 m that an arm moves in a window it turns by a tenth of
#: a right angle, about as much as the jitter of a straight demonstration.
MAX_RADIUS_M = 1.0
#: Extent from which on a path has a curvature that noise does not decide: two steps of ``MIN_STEP_M``.
MIN_EXTENT_M = 2 * MIN_STEP_M
CLIP_PERCENTILE = 95.0
#: What the position of an arm at rest varies by.
SENSOR_NOISE_M = 1e-5
#: A path whose width is a smaller share of its length is a line, on which a circle has no centre.
MIN_FLATNESS = 1e-6
#: Most evaluations that the fit of a circle may take: on a nearly straight path it goes on for ever outwards.
MAX_EVALUATIONS = 10


def _ordered(interval: tuple[float, float]) -> tuple[float, float]:
    lowest, highest = interval
    if not 0.0 <= lowest < highest:
        raise ValueError(f"({lowest}, {highest}); legal: 0 <= lowest < highest")
    return interval


Interval = Annotated[tuple[float, float], AfterValidator(_ordered)]


class MetricRanges(BaseModel):
    """What demonstrations span; normalises to 0 to 1, clipped.

    Attributes:
        radius_m: lowest, and 95th percentile, of R, m.
        path_length_m: the same of D, m.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    radius_m: Interval
    path_length_m: Interval


class FusedMetric:
    """The metric in one of three forms.

    ``paper``: R is the mean distance, in the best-fit plane, to the centre of the circle that fits best, searched from
    the centroid: the true radius on an arc, at most ``MAX_RADIUS_M`` on a line.

    ``authors``: R is the mean distance to the centroid. This is what the released code computes, and what its ranges
    and thresholds were measured with: it starts ``scipy.optimize.least_squares`` at the mean of centred coordinates,
    some 1e-18 instead of 0, from which scipy takes the radius of the first trust region, and so stops where it starts.
    R is 0.30 times the length of the path for 5 positions and about 0.27 times for 15, on a line as on an arc: F is
    the arm's speed under another name.

    ``curvature``: R is the inverse of the path's mean curvature, at most ``MAX_RADIUS_M``, which a line has. An arm at
    rest has no curvature either, but its path is no line: it stands where it grasps or releases, and F must be small
    there. R is therefore scaled by the path's extent where this is below ``MIN_EXTENT_M``: it goes to 0 with it,
    without a jump, and noise does not count.

    Args:
        form: which R.
        window: how many positions are looked at, at least 3 (15 in the paper, 5 in the authors' code).
        alpha: weight of R, 0 to 1.
        ranges: of the same form and window.
    """

    def __init__(self, form: MetricForm, window: int = 15, alpha: float = 0.5, *, ranges: MetricRanges) -> None:
        if window < MIN_POSITIONS:
            raise ValueError(f"window: {window}; legal: at least {MIN_POSITIONS}")
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"alpha: {alpha}; legal: 0 to 1")
        self._radius = _radius_of(form)
        self.form, self.window, self.alpha, self.ranges = form, window, alpha, ranges

    def value(self, positions: EndEffectorPositions) -> float:
        """F, 0 to 1, of the newest ``window`` positions; not a number with fewer than 3.

        Args:
            positions: float64 [n, 3], m, base frame, oldest first, one per control period. While the window is not
                full its path is shorter, and F smaller.

        Raises:
            ValueError: on another shape or values that are not finite.
        """
        points = checked_positions(positions)[-self.window :]
        if len(points) < MIN_POSITIONS:
            return float("nan")
        return float(self.fuse(self._radius(points), path_length(points)))

    def fuse(self, radius_m: npt.ArrayLike, path_length_m: npt.ArrayLike) -> Values:
        """F of radii and path lengths, m, any shape."""
        radius = _normalised(radius_m, self.ranges.radius_m)
        length = _normalised(path_length_m, self.ranges.path_length_m)
        return self.alpha * radius + (1.0 - self.alpha) * length


def calibrate_ranges(trajectories: Sequence[npt.ArrayLike], form: MetricForm, window: int) -> MetricRanges:
    """Ranges of demonstrations, float [T, 3] each: positions of the end effector, m, base frame, one per period.

    Raises:
        ValueError: where no trajectory is as long as the window, or the arm does the same in all of them.
    """
    return ranges_of(*radii_and_lengths(trajectories, form, window))


def ranges_of(radii_m: Values, path_lengths_m: Values) -> MetricRanges:
    """Lowest value and 95th percentile of each, float64 [n], m."""
    return MetricRanges(
        radius_m=(float(radii_m.min()), float(np.percentile(radii_m, CLIP_PERCENTILE))),
        path_length_m=(float(path_lengths_m.min()), float(np.percentile(path_lengths_m, CLIP_PERCENTILE))),
    )


def radii_and_lengths(
    trajectories: Sequence[npt.ArrayLike], form: MetricForm, window: int, stride: int = 1
) -> tuple[Values, Values]:
    """R and D, m, float64 [n] each, of full windows of the trajectories.

    Args:
        trajectories: positions, float [T, 3] each, m, base frame, one per control period.
        form: which R.
        window: positions in a window.
        stride: every which window is taken.

    Raises:
        ValueError: as ``calibrate_ranges``.
    """
    radius = _radius_of(form)
    # Counted through all trajectories: from the start of each, every stride would meet the same phases of a task.
    windows = [
        points[start : start + window]
        for points in map(checked_positions, trajectories)
        for start in range(len(points) - window + 1)
    ][::stride]
    if window < MIN_POSITIONS or not windows:
        raise ValueError(f"window: {window}; legal: {MIN_POSITIONS} to the length of the longest trajectory")
    return np.array([radius(points) for points in windows]), np.array([path_length(points) for points in windows])


def checked_positions(positions: npt.ArrayLike) -> Values:
    """Positions as float64 [n, 3].

    Raises:
        ValueError: on another shape or values that are not finite.
    """
    points = np.asarray(positions, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"positions: shape {points.shape}; legal: (n, 3)")
    if not np.isfinite(points).all():
        raise ValueError("positions are not finite")
    return points


def path_length(points: Values) -> float:
    """Length of a polyline, float64 [n, 3], m."""
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


def curvature_radius(points: Values) -> float:
    """R of the form ``curvature``, m: ``MAX_RADIUS_M`` on a line, 0 at rest."""
    curvature_per_m = path_curvature(points)
    radius_m = min(1.0 / curvature_per_m, MAX_RADIUS_M) if curvature_per_m > 0.0 else MAX_RADIUS_M
    # Farthest from the first position, not the path's length: noise adds to this one with every sample.
    extent_m = float(np.linalg.norm(points - points[0], axis=1).max())
    return radius_m * min(1.0, extent_m / MIN_EXTENT_M)


def centroid_radius(points: Values) -> float:
    """R of the form ``authors``, m."""
    return float(np.hypot(*_in_plane(points)[0].T).mean())


def circle_radius(points: Values) -> float:
    """R of the form ``paper``, m: ``MAX_RADIUS_M`` on a line, 0 where nothing moves."""
    plane, (length, width) = _in_plane(points)
    if length < SENSOR_NOISE_M:
        return 0.0
    if width <= MIN_FLATNESS * length:
        return MAX_RADIUS_M
    fit = least_squares(
        _radius_residuals, np.zeros(2), _radius_jacobian, method="lm", max_nfev=MAX_EVALUATIONS, args=(plane,)
    )
    return min(float(np.hypot(*(plane - fit.x).T).mean()), MAX_RADIUS_M)


def _in_plane(points: Values) -> tuple[Values, tuple[float, float]]:
    """Centred coordinates in the best-fit plane, [n, 2], and the singular values along its axes."""
    centred = points - points.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    return centred @ axes[:2].T, (float(sizes[0]), float(sizes[1]))


def _radius_residuals(centre: Values, plane: Values) -> Values:
    radii = np.hypot(*(plane - centre).T)
    return np.asarray(radii - radii.mean())


def _radius_jacobian(centre: Values, plane: Values) -> Values:
    offsets = centre - plane
    radii = np.hypot(*offsets.T)
    # A position in the centre itself has no direction to it.
    directions = offsets / np.where(radii > 0.0, radii, 1.0)[:, None]
    return np.asarray(directions - directions.mean(axis=0))


def _normalised(values: npt.ArrayLike, interval: tuple[float, float]) -> Values:
    lowest, highest = interval
    return np.clip((np.asarray(values, dtype=np.float64) - lowest) / (highest - lowest), 0.0, 1.0)


_RADII: Final[Mapping[str, Callable[[Values], float]]] = {
    "paper": circle_radius,
    "authors": centroid_radius,
    "curvature": curvature_radius,
}


def _radius_of(form: str) -> Callable[[Values], float]:
    if form not in _RADII:
        raise ValueError(f"form: {form!r}; legal: {sorted(_RADII)}")
    return _RADII[form]
