"""The stand-in finds the processes that launch_ros finds, for every launch file and the arguments that matter.

Where launch_ros is installed it is asked; elsewhere the committed answers of one run of it are compared with. With
launch_ros, ``WRITE_LAUNCH_GOLDEN=1`` writes these answers anew.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from vla_sd_ros.launching import LaunchFileError, resolve

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
GOLDEN = HERE / "golden"
REAL = importlib.util.find_spec("launch_ros") is not None

FILES = {
    "sim": ROOT / "launch" / "sim.launch.py",
    "robot": ROOT / "launch" / "robot.launch.py",
    "everything": HERE / "data" / "everything.launch.py",
}
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "sim_default": ("sim", {}),
    "sim_task": ("sim", {"suite": "libero_spatial", "task": "3", "policy": "/a policy/of mine"}),
    "sim_realtime": ("sim", {"mode": "realtime", "decoder": "hybrid", "log_level": "debug"}),
    "sim_composed": ("sim", {"composed": "true", "record": "/tmp/videos"}),
    "sim_composed_realtime": ("sim", {"composed": "true", "mode": "realtime", "namespace": "cell/left"}),
    "sim_namespace": ("sim", {"namespace": "/arm", "task": "0"}),
    "robot_default": ("robot", {"policy": "/policy"}),
    "robot_topics": (
        "robot",
        {
            "policy": "/policy",
            "namespace": "arm",
            "camera_topic": "/camera/color/image_raw",
            "wrist_camera_topic": "/wrist/image",
            "joint_state_topic": "/joint_states",
            "pose_topic": "/franka/pose",
            "twist_topic": "/servo_node/delta_twist_cmds",
            "gripper_topic": "/hand/joint_trajectory",
        },
    ),
    "robot_composed": ("robot", {"policy": "/policy", "composed": "true", "twist_topic": "/servo/twist"}),
    "everything_default": ("everything", {}),
    "everything_fast": ("everything", {"fast": "1", "rate": "12", "kind": "b"}),
}
ILLEGAL = {
    "choice": ("sim", {"mode": "slow"}),
    "decoder": ("robot", {"policy": "/policy", "decoder": "magic"}),
    "decoder_file": ("sim", {"decoder": "/nowhere.yaml"}),
    "required": ("robot", {}),
    "parameter_file": ("sim", {"params": "/nowhere.yaml"}),
    "namespace": ("sim", {"namespace": "left-arm"}),
}


def ask_launch(case: tuple[str, dict[str, str]], environment: dict[str, str], logs: Path) -> list[dict[str, Any]]:
    """Processes as launch_ros finds them; raises CalledProcessError where it refuses the launch file."""
    file, arguments = case
    command = [sys.executable, str(HERE / "resolve_with_launch.py"), str(FILES[file])]
    done = subprocess.run(
        [*command, *(f"{name}:={value}" for name, value in arguments.items())],
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "ROS_LOG_DIR": str(logs)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESOLVED "))
    found: list[dict[str, Any]] = json.loads(line.removeprefix("RESOLVED "))
    return found


def ask_stand_in(case: tuple[str, dict[str, str]], environment: dict[str, str]) -> list[dict[str, Any]]:
    file, arguments = case
    with resolve(FILES[file], arguments, environment=environment) as launch:
        return [
            {
                "name": process.name,
                "argv": list(process.argv),
                "environment": {k: v for k, v in process.environment.items() if environment.get(k) != v},
                "files": {
                    path: yaml.safe_load(Path(path).read_text())
                    for flag, path in zip(process.argv, process.argv[1:], strict=False)
                    if flag == "--params-file"
                },
            }
            for process in launch.processes
        ]


def comparable(processes: list[dict[str, Any]], prefix: Path) -> Any:
    """Replaces parameter files by their contents, and what differs between machines by a name for it."""
    for process in processes:
        files = process.pop("files")
        process["argv"] = [{"contents": files[part]} if part in files else part for part in process["argv"]]
    text = json.dumps(processes)
    for path, name in ((prefix, "<prefix>"), (Path(sys.executable), "<python>"), (ROOT, "<root>")):
        text = text.replace(json.dumps(str(path))[1:-1], name)
    return json.loads(text)


def golden_of(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())["processes"]


def write_golden(name: str, processes: Any) -> None:
    header = {
        "made_with": {module: importlib.metadata.version(module) for module in ("launch", "launch_ros")},
        "made_by": "launch_ros itself, in test_launch_files.py with WRITE_LAUNCH_GOLDEN=1",
        "launch_file": FILES[CASES[name][0]].relative_to(ROOT).as_posix(),
        "arguments": CASES[name][1],
    }
    (GOLDEN / f"{name}.json").write_text(json.dumps({**header, "processes": processes}, indent=1) + "\n")


@pytest.mark.parametrize("name", CASES)
def test_the_stand_in_finds_the_processes_that_launch_ros_finds(
    name: str, prefix: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    found = comparable(ask_stand_in(CASES[name], environment), prefix)
    if REAL:
        expected = comparable(ask_launch(CASES[name], environment, tmp_path), prefix)
        if os.environ.get("WRITE_LAUNCH_GOLDEN"):
            write_golden(name, expected)
    else:
        expected = golden_of(name)
    assert found == expected


@pytest.mark.parametrize("name", ILLEGAL)
def test_the_stand_in_refuses_what_launch_ros_refuses(
    name: str, prefix: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    file, arguments = ILLEGAL[name]
    with pytest.raises((LaunchFileError, FileNotFoundError)):
        resolve(FILES[file], arguments, environment=environment)
    if REAL:
        with pytest.raises(subprocess.CalledProcessError):
            ask_launch(ILLEGAL[name], environment, tmp_path)


def test_every_launch_file_has_a_case() -> None:
    compared = {FILES[file] for file, _ in CASES.values()}
    assert set((ROOT / "launch").glob("*.launch.py")) <= compared


def test_every_golden_answer_belongs_to_a_case_and_says_what_made_it() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(CASES)
    for path in GOLDEN.glob("*.json"):
        answer = json.loads(path.read_text())
        assert set(answer["made_with"]) == {"launch", "launch_ros"}
        assert answer["arguments"] == CASES[path.stem][1]
