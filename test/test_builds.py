"""The package builds both ways: with colcon, as on a ROS machine, and into a wheel, for machines that have only pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("msg", "srv", "launch", "config", "models", "vla_sd_ros")
FILES = ("CMakeLists.txt", "package.xml", "setup.py", "pyproject.toml", "README.md")
PROGRAMS = (
    "camera_node",
    "kinematic_state_node",
    "inference_node",
    "command_node",
    "composed_node",
    "lifecycle_manager",
    "simulator_node",
)
BUILD_S = 400


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what git would hand out, without what an editable install left behind."""
    copy = tmp_path / "src" / "vla_sd_ros"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    for generated in ("msg", "srv"):
        shutil.rmtree(copy / "vla_sd_ros" / generated, ignore_errors=True)
    for file in FILES:
        shutil.copy2(ROOT / file, copy)
    return copy


@pytest.fixture
def environment() -> dict[str, str]:
    prefix = os.environ["AMENT_PREFIX_PATH"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "CMAKE_PREFIX_PATH": prefix, "PATH": path}


def checked(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def test_colcon_builds_it_and_the_workspace_offers_messages_nodes_and_launch_files(
    sources: Path, environment: dict[str, str]
) -> None:
    workspace = sources.parents[1]
    options = ["--cmake-args", "-DBUILD_TESTING=OFF", f"-DPython3_EXECUTABLE={sys.executable}"]
    checked(["colcon", "build", *options], cwd=workspace, env=environment)
    installed = workspace / "install" / "vla_sd_ros"
    assert {path.name for path in (installed / "lib" / "vla_sd_ros").iterdir()} >= set(PROGRAMS)
    assert (installed / "share" / "vla_sd_ros" / "launch" / "sim.launch.py").is_file()
    assert (installed / "share" / "vla_sd_ros" / "config" / "robot.yaml").is_file()
    assert (installed / "share" / "vla_sd_ros" / "config" / "decoders" / "lossless.yaml").is_file()
    ask = "import vla_sd_ros.msg, vla_sd_ros.nodes; print(vla_sd_ros.msg.__file__); print(vla_sd_ros.nodes.__file__)"
    script = f"source install/setup.bash && cd / && exec python -c '{ask}'"
    answer = checked(["bash", "-c", script], cwd=workspace, env=environment)
    assert all(line.startswith(str(installed)) for line in answer.split())


def test_a_wheel_holds_the_generated_messages_the_programs_and_what_is_shared(
    sources: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    checked([*pip, str(sources)], env=environment)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "vla_sd_ros/msg/_vla_action.py",
        "vla_sd_ros/srv/_start_episode.py",
        *(f"lib/vla_sd_ros/{program}" for program in PROGRAMS),
        "share/vla_sd_ros/config/sim.yaml",
        "share/vla_sd_ros/config/decoders/lossless.yaml",
        "share/vla_sd_ros/launch/robot.launch.py",
    ):
        assert any(name.endswith(wanted) for name in names), wanted
