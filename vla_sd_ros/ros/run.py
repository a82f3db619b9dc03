"""Runs nodes in a process: a signal ends the spin, each node stops its motion first, and only then ROS shuts down."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions


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
    failures: list[BaseException] = []
    threads: list[threading.Thread] = []
    try:
        for factory in factories:
            nodes.append(factory())
        threads = [
            threading.Thread(target=_spin, args=(node, ended, failures), name=node.get_name(), daemon=True)
            for node in nodes
        ]
        for thread in threads:
            thread.start()
        # A bare wait() would not return to Python for the signal handler.
        while not ended.wait(0.1):
            pass
    except Exception as error:
        failures.append(error)
        rclpy.logging.get_logger("vla_sd_ros").fatal(f"{type(error).__name__}: {error}")
    finally:
        ended.set()
        for thread in threads:
            thread.join(timeout=2.0)
        for node in nodes:
            _stop(node)
        for node in nodes:
            node.destroy_node()
        rclpy.try_shutdown()
    return 1 if failures else 0


def _spin(node: Node, ended: threading.Event, failures: list[BaseException]) -> None:
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        while not ended.is_set():
            executor.spin_once(timeout_sec=0.1)
    except Exception as error:
        failures.append(error)
        node.get_logger().fatal(f"{type(error).__name__}: {error}")
        ended.set()
    finally:
        executor.remove_node(node)
        executor.shutdown(timeout_sec=0.0)


def _stop(node: Any) -> None:
    stop = getattr(node, "stop", None)
    if stop is not None:
        stop()
