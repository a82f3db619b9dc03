"""Memory: what a copy on the device moves, and the most that the process held."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

import psutil
import torch

from vla_sd_ros.bench.gpu.clock import MS_PER_S, Clock

#: Of each of the two tensors: far more than any cache holds.
COPY_BYTES: Final = {"cuda": 2 << 30, "cpu": 256 << 20}
_KIB: Final = 1024


@dataclass(frozen=True)
class Bandwidth:
    """Of a copy from one tensor to another.

    Attributes:
        bytes_moved: read and written per copy.
        bytes_per_s: by the median copy.
    """

    bytes_moved: int
    bytes_per_s: float


def copy_bandwidth(clock: Clock, device: torch.device, seconds: float, repeats: int = 20) -> Bandwidth:
    """Measures it; a smaller tensor is taken where memory is short."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    size = min(COPY_BYTES[device.type], int(free) // 8)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    timing = clock.measure(lambda: target.copy_(source), seconds, repeats)
    took_ms = timing.median_ms if timing.device_ms is None else timing.device_ms
    return Bandwidth(2 * size, 2 * size / took_ms * MS_PER_S)


def use_device(device: torch.device) -> None:
    """Makes a GPU the current one, whose streams and events are meant from now on, and forgets its peak so far."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.set_device(0 if device.index is None else device.index)
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> dict[str, float]:
    """Peaks in bytes: allocated and reserved on a GPU, resident of the process in any case."""
    resident = {"resident_bytes": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB)}
    if device.type != "cuda":
        return resident
    return {
        "allocated_bytes": float(torch.cuda.max_memory_allocated(device)),
        "reserved_bytes": float(torch.cuda.max_memory_reserved(device)),
        **resident,
    }
