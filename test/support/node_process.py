"""The installed executables as processes, as a launch file would start them."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from ament_index_python.packages import get_package_prefix

CONFIG = Path(__file__).parents[2] / "config"


class NodeProcess:
    """One node in a process of its own; leaving the context ends it, politely first.

    Args:
        executable: name under ``lib/vla_sd_ros``.
        parameters: set on top of the parameter file; nested mappings become dotted names.
        arguments: further ROS arguments, e.g. ``("-r", "a:=b")``.
        params_file: file in ``config``; None: no file.
    """

    def __init__(
        self,
        executable: str,
        parameters: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
        params_file: str | None = "sim.yaml",
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vla_sd_ros_node_")
        folder = Path(self._folder.name)
        command = [str(Path(get_package_prefix("vla_sd_ros"), "lib", "vla_sd_ros", executable)), "--ros-args"]
        if params_file is not None:
            command += ["--params-file", str(CONFIG / params_file)]
        if parameters:
            own = folder / "parameters.yaml"
            own.write_text(yaml.safe_dump({f"/**/{executable}": {"ros__parameters": dict(parameters)}}))
            command += ["--params-file", str(own)]
        self._log = folder / "log.txt"
        with self._log.open("w") as log:
            self._process = subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT)

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text()

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 20.0) -> int:
        """Its exit status; raises where it does not end."""
        return self._process.wait(timeout_s)

    def stop(self) -> int:
        """Asks it to end, makes it end; returns its exit status."""
        if self.running:
            self.signal(signal.SIGTERM)
        try:
            return self.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self.wait()

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is not None:
            os.write(2, f"--- log of the node ---\n{self.log}\n".encode())
        self._folder.cleanup()
