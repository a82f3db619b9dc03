"""A node in the test's own process that speaks and listens to the nodes under test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter, parameter_value_to_python
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock

from vla_sd_ros.ros import qos
from vla_sd_ros.ros.stamps import stamp_from

CONFIGURE, ACTIVATE = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE
DEACTIVATE, CLEANUP = Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_CLEANUP
PATIENCE_S = 20.0


class Probe:
    """Publishes, collects what arrives, and waits for conditions instead of sleeping."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        rclpy.init(context=self.context, args=[])
        self.node = Node("probe", context=self.context)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._publishers: dict[str, Publisher] = {}
        self._statuses: list[Any] = []
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, qos.reliable(depth=100))

    def close(self) -> None:
        """Frees the node and its context."""
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)

    def listen(self, message_type: Any, topic: str, profile: QoSProfile | None = None) -> list[Any]:
        """A list that every message on a topic is added to."""
        received: list[Any] = []
        self.node.create_subscription(message_type, topic, received.append, profile or qos.reliable(depth=1000))
        return received

    def connect(self, message_type: Any, topic: str, profile: QoSProfile | None = None) -> Publisher:
        """A publisher that somebody already listens to."""
        publisher = self._publishers.get(topic)
        if publisher is None:
            publisher = self.node.create_publisher(message_type, topic, profile or qos.reliable(depth=10))
            self._publishers[topic] = publisher
        self.wait_until(lambda: publisher.get_subscription_count() > 0, what=f"a subscriber of {topic}")
        return publisher

    def disconnect(self, topic: str) -> None:
        """Destroys the publisher of a topic, where there is one."""
        publisher = self._publishers.pop(topic, None)
        if publisher is not None:
            self.node.destroy_publisher(publisher)

    def wait_until(self, condition: Callable[[], Any], timeout_s: float = PATIENCE_S, what: str = "a condition") -> Any:
        """Spins until the condition holds; returns its value, fails where it never does."""
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} did not come within {timeout_s} s; diagnostics: {self.reasons()[-5:]}")
            self._executor.spin_once(timeout_sec=0.05)
        return value

    def spin_for(self, seconds: float) -> None:
        """Spins for a time: only where something must NOT happen."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0.0:
            self._executor.spin_once(timeout_sec=min(0.05, left))

    def repeat(self, act: Callable[[], None], until: Callable[[], Any], period_s: float = 0.02) -> Any:
        """Acts again and again until the condition holds; returns its value."""
        deadline = time.monotonic() + PATIENCE_S
        while not (value := until()):
            assert time.monotonic() < deadline, f"the condition never held; diagnostics: {self.reasons()[-5:]}"
            act()
            self.spin_for(period_s)
        return value

    def reasons(self, node: str = "") -> list[str]:
        """The messages of the diagnostics since the last ``forget_diagnostics``, of one node or of all."""
        return [status.message for status in self._statuses if node in status.name]

    def forget_diagnostics(self) -> None:
        """Begins a new list of diagnostics."""
        self._statuses.clear()

    def wait_for_reason(self, *parts: str, node: str = "") -> str:
        """A diagnosis that holds every part."""
        return str(
            self.wait_until(
                lambda: next((text for text in self.reasons(node) if all(part in text for part in parts)), None),
                what=f"a diagnosis with {parts}",
            )
        )

    def diagnostic_value(self, key: str, node: str = "") -> str | None:
        """The newest value of a key in the diagnostics."""
        for status in reversed(self._statuses):
            if node in status.name:
                for pair in status.values:
                    if pair.key == key:
                        return str(pair.value)
        return None

    def change_state(self, node: str, transition: int) -> bool:
        """Asks a lifecycle node for a transition; whether it succeeded."""
        request = ChangeState.Request()
        request.transition.id = transition
        return bool(self._ask(node, ChangeState, "change_state", request).success)

    def set_parameter(self, node: str, name: str, value: Any) -> str:
        """Sets a parameter of a node; the reason why it was refused, empty where it was not."""
        wish = Parameter(name, value=value).to_parameter_msg()
        (result,) = self._ask(node, SetParameters, "set_parameters", SetParameters.Request(parameters=[wish])).results
        return "" if result.successful else (result.reason or "refused without a reason")

    def get_parameter(self, node: str, name: str) -> Any:
        """Value of a parameter of a node."""
        (value,) = self._ask(node, GetParameters, "get_parameters", GetParameters.Request(names=[name])).values
        return parameter_value_to_python(value)

    def _ask(self, node: str, kind: Any, service: str, request: Any) -> Any:
        client = self.node.create_client(kind, f"/{node}/{service}")
        self.wait_until(client.service_is_ready, what=f"the services of {node}")
        future = client.call_async(request)
        self.wait_until(future.done, what=f"an answer of {node}")
        self.node.destroy_client(client)
        return future.result()

    def set_clock(self, time_ns: int) -> None:
        """Publishes simulated time."""
        self.connect(Clock, "/clock").publish(Clock(clock=stamp_from(time_ns)))

    def _on_diagnostics(self, message: Any) -> None:
        self._statuses.extend(message.status)
