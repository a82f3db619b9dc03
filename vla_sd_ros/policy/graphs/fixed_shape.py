"""A module whose input has one shape in every action, as one prepared step."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from vla_sd_ros.policy.graphs.backend import Backend


class FixedShapeModule:
    """Calls a module by a prepared step where the input has the shape that was prepared, and plainly elsewhere.

    Threads may share it: their work is put on the device's stream one after the other.

    Args:
        module: a function of one tensor.
        shape: of the input that is prepared.
        dtype: of that input.
        device: of that input.
        backend: repeats the step.
    """

    def __init__(
        self,
        module: Callable[[torch.Tensor], torch.Tensor],
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        backend: Backend,
    ) -> None:
        self._module = module
        self._in_use = threading.Lock()
        with torch.inference_mode(False), torch.no_grad():
            self._input = torch.zeros(shape, dtype=dtype, device=device)
            self._output = torch.empty_like(module(self._input))
            self._step = backend.prepare(self._compute)

    @torch.no_grad()
    def _compute(self) -> None:
        self._output.copy_(self._module(self._input))

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the module gives."""
        if tensor.shape != self._input.shape or tensor.dtype != self._input.dtype:
            return self._module(tensor)
        with self._in_use:
            self._input.copy_(tensor)
            self._step()
            return self._output.clone()
