"""Launch files without launch_ros: an own stand-in for the small part of launch and launch_ros that ours use.

ROS 2 from PyPI has no launch and no launch_ros. The launch files of this package are ordinary launch_ros files; on a
machine without it, ``python -m vla_sd_ros.launching FILE name:=value ...`` runs the same files with the same command
lines and environments (a test compares them). What the stand-in does not know it refuses by name.
"""

from __future__ import annotations

from vla_sd_ros.launching.child import Escalation
from vla_sd_ros.launching.modules import install
from vla_sd_ros.launching.process import Process
from vla_sd_ros.launching.resolve import ResolvedLaunch, declared_arguments, resolve
from vla_sd_ros.launching.run import LaunchResult, run
from vla_sd_ros.launching.strict import LaunchFileError, UnknownLaunchArgument, UnsupportedLaunchFeature

__all__ = [
    "Escalation",
    "LaunchFileError",
    "LaunchResult",
    "Process",
    "ResolvedLaunch",
    "UnknownLaunchArgument",
    "UnsupportedLaunchFeature",
    "declared_arguments",
    "install",
    "resolve",
    "run",
]
