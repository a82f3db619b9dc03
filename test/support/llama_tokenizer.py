"""A tokenizer built like the one of OpenVLA's checkpoints, with only those of Llama 2's pieces that the tests need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

GOLDEN = Path(__file__).parents[1] / "policy" / "golden" / "prompts.json"
VOCABULARY = 32000


def golden_prompts() -> list[dict[str, Any]]:
    """Instructions, their prompts, and the ids that Llama 2's whole vocabulary gives them (``make_prompts.mjs``)."""
    prompts: list[dict[str, Any]] = json.loads(GOLDEN.read_text())["prompts"]
    return prompts


def build_llama_tokenizer() -> Tokenizer:
    """Byte-pair pieces at their true ids, unused entries between them, ``<PAD>`` added behind the vocabulary."""
    golden = json.loads(GOLDEN.read_text())
    pieces: dict[str, int] = golden["pieces"]
    taken = set(pieces.values())
    unused = {f"<unused {index}>": index for index in range(VOCABULARY) if index not in taken}
    merges = [(left, right) for left, right in golden["merges"]]
    model = models.BPE({**pieces, **unused}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    for token in ("<unk>", "<s>", "</s>", "<PAD>"):
        tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
    return tokenizer
