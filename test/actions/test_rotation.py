from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from vla_sd_ros.actions.rotation import angular_difference, rotation_vector, to_base_frame

quaternions = st.tuples(*[st.floats(-1.0, 1.0)] * 4).map(np.asarray).filter(lambda q: np.linalg.norm(q) > 0.1)
small = st.tuples(*[st.floats(-0.05, 0.05)] * 3).map(np.asarray)
axes = st.tuples(*[st.floats(-1.0, 1.0)] * 3).map(np.asarray).filter(lambda v: np.linalg.norm(v) > 0.1)


def about(axis: np.ndarray, angle: float) -> np.ndarray:
    return Rotation.from_rotvec(axis / np.linalg.norm(axis) * angle).as_quat()


@given(quaternions)
def test_antipodal_quaternions_differ_by_nothing(quaternion: np.ndarray) -> None:
    assert angular_difference(quaternion, -quaternion) == pytest.approx(np.zeros(3), abs=1e-7)


@given(quaternions, quaternions)
def test_the_sign_of_a_quaternion_does_not_matter(later: np.ndarray, earlier: np.ndarray) -> None:
    one, other = (Rotation.from_rotvec(angular_difference(q, earlier)) for q in (later, -later))
    assert one.approx_equal(other, atol=1e-6)


@given(quaternions, small)
def test_the_difference_is_the_turn_in_base_axes(earlier: np.ndarray, turn: np.ndarray) -> None:
    later = (Rotation.from_rotvec(turn) * Rotation.from_quat(earlier)).as_quat()
    assert angular_difference(later, earlier) == pytest.approx(turn, abs=1e-9)


@given(axes, st.floats(1e-4, 0.1))
def test_a_turn_across_half_a_circle_is_short(axis: np.ndarray, step: float) -> None:
    found = angular_difference(about(axis, -np.pi + step / 2), about(axis, np.pi - step / 2))
    assert found == pytest.approx(axis / np.linalg.norm(axis) * step, abs=1e-7)


@given(quaternions, quaternions)
def test_a_difference_is_at_most_half_a_circle(later: np.ndarray, earlier: np.ndarray) -> None:
    assert np.linalg.norm(angular_difference(later, earlier)) <= np.pi + 1e-9


@given(quaternions, small)
def test_the_tools_axes_do_not_depend_on_the_sign_of_its_quaternion(
    orientation: np.ndarray, vector: np.ndarray
) -> None:
    one, other = (to_base_frame(vector, turn, "tool") for turn in (orientation, -orientation))
    assert one == pytest.approx(other, abs=1e-12)


@given(axes, st.sampled_from([0, 1, 2]), st.sampled_from([-1.0, 1.0]))
def test_angles_a_whole_turn_apart_are_the_same_rotation(angles: np.ndarray, index: int, sign: float) -> None:
    turned = angles.copy()
    turned[index] += sign * 2.0 * np.pi
    assert rotation_vector(turned, "euler_xyz") == pytest.approx(rotation_vector(angles, "euler_xyz"), abs=1e-9)


@pytest.mark.parametrize("name", ["", "quaternion", "euler", "AXIS_ANGLE"])
def test_an_unknown_representation_is_refused_with_the_legal_ones(name: Any) -> None:
    with pytest.raises(ValueError, match="'axis_angle', 'euler_xyz'"):
        rotation_vector([0.0, 0.0, 0.0], name)


@pytest.mark.parametrize("name", ["", "world", "camera"])
def test_an_unknown_frame_is_refused_with_the_legal_ones(name: Any) -> None:
    with pytest.raises(ValueError, match="'base', 'tool'"):
        to_base_frame([0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], name)
