"""Step limits of LIBERO's suites, as OpenVLA's evaluation sets them."""

from __future__ import annotations

from typing import Final

MAX_STEPS: Final = {
    "libero_spatial": 220,
    "libero_object": 280,
    "libero_goal": 300,
    "libero_10": 520,
    "libero_90": 400,
}
