"""Diagnostics: what a node refused and why, counted, on ``/diagnostics`` once a second and at every change of level."""

from __future__ import annotations

import time
from collections import Counter
from threading import Lock
from typing import Final

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType
from rclpy.node import Node

OK: Final = DiagnosticStatus.OK
WARN: Final = DiagnosticStatus.WARN
ERROR: Final = DiagnosticStatus.ERROR
# A stream that was there and then was not for this long is reported.
SILENCE_S: Final = 1.0


class Diagnostics:
    """Collects a node's faults; a fault sets the level until the next report without it.

    Args:
        node: publishes; its fully qualified name is the name of the status.
        period_s: between reports, on a steady clock, so that a stopped simulation does not silence them.
    """

    def __init__(self, node: Node, period_s: float = 1.0) -> None:
        self._node = node
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._values: dict[str, str] = {}
        self._standing: dict[str, tuple[bytes, str]] = {}
        self._recent: tuple[bytes, str] | None = None
        self._last_level = OK
        self._heard_s: dict[str, float | None] = {}
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = node.create_timer(period_s, self._on_timer, clock=self._steady)

    def fault(self, kind: str, reason: str, level: bytes = WARN) -> None:
        """Counts one rejected input or failed act, and says why in the next report.

        Args:
            kind: short name to count by, e.g. ``image_rejected``.
            reason: the whole reason, for a person.
            level: WARN, or ERROR.
        """
        with self._lock:
            self._counts[kind] += 1
            first = self._counts[kind] == 1
            self._recent = (level, reason)
        if first:
            self._node.get_logger().warning(f"{kind}: {reason}")
        if level > self._last_level:
            self.report()

    def hold(self, kind: str, reason: str, level: bytes = WARN) -> None:
        """States a lasting condition, e.g. that an input is missing, until ``clear`` is called."""
        with self._lock:
            changed = self._standing.get(kind) != (level, reason)
            self._standing[kind] = (level, reason)
        if changed:
            self._node.get_logger().warning(f"{kind}: {reason}")
            self.report()

    def clear(self, kind: str) -> None:
        """Ends a lasting condition."""
        with self._lock:
            known = self._standing.pop(kind, None)
        if known is not None:
            self._node.get_logger().info(f"{kind}: over")
            self.report()

    def expect(self, stream: str) -> None:
        """States that ``stream`` is awaited, until ``heard`` is called, and again where it falls silent."""
        self._heard_s[stream] = None
        self.hold(f"waiting for {stream}", f"nothing has arrived on {stream}")

    def heard(self, stream: str) -> None:
        """Something has arrived on an expected stream."""
        self._heard_s[stream] = time.monotonic()
        self.clear(f"waiting for {stream}")

    def value(self, key: str, value: object) -> None:
        """Sets a value that every report shows."""
        with self._lock:
            self._values[key] = str(value)

    def count(self, kind: str) -> int:
        """How often ``kind`` was counted."""
        with self._lock:
            return self._counts[kind]

    def report(self) -> None:
        """Publishes the status now."""
        with self._lock:
            reasons = sorted(self._standing.values(), reverse=True)
            if self._recent is not None:
                reasons.append(self._recent)
            self._recent = None
            level = max((level for level, _ in reasons), default=OK)
            message = "; ".join(reason for _, reason in reasons) or "working"
            counts = dict(self._counts)
            pairs = {**self._values, **{kind: str(n) for kind, n in counts.items()}}
            self._last_level = level
        status = DiagnosticStatus(
            level=level,
            name=self._node.get_fully_qualified_name(),
            message=message,
            values=[KeyValue(key=key, value=value) for key, value in pairs.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = self._node.get_clock().now().to_msg()
        if self._node.context.ok():
            self._publisher.publish(array)

    def _on_timer(self) -> None:
        for stream, heard_s in self._heard_s.items():
            if heard_s is not None and time.monotonic() - heard_s > SILENCE_S:
                self.hold(f"waiting for {stream}", f"nothing has arrived on {stream} for more than {SILENCE_S} s")
        self.report()

    def close(self) -> None:
        """Publishes a last report and frees the publisher."""
        self.report()
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)
