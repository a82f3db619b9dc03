from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from vla_sd_ros.actions.bins import ActionBins
from vla_sd_ros.kinematics.kalman import (
    CONTEXT,
    QUANTISATION_VARIANCE,
    ActionKalmanFilter,
    KalmanModel,
    authors_random_walk,
    new_filter,
)

BINS = ActionBins(32000)
MODELS: tuple[KalmanModel, ...] = ("random_walk", "constant_velocity")
models = st.sampled_from(MODELS)
variances = npst.arrays(np.float64, (6,), elements=st.floats(1e-6, 1e-1))
actions = npst.arrays(np.float64, st.tuples(st.integers(0, 25), st.just(7)), elements=st.floats(-1.0, 1.0))
ids = npst.arrays(
    np.int64, st.tuples(st.integers(1, 30), st.just(7)), elements=st.integers(BINS.first_id, BINS.vocab_size - 1)
)


def after(filter_: ActionKalmanFilter, executed: np.ndarray) -> ActionKalmanFilter:
    for action in executed:
        filter_.update(action)
    return filter_


@settings(max_examples=30)
@given(models, variances, variances, actions)
def test_a_prediction_is_that_of_filterpy_over_the_last_ten_actions(
    model: KalmanModel, process: np.ndarray, measurement: np.ndarray, executed: np.ndarray
) -> None:
    predicted = after(ActionKalmanFilter(model, process, measurement), executed).predict()
    if len(executed) < 3:
        assert predicted is None
        return
    recent, expected = executed[-CONTEXT:], np.zeros(6)
    for dof in range(6):
        reference = new_filter(model, process[dof], measurement[dof], recent[0, dof])
        for value in recent[1:, dof]:
            reference.predict()
            reference.update(value)
        expected[dof] = (reference.F @ reference.x)[0, 0]
    assert predicted == pytest.approx(np.clip(expected, -1.0, 1.0), abs=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_a_constant_action_is_predicted_to_go_on(model: KalmanModel) -> None:
    filter_ = ActionKalmanFilter(model, [1e-3] * 6, [1e-4] * 6)
    for _ in range(12):
        filter_.update(np.linspace(-0.9, 0.9, 7))
    assert filter_.predict() == pytest.approx(np.linspace(-0.9, 0.9, 7)[:6])


def test_only_the_constant_velocity_model_follows_a_drift() -> None:
    drift = np.linspace(-0.2, 0.2, 10)[:, None] * np.ones(7)
    moving, standing = (
        after(ActionKalmanFilter(model, [1e-3] * 6, [1e-5] * 6), drift).predict() for model in MODELS[::-1]
    )
    ahead = 0.2 + 0.4 / 9
    assert moving == pytest.approx(np.full(6, ahead), abs=1e-3)
    assert standing is not None and (standing < 0.2 + 1e-9).all()


@settings(max_examples=30)
@given(models, actions)
def test_actions_older_than_the_context_are_forgotten(model: KalmanModel, executed: np.ndarray) -> None:
    recent = np.random.default_rng(0).uniform(-0.5, 0.5, (CONTEXT, 7))
    long, short = (ActionKalmanFilter(model, [1e-3] * 6, [1e-4] * 6) for _ in range(2))
    found, expected = after(after(long, executed), recent).predict(), after(short, recent).predict()
    assert found is not None and expected is not None and found.tolist() == expected.tolist()


@pytest.mark.parametrize("min_samples", [1, 3, 10])
def test_nothing_is_predicted_before_enough_actions(min_samples: int) -> None:
    filter_ = ActionKalmanFilter("constant_velocity", [1e-3] * 6, [1e-4] * 6, min_samples)
    for count in range(12):
        assert (filter_.predict() is None) == (count < min_samples)
        filter_.update(np.zeros(7))
    filter_.reset()
    assert len(filter_) == 0 and filter_.predict() is None


@settings(max_examples=30)
@given(models, actions)
def test_a_prediction_stays_in_range(model: KalmanModel, executed: np.ndarray) -> None:
    predicted = after(ActionKalmanFilter(model, [0.1] * 6, [1e-5] * 6), executed).predict()
    assert predicted is None or (predicted.shape == (6,) and (np.abs(predicted) <= 1.0).all())


@settings(max_examples=30)
@given(actions)
def test_predicting_from_given_actions_leaves_the_filter_as_it_was(executed: np.ndarray) -> None:
    filter_ = after(ActionKalmanFilter("constant_velocity", [1e-3] * 6, [1e-4] * 6), np.full((4, 7), 0.25))
    before = filter_.predict()
    filter_.predict_from(executed)
    assert before is not None and filter_.predict() == pytest.approx(before)


@pytest.mark.parametrize("action", [np.full(7, np.nan), np.zeros(5), np.zeros(8), np.zeros((2, 7))])
def test_an_action_that_is_none_is_refused_and_changes_nothing(action: np.ndarray) -> None:
    filter_ = after(ActionKalmanFilter("random_walk", [1e-3] * 6, [1e-4] * 6), np.full((4, 7), 0.25))
    with pytest.raises(ValueError, match="actions"):
        filter_.update(action)
    assert len(filter_) == 4


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model": "linear"}, "model: 'linear'; legal"),
        ({"process_noise": [1e-3] * 7}, "process_noise"),
        ({"process_noise": [-1e-3] * 6}, "process_noise"),
        ({"measurement_noise": [0.0] * 6}, "measurement_noise"),
        ({"measurement_noise": [float("nan")] * 6}, "measurement_noise"),
        ({"min_samples": 0}, "min_samples: 0; legal: 1 to 10"),
        ({"min_samples": 11}, "min_samples: 11"),
    ],
)
def test_settings_that_are_not_legal_are_refused(settings: dict[str, object], named: str) -> None:
    sound = {"model": "random_walk", "process_noise": [1e-3] * 6, "measurement_noise": [1e-4] * 6}
    with pytest.raises(ValueError, match=named):
        ActionKalmanFilter(**{**sound, **settings})  # type: ignore[arg-type]


def test_the_noise_of_rounding_is_a_twelfth_of_a_bin_squared() -> None:
    values = np.random.default_rng(0).uniform(-1.0, 1.0, 200_000)
    errors = BINS.normalised_from_ids(BINS.ids_from_normalised(values)) - values
    assert errors.var() == pytest.approx(QUANTISATION_VARIANCE, rel=0.02)


@given(ids)
def test_the_authors_filter_predicts_the_last_tokens(history: np.ndarray) -> None:
    predicted = authors_random_walk(history, BINS)
    assert predicted is not None and predicted.dtype == np.int64
    # A gain of 0.999 leaves a thousandth of the range, less than half an id, of what came before.
    assert np.abs(predicted - history[-1]).max() <= 1
    assert predicted.min() > BINS.first_id and predicted.max() < BINS.vocab_size


def test_the_authors_filter_rounds_where_their_code_truncates() -> None:
    history = np.array([[31800] * 7, [31900] * 7])  # the estimate is 31899.9
    predicted = authors_random_walk(history, BINS)
    assert predicted is not None and predicted.tolist() == [31900] * 7


def test_from_an_empty_history_the_authors_filter_predicts_nothing() -> None:
    assert authors_random_walk(np.zeros((0, 7), dtype=np.int64), BINS) is None


@pytest.mark.parametrize("shape", [(7,), (3, 8), (2, 3, 7)])
def test_the_authors_filter_takes_seven_tokens_each(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="history_ids"):
        authors_random_walk(np.full(shape, 31900), BINS)


def test_the_authors_filter_takes_action_ids_only() -> None:
    with pytest.raises(ValueError, match="not action ids"):
        authors_random_walk(np.full((3, 7), 2), BINS)
