"""One running process: its output lines are passed on, and it is asked to end ever more firmly."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from vla_sd_ros.launching.process import Process

# A grandchild may keep the pipes of a process that has ended.
_LAST_LINES_S = 1.0


@dataclass(frozen=True)
class Escalation:
    """How long a process may take to end: from SIGINT to SIGTERM, and from there to SIGKILL; launch's own times."""

    sigterm_after_s: float = 5.0
    sigkill_after_s: float = 5.0


class Child:
    """A started process, in a process group of its own, so that Ctrl-C reaches it once and through the launcher.

    Args:
        process: what to start.
        show: receives each line to show, without its end.
        ended: is called from a thread of its own when the process has ended and its lines were passed on.

    Raises:
        OSError: where it cannot be started.
    """

    def __init__(self, process: Process, show: Callable[[str], None], ended: Callable[[Child], None]) -> None:
        self.process = process
        self._show = show
        self._popen = subprocess.Popen(
            process.argv,
            env=dict(process.environment),
            cwd=process.working_directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._due: list[tuple[float, signal.Signals]] = []
        self._readers = [
            threading.Thread(target=self._pass_on, args=(pipe, shown), daemon=True)
            for pipe, shown in ((self._popen.stdout, process.output != "log"), (self._popen.stderr, True))
        ]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._wait, args=(ended,), daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """Exit status, negative after a signal; None while it runs."""
        return self._popen.returncode

    def end(self, escalation: Escalation) -> None:
        """Sends SIGINT; ``escalate`` sends the rest when due."""
        now = time.monotonic()
        self._due = [
            (now, signal.SIGINT),
            (now + escalation.sigterm_after_s, signal.SIGTERM),
            (now + escalation.sigterm_after_s + escalation.sigkill_after_s, signal.SIGKILL),
        ]
        self.escalate()

    def escalate(self) -> signal.Signals | None:
        """Sends the next signal if it is due and returns it."""
        if not self._due or self.exit_code is not None or time.monotonic() < self._due[0][0]:
            return None
        _, number = self._due.pop(0)
        self._signal(number)
        return number

    def kill(self) -> None:
        """Sends SIGKILL and waits."""
        if self.exit_code is None:
            self._signal(signal.SIGKILL)
            self._popen.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(self.pid, number)

    def _pass_on(self, pipe: IO[bytes], shown: bool) -> None:
        with pipe:
            for line in pipe:
                if shown:
                    self._show(f"[{self.process.name}] {line.decode(errors='replace').rstrip()}")

    def _wait(self, ended: Callable[[Child], None]) -> None:
        self._popen.wait()
        deadline = time.monotonic() + _LAST_LINES_S
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        ended(self)
