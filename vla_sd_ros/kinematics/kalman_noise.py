"""Noise of the Kalman filters on actions, by maximum likelihood on demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from vla_sd_ros.actions.bins import N_DOF, Values
from vla_sd_ros.kinematics.kalman import N_FILTERED, QUANTISATION_VARIANCE, KalmanModel, new_filter

# Variances, normalised units squared: from a thousandth of a bin to the whole range per period.
_SMALLEST, _LARGEST = 1e-10, 4.0
_STARTS = (1e-4, 1e-2)


@dataclass(frozen=True, eq=False)
class KalmanNoise:
    """What a filter needs to know.

    Attributes:
        process: variance per period, float64 [6], (normalised units)^2.
        measurement: variance of the actions, float64 [6], (normalised units)^2.
        log_likelihood: mean per action and degree of freedom, float64 [6].
    """

    process: Values
    measurement: Values
    log_likelihood: Values


def fit_noise(trajectories: Sequence[npt.ArrayLike], model: KalmanModel, fit_measurement: bool = True) -> KalmanNoise:
    """The noise under which the actions of the trajectories are most likely.

    Args:
        trajectories: normalised actions, float [T, 7] each, one per control period.
        model: of the filter.
        fit_measurement: whether the measurement noise is fitted too; it is never less than that of rounding to bins,
            ``QUANTISATION_VARIANCE``, which it is otherwise.

    Raises:
        ValueError: on another shape, values that are not finite, or where no trajectory has three actions.
    """
    actions = _padded(trajectories)
    process, measurement, likelihood = (np.zeros(N_FILTERED) for _ in range(3))
    for dof in range(N_FILTERED):
        process[dof], measurement[dof], likelihood[dof] = _fit_one(actions[..., dof], model, fit_measurement)
    return KalmanNoise(process, measurement, likelihood)


def mean_log_likelihood(values: Values, model: KalmanModel, process_noise: float, measurement_noise: float) -> float:
    """Mean log-likelihood of one degree of freedom, float64 [trajectories, T]; not a number past a trajectory's end.

    The first value of a trajectory begins its filter and is not predicted. Gains do not depend on the values: one
    filter's are everybody's. The algebra is filterpy's, written out: a random walk is a constant velocity of 0, and a
    fit asks for it hundreds of times.
    """
    begun = new_filter(model, process_noise, measurement_noise, 0.0)
    covariance, noise = np.zeros((2, 2)), np.zeros((2, 2))
    states = len(begun.F)
    covariance[:states, :states], noise[:states, :states] = begun.P, begun.Q
    (p00, p01), (_, p11) = covariance.tolist()
    (q00, q01), (_, q11) = noise.tolist()
    estimate, rate = values[:, 0].copy(), np.zeros(len(values))
    innovations = np.empty_like(values[:, 1:].T)
    variances = np.empty(len(innovations))
    for step, newest in enumerate(values[:, 1:].T):
        p00, p01, p11 = p00 + 2.0 * p01 + p11 + q00, p01 + p11 + q01, p11 + q11
        variance = p00 + measurement_noise
        gain, rate_gain = p00 / variance, p01 / variance
        p00, p01, p11 = p00 * (1.0 - gain), p01 * (1.0 - gain), p11 - rate_gain * p01
        # Past a trajectory's end, not a number from here on.
        estimate += rate
        innovation = newest - estimate
        estimate += gain * innovation
        rate += rate_gain * innovation
        innovations[step], variances[step] = innovation, variance
    squares = innovations**2 / variances[:, None] + np.log(2.0 * np.pi * variances)[:, None]
    return float(-0.5 * np.nanmean(squares))


def _fit_one(values: Values, model: KalmanModel, fit_measurement: bool) -> tuple[float, float, float]:
    def negative(logarithms: Values) -> float:
        measurement = np.exp(logarithms[1]) if fit_measurement else QUANTISATION_VARIANCE
        return -mean_log_likelihood(values, model, float(np.exp(logarithms[0])), float(measurement))

    lowest = [_SMALLEST, QUANTISATION_VARIANCE] if fit_measurement else [_SMALLEST]
    bounds = [(np.log(low), np.log(_LARGEST)) for low in lowest]
    # The likelihood is smooth in the logarithms but not convex: the better of two starts is kept.
    fits = [
        minimize(
            negative, np.log([start, 2.0 * QUANTISATION_VARIANCE][: len(bounds)]), method="L-BFGS-B", bounds=bounds
        )
        for start in _STARTS
    ]
    best = min(fits, key=lambda fit: float(fit.fun))
    measurement = float(np.exp(best.x[1])) if fit_measurement else QUANTISATION_VARIANCE
    return float(np.exp(best.x[0])), measurement, -float(best.fun)


def _padded(trajectories: Sequence[npt.ArrayLike]) -> Values:
    """Values 0 to 5 of trajectories of at least three actions, float64 [n, longest, 6], padded with not-a-number."""
    arrays = [np.asarray(trajectory, dtype=np.float64) for trajectory in trajectories]
    for array in arrays:
        if array.ndim != 2 or array.shape[1] != N_DOF or not np.isfinite(array).all():
            raise ValueError(f"actions: shape {array.shape}; legal: (T, {N_DOF}), all finite")
    arrays = [array for array in arrays if len(array) >= 3]
    if not arrays:
        raise ValueError("no trajectory has three actions")
    padded = np.full((len(arrays), max(map(len, arrays)), N_FILTERED), np.nan)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array[:, :N_FILTERED]
    return padded
