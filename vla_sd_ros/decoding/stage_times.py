"""Where the time of a decode goes, measured so that asynchronous devices cannot hide it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

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


class Stopwatch:
    """Collects the stages of one action; waits for the device at every seam where it is CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._elapsed_ns: dict[str, int] = {}
        self._began_ns = time.perf_counter_ns()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time inside to a stage.

        Raises:
            ValueError: on an unknown stage.
        """
        if name not in STAGES:
            raise ValueError(f"stage: {name!r}; legal: {', '.join(STAGES)}")
        began_ns = time.perf_counter_ns()
        yield
        self._wait()
        self._elapsed_ns[name] = self._elapsed_ns.get(name, 0) + time.perf_counter_ns() - began_ns

    def read(self) -> StageTimes:
        """The times so far."""
        self._wait()
        total_ns = time.perf_counter_ns() - self._began_ns
        elapsed_ms = {f"{name}_ms": elapsed / 1e6 for name, elapsed in self._elapsed_ns.items()}
        return StageTimes(**elapsed_ms, total_ms=total_ns / 1e6)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
