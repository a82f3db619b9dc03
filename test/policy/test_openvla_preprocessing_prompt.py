"""Prompts as OpenVLA sees them, against ids of Llama 2's vocabulary (``golden/make_prompts.mjs``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llama_tokenizer import VOCABULARY, build_llama_tokenizer, golden_prompts
from tokenizers import Tokenizer

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.prompt import openvla_prompt
from vla_sd_ros.policy.tokenizer import PromptTokenizer, load_tokenizer

EMPTY_STRING_ID = 29871


@pytest.fixture(scope="module")
def llama() -> Tokenizer:
    return build_llama_tokenizer()


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory, llama: Tokenizer) -> PromptTokenizer:
    path = tmp_path_factory.mktemp("checkpoint") / "tokenizer.json"
    llama.save(str(path))
    return load_tokenizer(Path(path), PolicyConfig.openvla_7b())


@pytest.mark.parametrize("golden", golden_prompts(), ids=lambda golden: golden["instruction"])
def test_the_ids_are_llamas_and_end_with_the_empty_string(golden: dict[str, Any], prompts: PromptTokenizer) -> None:
    assert openvla_prompt(golden["instruction"]) == golden["prompt"]
    assert prompts.encode_instruction(golden["instruction"]) == [*golden["ids"], EMPTY_STRING_ID]


def test_the_prompt_is_bos_a_question_and_the_empty_string_behind_the_colon(prompts: PromptTokenizer) -> None:
    begin = [1, 512, 29901, 1724, 3158, 881, 278, 19964, 2125, 304]  # <s> In: What action should the robot take to
    end = [29973, 13, 3744, 29901, EMPTY_STRING_ID]  # ?, line break, Out:, empty string
    for golden in golden_prompts():
        ids = prompts.encode_instruction(golden["instruction"])
        assert (ids[: len(begin)], ids[-len(end) :]) == (begin, end)


def test_added_tokens_are_not_part_of_the_vocabulary_that_action_ids_assume(llama: Tokenizer) -> None:
    assert llama.token_to_id("<PAD>") == VOCABULARY
    assert llama.get_vocab_size(with_added_tokens=True) == VOCABULARY + 1
    config = PolicyConfig.openvla_7b()
    assert PromptTokenizer(llama, config).encode_instruction("turn on the stove")[0] == config.bos_id
    assert config.first_action_id + 256 == llama.get_vocab_size(with_added_tokens=False)


@pytest.mark.parametrize("mark", ["<s>", "</s>", "<unk>"])
def test_marks_in_an_instruction_are_text(mark: str, prompts: PromptTokenizer, llama: Tokenizer) -> None:
    ids = prompts.encode_instruction(f"put the {mark} back")
    assert llama.token_to_id(mark) not in ids[1:] and ids.count(1) == 1


def test_a_prompt_decodes_to_itself(prompts: PromptTokenizer, llama: Tokenizer) -> None:
    for golden in golden_prompts():
        assert llama.decode(golden["ids"]) == golden["prompt"]
