"""Instructions: cleaned, then put into the words the policy was trained on."""

from __future__ import annotations

import logging
import unicodedata

logger = logging.getLogger(__name__)

MAX_INSTRUCTION_CHARACTERS = 256


class EmptyInstruction(ValueError):
    """There is nothing to do: the instruction is empty or white space. The arm must hold."""


def clean_instruction(instruction: str) -> str:
    """NFC-normalised, every run of white space one blank, no blanks at the ends, at most 256 characters.

    A longer instruction is cut, with a warning.

    Raises:
        EmptyInstruction: where nothing is left.
    """
    words = " ".join(unicodedata.normalize("NFC", instruction).split())
    if not words:
        raise EmptyInstruction("instruction is empty; say what the robot shall do")
    if len(words) <= MAX_INSTRUCTION_CHARACTERS:
        return words
    logger.warning("instruction of %d characters cut to %d", len(words), MAX_INSTRUCTION_CHARACTERS)
    return words[:MAX_INSTRUCTION_CHARACTERS].rstrip()


def openvla_prompt(instruction: str) -> str:
    """OpenVLA's prompt (Kim et al. 2024): the cleaned instruction in lower case inside a fixed question.

    Raises:
        EmptyInstruction: where the instruction is empty.
    """
    return f"In: What action should the robot take to {clean_instruction(instruction).lower()}?\nOut:"
