"""Which room may import which, and what the core must not know."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "vla_sd_ros"
NAME = "vla_sd_ros"

# Lowest floor first. ``types`` is the module of the types that travel.
CORE = ("types", "actions", "kinematics", "policy", "retrieval", "verification", "drafting", "decoding", "safety")
GENERATED = ("msg", "srv")
_ROS = (*CORE, *GENERATED, "ros")
ALLOWED: dict[str, tuple[str, ...]] = {
    "types": (),
    "actions": ("types",),
    "kinematics": ("types", "actions"),
    "policy": ("types", "actions"),
    "retrieval": ("types", "actions"),
    "verification": ("types", "actions", "policy"),
    "drafting": ("types", "actions", "kinematics", "policy", "retrieval", "verification"),
    "decoding": ("types", "actions", "kinematics", "policy", "retrieval", "drafting", "verification"),
    "safety": ("types", "actions", "kinematics"),
    "ros": _ROS,
    "sim": _ROS,
    "nodes": (*_ROS, "sim"),
    "replay": _ROS,
    "training": (*CORE, "sim"),
    "bench": (*_ROS, "sim"),
    "launching": (),
    "cli": (*_ROS, "sim", "nodes", "replay", "training", "bench", "launching"),
}
# What the core must not import, by the first part of the name.
FOREIGN = ("rclpy", "launch", "launch_ros", "ament_index_python", "libero", "robosuite", "mujoco", "gym", "gymnasium")


def rooms() -> list[str]:
    """Every room there is: folders and modules of the package, but for what the build generates."""
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py") if path.parent.name not in GENERATED]
    return sorted([*folders, *(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")])


def files_of(room: str) -> list[Path]:
    module = PACKAGE / f"{room}.py"
    return [module] if module.is_file() else sorted((PACKAGE / room).rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    """Full names of what a file imports, inside functions too; relative imports by their absolute name."""
    package = (NAME, *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def modules_loaded_by(modules: list[str]) -> set[str]:
    """Names in ``sys.modules`` of a fresh interpreter after these imports."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_room_is_on_the_map() -> None:
    assert set(rooms()) <= set(ALLOWED), "add the room to ALLOWED, with what it may import"


def test_the_map_has_no_circle() -> None:
    done: set[str] = set(GENERATED)
    left = {room: set(allowed) - {room} for room, allowed in ALLOWED.items()}
    while ready := {room for room, allowed in left.items() if allowed <= done}:
        done |= ready
        left = {room: allowed for room, allowed in left.items() if room not in done}
    assert not left


@pytest.mark.parametrize("room", rooms())
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    allowed = {room, *ALLOWED[room]}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in files_of(room)
        for name in imports_of(path)
        if name.split(".")[0] == NAME and len(name.split(".")) > 1 and name.split(".")[1] not in allowed
    ]
    assert not wrong


@pytest.mark.parametrize("room", [room for room in rooms() if room in CORE])
def test_the_core_names_neither_ros_nor_a_simulator(room: str) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in files_of(room)
        for name in imports_of(path)
        if name.split(".")[0] in FOREIGN or name.split(".")[0].endswith(("_msgs", "_interfaces"))
    ]
    assert not wrong


def test_the_core_loads_neither_ros_nor_messages_nor_a_simulator() -> None:
    modules = [module_name(path) for room in rooms() if room in CORE for path in files_of(room)]
    loaded = modules_loaded_by(modules)
    assert f"{NAME}.safety.command_gate" in loaded
    assert not {name for name in loaded if name.split(".")[0] in FOREIGN}
    assert not {name for name in loaded if name.split(".")[0].endswith(("_msgs", "_interfaces"))}
    assert not loaded & {f"{NAME}.{generated}" for generated in GENERATED}


@pytest.mark.parametrize("node", ["camera_node", "kinematic_state_node", "command_node"])
def test_a_node_without_a_policy_does_not_load_torch(node: str) -> None:
    loaded = modules_loaded_by([f"{NAME}.nodes.{node}"])
    assert not loaded & {"torch", "transformers", "mujoco", "libero"}
