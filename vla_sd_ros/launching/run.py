"""Runs a launch file: starts its processes, keeps the rules between them, and ends them all."""

from __future__ import annotations

import logging
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TextIO

from vla_sd_ros.launching.actions import Action
from vla_sd_ros.launching.child import Child, Escalation
from vla_sd_ros.launching.process import Process, ProcessExited
from vla_sd_ros.launching.resolve import ResolvedLaunch, resolve

logger = logging.getLogger("launch")

_POLL_S = 0.05


@dataclass
class LaunchResult:
    """How a launch ended.

    Attributes:
        return_code: 0, or 1 where a process failed: ended with another status than 0 before the launch came down,
            could not be started, or its ``on_exit`` raised. (launch itself counts only the last.)
        exit_codes: last exit status of each process by name, negative after a signal.
        reason: why the launch came down.
    """

    return_code: int = 0
    exit_codes: dict[str, int] = field(default_factory=dict)
    reason: str = ""


def run(
    path: str | Path,
    arguments: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    screen: TextIO | None = None,
    escalation: Escalation | None = None,
) -> LaunchResult:
    """Runs a launch file until every process has ended.

    In the main thread SIGINT, SIGTERM and SIGHUP bring the launch down.

    Args:
        path: the launch file.
        arguments: values of launch arguments, by name.
        environment: what the processes inherit; default: this process's environment.
        stop: brings the launch down once set, from any thread.
        screen: where output lines go, each with the process's name before it; default: stdout.
        escalation: how long a process may take to end.

    Raises:
        Whatever ``resolve`` raises.
    """
    with resolve(path, arguments, environment=environment) as launch:
        supervisor = _Supervisor(launch, screen or sys.stdout, stop or threading.Event(), escalation or Escalation())
        with supervisor.listening_to_signals():
            return supervisor.run()


class _Supervisor:
    def __init__(self, launch: ResolvedLaunch, screen: TextIO, stop: threading.Event, escalation: Escalation) -> None:
        self._launch, self._context = launch, launch.context
        self._screen, self._screen_lock = screen, threading.Lock()
        self._stop, self._stop_reason = stop, "asked to stop"
        self._escalation = escalation
        self._children: list[Child] = []
        self._ended: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._restarts: dict[str, int] = {}
        self._waiting: list[tuple[float, Process]] = []
        self._started = 0
        self._result = LaunchResult()

    @contextmanager
    def listening_to_signals(self) -> Iterator[None]:
        """Lets signals ask for the shutdown, where this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: FrameType | None) -> None:
            if not self._stop.is_set():
                self._stop_reason = f"received {signal.Signals(number).name}"
            self._stop.set()

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, ask) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self) -> LaunchResult:
        """Runs until every process has ended."""
        try:
            while True:
                self._start_what_is_new()
                self._react_to_requests()
                if not self._children and not self._waiting:
                    break
                try:
                    self._after_exit(self._ended.get(timeout=_POLL_S))
                except queue.Empty:
                    continue
        finally:
            for child in self._children:
                child.kill()
        self._result.reason = self._result.reason or "every process has ended"
        return self._result

    def _start_what_is_new(self) -> None:
        due = [process for when, process in self._waiting if when <= time.monotonic()]
        self._waiting = [pair for pair in self._waiting if pair[1] not in due]
        new = self._launch.processes[self._started :]
        self._started = len(self._launch.processes)
        for process in [] if self._context.is_shutdown else [*due, *new]:
            self._start(process)

    def _start(self, process: Process) -> None:
        try:
            child = Child(process, self._show, self._ended.put)
        except OSError as error:
            self._fail(f"{process.name} cannot be started: {error}")
            return
        self._children.append(child)
        logger.info("%s: started with pid %d", process.name, child.pid)

    def _react_to_requests(self) -> None:
        if self._stop.is_set():
            self._shut_down(self._stop_reason)
        if self._context.shutdown_reason is not None:
            self._shut_down(self._context.shutdown_reason)
        for child in self._children:
            sent = child.escalate()
            if sent is not None:
                logger.error("%s: did not end in time; sent %s", child.process.name, sent.name)

    def _shut_down(self, reason: str) -> None:
        if self._context.is_shutdown:
            return
        self._context.is_shutdown = True
        self._result.reason = reason
        logger.info("shutting down: %s", reason)
        self._waiting.clear()
        for child in self._children:
            child.end(self._escalation)

    def _fail(self, reason: str) -> None:
        self._result.return_code = 1
        if self._context.is_shutdown:
            logger.error("%s", reason)
        self._shut_down(reason)

    def _after_exit(self, child: Child) -> None:
        self._children.remove(child)
        process, code = child.process, child.exit_code
        assert code is not None
        self._result.exit_codes[process.name] = code
        logger.log(logging.ERROR if code else logging.INFO, "%s: ended with exit code %d", process.name, code)
        was_shutdown = self._context.is_shutdown
        self._carry_out_on_exit(process, ProcessExited(process.name, list(process.argv), child.pid, code))
        if was_shutdown or self._context.is_shutdown or self._context.shutdown_reason is not None:
            will_restart = False
        else:
            will_restart = self._restart(process)
        if code and not was_shutdown and not will_restart:
            self._result.return_code = 1

    def _carry_out_on_exit(self, process: Process, event: ProcessExited) -> None:
        try:
            todo = process.on_exit(event, self._context) if callable(process.on_exit) else process.on_exit
            for action in (todo,) if isinstance(todo, Action) else todo or ():
                action.visit(self._context)
        except Exception as error:  # whatever the launch file's own function raises ends the launch, as in launch
            self._fail(str(error))

    def _restart(self, process: Process) -> bool:
        done = self._restarts.get(process.name, 0)
        if not process.respawn or 0 <= process.respawn_max_retries <= done:
            return False
        self._restarts[process.name] = done + 1
        self._waiting.append((time.monotonic() + process.respawn_delay_s, process))
        return True

    def _show(self, line: str) -> None:
        with self._screen_lock:
            self._screen.write(line + "\n")
            self._screen.flush()
