"""Subscriptions that report an incompatible QoS instead of staying silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.subscription import Subscription

from vla_sd_ros.ros.diagnostics import Diagnostics


def subscribe(
    node: Node,
    message_type: Any,
    topic: str,
    callback: Callable[[Any], None],
    qos: QoSProfile,
    diagnostics: Diagnostics,
) -> Subscription:
    """Subscribes; a publisher whose QoS cannot match appears in the diagnostics by topic and policy.

    A latched subscription does not: a volatile publisher beside it is no fault where a volatile one stands too.
    """

    def incompatible(event: Any) -> None:
        diagnostics.hold(
            f"incompatible_qos {topic}",
            f"a publisher on {topic} offers a QoS that this node cannot receive (policy {event.last_policy_kind})",
        )

    latched = qos.durability is DurabilityPolicy.TRANSIENT_LOCAL
    events = SubscriptionEventCallbacks(incompatible_qos=(lambda _: None) if latched else incompatible)
    return node.create_subscription(message_type, topic, callback, qos, event_callbacks=events)
