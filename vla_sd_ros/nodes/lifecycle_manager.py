"""lifecycle_manager: brings the named lifecycle nodes to active, in order, says so on a latched topic, and stays.

Where a node refuses a transition the manager ends with status 1, and the launch comes down with it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from pydantic import BaseModel, ConfigDict, Field
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import Bool

from vla_sd_ros.ros import qos
from vla_sd_ros.ros.parameters import read_parameters
from vla_sd_ros.ros.run import run_nodes


class LifecycleManagerConfig(BaseModel):
    """Parameters of the lifecycle manager.

    Attributes:
        nodes: names of the lifecycle nodes, in the order to bring them up.
        timeout_s: how long one node may take to appear, and then for each transition.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: Annotated[list[str], Field(min_length=1)]
    timeout_s: Annotated[float, Field(gt=0.0)] = 120.0


class LifecycleManager(Node):
    """Asks for the transitions one after the other, from a timer, so that the executor stays free."""

    def __init__(self) -> None:
        super().__init__("lifecycle_manager")
        self._config = read_parameters(self, LifecycleManagerConfig)
        self._active = self.create_publisher(Bool, "~/active", qos.latched())
        self._pending = [
            (name, transition)
            for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE)
            for name in self._config.nodes
        ]
        self._changers = {name: self.create_client(ChangeState, f"{name}/change_state") for name in self._config.nodes}
        self._deadline = time.monotonic() + self._config.timeout_s
        self._future: Future | None = None
        self._timer = self.create_timer(0.05, self._advance, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _advance(self) -> None:
        name, transition = self._pending[0]
        label = "configure" if transition == Transition.TRANSITION_CONFIGURE else "activate"
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"{name} did not {label} within {self._config.timeout_s} s")
        if self._future is None:
            if self._changers[name].service_is_ready():
                request = ChangeState.Request()
                request.transition.id = transition
                self._future = self._changers[name].call_async(request)
            return
        if not self._future.done():
            return
        if not self._future.result().success:
            raise RuntimeError(f"{name} refused to {label}; its log and /diagnostics say why")
        self.get_logger().info(f"{name}: {label}d")
        self._future = None
        self._deadline = time.monotonic() + self._config.timeout_s
        self._pending.pop(0)
        if not self._pending:
            self.destroy_timer(self._timer)
            self._active.publish(Bool(data=True))


def main(args: Sequence[str] | None = None) -> int:
    """Runs the node until a signal, or until a transition fails."""
    return run_nodes([LifecycleManager], args)
