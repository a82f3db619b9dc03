from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from vla_sd_ros.actions.bins import N_BINS
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.libero_words import DEMO_VOCABULARY
from vla_sd_ros.policy.prompt import EmptyInstruction
from vla_sd_ros.policy.tokenizer import PromptTokenizer, build_word_tokenizer, load_tokenizer


@pytest.fixture
def tokenizer(tiny_config: PolicyConfig) -> PromptTokenizer:
    return PromptTokenizer(build_word_tokenizer(), tiny_config)


def test_a_prompt_is_bos_and_one_id_per_word_and_mark(tokenizer: PromptTokenizer) -> None:
    words = [DEMO_VOCABULARY[token] for token in tokenizer.encode_instruction("Turn on the stove")]
    assert " ".join(words) == "<s> in : what action should the robot take to turn on the stove ? out :"


@pytest.mark.parametrize(
    "instruction",
    [
        "pick up the black bowl between the plate and the ramekin and place it on the plate",
        "pick up the alphabet soup and place it in the basket",
        "open the middle drawer of the cabinet",
        "put both moka pots on the stove",
        "put the yellow and white mug in the microwave and close it",
    ],
)
def test_liberos_instructions_have_no_unknown_words(
    instruction: str, tokenizer: PromptTokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    ids = tokenizer.encode_instruction(instruction)
    assert DEMO_VOCABULARY.index("<unk>") not in ids and not caplog.records


def test_the_words_are_distinct() -> None:
    assert len(set(DEMO_VOCABULARY)) == len(DEMO_VOCABULARY)


def test_an_unknown_word_is_named_in_a_warning(tokenizer: PromptTokenizer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ids = tokenizer.encode_instruction("put the zeppelin on the plate")
    assert ids.count(DEMO_VOCABULARY.index("<unk>")) == 1
    assert "zeppelin" in caplog.text and "plate" not in caplog.text


@pytest.mark.parametrize("instruction", ["<action_3> <s> <unk>", "<action_255>", "öffne die tür", "?" * 200, "\u0000"])
def test_no_text_becomes_an_action_or_a_second_bos(
    instruction: str, tokenizer: PromptTokenizer, tiny_config: PolicyConfig
) -> None:
    ids = tokenizer.encode_instruction(instruction)
    assert ids.count(tiny_config.bos_id) == 1 and ids[0] == tiny_config.bos_id
    assert max(ids) < tiny_config.first_action_id


@pytest.mark.parametrize("instruction", ["put the bowl " * 800, "?" * 10_000, "bowl " * 100 + "\n"])
def test_a_long_instruction_still_ends_like_every_prompt(
    instruction: str, tokenizer: PromptTokenizer, tiny_config: PolicyConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        ids = tokenizer.encode_instruction(instruction)
    assert len(ids) <= tiny_config.max_prompt_ids
    assert [DEMO_VOCABULARY[token] for token in ids[-2:]] == ["out", ":"]
    assert "cut" in caplog.text


def test_an_empty_instruction_has_no_prompt(tokenizer: PromptTokenizer) -> None:
    with pytest.raises(EmptyInstruction):
        tokenizer.encode_instruction(" \n")


def test_the_extra_id_ends_the_prompt_once(tiny_config: PolicyConfig) -> None:
    plain = PromptTokenizer(build_word_tokenizer(), tiny_config).encode_instruction("put it down")
    added = PromptTokenizer(build_word_tokenizer(), tiny_config.model_copy(update={"extra_prompt_id": 40}))
    assert added.encode_instruction("put it down") == [*plain, 40]
    there = PromptTokenizer(build_word_tokenizer(), tiny_config.model_copy(update={"extra_prompt_id": plain[-1]}))
    assert there.encode_instruction("put it down") == plain


def test_a_saved_tokenizer_gives_the_same_ids(
    tmp_path: Path, tokenizer: PromptTokenizer, tiny_config: PolicyConfig
) -> None:
    build_word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path / "tokenizer.json", tiny_config)
    assert loaded.encode_instruction("turn on the stove") == tokenizer.encode_instruction("turn on the stove")


def test_another_models_tokenizer_is_refused(tiny_config: PolicyConfig) -> None:
    with pytest.raises(ValueError, match=f"{tiny_config.vocabulary_size + 1} entries.*{tiny_config.vocabulary_size}"):
        PromptTokenizer(build_word_tokenizer([*DEMO_VOCABULARY, "zeppelin"]), tiny_config)


def test_a_tokenizer_without_bos_is_refused(tiny_config: PolicyConfig) -> None:
    without_bos = build_word_tokenizer()
    without_bos.post_processor = processors.Sequence([])
    with pytest.raises(ValueError, match="begins with id"):
        PromptTokenizer(without_bos, tiny_config)


def test_a_missing_tokenizer_is_named(tmp_path: Path, tiny_config: PolicyConfig) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        load_tokenizer(tmp_path / "nowhere.json", tiny_config)


def test_any_tokenizer_of_the_right_size_will_do(tiny_config: PolicyConfig) -> None:
    entries = {"<s>": 1, **{f"piece{i}": i for i in range(tiny_config.vocabulary_size) if i != 1}}
    other = Tokenizer(models.WordPiece(entries, unk_token="piece0"))
    other.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    other.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    assert len(entries) == tiny_config.first_action_id + N_BINS
    ids = PromptTokenizer(other, tiny_config).encode_instruction("put piece7 down")
    assert ids[0] == 1 and 7 in ids
