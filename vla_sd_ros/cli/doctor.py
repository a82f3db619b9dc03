"""``vla-sd doctor``: does this machine have what the package needs, and what is missing?"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import psutil
import typer
from rich.console import Console
from rich.table import Column, Table

NEEDED_MEMORY_GB = 3.0
BYTES_PER_GB = 1e9
CLOCK_CHECK_S = 0.2


class Verdict(Enum):
    """Outcome of a check."""

    OK = "ok"
    LACKS = "lacks"  # something works without it
    BROKEN = "broken"  # nothing works without it


@dataclass(frozen=True)
class Finding:
    """One check: what was found, and the remedy where it is not fine."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def check_python() -> Finding:
    """CPython 3.10 to 3.13, for which rclpy exists."""
    version = platform.python_version()
    if (3, 10) <= sys.version_info[:2] <= (3, 13):
        return Finding("Python", Verdict.OK, version)
    return Finding("Python", Verdict.BROKEN, version, "use Python 3.10 to 3.13")


def check_rclpy() -> Finding:
    """The ROS client library, of a distribution or of the wheels."""
    if importlib.util.find_spec("rclpy") is None:
        return Finding(
            "ROS 2", Verdict.BROKEN, "no rclpy", "source a ROS 2 setup, or pip install -r requirements-ros.txt"
        )
    distribution = os.environ.get("ROS_DISTRO", "from wheels")
    return Finding("ROS 2", Verdict.OK, f"rclpy, {distribution}")


def check_messages() -> Finding:
    """The generated messages of this package."""
    try:
        from vla_sd_ros.msg import VlaAction
    except ImportError as error:
        return Finding("messages", Verdict.BROKEN, str(error), "build them: colcon build, or pip install .")
    return Finding("messages", Verdict.OK, VlaAction.__module__.split(".")[0] + ".msg")


def check_rmw() -> Finding:
    """The middleware that will be used."""
    if importlib.util.find_spec("rclpy") is None:
        return Finding("RMW", Verdict.BROKEN, "no rclpy", "install ROS 2 first")
    try:
        from rclpy.utilities import get_rmw_implementation_identifier

        return Finding("RMW", Verdict.OK, get_rmw_implementation_identifier())
    except Exception as error:  # the native library decides what it raises
        return Finding("RMW", Verdict.BROKEN, str(error), "unset RMW_IMPLEMENTATION, or install what it names")


def check_launch() -> Finding:
    """launch_ros; its stand-in serves where it is missing."""
    if importlib.util.find_spec("launch_ros") is not None:
        return Finding("launch", Verdict.OK, "launch_ros")
    return Finding("launch", Verdict.OK, "stand-in: python -m vla_sd_ros.launching")


def check_gpu() -> Finding:
    """A CUDA device; the demo policy does without."""
    import torch

    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        memory_gb = torch.cuda.get_device_properties(0).total_memory / BYTES_PER_GB
        return Finding("GPU", Verdict.OK, f"{name}, {memory_gb:.0f} GB")
    return Finding(
        "GPU", Verdict.LACKS, f"none (torch {torch.__version__})", "the demo policy runs on a CPU; 7B needs CUDA"
    )


def check_memory() -> Finding:
    """Free memory for the whole graph."""
    free_gb = psutil.virtual_memory().available / BYTES_PER_GB
    found = f"{free_gb:.1f} GB free"
    if free_gb >= NEEDED_MEMORY_GB:
        return Finding("memory", Verdict.OK, found)
    return Finding("memory", Verdict.BROKEN, found, f"the simulated graph takes up to {NEEDED_MEMORY_GB:.0f} GB")


def check_clock() -> Finding:
    """The wall clock runs as fast as the monotonic one: ages of stamps depend on it."""
    wall_s, steady_s = time.time(), time.monotonic()
    time.sleep(CLOCK_CHECK_S)
    drift_ms = abs((time.time() - wall_s) - (time.monotonic() - steady_s)) * 1e3
    if drift_ms < 5.0:
        return Finding("clock", Verdict.OK, f"{drift_ms:.2f} ms of drift in {CLOCK_CHECK_S} s")
    return Finding("clock", Verdict.BROKEN, f"{drift_ms:.1f} ms of drift", "synchronise the clock (chrony) and wait")


def check_simulator() -> Finding:
    """LIBERO and an offscreen renderer."""
    if importlib.util.find_spec("libero") is None:
        return Finding("simulator", Verdict.LACKS, "no LIBERO", "pip install '.[sim]'")
    from vla_sd_ros.sim.renderer import find_renderer

    renderer = find_renderer()
    if renderer is None:
        return Finding(
            "simulator", Verdict.LACKS, "LIBERO, no renderer", "apt install libegl1 libosmesa6 libgl1-mesa-dri"
        )
    return Finding("simulator", Verdict.OK, f"LIBERO, {renderer}")


def check_policy() -> Finding:
    """The committed demo policy."""
    from vla_sd_ros.cli.paths import demo_policy

    folder = demo_policy()
    if (folder / "model.safetensors").is_file():
        return Finding("demo policy", Verdict.OK, str(folder))
    return Finding("demo policy", Verdict.LACKS, f"nothing in {folder}", "vla-sd train policy")


def check_build_tools() -> Finding:
    """What building the messages takes."""
    missing = [tool for tool in ("cmake", "c++") if shutil.which(tool, path=_search_path()) is None]
    if not missing:
        return Finding("build tools", Verdict.OK, "cmake, c++")
    return Finding("build tools", Verdict.LACKS, f"no {', '.join(missing)}", "apt install build-essential cmake")


def _search_path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_rclpy,
    check_messages,
    check_rmw,
    check_launch,
    check_build_tools,
    check_gpu,
    check_memory,
    check_clock,
    check_simulator,
    check_policy,
)


def doctor() -> None:
    """Checks this machine; ends with status 1 where something that everything needs is missing."""
    findings = [check() for check in CHECKS]
    table = Table("check", "", Column("found", overflow="fold"), Column("remedy", overflow="fold"))
    colours = {Verdict.OK: "green", Verdict.LACKS: "yellow", Verdict.BROKEN: "red"}
    for finding in findings:
        colour = colours[finding.verdict]
        table.add_row(finding.name, f"[{colour}]{finding.verdict.value}[/]", finding.found, finding.remedy)
    Console().print(table)
    if any(finding.verdict is Verdict.BROKEN for finding in findings):
        raise typer.Exit(1)
