"""Which precision a policy runs in."""

from __future__ import annotations

from typing import Final, Literal

import torch

Precision = Literal["auto", "float32", "bfloat16", "float16"]

_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_dtype(precision: str, device: str) -> torch.dtype:
    """The dtype of a policy's weights.

    Args:
        precision: ``auto`` takes bfloat16 where the device multiplies in it: on CUDA, and on CPUs with AVX512-BF16 or
            AMX. Other CPUs would emulate it, several times slower than float32.
        device: torch device, e.g. ``cpu`` or ``cuda:0``.

    Raises:
        ValueError: on an unknown precision; the message lists the legal ones.
    """
    if precision in _DTYPES:
        return _DTYPES[precision]
    if precision != "auto":
        raise ValueError(f"precision: {precision!r}; legal: auto, {', '.join(_DTYPES)}")
    if device.startswith("cuda"):
        return torch.bfloat16
    return torch.bfloat16 if cpu_multiplies_bfloat16() else torch.float32


def cpu_multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for bfloat16 products; where PyTorch cannot tell, it is taken to have none."""
    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(supported() for supported in asked if supported is not None)
