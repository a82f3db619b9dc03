"""The name of a task: its instruction, whole."""

from __future__ import annotations

import unicodedata
from functools import lru_cache


@lru_cache(maxsize=256)
def normalise_instruction(instruction: str) -> str:
    """Unicode NFC, lower case, every run of white space one blank, no blanks at the ends.

    The string itself names the task's collection. A short hash of it would not do: HeiSD's released code takes MD5
    modulo 1001, and "pick up the butter ..." and "pick up the milk ..." of LIBERO-Object meet there.

    Raises:
        ValueError: where nothing is left.
    """
    words = " ".join(unicodedata.normalize("NFC", instruction).lower().split())
    if not words:
        raise ValueError("instruction is empty; legal: what the robot was told in the demonstrations")
    # Lower case can undo the composition of a few letters.
    return unicodedata.normalize("NFC", words)
