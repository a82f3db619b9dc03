"""How a step is captured, with a CUDA that only takes notes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from vla_sd_ros.policy.graphs.backend import TRIALS, CudaGraphs, PlainCalls, backend_for

POOL = (0, 7)


class FakeCuda:
    """Notes what is done, on which stream."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.notes: list[str] = []
        self.stream = "default"
        fake = self

        class Stream:
            count = 0

            def __init__(self, device: torch.device) -> None:
                Stream.count += 1
                self.name = f"side {Stream.count}"

            def wait_stream(self, other: Any) -> None:
                fake.notes.append(f"{self.name} waits for {other.name}")

            def synchronize(self) -> None:
                fake.notes.append(f"host waits for {self.name}")

        class Default(Stream):
            def __init__(self) -> None:
                self.name = "default"

        class Graph:
            def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
                assert pool == POOL
                fake.notes.append(f"capture begins, {capture_error_mode}, on {fake.stream}")

            def capture_end(self) -> None:
                fake.notes.append("capture ends")

            def replay(self) -> None:
                fake.notes.append("replay")

        @contextmanager
        def on(stream: Stream) -> Iterator[None]:
            before, self.stream = self.stream, stream.name
            yield
            self.stream = before

        @contextmanager
        def device(_: torch.device) -> Iterator[None]:
            yield

        for name, value in {
            "Stream": Stream,
            "CUDAGraph": Graph,
            "stream": on,
            "device": device,
            "current_stream": Default,
            "graph_pool_handle": lambda: POOL,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)


def test_a_step_is_tried_on_one_side_stream_captured_on_another_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)
    replay = CudaGraphs(torch.device("cuda:0")).prepare(lambda: cuda.notes.append(f"step on {cuda.stream}"))
    replay()
    assert cuda.notes == [
        "side 1 waits for default",
        *["step on side 1"] * TRIALS,
        "default waits for side 1",
        "host waits for side 1",
        "capture begins, thread_local, on side 2",
        "step on side 2",
        "capture ends",
        "replay",
    ]


def test_a_step_that_fails_while_it_is_captured_ends_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)

    def step() -> None:
        if cuda.stream == "side 2":
            raise KeyError("x")

    with pytest.raises(KeyError):
        CudaGraphs(torch.device("cuda:0")).prepare(step)
    assert cuda.notes[-1] == "capture ends"


def test_a_cpu_calls_the_step_itself() -> None:
    calls: list[int] = []
    backend = backend_for(torch.device("cpu"))
    assert isinstance(backend, PlainCalls)
    step = backend.prepare(lambda: calls.append(1))
    step()
    assert len(calls) == 2
