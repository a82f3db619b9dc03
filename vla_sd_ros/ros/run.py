"""Runs nodes in a process: a signal ends the spin, each node stops its motion first, and only then ROS shuts down."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.logging import get_logger
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

# A callback that hangs must not keep the process from ending.
JOIN_S = 2.0


def run_nodes(factories: Sequence[Callable[[], Node]], args: Sequence[str] | None = None) -> int:
    """Runs nodes until SIGINT or SIGTERM, each in a thread and an executor of its own.

    A node may have ``stop()``: it is called before anything shuts down, while publishing still works.

    Args:
        factories: make the nodes once ROS is initialised.
        args: command line, without the program's name.

    Returns:
        Exit status: 0 after a signal, 1 where a node could not be made or its callback raised.
    """
    # rclpy's own handler would invalidate the context before a node can send its last command.
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    nodes: list[Node] = []
    spinners: list[_Spinner] = []
    failures: list[BaseException] = []
    try:
        for factory in factories:
            nodes.append(factory())
        spinners = [_Spinner(node, ended) for node in nodes]
        # A bare wait() would not return to Python for the signal handler.
        while not ended.wait(0.1):
            pass
    except Exception as error:
        failures.append(error)
        get_logger("vla_sd_ros").fatal(f"{type(error).__name__}: {error}")
    finally:
        for spinner in spinners:
            failures.extend(spinner.end())
        for node in nodes:
            _stop(node)
        for node in nodes:
            node.destroy_node()
        rclpy.try_shutdown()
    return 1 if failures else 0


class _Spinner:
    """Spins one node in a thread; a callback that raises ends everything."""

    def __init__(self, node: Node, ended: threading.Event) -> None:
        self._node = node
        self._ended = ended
        self._failures: list[BaseException] = []
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(node)
        self._thread = threading.Thread(target=self._spin, name=node.get_name(), daemon=True)
        self._thread.start()

    def end(self) -> list[BaseException]:
        """Ends the spin; returns what callbacks raised."""
        self._ended.set()
        self._executor.wake()
        self._thread.join(timeout=JOIN_S)
        # Only now: shutting down an executor that still waits destroys what it waits on.
        self._executor.shutdown(timeout_sec=0.0)
        return self._failures

    def _spin(self) -> None:
        try:
            # Without a timeout, which would make and destroy a timer at every turn.
            while not self._ended.is_set():
                self._executor.spin_once()
        except Exception as error:
            self._failures.append(error)
            self._node.get_logger().fatal(f"{type(error).__name__}: {error}")
            self._ended.set()


def _stop(node: Any) -> None:
    stop = getattr(node, "stop", None)
    if stop is not None:
        stop()
