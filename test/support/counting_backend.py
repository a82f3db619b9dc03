"""A backend of plain calls that counts what it prepares."""

from __future__ import annotations

from vla_sd_ros.policy.graphs.backend import PlainCalls, Step


class Counting(PlainCalls):
    """Knows how many steps were prepared."""

    def __init__(self) -> None:
        self.prepared = 0

    def prepare(self, step: Step) -> Step:
        """Counts, and runs the step once."""
        self.prepared += 1
        return super().prepare(step)
