"""Files of the installed package that the commands begin with."""

from __future__ import annotations

from pathlib import Path

from vla_sd_ros.ros.share import share as share


def demo_policy() -> Path:
    """The committed demo policy."""
    return share() / "models" / "demo_policy"


def simulation_launch_file() -> Path:
    """``sim.launch.py``."""
    return share() / "launch" / "sim.launch.py"
