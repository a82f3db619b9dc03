"""The static key-value cache: allocated once, written in place, never grown."""

from __future__ import annotations

import torch
from torch import nn


class KeyValueCache(nn.Module):
    """Keys and values of one sequence for every layer.

    The cache holds no length: a caller names the slots it writes and sees the slots before them, so nothing that an
    earlier, failed decode left behind is ever read.

    Args:
        layers: decoder layers.
        heads: attention heads.
        max_slots: longest sequence.
        head_width: width of one head.
        dtype: of keys and values.
        device: where they live.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(
        self,
        layers: int,
        heads: int,
        max_slots: int,
        head_width: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        shape = (layers, heads, max_slots, head_width)
        self.register_buffer("keys", torch.zeros(shape, dtype=dtype, device=device), persistent=False)
        self.register_buffer("values", torch.zeros(shape, dtype=dtype, device=device), persistent=False)

    @property
    def max_slots(self) -> int:
        """Longest sequence the cache can hold."""
        return self.keys.shape[2]

    def update(
        self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write slots ``start`` to ``start + S`` of a layer and return views of all slots up to there.

        Args:
            layer: index of the layer.
            start: first slot to write.
            keys: [1, H, S, d].
            values: [1, H, S, d].

        Returns:
            Keys and values, [1, H, start + S, d].
        """
        stop = start + keys.shape[2]
        layer_keys, layer_values = self.keys[layer], self.values[layer]
        layer_keys[:, start:stop] = keys[0]
        layer_values[:, start:stop] = values[0]
        return layer_keys[None, :, :stop], layer_values[None, :, :stop]
