"""A node whose callback raises: ``failing_node.py``."""

from __future__ import annotations

import sys

from rclpy.node import Node

from vla_sd_ros.ros.run import run_nodes


class FailingNode(Node):
    """Raises in its first timer callback, and says when it is asked to stop."""

    def __init__(self) -> None:
        super().__init__("failing_node")
        self.create_timer(0.01, self._fail)

    def stop(self) -> None:
        """Called before ROS shuts down."""
        self.get_logger().info("stopped in time" if self.context.ok() else "stopped too late")

    def _fail(self) -> None:
        raise ValueError("the camera fell down")


if __name__ == "__main__":
    sys.exit(run_nodes([FailingNode]))
