"""What changes while a launch file is carried out: configurations, environment, and the processes found so far."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vla_sd_ros.launching.strict import LaunchFileError

if TYPE_CHECKING:
    from vla_sd_ros.launching.arguments import DeclareLaunchArgument
    from vla_sd_ros.launching.process import Process


def default_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns a copy of ``environment`` (default: this process's own) in which installed packages can be found.

    Where ROS comes from pip wheels no setup script sets AMENT_PREFIX_PATH; the packages lie under ``sys.prefix``.
    """
    copy = dict(os.environ if environment is None else environment)
    if not copy.get("AMENT_PREFIX_PATH"):
        copy["AMENT_PREFIX_PATH"] = sys.prefix
    return copy


@dataclass
class LaunchContext:
    """State of one launch.

    Attributes:
        launch_file_directory: absolute, of the launch file.
        launch_configurations: values of arguments by name.
        environment: what processes found from now on inherit; never this process's own.
        is_shutdown: whether the launch is coming down.
        shutdown_reason: why it should come down, set by a Shutdown action.
        declared: arguments declared so far, by name.
        processes: processes found so far, in order.
    """

    launch_file_directory: str
    launch_configurations: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=default_environment)
    is_shutdown: bool = False
    shutdown_reason: str | None = None
    declared: dict[str, DeclareLaunchArgument] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    _scratch: tempfile.TemporaryDirectory[str] | None = None
    _files: int = 0

    def write_parameter_file(self, text: str) -> Path:
        """Writes a parameter file that lives until ``close``."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="launch_params_")
        self._files += 1
        path = Path(self._scratch.name, f"{self._files}.yaml")
        path.write_text(text)
        return path

    def close(self) -> None:
        """Removes the temporary parameter files."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def prefix_of(self, package: str) -> Path:
        """Returns the install prefix of a package, as the ament index has it.

        Raises:
            LaunchFileError: where no prefix in AMENT_PREFIX_PATH holds the package.
        """
        searched = [prefix for prefix in self.environment["AMENT_PREFIX_PATH"].split(os.pathsep) if prefix]
        for prefix in searched:
            if Path(prefix, "share", "ament_index", "resource_index", "packages", package).is_file():
                return Path(prefix)
        raise LaunchFileError(f"package {package!r} is not installed; searched AMENT_PREFIX_PATH: {searched}")
