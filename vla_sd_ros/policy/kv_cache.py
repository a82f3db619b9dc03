"""The static key-value cache: allocated once, written in place, never grown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from vla_sd_ros.policy.transfer import to_device


class LayerStore(Protocol):
    """Where a layer puts the keys and values of its queries, and what it may attend to then."""

    def update(
        self, layer: int, start: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`KeyValueCache.update`."""
        ...


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
        reserved: slots after the longest sequence that no sequence uses; they are for the graph runtime.
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
        reserved: int = 0,
    ) -> None:
        super().__init__()
        self.reserved = reserved
        shape = (layers, 1, heads, max_slots + reserved, head_width)
        self.register_buffer("keys", torch.zeros(shape, dtype=dtype, device=device), persistent=False)
        self.register_buffer("values", torch.zeros(shape, dtype=dtype, device=device), persistent=False)
        self._slice_layers()

    def _slice_layers(self) -> None:
        # One view per layer, made once: slicing is a notable share of a small model's step.
        self.layers = list(zip(self.keys, self.values, strict=True))

    def _apply(self, *args: Any, **kwargs: Any) -> KeyValueCache:
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._slice_layers()
        return self

    @property
    def max_slots(self) -> int:
        """Longest sequence the cache can hold."""
        return self.keys.shape[3] - self.reserved

    def clear(self) -> None:
        """Zeroes all slots: what is not finite would reach a runtime that reads every slot, even behind a mask."""
        self.keys.zero_()
        self.values.zero_()

    def gather(self, start: int, offsets: Sequence[int]) -> None:
        """Moves the slots ``start + offsets[i]`` of every layer to ``start + i``: an accepted path of a draft tree."""
        index = to_device(np.array(offsets, dtype=np.int64) + start, self.keys.device)
        stop = start + len(offsets)
        for part in (self.keys, self.values):
            part[:, :, :, start:stop] = part.index_select(3, index)

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
        all_keys, all_values = self.layers[layer]
        seen_keys, seen_values = all_keys[:, :, :stop], all_values[:, :, :stop]
        seen_keys[:, :, start:] = keys
        seen_values[:, :, start:] = values
        return seen_keys, seen_values
