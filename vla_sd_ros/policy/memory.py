"""Free memory, asked before a model is loaded rather than found missing halfway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import torch

if TYPE_CHECKING:
    from vla_sd_ros.policy.config import LlamaConfig
    from vla_sd_ros.policy.quantisation import Quantisation

# Activations, cache and the allocator's fragments, as a share of the weights.
HEADROOM = 0.1


class InsufficientMemory(RuntimeError):
    """The model does not fit; the message gives the figures."""


def weights_bytes(parameters: int, llama: LlamaConfig, dtype: torch.dtype, quantisation: Quantisation = "none") -> int:
    """Memory of a policy's weights.

    While a policy is being quantised it needs what it needs without: layer after layer is replaced.

    Args:
        parameters: of the whole policy.
        llama: its language model, whose linear layers alone are quantised.
        dtype: of the rest.
        quantisation: int8 adds a scale per output row; int4 a scale and a zero, bfloat16 each, per 128 weights of rows
            that are padded to multiples of 1024.
    """
    width, mlp = llama.width, llama.mlp_width
    # Output and input width of the four linear layers of a decoder layer.
    shapes = ((3 * width, width), (width, width), (2 * mlp, width), (width, mlp))
    if quantisation == "none":
        return parameters * dtype.itemsize
    rest = parameters - llama.depth * sum(rows * columns for rows, columns in shapes)
    if quantisation == "int8":
        layer = sum(rows * (columns + dtype.itemsize) for rows, columns in shapes)
    else:
        layer = sum(
            rows * (padded // 2 + padded // 128 * 4) for rows, padded in ((r, -(-c // 1024) * 1024) for r, c in shapes)
        )
    return rest * dtype.itemsize + llama.depth * layer


def free_memory_bytes(device: torch.device) -> int:
    """Memory that a new model can take on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def require_memory(weights_bytes: int, device: torch.device) -> None:
    """Checks that weights and 10% more fit.

    Raises:
        InsufficientMemory: where they do not.
    """
    needed, free = int(weights_bytes * (1.0 + HEADROOM)), free_memory_bytes(device)
    if needed > free:
        raise InsufficientMemory(
            f"the policy needs {needed / 1e9:.2f} GB on {device} ({weights_bytes / 1e9:.2f} GB of weights), "
            f"but {free / 1e9:.2f} GB are free"
        )
