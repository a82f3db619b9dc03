from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from vla_sd_ros.safety.limits import CommandLimits

BOX = {"workspace_min_m": (0.2, -0.4, 0.02), "workspace_max_m": (0.75, 0.4, 0.7)}
CONFIG = Path(__file__).parents[2] / "config"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_linear_speed", 0.0),
        ("max_linear_speed", float("inf")),
        ("max_angular_speed", float("nan")),
        ("max_action_age_s", float("inf")),
        ("max_state_age_s", -0.1),
        ("stop_time_s", float("inf")),
        ("action_hold_s", 0.0),
        ("max_future_s", -0.1),
        ("workspace_min_m", (0.2, float("nan"), 0.0)),
        ("workspace_max_m", (0.75, 0.4, float("inf"))),
        ("workspace_min_m", (0.2, -0.4)),
        ("max_speed", 1.0),
    ],
)
def test_a_limit_that_limits_nothing_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=key):
        CommandLimits.model_validate({**BOX, key: value})


@pytest.mark.parametrize("corner", [(0.75, 0.0, 0.1), (0.9, 0.0, 0.1)])
def test_an_empty_workspace_is_refused(corner: tuple[float, float, float]) -> None:
    with pytest.raises(ValidationError, match="workspace_min_m .* must lie below workspace_max_m"):
        CommandLimits.model_validate({**BOX, "workspace_min_m": corner})


@pytest.mark.parametrize("key", ["workspace_min_m", "workspace_max_m"])
def test_there_is_no_default_workspace(key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        CommandLimits.model_validate({name: value for name, value in BOX.items() if name != key})


def test_the_limits_of_a_real_arm_lie_inside_those_of_libfranka() -> None:
    given = yaml.safe_load((CONFIG / "robot.yaml").read_text())["/**/command_node"]["ros__parameters"]["limits"]
    limits = CommandLimits.model_validate(given)
    assert limits.max_linear_speed <= 3.0 and limits.max_angular_speed <= 2.5
