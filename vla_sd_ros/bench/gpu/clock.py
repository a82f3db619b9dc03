"""Times of work on an asynchronous device: the host's clock between two synchronisations, and the device's own events.

Nothing waits inside what is timed but what the work itself waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

MS_PER_S: Final = 1e3
NS_PER_MS: Final = 1e6


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one thing done several times.

    Attributes:
        median_ms: by the host's clock, from work at rest to work at rest.
        p95_ms: 95th percentile of the same.
        device_ms: median between two events on the device's stream; None on a CPU.
        repeats: how often it was timed.
    """

    median_ms: float
    p95_ms: float
    device_ms: float | None
    repeats: int

    @classmethod
    def of(cls, host_ms: Sequence[float], device_ms: Sequence[float]) -> Timing:
        """Of single times; ``device_ms`` is empty on a CPU."""
        return cls(
            median_ms=float(np.median(host_ms)),
            p95_ms=float(np.percentile(host_ms, 95)),
            device_ms=float(np.median(device_ms)) if device_ms else None,
            repeats=len(host_ms),
        )

    def divided_by(self, parts: int) -> Timing:
        """Of one of equal parts."""
        device_ms = None if self.device_ms is None else self.device_ms / parts
        return Timing(self.median_ms / parts, self.p95_ms / parts, device_ms, self.repeats)


class Clock:
    """Times single runs on one device.

    Args:
        device: where the work runs; its current stream is timed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: tuple[Any, Any] | None = None
        if device.type == "cuda":
            event: Any = torch.cuda.Event  # untyped
            self._events = event(enable_timing=True), event(enable_timing=True)

    def synchronise(self) -> None:
        """Waits until the device is at rest."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def run(self, work: Callable[[], object]) -> tuple[float, float | None]:
        """One run: milliseconds by the host's clock, and by the device's (None on a CPU)."""
        self.synchronise()
        began_ns = time.perf_counter_ns()
        if self._events is not None:
            self._events[0].record()
        work()
        if self._events is not None:
            self._events[1].record()
        self.synchronise()
        host_ms = (time.perf_counter_ns() - began_ns) / NS_PER_MS
        return host_ms, None if self._events is None else float(self._events[0].elapsed_time(self._events[1]))

    def measure(self, work: Callable[[], object], seconds: float, repeats: int, warm_up: int = 3) -> Timing:
        """Several runs after a warm-up.

        Args:
            work: what is timed.
            seconds: after which no further run begins; the warm-up counts.
            repeats: at most; at least one is timed, and three where the time allows.
            warm_up: runs before the first timed one: kernels are chosen and graphs captured there. At least one.
        """
        stop = time.perf_counter() + seconds
        self.run(work)
        for _ in range(warm_up - 1):
            if time.perf_counter() < stop:
                self.run(work)
        runs = [self.run(work)]
        while len(runs) < repeats and time.perf_counter() < stop:
            runs.append(self.run(work))
        return Timing.of([host for host, _ in runs], [device for _, device in runs if device is not None])


class Budget:
    """Time that is left until a deadline.

    Args:
        seconds: from now.
    """

    def __init__(self, seconds: float) -> None:
        self._began = time.perf_counter()
        self._seconds = seconds

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._began

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self._seconds - self.spent_s)

    def share(self, part: float) -> float:
        """A part of what is left, seconds."""
        return part * self.left_s
