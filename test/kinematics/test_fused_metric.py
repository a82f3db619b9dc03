from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.spatial.transform import Rotation

from vla_sd_ros.kinematics.fused_metric import (
    MAX_RADIUS_M,
    MIN_EXTENT_M,
    FusedMetric,
    MetricForm,
    MetricRanges,
    calibrate_ranges,
    centroid_radius,
    circle_radius,
    curvature_radius,
    path_length,
    radii_and_lengths,
)
from vla_sd_ros.kinematics.path import InvalidPose
from vla_sd_ros.kinematics.position_window import EndEffectorPositions, PositionWindow

RANGES = MetricRanges(radius_m=(0.0, MAX_RADIUS_M), path_length_m=(0.0, 0.15))
FORMS: tuple[MetricForm, ...] = ("paper", "authors", "curvature")
SENSOR_NOISE_M = 1e-5
turns = st.tuples(*[st.floats(-3.0, 3.0)] * 3)
steps_m = st.floats(0.003, 0.02)


def line(step_m: float, count: int = 15) -> EndEffectorPositions:
    return EndEffectorPositions(np.arange(count)[:, None] * step_m * np.array([[1.0, 0.0, 0.0]]))


def arc(step_m: float, radius_m: float, count: int = 15) -> EndEffectorPositions:
    angles = np.arange(count) * step_m / radius_m
    return EndEffectorPositions(radius_m * np.stack([np.cos(angles), np.sin(angles), 0.0 * angles], axis=1))


def placed(points: np.ndarray, turn: tuple[float, float, float]) -> EndEffectorPositions:
    return EndEffectorPositions(Rotation.from_rotvec(turn).apply(points) + np.array([0.4, -0.1, 0.3]))


def noise(count: int = 15, seed: int = 0) -> EndEffectorPositions:
    return EndEffectorPositions(np.random.default_rng(seed).normal(0.0, SENSOR_NOISE_M, (count, 3)))


@given(steps_m, turns)
def test_a_straight_line_has_the_largest_radius(step_m: float, turn: tuple[float, float, float]) -> None:
    points = placed(line(step_m), turn)
    assert curvature_radius(points) == pytest.approx(MAX_RADIUS_M)
    assert circle_radius(points) == pytest.approx(MAX_RADIUS_M)


def test_noise_of_the_sensor_leaves_a_line_straight() -> None:
    noisy = line(0.01) + noise()
    assert curvature_radius(noisy) == circle_radius(noisy) == MAX_RADIUS_M


@given(steps_m, st.floats(0.05, 0.5), turns)
def test_an_arc_has_its_radius(step_m: float, radius_m: float, turn: tuple[float, float, float]) -> None:
    points = placed(arc(step_m, radius_m), turn)
    assert circle_radius(points) == pytest.approx(radius_m, rel=0.05)
    assert curvature_radius(points) == pytest.approx(radius_m, rel=0.05)


@pytest.mark.parametrize(("count", "share"), [(5, 0.30), (15, 0.267)])
@pytest.mark.parametrize("points", ["line", "wide", "narrow"])
def test_the_authors_radius_is_a_share_of_the_length_whatever_the_curvature(
    points: str, count: int, share: float
) -> None:
    path = {"line": line(0.01, count), "wide": arc(0.01, 0.2, count), "narrow": arc(0.01, 0.05, count)}[points]
    assert centroid_radius(path) == pytest.approx(share * path_length(path), rel=0.07)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_the_metric_is_small_at_rest(form: MetricForm, jitter: float) -> None:
    resting = EndEffectorPositions(jitter * noise() + np.array([0.4, 0.0, 0.3]))
    assert FusedMetric(form, ranges=RANGES).value(resting) == pytest.approx(0.0, abs=0.01)


@given(st.floats(0.0, 2 * MIN_EXTENT_M), turns)
def test_the_radius_grows_without_a_jump_as_the_arm_leaves_its_place(
    extent_m: float, turn: tuple[float, float, float]
) -> None:
    before, after = (curvature_radius(placed(line(length / 14), turn)) for length in (extent_m, extent_m + 1e-4))
    assert before - 1e-6 <= after <= before + 0.011 * MAX_RADIUS_M


@given(steps_m, st.floats(0.05, 0.5))
def test_a_line_is_more_confident_than_an_arc_of_the_same_speed(step_m: float, radius_m: float) -> None:
    metric = FusedMetric("curvature", ranges=RANGES)
    assert metric.value(line(step_m)) > metric.value(arc(step_m, radius_m))


@given(steps_m, st.sampled_from(FORMS))
def test_a_faster_line_is_not_less_confident(step_m: float, form: MetricForm) -> None:
    metric = FusedMetric(form, ranges=RANGES)
    assert metric.value(line(1.2 * step_m)) >= metric.value(line(step_m)) - 1e-9


@given(st.lists(st.tuples(*[st.floats(-0.5, 0.5)] * 3), min_size=3, max_size=20), st.sampled_from(FORMS))
def test_the_metric_lies_between_0_and_1(points: list[tuple[float, float, float]], form: MetricForm) -> None:
    assert 0.0 <= FusedMetric(form, ranges=RANGES).value(EndEffectorPositions(np.array(points))) <= 1.0


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_positions_have_no_metric(count: int) -> None:
    assert np.isnan(FusedMetric("curvature", ranges=RANGES).value(line(0.01, count)))


def test_alpha_weighs_the_radius_against_the_length() -> None:
    points = line(0.15 / 28)  # half of the range of lengths
    assert FusedMetric("curvature", alpha=1.0, ranges=RANGES).value(points) == pytest.approx(1.0)
    assert FusedMetric("curvature", alpha=0.0, ranges=RANGES).value(points) == pytest.approx(0.5)
    assert FusedMetric("curvature", alpha=0.5, ranges=RANGES).value(points) == pytest.approx(0.75)


def test_only_the_newest_positions_count() -> None:
    metric = FusedMetric("curvature", window=5, ranges=RANGES)
    bent = EndEffectorPositions(np.concatenate([arc(0.01, 0.05), line(0.01, 5)]))
    assert metric.value(bent) == metric.value(line(0.01, 5))


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"window": 2}, "window"), ({"alpha": 1.1}, "alpha"), ({"form": "radius"}, "form: 'radius'; legal")],
)
def test_settings_that_are_not_legal_are_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        FusedMetric(**{"form": "paper", "ranges": RANGES, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(15,), (15, 2), (15, 7)])
def test_what_is_no_list_of_positions_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        FusedMetric("paper", ranges=RANGES).value(EndEffectorPositions(np.zeros(shape)))


def test_positions_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        FusedMetric("paper", ranges=RANGES).value(EndEffectorPositions(np.full((5, 3), np.nan)))


@pytest.mark.parametrize("interval", [(0.1, 0.1), (-0.1, 0.1), (0.2, 0.1), (0.0, float("nan"))])
def test_a_range_that_spans_nothing_is_refused(interval: tuple[float, float]) -> None:
    with pytest.raises(ValidationError):
        MetricRanges(radius_m=interval, path_length_m=(0.0, 1.0))


@pytest.mark.parametrize("form", FORMS)
def test_ranges_end_at_the_95th_percentile_of_the_demonstrations(form: MetricForm) -> None:
    rng = np.random.default_rng(0)
    trajectories = [np.cumsum(rng.normal(0.0, 0.01, (40, 3)), axis=0) for _ in range(3)]
    ranges = calibrate_ranges(trajectories, form, 15)
    radii_m, lengths_m = radii_and_lengths(trajectories, form, 15)
    assert len(radii_m) == len(lengths_m) == 3 * 26
    assert ranges.path_length_m == pytest.approx((lengths_m.min(), np.percentile(lengths_m, 95)))
    values = FusedMetric(form, ranges=ranges).fuse(radii_m, lengths_m)
    assert values.min() >= 0.0 and values.max() <= 1.0


def test_trajectories_shorter_than_the_window_calibrate_nothing() -> None:
    with pytest.raises(ValueError, match="window: 15"):
        calibrate_ranges([line(0.01, 14)], "curvature", 15)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("noisy", [False, True])
def test_the_metric_costs_less_than_a_millisecond(form: MetricForm, noisy: bool) -> None:
    metric = FusedMetric(form, ranges=RANGES)
    points = EndEffectorPositions(line(0.01) + 10 * noise()) if noisy else arc(0.01, 0.2)
    durations_s = []
    for _ in range(50):
        began_s = time.perf_counter()
        metric.value(points)
        durations_s.append(time.perf_counter() - began_s)
    assert min(durations_s) < 1e-3


def test_a_window_keeps_the_newest_positions() -> None:
    window = PositionWindow(3)
    for step in range(5):
        window.add(step, [0.1 * step, 0.0, 0.0])
    assert window.positions()[:, 0].tolist() == pytest.approx([0.2, 0.3, 0.4])
    assert len(window) == 3


def test_an_empty_window_has_no_positions() -> None:
    assert PositionWindow(3).positions().shape == (0, 3)


def test_the_same_measurement_counts_once() -> None:
    window = PositionWindow(3)
    for _ in range(4):
        window.add(7, [0.1, 0.0, 0.0])
    assert len(window) == 1


def test_time_that_goes_back_begins_a_new_window() -> None:
    window = PositionWindow(5)
    for stamp_ns in (10, 20, 30, 5):
        window.add(stamp_ns, [float(stamp_ns), 0.0, 0.0])
    assert window.positions()[:, 0].tolist() == [5.0]
    window.reset()
    assert len(window) == 0


@pytest.mark.parametrize("position", [[0.0, 0.0], [np.nan, 0.0, 0.0], [0.0, np.inf, 0.0], np.zeros(7)])
def test_a_position_that_is_none_is_refused_and_changes_nothing(position: object) -> None:
    window = PositionWindow(3)
    window.add(10, [0.1, 0.0, 0.0])
    with pytest.raises(InvalidPose, match="position"):
        window.add(5, position)  # type: ignore[arg-type]
    assert window.positions().tolist() == [[0.1, 0.0, 0.0]]


def test_a_window_does_not_change_with_the_array_it_was_given() -> None:
    window, position = PositionWindow(3), np.zeros(3)
    window.add(1, position)
    position[:] = 9.0
    assert not window.positions().any()


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="window: 0"):
        PositionWindow(0)
