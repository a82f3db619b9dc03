from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.spatial.transform import Rotation

from vla_sd_ros.actions.convention import ActionConvention

LEVEL = [0.0, 0.0, 0.0, 1.0]
angles = st.tuples(*[st.floats(-1.2, 1.2)] * 3)
quaternions = st.tuples(*[st.floats(-1.0, 1.0)] * 4).filter(lambda q: np.linalg.norm(q) > 0.1)


def convention(**changes: Any) -> ActionConvention:
    return ActionConvention(**{"rotation_representation": "axis_angle", "action_frame": "base", **changes})


@given(angles)
def test_an_axis_angle_in_base_axes_passes_unchanged(rotation: tuple[float, float, float]) -> None:
    values = [0.01, -0.02, 0.03, *rotation, 1.0]
    assert convention().to_base_si(values, LEVEL) == pytest.approx(values)


@given(angles)
def test_euler_angles_are_turned_into_the_same_rotation(rotation: tuple[float, float, float]) -> None:
    values = [0.0, 0.0, 0.0, *rotation, 0.0]
    found = convention(rotation_representation="euler_xyz").to_base_si(values, LEVEL)[3:6]
    x, y, z = (Rotation.from_rotvec(angle * axis) for angle, axis in zip(rotation, np.eye(3), strict=True))
    assert Rotation.from_rotvec(found).approx_equal(z * y * x, atol=1e-9)


@given(angles)
def test_euler_angles_differ_from_an_axis_angle_where_two_of_them_turn(rotation: tuple[float, float, float]) -> None:
    assume(sum(abs(angle) > 0.1 for angle in rotation) >= 2)
    values = [0.0, 0.0, 0.0, *rotation, 0.0]
    as_euler = convention(rotation_representation="euler_xyz").to_base_si(values, LEVEL)
    assert np.abs(as_euler - convention().to_base_si(values, LEVEL)).max() > 1e-4


def test_a_step_along_the_tool_is_turned_into_base_axes() -> None:
    pointing_down = Rotation.from_euler("x", 180, degrees=True).as_quat()
    values = [0.0, 0.01, 0.02, 0.0, 0.0, 0.3, 0.0]
    in_tool = convention(action_frame="tool").to_base_si(values, pointing_down)
    assert in_tool == pytest.approx([0.0, -0.01, -0.02, 0.0, 0.0, -0.3, 0.0], abs=1e-12)
    assert convention(action_frame="base").to_base_si(values, pointing_down) == pytest.approx(values)


@given(quaternions, angles)
def test_the_frame_turns_vectors_without_stretching_them(
    orientation: tuple[float, ...], rotation: tuple[float, float, float]
) -> None:
    found = convention(action_frame="tool").to_base_si([0.01, 0.02, -0.03, *rotation, 1.0], orientation)
    assert np.linalg.norm(found[:3]) == pytest.approx(np.linalg.norm([0.01, 0.02, -0.03]))
    assert np.linalg.norm(found[3:6]) == pytest.approx(np.linalg.norm(rotation), abs=1e-9)


def test_scales_turn_shares_of_a_range_into_si_units() -> None:
    shares = convention(translation_scale_m=0.05, rotation_scale_rad=0.5)
    found = shares.to_base_si([1.0, -1.0, 0.5, 1.0, 0.0, -0.2, 0.0], LEVEL)
    assert found[:6] == pytest.approx([0.05, -0.05, 0.025, 0.5, 0.0, -0.1])


@pytest.mark.parametrize("key", ["rotation_representation", "action_frame"])
def test_a_missing_representation_or_frame_is_refused_by_name(key: str) -> None:
    given_ = {"rotation_representation": "axis_angle", "action_frame": "base"}
    del given_[key]
    with pytest.raises(ValidationError, match=key):
        ActionConvention.model_validate(given_)


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("rotation_representation", "quaternion", "euler_xyz"),
        ("action_frame", "world", "tool"),
        ("translation_scale_m", 0.0, "greater than 0"),
        ("rotation_scale_rad", float("nan"), "finite|greater"),
        ("translation_scale_m", float("inf"), "finite"),
        ("gripper_threshold", float("nan"), "finite"),
        ("rotation_repr", "axis_angle", "not permitted"),
    ],
)
def test_an_illegal_convention_is_refused_with_what_is_legal(key: str, value: Any, legal: str) -> None:
    with pytest.raises(ValidationError, match=rf"(?s){key}.*({legal})"):
        convention(**{key: value})


@pytest.mark.parametrize(
    ("value", "open_is_high", "opening"),
    [(0.51, True, 1.0), (0.5, True, 0.0), (0.0, True, 0.0), (1.0, False, 0.0), (0.0, False, 1.0), (0.5, False, 1.0)],
)
def test_the_gripper_becomes_a_class(value: float, open_is_high: bool, opening: float) -> None:
    found = convention(gripper_open_is_high=open_is_high).to_base_si([0.0] * 6 + [value], LEVEL)
    assert found[6] == opening


def test_a_gripper_range_around_zero_has_its_threshold_at_zero() -> None:
    around_zero = convention(gripper_threshold=0.0, gripper_open_is_high=False)
    assert around_zero.to_base_si([0.0] * 6 + [-1.0], LEVEL)[6] == 1.0
    assert around_zero.to_base_si([0.0] * 6 + [1.0], LEVEL)[6] == 0.0


@pytest.mark.parametrize("values", [[0.0] * 6, [0.0] * 8, [float("nan")] + [0.0] * 6, [0.0] * 6 + [float("inf")]])
def test_a_wrong_action_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="7 finite values"):
        convention().to_base_si(values, LEVEL)


def test_an_orientation_that_is_no_rotation_is_refused() -> None:
    with pytest.raises(ValueError):
        convention(action_frame="tool").to_base_si([0.0] * 7, [0.0] * 4)
