from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import rclpy
import yaml
from pydantic import BaseModel, ConfigDict, Field
from rclpy.node import Node
from rclpy.parameter import Parameter

from vla_sd_ros.nodes.camera_node import CameraConfig
from vla_sd_ros.nodes.command_node import CommandConfig
from vla_sd_ros.nodes.kinematic_state_node import KinematicStateConfig
from vla_sd_ros.ros.parameters import InvalidParameters, read_parameters

CONFIG = Path(__file__).parents[2] / "config"


class Inner(BaseModel):
    """A group of parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    speed: float = Field(gt=0.0)
    box: tuple[float, float, float] = (0.0, 0.0, 0.0)


class Outer(BaseModel):
    """The parameters of a node."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    mode: Literal["slow", "fast"] = "slow"
    names: list[str] = ["a"]
    inner: Inner


@pytest.fixture
def make_node() -> Iterator[Callable[[dict[str, Any]], Node]]:
    context = rclpy.Context()
    rclpy.init(context=context, args=[])
    nodes = []

    def make(values: dict[str, Any]) -> Node:
        overrides = [Parameter(name, value=value) for name, value in values.items()]
        nodes.append(Node("reader", context=context, parameter_overrides=overrides))
        return nodes[-1]

    yield make
    for node in nodes:
        node.destroy_node()
    rclpy.shutdown(context=context)


def test_values_are_read_nested_and_typed(make_node: Callable[..., Node]) -> None:
    node = make_node({"inner.speed": 2, "inner.box": [1.0, 2.0, 3.0], "names": ["x", "y"]})
    config = read_parameters(node, Outer)
    assert config == Outer(names=["x", "y"], inner=Inner(speed=2.0, box=(1.0, 2.0, 3.0)))
    assert read_parameters(node, Outer) == config, "a second configuration reads the same"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, ["inner.speed", "is not set"]),
        ({"inner.speed": 1.0, "speed": 1.0}, ["unknown", "'speed'", "inner.speed", "names"]),
        ({"inner.speed": 1.0, "inner.spede": 1.0}, ["unknown", "'inner.spede'"]),
        ({"inner.speed": 1.0, "use_sim_times": True}, ["unknown", "'use_sim_times'"]),
        ({"inner.speed": -1.0}, ["inner.speed", "-1.0", "greater than 0"]),
        ({"inner.speed": float("nan")}, ["inner.speed", "nan"]),
        ({"inner.speed": float("inf")}, ["inner.speed", "inf", "finite"]),
        ({"inner.speed": "quick"}, ["inner.speed", "'quick'", "number"]),
        ({"inner.speed": 1.0, "mode": "medium"}, ["mode", "'medium'", "'slow' or 'fast'"]),
        ({"inner.speed": 1.0, "inner.box": [1.0, 2.0]}, ["inner.box"]),
        ({"inner.speed": 0.0, "mode": "medium"}, ["inner.speed", "mode"]),
    ],
)
def test_what_is_not_legal_is_refused_by_key_and_value_and_says_what_is(
    make_node: Callable[..., Node], values: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(InvalidParameters) as refusal:
        read_parameters(make_node(values), Outer)
    for part in ("reader", *named):
        assert part in str(refusal.value)


def test_parameters_cannot_change_while_the_node_runs(make_node: Callable[..., Node]) -> None:
    node = make_node({"inner.speed": 1.0})
    read_parameters(node, Outer)
    assert not node.set_parameters([Parameter("inner.speed", value=9.0)])[0].successful


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found.update(flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return found


@pytest.mark.parametrize("file", ["sim.yaml", "robot.yaml"])
@pytest.mark.parametrize(
    ("node", "model"),
    [("camera_node", CameraConfig), ("kinematic_state_node", KinematicStateConfig), ("command_node", CommandConfig)],
)
def test_the_parameter_files_are_legal(
    make_node: Callable[..., Node], file: str, node: str, model: type[BaseModel]
) -> None:
    values = yaml.safe_load((CONFIG / file).read_text())[f"/**/{node}"]["ros__parameters"]
    read_parameters(make_node(flat(values)), model)


@pytest.mark.parametrize(
    ("node", "model", "changes", "named"),
    [
        ("camera_node", CameraConfig, {"encodings": ["rgb9"]}, ["rgb9", "bgra8"]),
        ("camera_node", CameraConfig, {"views": ["camera", "camera"]}, ["views", "repeat"]),
        ("camera_node", CameraConfig, {"views": ["a", "b", "c"]}, ["views", "at most 2"]),
        ("camera_node", CameraConfig, {"crop_fraction": 1.5}, ["crop_fraction", "1.5"]),
        ("camera_node", CameraConfig, {"resize": "letterbox"}, ["resize", "letterbox", "'bicubic' or 'lanczos3'"]),
        ("camera_node", CameraConfig, {"crop": "around"}, ["crop", "around", "'before' or 'after'"]),
        ("camera_node", CameraConfig, {"max_age_s": float("inf")}, ["max_age_s", "finite"]),
        ("kinematic_state_node", KinematicStateConfig, {"max_skew_s": 0.0}, ["max_skew_s", "greater than 0"]),
        ("kinematic_state_node", KinematicStateConfig, {"gripper_open": float("nan")}, ["gripper_open", "finite"]),
        ("kinematic_state_node", KinematicStateConfig, {"base_frame": ""}, ["base_frame"]),
        ("command_node", CommandConfig, {"control_rate_hz": -1.0}, ["control_rate_hz", "-1.0"]),
        ("command_node", CommandConfig, {"gripper_closed": float("inf")}, ["gripper_closed", "finite"]),
        ("command_node", CommandConfig, {"limits.stop_time_s": 0.0}, ["limits.stop_time_s", "greater than 0"]),
        ("command_node", CommandConfig, {"limits.workspace_max_m": [0.0, 0.0, -1.0]}, ["limits", "must lie below"]),
    ],
)
def test_an_illegal_value_of_a_node_is_refused(
    make_node: Callable[..., Node], node: str, model: type[BaseModel], changes: dict[str, Any], named: list[str]
) -> None:
    values = yaml.safe_load((CONFIG / "sim.yaml").read_text())[f"/**/{node}"]["ros__parameters"]
    with pytest.raises(InvalidParameters) as refusal:
        read_parameters(make_node({**flat(values), **changes}), model)
    for part in named:
        assert part in str(refusal.value)
