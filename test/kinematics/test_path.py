from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from vla_sd_ros.kinematics.path import MIN_STEP_M, InvalidPose, PoseHistory, path_curvature

PERIOD_NS = 50_000_000
LEVEL = np.array([0.0, 0.0, 0.0, 1.0])
directions = st.tuples(*[st.floats(-1.0, 1.0)] * 3).map(np.asarray).filter(lambda v: np.linalg.norm(v) > 0.1)
speeds = st.floats(0.0, 1.5)
rates = st.sampled_from([20, 100, 1000])


def history() -> PoseHistory:
    return PoseHistory(window_s=0.75, max_gap_s=0.5)


def circle(radius_m: float, speed: float, rate_hz: int, duration_s: float = 0.75) -> np.ndarray:
    angles = np.arange(int(duration_s * rate_hz)) / rate_hz * speed / radius_m
    return radius_m * np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], axis=1)


@given(directions, speeds, rates, st.integers(0, 40))
def test_a_straight_line_has_no_curvature(direction: np.ndarray, speed: float, rate_hz: int, points: int) -> None:
    way = np.arange(points)[:, None] * direction / np.linalg.norm(direction) * speed / rate_hz + [0.4, -0.1, 0.3]
    assert path_curvature(way) == pytest.approx(0.0, abs=1e-6)


def test_rest_has_no_curvature() -> None:
    assert path_curvature(np.full((15, 3), 0.4)) == 0.0


@given(st.integers(0, 2**32 - 1), rates)
def test_noise_at_rest_has_no_curvature(seed: int, rate_hz: int) -> None:
    noise = np.random.default_rng(seed).normal(scale=1e-5, size=(int(0.75 * rate_hz), 3))
    assert path_curvature(noise) == 0.0


@given(st.integers(0, 2**32 - 1), st.floats(0.02, 1.0), rates)
def test_noise_on_a_line_bends_it_less_than_a_circle_of_an_eighth_of_a_metre(
    seed: int, speed: float, rate_hz: int
) -> None:
    points = int(0.75 * rate_hz)
    way = np.arange(points)[:, None] * np.array([speed / rate_hz, 0.0, 0.0])
    noisy = way + np.random.default_rng(seed).normal(scale=1e-5, size=way.shape)
    assert path_curvature(noisy) < 8.0


@given(st.floats(0.02, 1.0), st.floats(0.1, 1.0), rates)
def test_a_circle_has_the_curvature_of_its_radius(radius_m: float, speed: float, rate_hz: int) -> None:
    # Twelve points on a circle and more are a fair picture of it.
    speed = min(speed, 2 * np.pi * radius_m / 12 * rate_hz)
    assert path_curvature(circle(radius_m, speed, rate_hz)) == pytest.approx(1.0 / radius_m, rel=0.03)


def test_three_points_on_a_circle_are_enough() -> None:
    assert path_curvature(circle(0.1, 0.2, 20)[:3]) == pytest.approx(10.0, rel=0.01)


@given(st.floats(0.1, 3.0))
def test_one_corner_turns_by_its_angle(angle: float) -> None:
    corner = [[-0.1, 0.0, 0.0], [0.0, 0.0, 0.0], [0.1 * np.cos(angle), 0.1 * np.sin(angle), 0.0]]
    assert path_curvature(corner) == pytest.approx(angle / 0.1)


def test_a_way_and_back_again_turns_by_half_a_circle() -> None:
    assert path_curvature([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.0]]) == pytest.approx(np.pi / 0.1)


@pytest.mark.parametrize("points", [0, 1, 2])
def test_too_few_points_have_no_curvature(points: int) -> None:
    assert path_curvature(np.arange(points * 3, dtype=float).reshape(points, 3)) == 0.0


@given(st.floats(0.05, 0.5), st.floats(0.1, 0.4))
def test_the_sampling_rate_does_not_matter(radius_m: float, speed: float) -> None:
    slow, fast = (path_curvature(circle(radius_m, speed, rate_hz)) for rate_hz in (50, 1000))
    assert slow == pytest.approx(fast, rel=0.1)


def test_velocities_and_length_come_from_the_stamps() -> None:
    poses = history()
    for step in range(5):
        turn = Rotation.from_rotvec([0.0, 0.0, 0.02 * step]).as_quat()
        found = poses.add(10**9 + step * PERIOD_NS, [0.01 * step, 0.0, 0.0], turn)
    assert found.linear_velocity == pytest.approx([0.2, 0.0, 0.0])
    assert found.angular_velocity == pytest.approx([0.0, 0.0, 0.4])
    assert found.path_length_m == pytest.approx(0.04)


def test_the_first_pose_says_nothing_about_motion() -> None:
    found = history().add(PERIOD_NS, [0.4, 0.0, 0.3], LEVEL)
    assert not found.linear_velocity.any() and not found.angular_velocity.any()
    assert found.path_length_m == found.curvature_per_m == 0.0


def test_an_antipodal_quaternion_is_no_turn() -> None:
    poses = history()
    turned = Rotation.from_rotvec([0.0, np.pi - 0.01, 0.0]).as_quat()
    poses.add(PERIOD_NS, np.zeros(3), turned)
    assert poses.add(2 * PERIOD_NS, np.zeros(3), -turned).angular_velocity == pytest.approx(np.zeros(3), abs=1e-6)


@given(st.lists(st.booleans(), min_size=20, max_size=20), st.sampled_from([[1, 0, 0], [0, 1, 0], [0, 0, 1]]))
def test_a_steady_turn_past_half_a_circle_has_a_steady_speed(flipped: list[bool], axis: list[int]) -> None:
    poses = history()
    for step, flip in enumerate(flipped):
        turn = Rotation.from_rotvec(np.array(axis) * (np.pi - 0.5 + 0.05 * step)).as_quat()
        found = poses.add(step * PERIOD_NS, np.zeros(3), -turn if flip else turn)
        if step:
            assert found.angular_velocity == pytest.approx(np.array(axis) * 1.0, abs=1e-6)


def test_the_window_forgets_what_is_older() -> None:
    poses = history()
    for step in range(40):
        found = poses.add(step * PERIOD_NS, [0.01 * step, 0.0, 0.0], LEVEL)
    assert found.path_length_m == pytest.approx(0.15)  # 0.75 s at 0.2 m/s


def test_nothing_is_differentiated_across_a_gap_or_a_reset() -> None:
    poses = history()
    poses.add(PERIOD_NS, [0.0, 0.0, 0.0], LEVEL)
    after_gap = poses.add(PERIOD_NS + 600_000_000, [1.0, 0.0, 0.0], LEVEL)
    assert not after_gap.linear_velocity.any() and after_gap.path_length_m == 0.0
    poses.reset()
    after_reset = poses.add(PERIOD_NS, [0.5, 0.0, 0.0], LEVEL)
    assert not after_reset.linear_velocity.any() and after_reset.path_length_m == 0.0


@pytest.mark.parametrize("stamp_ns", [PERIOD_NS, PERIOD_NS - 1, 0])
def test_a_pose_that_is_not_newer_is_refused_and_changes_nothing(stamp_ns: int) -> None:
    poses = history()
    poses.add(PERIOD_NS, [0.0, 0.0, 0.0], LEVEL)
    with pytest.raises(InvalidPose, match="not newer"):
        poses.add(stamp_ns, [9.0, 0.0, 0.0], LEVEL)
    assert poses.add(2 * PERIOD_NS, [MIN_STEP_M, 0.0, 0.0], LEVEL).path_length_m == pytest.approx(MIN_STEP_M)


@pytest.mark.parametrize(
    ("position", "orientation", "named"),
    [
        ([np.nan, 0.0, 0.0], LEVEL, "position"),
        ([0.0, np.inf, 0.0], LEVEL, "position"),
        ([0.0, 0.0], LEVEL, "position"),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], "unit quaternion"),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.02], "unit quaternion"),
        ([0.0, 0.0, 0.0], [np.nan, 0.0, 0.0, 1.0], "unit quaternion"),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 1.0], "unit quaternion"),
    ],
)
def test_a_pose_that_is_none_is_refused(position: list[float], orientation: list[float], named: str) -> None:
    with pytest.raises(InvalidPose, match=named):
        history().add(PERIOD_NS, position, orientation)
