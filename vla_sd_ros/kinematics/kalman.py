"""Kalman filters on normalised actions: what the arm will probably do next, from what it did last (KERV, section 4.1).

One filter per degree of freedom 0 to 5. Two models: ``random_walk``, in which the action stays as it is, and
``constant_velocity``, in which it drifts linearly (an action is a displacement per period, so the arm accelerates
evenly). The gripper is never filtered: it is open or closed, and a number between them is neither.

With noise that is known beforehand the gains do not depend on the actions, and a prediction is a fixed linear
combination of them. filterpy computes the gains once, and a prediction is one product: 0.01 ms, where six filterpy
filters take 1.3 ms to run over ten actions. The tests hold it against filterpy run step by step.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from filterpy.kalman import KalmanFilter

from vla_sd_ros.actions.bins import N_BINS, N_DOF, ActionBins, Ids, Values

KalmanModel = Literal["random_walk", "constant_velocity"]

#: Degrees of freedom that are filtered: all but the gripper.
N_FILTERED: Final = 6
#: Actions that a prediction is made of; more make it worse (KERV's action context, AC).
CONTEXT: Final = 10
#: Variance of a value that is rounded to a bin's centre.
QUANTISATION_VARIANCE: Final = (2.0 / (N_BINS - 1)) ** 2 / 12.0
# Before the second action the change per period is unknown: up to the whole range.
_UNKNOWN_RATE_VARIANCE: Final = 4.0


def transition(model: KalmanModel) -> Values:
    """Matrix A of the model, float64 [states, states].

    Raises:
        ValueError: on an unknown model.
    """
    if model == "random_walk":
        return np.array([[1.0]])
    if model == "constant_velocity":
        return np.array([[1.0, 1.0], [0.0, 1.0]])
    raise ValueError(f"model: {model!r}; legal: 'random_walk', 'constant_velocity'")


def process_covariance(model: KalmanModel, process_noise: float) -> Values:
    """Matrix Q of the model: the action (random walk) or its rate (constant velocity) is pushed once per period."""
    if model == "random_walk":
        return np.array([[process_noise]])
    return process_noise * np.array([[0.25, 0.5], [0.5, 1.0]])


def new_filter(model: KalmanModel, process_noise: float, measurement_noise: float, first: float) -> KalmanFilter:
    """A filter of one degree of freedom that has seen its first value.

    Args:
        model: which.
        process_noise: variance q, (normalised units)^2 per period.
        measurement_noise: variance of the values, (normalised units)^2.
        first: the first value.
    """
    matrix = transition(model)
    states = len(matrix)
    kalman = KalmanFilter(dim_x=states, dim_z=1)
    kalman.F = matrix
    kalman.H = np.eye(1, states)
    kalman.Q = process_covariance(model, process_noise)
    kalman.R = np.array([[measurement_noise]])
    kalman.x = np.zeros((states, 1))
    kalman.x[0] = first
    kalman.P = np.diag([measurement_noise, _UNKNOWN_RATE_VARIANCE][:states])
    return kalman


class ActionKalmanFilter:
    """Predicts the next action from the last ``CONTEXT`` ones; older ones are forgotten.

    Args:
        model: which.
        process_noise: variance per period, float [6], (normalised units)^2.
        measurement_noise: variance of the actions, float [6], (normalised units)^2, above 0.
        min_samples: nothing is predicted from fewer actions, 1 to ``CONTEXT``.
    """

    def __init__(
        self,
        model: KalmanModel,
        process_noise: npt.ArrayLike,
        measurement_noise: npt.ArrayLike,
        min_samples: int = 3,
    ) -> None:
        process, measurement = np.asarray(process_noise, np.float64), np.asarray(measurement_noise, np.float64)
        for name, noise in (("process_noise", process), ("measurement_noise", measurement)):
            if noise.shape != (N_FILTERED,) or not np.isfinite(noise).all() or (noise < 0.0).any():
                raise ValueError(f"{name}: {noise.tolist()}; legal: {N_FILTERED} variances of at least 0")
        if (measurement == 0.0).any():
            raise ValueError(f"measurement_noise: {measurement.tolist()}; legal: above 0")
        if not 1 <= min_samples <= CONTEXT:
            raise ValueError(f"min_samples: {min_samples}; legal: 1 to {CONTEXT}")
        self.min_samples = min_samples
        self._weights = _prediction_weights(model, process, measurement)
        self._actions: deque[Values] = deque(maxlen=CONTEXT)

    def __len__(self) -> int:
        """Actions that a prediction would be made of."""
        return len(self._actions)

    def update(self, normalised: npt.ArrayLike) -> None:
        """Takes an executed action, float [7], normalised; the gripper is not looked at.

        Raises:
            ValueError: on another shape or values that are not finite; nothing changes then.
        """
        self._actions.append(_checked_actions(np.asarray(normalised)[None])[0])

    def predict(self) -> Values | None:
        """Values 0 to 5 of the next action, float64 [6], normalised, -1 to 1; None before ``min_samples`` actions."""
        return self.predict_from(np.array(self._actions).reshape(-1, N_FILTERED))

    def predict_from(self, normalised: npt.ArrayLike) -> Values | None:
        """The same from actions that are given, float [n, 6 or 7], oldest first; what was taken stays as it is.

        Raises:
            ValueError: on another shape or values that are not finite.
        """
        actions = _checked_actions(normalised)[-CONTEXT:]
        if len(actions) < self.min_samples:
            return None
        prediction = np.einsum("nd,nd->d", self._weights[len(actions) - 1], actions)
        return np.clip(prediction, -1.0, 1.0)

    def reset(self) -> None:
        """Forgets all actions."""
        self._actions.clear()


def authors_random_walk(history_ids: npt.ArrayLike, bins: ActionBins) -> Ids | None:
    """Next tokens as KERV's released code predicts them: seven random walks on token ids, over the whole history.

    The gains settle at 0.999, so that this is the last action. Mended: ids are rounded, not truncated, and from an
    empty history nothing is predicted. As there, the gripper is treated like the rest, and the lowest id is left out.

    Args:
        history_ids: tokens of the executed actions, int [n, 7], oldest first.
        bins: which ids are legal.

    Returns:
        int64 [7]; None where there is no history.

    Raises:
        ValueError: on another shape or ids that are no action's.
    """
    ids = np.asarray(history_ids)
    if ids.ndim != 2 or ids.shape[1] != N_DOF:
        raise ValueError(f"history_ids: shape {ids.shape}; legal: (n, {N_DOF})")
    if not len(ids):
        return None
    bins.bin_of(ids)
    estimate, variance = ids[0].astype(np.float64), 10.0
    for tokens in ids:
        variance += 1.0
        gain = variance / (variance + 1e-3)
        estimate += gain * (tokens - estimate)
        variance *= 1.0 - gain
    return np.clip(np.rint(estimate), bins.first_id + 1, bins.vocab_size - 1).astype(np.int64)


def _prediction_weights(model: KalmanModel, process_noise: Values, measurement_noise: Values) -> list[Values]:
    """For n = 1 to ``CONTEXT`` actions, the weight of each in the prediction, float64 [n, 6], oldest first."""
    matrix = transition(model)
    weights = [np.zeros((n, N_FILTERED)) for n in range(1, CONTEXT + 1)]
    for dof in range(N_FILTERED):
        kalman = new_filter(model, process_noise[dof], measurement_noise[dof], 0.0)
        # Column k: what the k-th action contributes to the estimate.
        contributions = np.zeros((len(matrix), CONTEXT))
        contributions[0, 0] = 1.0
        weights[0][0, dof] = 1.0
        for newest in range(1, CONTEXT):
            kalman.predict()
            kalman.update(0.0)
            contributions = matrix @ contributions
            contributions -= kalman.K @ contributions[:1]
            contributions[:, newest] += kalman.K[:, 0]
            weights[newest][:, dof] = (matrix @ contributions)[0, : newest + 1]
    return weights


def _checked_actions(normalised: npt.ArrayLike) -> Values:
    actions = np.asarray(normalised, dtype=np.float64)
    if actions.ndim != 2 or actions.shape[1] not in (N_FILTERED, N_DOF):
        raise ValueError(f"actions: shape {actions.shape}; legal: (n, {N_DOF})")
    actions = actions[:, :N_FILTERED]
    if not np.isfinite(actions).all():
        raise ValueError("actions are not finite")
    return actions
