"""The unit of stamps."""

from __future__ import annotations

from typing import Final

NS_PER_S: Final = 1_000_000_000
