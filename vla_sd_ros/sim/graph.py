"""Brings the simulated graph up in a process group of its own, through launch where it is there or its stand-in."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

BYTES_PER_MB = 1e6
SAMPLE_PERIOD_S = 1.0


class SimulatedGraph:
    """A running ``sim.launch.py``; a context manager that takes everything down with it.

    Args:
        launch_file: path of the launch file.
        arguments: launch arguments.
        environment: of the processes.
        log: file that gets the output.
    """

    def __init__(
        self, launch_file: Path, arguments: Mapping[str, str], environment: Mapping[str, str], log: Path
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        # Launch refuses an argument without a value; leaving it out means the same.
        given = [f"{name}:={value}" for name, value in arguments.items() if value]
        real = importlib.util.find_spec("launch_ros") is not None
        command = ["ros2", "launch"] if real else [sys.executable, "-m", "vla_sd_ros.launching"]
        self.log = log
        self._output = log.open("w")
        self._process = subprocess.Popen(
            [*command, str(launch_file), *given],
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
        self.peak_memory_mb: dict[str, float] = {}
        self.peak_total_mb = 0.0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample_memory, name="memory", daemon=True)
        self._sampler.start()

    def is_alive(self) -> bool:
        """Whether the launch still runs."""
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> int | None:
        """Waits for the launch to end by itself; returns its exit status, None where it still runs."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> int:
        """Interrupts the launch, as Ctrl-C would, and waits; returns its exit status."""
        self._ended.set()
        if self.is_alive():
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            status = self._process.wait(timeout=20.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            status = self._process.wait()
        self._sampler.join(timeout=2.0)
        self._output.close()
        return status

    def __enter__(self) -> SimulatedGraph:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes the graph down."""
        self.close()

    def _sample_memory(self) -> None:
        """Proportional set size of every process, so that shared libraries count once."""
        while not self._ended.wait(SAMPLE_PERIOD_S):
            total_mb = 0.0
            try:
                children = psutil.Process(self._process.pid).children(recursive=True)
            except psutil.NoSuchProcess:
                return
            for child in children:
                try:
                    command, memory_mb = child.cmdline(), child.memory_full_info().pss / BYTES_PER_MB
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
                name = next((Path(part).name for part in command[:2] if "vla_sd_ros" in part), child.name())
                total_mb += memory_mb
                self.peak_memory_mb[name] = max(memory_mb, self.peak_memory_mb.get(name, 0.0))
            self.peak_total_mb = max(self.peak_total_mb, total_mb)
