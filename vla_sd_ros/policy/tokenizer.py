"""Text to ids. Nothing here or above knows which tokenizer a checkpoint holds: Llama 2's or the demo's words.

Action ids never pass through a tokenizer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from vla_sd_ros.actions.bins import N_BINS
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.libero_words import BOS_TOKEN, DEMO_VOCABULARY, UNKNOWN_TOKEN
from vla_sd_ros.policy.prompt import clean_instruction, openvla_prompt

logger = logging.getLogger(__name__)


def build_word_tokenizer(words: Sequence[str] = DEMO_VOCABULARY) -> Tokenizer:
    """A tokenizer of whole words, lower case, punctuation apart, with BOS in front.

    The vocabulary ends with 256 action tokens ``<action_i>``, which no text can produce: it has as many entries as
    the policy has ids, like Llama's.

    Args:
        words: text tokens in id order, ``<unk>`` and ``<s>`` among them.
    """
    entries = [*words, *(f"<action_{index}>" for index in range(N_BINS))]
    vocabulary = {word: index for index, word in enumerate(entries)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN_TOKEN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS_TOKEN} $A", special_tokens=[(BOS_TOKEN, entries.index(BOS_TOKEN))]
    )
    return tokenizer


def load_tokenizer(path: Path, config: PolicyConfig) -> PromptTokenizer:
    """Reads a ``tokenizer.json`` and checks that it belongs to the policy.

    Raises:
        FileNotFoundError: where the file is missing.
        ValueError: where its vocabulary is not the one that the action ids assume, or it puts another id than BOS
            first.
    """
    if not path.is_file():
        raise FileNotFoundError(f"tokenizer: {path} does not exist")
    return PromptTokenizer(Tokenizer.from_file(str(path)), config)


class PromptTokenizer:
    """Turns instructions into the ids of the policy's prompt.

    Args:
        tokenizer: of the ``tokenizers`` library.
        config: of the policy.

    Raises:
        ValueError: as for :func:`load_tokenizer`.
    """

    def __init__(self, tokenizer: Tokenizer, config: PolicyConfig) -> None:
        self._tokenizer = tokenizer
        self._config = config
        size = tokenizer.get_vocab_size(with_added_tokens=False)
        if size != config.vocabulary_size:
            raise ValueError(
                f"tokenizer has {size} entries, but the policy's action ids assume a vocabulary of "
                f"{config.vocabulary_size}: it is another model's tokenizer"
            )
        first = tokenizer.encode("in").ids[:1]
        if first != [config.bos_id]:
            raise ValueError(f"tokenizer begins with id {first}; legal: bos_id {config.bos_id}")
        # Marks like </s> in an instruction are text: nobody's words may end a sentence or begin a second prompt.
        tokenizer.encode_special_tokens = True
        unknown = getattr(tokenizer.model, "unk_token", None)
        self._unknown_id = None if unknown is None else tokenizer.token_to_id(unknown)

    def encode_instruction(self, instruction: str) -> list[int]:
        """Ids of the whole prompt, BOS first, the extra id (where the policy has one) last.

        Unknown words become the unknown token, and an instruction that does not fit is cut; both with a warning.

        Raises:
            EmptyInstruction: where the instruction is empty.
        """
        words = clean_instruction(instruction)
        ids = self._encode(openvla_prompt(words))
        while len(ids) > self._config.max_prompt_ids and len(words) > 1:
            words = words[: max(1, len(words) * self._config.max_prompt_ids // (len(ids) + 1))].rstrip()
            ids = self._encode(openvla_prompt(words))
            logger.warning("instruction cut to %d characters: %d ids fit", len(words), self._config.max_prompt_ids)
        return ids

    def _encode(self, prompt: str) -> list[int]:
        encoding = self._tokenizer.encode(prompt)
        ids: list[int] = encoding.ids
        if self._unknown_id is not None and self._unknown_id in ids:
            spans = [span for token, span in zip(ids, encoding.offsets, strict=True) if token == self._unknown_id]
            logger.warning("words unknown to the policy: %s", [prompt[start:stop] for start, stop in spans])
        extra = self._config.extra_prompt_id
        return ids if extra is None or ids[-1] == extra else [*ids, extra]
