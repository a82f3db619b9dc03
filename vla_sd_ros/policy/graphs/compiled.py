"""The short passes of the language model with kernels made by ``torch.compile``."""

from __future__ import annotations

import torch
import torch._dynamo.config

from vla_sd_ros.policy.graphs.language_model import FixedForward, Layers, forward_of_fixed_shape
from vla_sd_ros.policy.llama import Llama

#: Fixed shapes that one process may compile: each bucket of each policy counts.
SHAPES = 64
#: Graphs are captured by our own runtime.
MODE = "max-autotune-no-cudagraphs"


class CompilerUnavailable(ValueError):
    """``torch.compile`` does not work here; the message says why."""


def compiled_forward(device: torch.device) -> FixedForward:
    """A compiled :func:`~vla_sd_ros.policy.graphs.language_model.forward_of_fixed_shape`; each shape takes its time.

    Raises:
        CompilerUnavailable: where nothing can be compiled for the device.
    """
    require_compiler(device)
    compiled = torch.compile(forward_of_fixed_shape, mode=MODE, dynamic=False, fullgraph=True)

    def forward(
        llama: Llama,
        embeddings: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        visible: torch.Tensor,
        levels: torch.Tensor,
        layers: Layers,
        outputs: int,
    ) -> torch.Tensor:
        with torch._dynamo.config.patch(recompile_limit=SHAPES):
            return compiled(llama, embeddings, positions, slots, visible, levels, layers, outputs)

    return forward


def require_compiler(device: torch.device) -> None:
    """Compiles something small.

    Raises:
        CompilerUnavailable: where that fails, whatever the reason.
    """
    try:
        torch.compile(_sample, dynamic=False)(torch.ones(8, device=device))
    except Exception as error:  # whatever the compiler raises
        needed = "Triton and a C compiler" if device.type == "cuda" else "a C++ compiler"
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CompilerUnavailable(
            f"compile: torch.compile needs {needed} for {device}, and failed: {reason}; legal here: false"
        ) from error


def _sample(row: torch.Tensor) -> torch.Tensor:
    return torch.sin(row) * 2.0 + 1.0
