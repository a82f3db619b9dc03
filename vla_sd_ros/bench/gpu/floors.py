"""What a card's memory bandwidth and arithmetic allow at best for 7B weights in bfloat16, and what is aimed at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: How far above its floor a figure may lie.
AIM_RATIO: Final = 1.5


@dataclass(frozen=True)
class Floors:
    """Lower bounds of one card, ms, 7B weights in bfloat16, a prefix of about 290 positions.

    Attributes:
        card: its name.
        decode_ms: one token: every weight of the language model is read once.
        prefill_ms: the prefix through the language model.
        autoregressive_ms: prefill and six one-token forwards; vision is not in it.
        accepted_ms: vision and a prefill in which the whole draft is accepted; None where it was not estimated.
    """

    card: str
    decode_ms: float
    prefill_ms: float
    autoregressive_ms: float
    accepted_ms: float | None


FLOORS: Final = (
    Floors("H200", decode_ms=2.75, prefill_ms=5.0, autoregressive_ms=21.0, accepted_ms=9.0),
    Floors("A100 80GB", decode_ms=6.5, prefill_ms=12.0, autoregressive_ms=52.0, accepted_ms=None),
    Floors("RTX 4090", decode_ms=13.0, prefill_ms=23.0, autoregressive_ms=101.0, accepted_ms=None),
)
# Words, so that a GH200 is no H200; the smaller A100 and the cut-down 4090s have less bandwidth.
_NAMES: Final = (re.compile(r"\bH200\b"), re.compile(r"\bA100\b.*\b80GB\b"), re.compile(r"\bRTX 4090$"))
_PARTS: Final = re.compile(r"\bMIG\b")


def floors_of(device_name: str) -> Floors | None:
    """The floors of a card by the name that the driver gives it; None where none are known.

    Args:
        device_name: e.g. ``NVIDIA A100-SXM4-80GB``.
    """
    if _PARTS.search(device_name):
        return None
    return next((floors for floors, name in zip(FLOORS, _NAMES, strict=True) if name.search(device_name)), None)
