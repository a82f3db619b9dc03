"""The parameters that the launch files give to each node are those that the node knows and accepts."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from vla_sd_ros.decoding.presets import preset_names
from vla_sd_ros.launching import Process, resolve
from vla_sd_ros.launching.modules import stand_in_modules
from vla_sd_ros.nodes.camera_node import CameraConfig
from vla_sd_ros.nodes.command_node import CommandConfig
from vla_sd_ros.nodes.inference_config import InferenceConfig
from vla_sd_ros.nodes.kinematic_state_node import KinematicStateConfig
from vla_sd_ros.nodes.lifecycle_manager import LifecycleManagerConfig
from vla_sd_ros.nodes.simulator_node import SimulatorConfig

ROOT = Path(__file__).parent.parent.parent

CONFIGS: dict[str, type[BaseModel]] = {
    "camera_node": CameraConfig,
    "kinematic_state_node": KinematicStateConfig,
    "inference_node": InferenceConfig,
    "command_node": CommandConfig,
    "simulator_node": SimulatorConfig,
    "lifecycle_manager": LifecycleManagerConfig,
}
ROBOT = ("camera_node", "kinematic_state_node", "inference_node", "command_node")
CASES = {
    "sim_lockstep": ("sim", {}),
    "sim_realtime": ("sim", {"mode": "realtime", "task": "1", "suite": "libero_spatial"}),
    "robot": ("robot", {"policy": "/policy"}),
}


def parameters_of(process: Process, node: str) -> dict[str, Any]:
    """Parameters of one node of a process, later files over earlier ones, as rcl reads them."""
    values: dict[str, Any] = {}
    for flag, path in zip(process.argv, process.argv[1:], strict=False):
        if flag == "--params-file":
            sections = yaml.safe_load(Path(path).read_text())
            for key in ("/**", f"/**/{node}"):
                values.update(sections.get(key, {}).get("ros__parameters", {}))
    return values


@pytest.fixture
def own_configuration(prefix: Path) -> None:
    """The package's own parameter files in the prefix."""
    for path in (ROOT / "config").glob("*.yaml"):
        (prefix / "share" / "vla_sd_ros" / "config" / path.name).write_text(path.read_text())


def launched(name: str, environment: dict[str, str], composed: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    file, arguments = CASES[name]
    path = ROOT / "launch" / f"{file}.launch.py"
    given = {**arguments, "composed": str(composed).lower()}
    with resolve(path, given, environment=environment) as launch:
        for process in launch.processes:
            executable = Path(process.argv[0]).name
            nodes = [executable]
            if executable == "composed_node":
                nodes = [*ROBOT, *(["simulator_node"] if "--simulator" in process.argv else [])]
            for node in nodes:
                yield node, parameters_of(process, node)


@pytest.mark.usefixtures("own_configuration")
@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_every_node_accepts_what_it_is_given(name: str, composed: bool, environment: dict[str, str]) -> None:
    seen = set()
    for node, parameters in launched(name, environment, composed):
        parameters.pop("use_sim_time", None)
        CONFIGS[node].model_validate(parameters)
        seen.add(node)
    assert seen == {*ROBOT, "lifecycle_manager"} | ({"simulator_node"} if name != "robot" else set())


@pytest.mark.usefixtures("own_configuration")
@pytest.mark.parametrize("name", CASES)
def test_one_process_and_several_give_each_node_the_same(name: str, environment: dict[str, str]) -> None:
    assert dict(launched(name, environment, False)) == dict(launched(name, environment, True))


@pytest.mark.usefixtures("own_configuration")
def test_in_lockstep_every_node_but_the_manager_lives_in_simulated_time(environment: dict[str, str]) -> None:
    simulated = {node: p.get("use_sim_time", False) for node, p in launched("sim_lockstep", environment, False)}
    assert simulated == {node: node != "lifecycle_manager" for node in CONFIGS}
    assert not any(p.get("use_sim_time", False) for _, p in launched("sim_realtime", environment, False))


@pytest.mark.usefixtures("own_configuration")
def test_commands_have_a_rate_wherever_time_does_not_stand_still(environment: dict[str, str]) -> None:
    for name in CASES:
        command = CommandConfig.model_validate(
            {k: v for k, v in dict(launched(name, environment, False))["command_node"].items() if k != "use_sim_time"}
        )
        assert (command.control_rate_hz == 0.0) == (name == "sim_lockstep")


def test_defaults_and_choices_of_the_launch_arguments_are_those_of_the_nodes() -> None:
    with stand_in_modules():
        from vla_sd_ros.launching.graph import DEFAULT_DECODER
    assert InferenceConfig.model_fields["decoder"].default == DEFAULT_DECODER
    assert typing.get_args(SimulatorConfig.model_fields["mode"].annotation) == ("lockstep", "realtime")


@pytest.mark.usefixtures("own_configuration")
def test_a_decoder_of_ones_own_is_the_path_of_its_file(environment: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("kind: autoregressive\n")
    path = ROOT / "launch" / "robot.launch.py"
    with resolve(path, {"policy": "/policy", "decoder": str(own)}, environment=environment) as launch:
        (inference,) = (p for p in launch.processes if Path(p.argv[0]).name == "inference_node")
        assert parameters_of(inference, "inference_node")["decoder"] == str(own)


def test_every_preset_is_a_decoder_to_launch_and_a_refusal_names_them_all(environment: dict[str, str]) -> None:
    path = ROOT / "launch" / "robot.launch.py"
    presets = preset_names(ROOT / "config" / "decoders")
    for name in presets:
        with resolve(path, {"policy": "/policy", "decoder": name}, environment=environment) as launch:
            assert launch.processes
    with pytest.raises(FileNotFoundError, match=f"'magic'; legal: {', '.join(presets)}"):
        resolve(path, {"policy": "/policy", "decoder": "magic"}, environment=environment)
