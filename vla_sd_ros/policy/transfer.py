"""Between host and device without waiting: uploads never do, and a download waits once, for all that it brings.

On CUDA both go through page-locked memory. Its allocator hands a buffer out again only when the copy from it is done,
so that the host may run ahead of the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """A tensor on the device with the array's content; on a CPU it shares the array's memory.

    Args:
        array: of a dtype that torch knows.
        device: where the tensor shall be; the copy is in the order of its current stream.
    """
    host = torch.from_numpy(np.ascontiguousarray(array))
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def to_host(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The tensor's content, once the device has computed it: this waits. On a CPU it shares the tensor's memory."""
    if tensor.device.type != "cuda":
        return tensor.cpu().numpy()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    return host.numpy()


def staging(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Uninitialised host memory, uint8 [size_bytes], from which ``copy_(..., non_blocking=True)`` does not wait."""
    return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
