"""Freshness and order of stamps: is this message of now, and does it come after the last one?

One guard stands before every stream (images, joint states, actions), so that the rule is the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vla_sd_ros.kinematics.clock import NS_PER_S as NS_PER_S


class StampVerdict(Enum):
    """What a stamp was found to be; everything but FRESH is rejected, except that TIME_JUMP restarts the stream."""

    FRESH = "fresh"
    NO_CLOCK = "the clock has not started"
    UNSTAMPED = "the stamp is zero"
    STALE = "older than the allowed age"
    FUTURE = "from the future: the sender's clock differs"
    OUT_OF_ORDER = "not newer than the one before"
    TIME_JUMP = "time jumped back"


@dataclass(frozen=True)
class FreshnessLimits:
    """Limits of one stream, in seconds.

    Attributes:
        max_age_s: a stamp older than this is stale.
        max_future_s: a stamp ahead of the clock by more than this comes from another clock.
        jump_back_s: a stamp behind the one before by more than this means that time itself jumped (a bag looped, a
            simulation was reset); by less, that messages came out of order.
    """

    max_age_s: float
    max_future_s: float = 0.1
    jump_back_s: float = 1.0


class StampGuard:
    """Judges the stamps of one stream against the clock and against each other."""

    def __init__(self, limits: FreshnessLimits) -> None:
        self._limits = limits
        self._last_ns: int | None = None
        self.time_jumps = 0

    def judge(self, stamp_ns: int, now_ns: int) -> StampVerdict:
        """Judges one stamp and remembers it where it is FRESH or a TIME_JUMP.

        Args:
            stamp_ns: stamp of the message, nanoseconds.
            now_ns: the clock that stamps of this stream are read from, nanoseconds.
        """
        verdict = self._judge(stamp_ns, now_ns)
        if verdict is StampVerdict.TIME_JUMP:
            self.time_jumps += 1
        if verdict in (StampVerdict.FRESH, StampVerdict.TIME_JUMP):
            self._last_ns = stamp_ns
        return verdict

    def _judge(self, stamp_ns: int, now_ns: int) -> StampVerdict:
        if now_ns <= 0:
            return StampVerdict.NO_CLOCK
        if stamp_ns <= 0:
            return StampVerdict.UNSTAMPED
        age_s = (now_ns - stamp_ns) / NS_PER_S
        if age_s > self._limits.max_age_s:
            return StampVerdict.STALE
        if age_s < -self._limits.max_future_s:
            return StampVerdict.FUTURE
        if self._last_ns is not None and stamp_ns <= self._last_ns:
            jumped = (self._last_ns - stamp_ns) / NS_PER_S > self._limits.jump_back_s
            return StampVerdict.TIME_JUMP if jumped else StampVerdict.OUT_OF_ORDER
        return StampVerdict.FRESH

    def reset(self) -> None:
        """Forgets the last stamp; the count of time jumps stays."""
        self._last_ns = None
