"""The language model: Llama 2 (Touvron et al. 2023) with fused projections and an optional static cache.

One ``forward`` serves training (no cache, causal), prefill (cache, causal), decoding (one query) and the verification
of drafts (queries of any number with positions and mask of their own).
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn

from vla_sd_ros.policy.attention import attend
from vla_sd_ros.policy.config import AttentionKernel, LlamaConfig
from vla_sd_ros.policy.kv_cache import KeyValueCache, LayerStore

Rotary = tuple[torch.Tensor, torch.Tensor]


class CachedForward(Protocol):
    """Another way to compute :meth:`Llama.forward` where there is a cache."""

    def __call__(
        self,
        embeddings: torch.Tensor,
        positions: torch.Tensor | None,
        mask: torch.Tensor | None,
        cache: KeyValueCache,
        start: int,
        outputs: int | None,
    ) -> torch.Tensor | None:
        """The states, or None where this way does not serve."""
        ...


class Llama(nn.Module):
    """Token embedding, decoder layers, final norm and output matrix.

    Attributes:
        cached_forward: asked first where there is a cache; None: layers are called one by one.
    """

    rotary: torch.Tensor
    cached_forward: CachedForward | None = None

    def __init__(self, config: LlamaConfig, kernel: AttentionKernel = "eager") -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.embedding_rows, config.width)
        self.layers = nn.ModuleList(DecoderLayer(config, index, kernel) for index in range(config.depth))
        self.norm = RmsNorm(config.width, config.norm_epsilon)
        self.lm_head = nn.Linear(config.width, config.embedding_rows, bias=False)
        self.register_buffer("rotary", rotary_table(config), persistent=False)

    def forward(
        self,
        embeddings: torch.Tensor,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        cache: KeyValueCache | None = None,
        start: int = 0,
        outputs: int | None = None,
    ) -> torch.Tensor:
        """Hidden states after the final norm.

        Args:
            embeddings: [B, S, width]; B is 1 where there is a cache.
            positions: int64 [S], rotary positions; None: ``start`` to ``start + S``. They and the mask may lie on the
                host: they are brought to the device without waiting for it.
            mask: which of the ``start + S`` slots each query may attend, broadcastable to [B, H, S, start + S];
                boolean (true: may attend) or additive; None: causal.
            cache: keys and values of the slots before ``start``; receives those of the queries.
            start: first slot of the queries.
            outputs: how many of the last queries' states are wanted; None: all. The last layer computes no others.

        Returns:
            [B, S, width], or [B, outputs, width].

        Raises:
            ValueError: where the sequence is longer than the rotary table or the cache.
        """
        length = embeddings.shape[1]
        stop = start + length
        limit = self.config.max_positions if cache is None else min(self.config.max_positions, cache.max_slots)
        if stop > limit:
            raise ValueError(f"sequence of {stop} positions; legal: up to {limit}")
        if cache is not None and self.cached_forward is not None:
            states = self.cached_forward(embeddings, positions, mask, cache, start, outputs)
            if states is not None:
                return states
        if mask is not None:
            mask = mask.to(embeddings.device, non_blocking=True)
        elif length > 1:
            mask = causal_mask(length, start, embeddings.device)
        if positions is None:
            table = self.rotary[:, start:stop]
        else:
            table = self.rotary[:, positions.to(embeddings.device, non_blocking=True)]
        hidden = embeddings.to(self.norm.weight.dtype)
        return self.run_layers(hidden, table, mask, cache, start, length if outputs is None else outputs)

    def run_layers(
        self,
        hidden: torch.Tensor,
        table: torch.Tensor,
        mask: torch.Tensor | None,
        cache: LayerStore | None,
        start: int,
        outputs: int,
    ) -> torch.Tensor:
        """All layers and the final norm, with nothing left to find out: [B, S, width] to [B, outputs, width].

        Args:
            hidden: embeddings in the norms' dtype.
            table: the queries' rows of ``rotary``, [2, S, head_width].
            mask: as in :meth:`forward`, of all slots that ``cache`` shows, on the device.
            cache: takes the queries' keys and values.
            start: first slot of the queries, for ``cache``.
            outputs: how many of the last queries' states are wanted.
        """
        cosine, sine = table[:, :, None, None].unbind(0)
        rotary = (cosine, sine)
        length = hidden.shape[1]
        *inner, last = self.layers
        for layer in inner:
            hidden = layer(hidden, rotary, mask, cache, start, length)
        states: torch.Tensor = self.norm(last(hidden, rotary, mask, cache, start, outputs))
        return states


class DecoderLayer(nn.Module):
    """Attention and gated perceptron, each behind an RMS norm, on a residual stream."""

    def __init__(self, config: LlamaConfig, index: int, kernel: AttentionKernel) -> None:
        super().__init__()
        self.input_norm = RmsNorm(config.width, config.norm_epsilon)
        self.attention = CausalAttention(config, index, kernel)
        self.mlp_norm = RmsNorm(config.width, config.norm_epsilon)
        self.mlp = GatedPerceptron(config.width, config.mlp_width)

    def forward(
        self,
        hidden: torch.Tensor,
        rotary: Rotary,
        mask: torch.Tensor | None,
        cache: LayerStore | None,
        start: int,
        outputs: int,
    ) -> torch.Tensor:
        """Residual stream [B, S, width] to [B, outputs, width]; the other arguments as in :class:`Llama`."""
        mixed = self.attention(self.input_norm(hidden), rotary, mask, cache, start, outputs)
        hidden = (hidden if outputs == hidden.shape[1] else hidden[:, -outputs:]) + mixed
        return hidden + self.mlp(self.mlp_norm(hidden))


class CausalAttention(nn.Module):
    """Multi-head attention with rotary positions and one fused projection for queries, keys and values."""

    def __init__(self, config: LlamaConfig, index: int, kernel: AttentionKernel) -> None:
        super().__init__()
        self.index = index
        self.heads = config.heads
        self.kernel = kernel
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(
        self,
        hidden: torch.Tensor,
        rotary: Rotary,
        mask: torch.Tensor | None,
        cache: LayerStore | None,
        start: int,
        outputs: int,
    ) -> torch.Tensor:
        """[B, S, width] to [B, outputs, width]; the other arguments as in :class:`Llama`."""
        batch, length, width = hidden.shape
        qkv = self.qkv(hidden).view(batch, length, 3, self.heads, -1)
        if cache is None:  # under autocast the table's precision must not spread
            rotary = (rotary[0].to(qkv.dtype), rotary[1].to(qkv.dtype))
        queries_keys, values = qkv.split((2, 1), dim=2)
        queries, keys = rotate(queries_keys, rotary).transpose(1, 3).unbind(2)
        values = values.transpose(1, 3)[:, :, 0]
        if cache is not None:
            keys, values = cache.update(self.index, start, keys, values)
        if outputs < length:
            queries, mask = queries[:, :, -outputs:], None if mask is None else mask[..., -outputs:, :]
        mixed = attend(queries, keys, values, mask, self.kernel)
        return self.out(mixed.transpose(1, 2).reshape(batch, outputs, width))


class GatedPerceptron(nn.Module):
    """SwiGLU with gate and up projection fused."""

    def __init__(self, width: int, mlp_width: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * mlp_width, bias=False)
        self.down = nn.Linear(mlp_width, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, S, width] to the same shape."""
        gate, up = self.gate_up(hidden).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class RmsNorm(nn.Module):
    """Root mean square norm with a learned gain."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))
        self._epsilon_cell: torch.Tensor | None = None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., width] to the same shape."""
        if self._epsilon_cell is None or hidden.numel() != len(self.weight):
            return F.rms_norm(hidden, self.weight.shape, self.weight, self.epsilon)
        row = hidden.view(1, -1)
        mean_square = torch.addmm(self._epsilon_cell, row, row.t(), alpha=1.0 / row.shape[1])
        return (hidden * self.weight).mul_(mean_square.rsqrt_())

    def speed_up_single_rows(self) -> None:
        """Computes a single row as a product with itself: four kernels in place of nine. Inference only, float32."""
        self.float()
        self._epsilon_cell = torch.full((1, 1), self.epsilon)


def rotary_table(config: LlamaConfig) -> torch.Tensor:
    """Cosine and signed sine of the rotary embedding (Su et al. 2021), float32 [2, max_positions, head_width].

    The sine of the first half is negated, so that ``x * cos + roll(x, d / 2) * sine`` rotates the pairs
    (i, i + d / 2) in two operations.
    """
    half = config.head_width // 2
    frequencies = config.rope_theta ** -(torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(config.max_positions, dtype=torch.float32)[:, None] * frequencies
    cosine = torch.cat([angles.cos(), angles.cos()], dim=-1)
    sine = torch.cat([-angles.sin(), angles.sin()], dim=-1)
    return torch.stack([cosine, sine])


def rotate(heads: torch.Tensor, rotary: Rotary) -> torch.Tensor:
    """Rotates [B, S, n, H, d] by cosine and signed sine, [S, 1, 1, d] each; the wider dtype wins."""
    cosine, sine = rotary
    return torch.addcmul(heads * cosine, heads.roll(heads.shape[-1] // 2, dims=-1), sine)


def causal_mask(length: int, start: int, device: torch.device) -> torch.Tensor:
    """Boolean [length, start + length]: query i may attend slots up to ``start + i``."""
    return torch.ones(length, start + length, dtype=torch.bool, device=device).tril(start)
