"""Free memory, asked before a model is loaded rather than found missing halfway."""

from __future__ import annotations

import psutil
import torch

# Activations, cache and the allocator's fragments, as a share of the weights.
HEADROOM = 0.1


class InsufficientMemory(RuntimeError):
    """The model does not fit; the message gives the figures."""


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
