"""ROS stamps and nanoseconds."""

from __future__ import annotations

from typing import Any

from builtin_interfaces.msg import Time
from rclpy.node import Node

from vla_sd_ros.safety.freshness import NS_PER_S


def nanoseconds(stamp: Any) -> int:
    """A ``builtin_interfaces/Time`` in nanoseconds."""
    return int(stamp.sec) * NS_PER_S + int(stamp.nanosec)


def stamp_from(time_ns: int) -> Time:
    """Nanoseconds as a ``builtin_interfaces/Time``."""
    return Time(sec=time_ns // NS_PER_S, nanosec=time_ns % NS_PER_S)


def now_ns(node: Node) -> int:
    """The node's clock; 0 while simulated time has not started."""
    return int(node.get_clock().now().nanoseconds)
