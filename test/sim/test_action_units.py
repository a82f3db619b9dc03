"""Conversion between SI actions and the controller's units, and the table of scripted tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.sim.action_units import env_action_from_si, si_action_from_env
from vla_sd_ros.sim.tasks import SCRIPTED_TASKS, parse_tasks, scripted_task

UNIT = st.lists(st.floats(-1, 1), min_size=7, max_size=7)


@given(UNIT)
def test_units_convert_back_and_forth(env: list[float]) -> None:
    np.testing.assert_allclose(env_action_from_si(si_action_from_env(env)), env, atol=1e-6)


def test_full_range_is_five_centimetres_and_half_a_radian() -> None:
    np.testing.assert_allclose(si_action_from_env([1, -1, 1, 1, -1, 1, -1]), [0.05, -0.05, 0.05, 0.5, -0.5, 0.5, 1.0])


@given(st.lists(st.floats(-1e3, 1e3), min_size=7, max_size=7))
def test_what_is_too_fast_is_clipped(action: list[float]) -> None:
    assert np.abs(env_action_from_si(action)).max() <= 1


def test_batches_keep_their_shape() -> None:
    assert env_action_from_si(np.zeros((2, 3, 7))).shape == (2, 3, 7)


def test_a_wrong_number_of_values_is_refused() -> None:
    with pytest.raises(ValueError, match="7 values"):
        env_action_from_si([0.0] * 6)


def test_tasks_are_found_by_name_and_by_suite() -> None:
    assert parse_tasks(["libero_goal/8"]) == [scripted_task("libero_goal", 8)]
    assert len(parse_tasks(["libero_goal/*", "libero_spatial/*"])) == len(SCRIPTED_TASKS)


@pytest.mark.parametrize("name", ["libero_goal", "libero_goal/x", "libero_goal/0", "libero_90/*"])
def test_unknown_tasks_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="libero_goal|suite/number"):
        parse_tasks([name])
