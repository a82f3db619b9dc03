"""QoS of every stream (REP-2003): what the nodes publish and subscribe with."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy


def sensor_data(depth: int = 5) -> QoSProfile:
    """For subscribing to drivers: best effort matches both reliable and best-effort publishers."""
    return QoSProfile(depth=depth, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.BEST_EFFORT)


def reliable(depth: int = 5) -> QoSProfile:
    """Between our own nodes, and to controllers: nothing is lost silently; a full queue drops the oldest."""
    return QoSProfile(depth=depth, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.RELIABLE)


def latched() -> QoSProfile:
    """For values that late joiners need: the instruction, the state of an episode."""
    return QoSProfile(
        depth=1,
        history=HistoryPolicy.KEEP_LAST,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL,
    )
