"""The decoder runtime: functions of tensors around a static cache. Each is one forward of the language model."""

from __future__ import annotations

import torch

from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.model import VisionLanguageActionModel


def prefill(model: VisionLanguageActionModel, cache: KeyValueCache, prefix: torch.Tensor) -> torch.Tensor:
    """Fills the cache from slot 0 with the prefix, [1, P, hidden].

    Returns:
        Logits [256] over the action ids for the first action token.
    """
    hidden = model.language_model(prefix, cache=cache, outputs=1)
    return model.action_logits(hidden[0, 0])


def decode_one(
    model: VisionLanguageActionModel, cache: KeyValueCache, token_id: torch.Tensor, position: int
) -> torch.Tensor:
    """Appends one token, int64 [1], at a position (and slot of the same number).

    Returns:
        Logits [256] over the action ids for the token after it.
    """
    embedding = model.language_model.embed_tokens(token_id)[None]
    hidden = model.language_model(embedding, cache=cache, start=position)
    return model.action_logits(hidden[0, 0])


def extend(
    model: VisionLanguageActionModel,
    cache: KeyValueCache,
    embeddings: torch.Tensor,
    start: int,
    positions: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    outputs: int | None = None,
) -> torch.Tensor:
    """Appends any number of queries with positions and visibility of their own: the verification of drafts.

    With ``start`` 0, prefix and draft in one: a draft is verified in the prefill.

    Args:
        model: the policy.
        cache: holds the slots before ``start``; receives the queries'.
        embeddings: [1, S, hidden].
        start: first slot to write.
        positions: int64 [S], rotary positions; None: ``start`` to ``start + S``.
        mask: [S, start + S], boolean (true: may attend) or additive; None: causal.
        outputs: how many of the last queries' logits are wanted; None: all.

    Returns:
        Logits [S or outputs, 256] over the action ids for the token after each query.
    """
    hidden = model.language_model(embeddings, positions, mask, cache, start, outputs)
    return model.action_logits(hidden[0])
