from __future__ import annotations

import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.policy.prompt import MAX_INSTRUCTION_CHARACTERS, EmptyInstruction, clean_instruction, openvla_prompt


def test_the_prompt_is_openvlas_question_in_lower_case() -> None:
    assert openvla_prompt("Put the Bowl on the plate") == (
        "In: What action should the robot take to put the bowl on the plate?\nOut:"
    )


@pytest.mark.parametrize("instruction", ["", " ", "\n\t ", "\u00a0\u2003"])
def test_an_instruction_of_white_space_is_refused(instruction: str) -> None:
    with pytest.raises(EmptyInstruction, match="empty"):
        openvla_prompt(instruction)


@pytest.mark.parametrize("instruction", ["put it down ", "\nput it down", "put\nit\tdown", "put  it   down\r\n"])
def test_white_space_does_not_change_the_prompt(instruction: str) -> None:
    assert openvla_prompt(instruction) == openvla_prompt("put it down")


def test_composed_and_decomposed_letters_are_the_same() -> None:
    decomposed = unicodedata.normalize("NFD", "Öffne die Schublade, señor")
    assert openvla_prompt(decomposed) == openvla_prompt("öffne die schublade, señor")


def test_ten_kilobytes_are_cut_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        cleaned = clean_instruction("put the bowl " * 800)
    assert len(cleaned) <= MAX_INSTRUCTION_CHARACTERS and cleaned.startswith("put the bowl put")
    assert "cut to" in caplog.text


@given(st.text(max_size=600))
def test_cleaning_twice_is_cleaning_once_and_leaves_no_line_breaks(instruction: str) -> None:
    try:
        cleaned = clean_instruction(instruction)
    except EmptyInstruction:
        assert not instruction.strip()
        return
    assert clean_instruction(cleaned) == cleaned
    assert cleaned == cleaned.strip() and len(cleaned) <= MAX_INSTRUCTION_CHARACTERS
    assert openvla_prompt(cleaned).count("\n") == 1
