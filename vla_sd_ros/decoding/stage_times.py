"""Where the time of a decode goes, measured so that asynchronous devices cannot hide it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch


@dataclass(frozen=True)
class StageTimes:
    """Milliseconds per stage of one action; a stage that a decoder does not have took 0.

    Attributes:
        preprocess_ms: image to pixels, instruction to ids.
        vision_ms: both towers.
        search_ms: look-up in a demonstration index.
        draft_ms: making of a draft.
        prefill_ms: projector, prompt embeddings and the language model's first forward.
        decode_ms: one-token forwards.
        verify_ms: forwards that verify a draft after the prefill.
        refine_ms: further forwards after a rejected draft.
        post_ms: tokens to values.
        total_ms: from the image to the action; at least the sum of the others.
    """

    preprocess_ms: float = 0.0
    vision_ms: float = 0.0
    search_ms: float = 0.0
    draft_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    verify_ms: float = 0.0
    refine_ms: float = 0.0
    post_ms: float = 0.0
    total_ms: float = 0.0


STAGES = tuple(field.name.removesuffix("_ms") for field in fields(StageTimes) if field.name != "total_ms")


class Mark(Protocol):
    """A moment on a device's own clock, as ``torch.cuda.Event`` once it is recorded."""

    def synchronize(self) -> None:
        """Waits until the device has come there."""
        ...

    def elapsed_time(self, other: Any, /) -> float:
        """Milliseconds until a later mark; the device must have passed both."""
        ...


class Stopwatch:
    """Collects the stages of one action.

    On CUDA a stage lasts from when the device comes to its beginning until it comes to its end, so that nothing waits
    at the seams: what the host does while the device is busy takes no time, and its own time while the device is idle.

    Args:
        device: that does the work.
        mark: makes a mark in the order of the device's work; None: CUDA's events there, the host's clock elsewhere.
    """

    def __init__(self, device: torch.device, mark: Callable[[], Mark] | None = None) -> None:
        self._elapsed_ns: dict[str, int] = {}
        self._mark = mark
        if mark is None and device.type == "cuda":
            self._mark = lambda: _cuda_mark(device)
        self._spans: list[tuple[str, Mark, Mark]] = []
        self._began_ns = time.perf_counter_ns()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time inside to a stage.

        Raises:
            ValueError: on an unknown stage.
        """
        if name not in STAGES:
            raise ValueError(f"stage: {name!r}; legal: {', '.join(STAGES)}")
        if self._mark is not None:
            begin = self._mark()
            yield
            self._spans.append((name, begin, self._mark()))
            return
        began_ns = time.perf_counter_ns()
        yield
        self._elapsed_ns[name] = self._elapsed_ns.get(name, 0) + time.perf_counter_ns() - began_ns

    def read(self) -> StageTimes:
        """The times so far; waits for the device."""
        if self._spans:
            self._spans[-1][2].synchronize()
        total_ns = time.perf_counter_ns() - self._began_ns
        elapsed_ms = {f"{name}_ms": elapsed / 1e6 for name, elapsed in self._elapsed_ns.items()}
        for name, begin, end in self._spans:
            elapsed_ms[f"{name}_ms"] = elapsed_ms.get(f"{name}_ms", 0.0) + begin.elapsed_time(end)
        return StageTimes(**elapsed_ms, total_ms=total_ns / 1e6)


def _cuda_mark(device: torch.device) -> Mark:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event
