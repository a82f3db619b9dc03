from __future__ import annotations

import numpy as np
import pytest

from vla_sd_ros.kinematics.kalman import QUANTISATION_VARIANCE, KalmanModel, new_filter, process_covariance, transition
from vla_sd_ros.kinematics.kalman_noise import fit_noise, mean_log_likelihood

MODELS: tuple[KalmanModel, ...] = ("random_walk", "constant_velocity")


def simulated(model: KalmanModel, process: float, measurement: float, count: int = 12, steps: int = 80) -> np.ndarray:
    """Actions as the model makes them, float64 [count, steps, 7]."""
    rng = np.random.default_rng(0)
    matrix, covariance = transition(model), process_covariance(model, process)
    states = np.zeros((count, 7, len(matrix)))
    values = np.zeros((count, steps, 7))
    for step in range(steps):
        states = states @ matrix.T + rng.multivariate_normal(np.zeros(len(matrix)), covariance, (count, 7))
        values[:, step] = states[..., 0] + rng.normal(0.0, measurement**0.5, (count, 7))
    return values


@pytest.mark.parametrize("model", MODELS)
def test_the_noise_that_made_the_actions_is_found(model: KalmanModel) -> None:
    found = fit_noise(list(simulated(model, 1e-4, 4e-4)), model)
    assert found.process == pytest.approx(np.full(6, 1e-4), rel=0.5)
    assert found.measurement == pytest.approx(np.full(6, 4e-4), rel=0.5)
    assert found.process.shape == found.measurement.shape == found.log_likelihood.shape == (6,)


@pytest.mark.parametrize("model", MODELS)
def test_the_likelihood_is_that_of_filterpy(model: KalmanModel) -> None:
    values = simulated(model, 1e-3, 1e-4, count=3, steps=20)[..., 0]
    expected = 0.0
    for trajectory in values:
        reference = new_filter(model, 2e-3, 3e-4, trajectory[0])
        for value in trajectory[1:]:
            reference.predict()
            reference.update(value)
            expected += reference.log_likelihood
    assert mean_log_likelihood(values, model, 2e-3, 3e-4) == pytest.approx(expected / (3 * 19))


def test_a_shorter_trajectory_counts_with_what_it_has() -> None:
    long, short = simulated("random_walk", 1e-3, 1e-4, count=2, steps=20)[..., 0]
    padded = np.stack([long, np.where(np.arange(20) < 8, short, np.nan)])
    apart = [mean_log_likelihood(part[None], "random_walk", 1e-3, 1e-4) for part in (long, short[:8])]
    together = mean_log_likelihood(padded, "random_walk", 1e-3, 1e-4)
    assert together == pytest.approx((19 * apart[0] + 7 * apart[1]) / 26)


@pytest.mark.parametrize("fit_measurement", [True, False])
def test_rounding_to_bins_is_the_least_noise(fit_measurement: bool) -> None:
    smooth = np.sin(np.linspace(0.0, 3.0, 60))[:, None] * np.ones(7)
    found = fit_noise([smooth], "constant_velocity", fit_measurement)
    assert (found.measurement >= QUANTISATION_VARIANCE * (1 - 1e-9)).all()
    if not fit_measurement:
        assert found.measurement == pytest.approx(np.full(6, QUANTISATION_VARIANCE))


@pytest.mark.parametrize("trajectories", [[], [np.zeros((2, 7))], [np.zeros((9, 6))], [np.full((9, 7), np.nan)]])
def test_what_is_no_trajectory_of_actions_is_refused(trajectories: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"actions|three"):
        fit_noise(trajectories, "random_walk")
