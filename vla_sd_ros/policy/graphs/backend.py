"""Makes a step that can be repeated cheaply: by capture and replay on CUDA, by a plain call elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import torch

#: Reads and writes tensors that stay where they are; neither takes nor gives anything.
Step = Callable[[], None]
#: Calls before a capture: libraries prepare themselves in the first, compiled code settles in the second.
TRIALS = 2


class Backend(Protocol):
    """How steps are repeated."""

    def prepare(self, step: Step) -> Step:
        """A repetition of ``step``; it may be run in preparation, on whatever its tensors hold then."""
        ...


class PlainCalls:
    """Every repetition is a call."""

    def prepare(self, step: Step) -> Step:
        """Runs the step once, so that what it does lazily is done, and returns it."""
        step()
        return step


class CudaGraphs:
    """Captures steps as CUDA graphs, whose intermediate results share one pool of memory.

    The pool is safe as long as all graphs are replayed on the same stream, which the default stream is for all threads
    that choose no other. A capture does not disturb what other threads do meanwhile.

    Args:
        device: where the steps' tensors are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Two streams: a library's workspace that belongs to the first is never written by a graph of the second.
        self._trial_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._capture_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._one_at_a_time = threading.Lock()

    def prepare(self, step: Step) -> Step:
        """Runs the step on a side stream, captures it and returns its replay."""
        graph = torch.cuda.CUDAGraph()
        with self._one_at_a_time, torch.cuda.device(self._device):
            before = torch.cuda.current_stream()
            self._trial_stream.wait_stream(before)
            with torch.cuda.stream(self._trial_stream):
                for _ in range(TRIALS):
                    step()
            before.wait_stream(self._trial_stream)
            self._trial_stream.synchronize()
            with torch.cuda.stream(self._capture_stream):
                # Calls of other threads that a capture forbids by default are theirs to make.
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    step()
                finally:
                    graph.capture_end()
        return graph.replay


def backend_for(device: torch.device) -> Backend:
    """Graphs on CUDA, calls elsewhere."""
    return CudaGraphs(device) if device.type == "cuda" else PlainCalls()
