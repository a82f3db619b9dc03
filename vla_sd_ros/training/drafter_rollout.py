"""The drafter as it runs, with gradients: its own states, and its own guesses, feed the places after them.

Trained on the policy's states alone, a drafter is near perfect there and misses half of its guesses at run time, when
its own states follow one another (methods of section 3.c). So the training rolls it out.
"""

from __future__ import annotations

import torch

from vla_sd_ros.drafting.learned_network import MAX_ROWS, DrafterNetwork
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.training.drafter_data import Prefixes


class GrowingCache(KeyValueCache):
    """Keys and values of B sequences of one layer, appended so that gradients pass."""

    def __init__(self) -> None:
        super().__init__(0, 0, 0, 0)

    def update(
        self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As in :class:`KeyValueCache`, but for slots in order."""
        if start:
            keys, values = torch.cat([self.keys, keys], dim=2), torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values


def roll_out(
    network: DrafterNetwork,
    model: VisionLanguageActionModel,
    tokens: torch.Tensor,
    hidden: torch.Tensor,
    known: torch.Tensor,
    prefixes: Prefixes | None = None,
) -> torch.Tensor:
    """Predicted states of the places 1 to 6.

    Args:
        network: the drafter's; gradients flow through the states that it feeds itself.
        model: the policy's, frozen.
        tokens: the policy's action ids, int64 [B, 7].
        hidden: the policy's states that named them, float32 [B, 7, W].
        known: how many of the tokens and states each sample is given, int64 [B], 1 to 7; behind them it goes on with
            its own.
        prefixes: of the same B frames, where the drafter sees them.

    Returns:
        float32 [B, 6, W].
    """
    cache = GrowingCache()
    rows, mask = 0, None
    if prefixes is not None:
        rows = prefixes.hidden.shape[1]
        network.read_prefix(prefixes.embeddings.float(), prefixes.hidden.float(), cache)
        padded = torch.arange(rows) < rows - prefixes.lengths[:, None]
        mask = ~padded[:, None, None, :]
    predicted: list[torch.Tensor] = []
    for place in range(MAX_ROWS):
        ids, states = tokens[:, place], hidden[:, place]
        if place:
            own = known <= place
            guesses = model.action_logits(predicted[-1].detach()).argmax(-1) + model.config.first_action_id
            ids, states = torch.where(own, guesses, ids), torch.where(own[:, None], predicted[-1], states)
        embeddings = model.language_model.embed_tokens(ids).float()
        fused = network.fuse(embeddings[:, None], states[:, None])
        if mask is not None:
            mask = torch.nn.functional.pad(mask, (0, 1), value=True)
        predicted.append(network(fused, place, mask, cache, rows + place, prefix_rows=rows)[:, 0])
    return torch.stack(predicted, dim=1)
