"""An install prefix with stand-ins for the package's executables, and launch files made of tiny processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXECUTABLES = (
    "camera_node",
    "kinematic_state_node",
    "inference_node",
    "command_node",
    "simulator_node",
    "composed_node",
    "lifecycle_manager",
)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Install prefix: index entry, empty executables, parameter files."""
    root = tmp_path / "prefix"
    programs, share = root / "lib" / "vla_sd_ros", root / "share" / "vla_sd_ros"
    index = root / "share" / "ament_index" / "resource_index" / "packages"
    for folder in (programs, share / "config" / "decoders", share / "launch", index):
        folder.mkdir(parents=True)
    (index / "vla_sd_ros").touch()
    for name in EXECUTABLES:
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    for name in ("sim.yaml", "robot.yaml"):
        (share / "config" / name).write_text("/**/camera_node:\n  ros__parameters:\n    views: [camera]\n")
    for preset in (Path(__file__).parents[2] / "config" / "decoders").glob("*.yaml"):
        (share / "config" / "decoders" / preset.name).touch()
    return root


@pytest.fixture
def environment(prefix: Path) -> dict[str, str]:
    """Environment in which packages are found in ``prefix`` first, and nothing else is set that launch files read."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ROS_", "FASTRTPS_", "OMP_"))}
    search = [str(prefix), *filter(None, [os.environ.get("AMENT_PREFIX_PATH")])]
    return {**kept, "AMENT_PREFIX_PATH": os.pathsep.join(search)}


@pytest.fixture
def write_launch_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a launch file from the actions of its description, in which ``python(code, ...)`` starts a process."""

    def write(actions: str) -> Path:
        path = tmp_path / "small.launch.py"
        path.write_text(
            "from launch import LaunchDescription\n"
            "from launch.actions import *\n"
            "def python(code, **keywords):\n"
            f"    return ExecuteProcess(cmd=[{sys.executable!r}, '-S', '-u', '-c', code], **keywords)\n"
            f"def generate_launch_description():\n    return LaunchDescription([{actions}])\n"
        )
        return path

    return write
