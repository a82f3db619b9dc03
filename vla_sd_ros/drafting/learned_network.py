"""The learned drafter's network: one decoder block that guesses the policy's next hidden state (EAGLE, Li et al. 2024).

At each position it sees the embedding of the token that follows and the policy's state after the final norm, and gives
the state of the next position; the policy's own frozen output matrix reads the token off it. Other than in EAGLE, a
learned vector tells it which degree of freedom comes next.
"""

from __future__ import annotations

import torch
from torch import nn

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.drafting.learned_config import DrafterNetworkConfig
from vla_sd_ros.policy.config import AttentionKernel
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.llama import DecoderLayer, RmsNorm, Rotary, rotary_table

MAX_ROWS = N_DOF - 1
"""Positions after which the policy has something left to say: the last of the prompt and five action tokens."""


class DrafterNetwork(nn.Module):
    """Two projections into one residual stream, a vector per degree of freedom, and a decoder block.

    Args:
        config: sizes.
        kernel: of the attention.
    """

    rotary: torch.Tensor

    def __init__(self, config: DrafterNetworkConfig, kernel: AttentionKernel = "eager") -> None:
        super().__init__()
        self.config = config
        self.from_embedding = nn.Linear(config.width, config.width, bias=False)
        self.from_hidden = nn.Linear(config.width, config.width, bias=False)
        self.places = nn.Parameter(torch.zeros(MAX_ROWS, config.width))
        self.layer = DecoderLayer(config.llama, 0, kernel)
        self.register_buffer("rotary", rotary_table(config.llama), persistent=False)

    def fuse(self, embeddings: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Embedding of the next token and state of the present position, both [B, S, W], as one stream [B, S, W]."""
        fused: torch.Tensor = self.from_embedding(embeddings) + self.from_hidden(hidden)
        return fused.to(self.layer.input_norm.weight.dtype)

    def read_prefix(self, embeddings: torch.Tensor, hidden: torch.Tensor, cache: KeyValueCache) -> None:
        """Puts keys and values of the prefix into the cache, from slot 0 on.

        Args:
            embeddings: of the positions after each, [B, L, W].
            hidden: the policy's states, [B, L, W].
            cache: receives L slots.
        """
        length = hidden.shape[1]
        self.layer(self.fuse(embeddings, hidden), self._rotary(0, length), None, cache, 0, 1)

    def forward(
        self,
        fused: torch.Tensor,
        first_place: int,
        mask: torch.Tensor | None,
        cache: KeyValueCache,
        start: int,
        prefix_rows: int = 0,
        siblings: bool = False,
        outputs: int | None = None,
    ) -> torch.Tensor:
        """States of the next positions.

        Args:
            fused: from :meth:`fuse`, [B, S, W].
            first_place: how many tokens the first row's next token follows: 0 for the prompt's last position.
            mask: boolean, broadcastable to [B, H, S, start + S]; None: everything may be attended.
            cache: holds the slots before ``start``; receives those of the rows.
            start: first slot of the rows.
            prefix_rows: slots that :meth:`read_prefix` filled.
            siblings: whether all rows stand at one place, rather than one after another.
            outputs: how many of the last rows' states are wanted; None: all.

        Returns:
            [B, S, W], or [B, outputs, W].
        """
        rows = fused.shape[1]
        stop = first_place + (1 if siblings else rows)
        rotary = self._rotary(prefix_rows + first_place, prefix_rows + stop)
        hidden = fused + self.places[first_place:stop]
        states: torch.Tensor = self.layer(hidden, rotary, mask, cache, start, rows if outputs is None else outputs)
        return states

    def _rotary(self, first: int, stop: int) -> Rotary:
        cosine, sine = self.rotary[:, first:stop, None, None].unbind(0)
        return cosine, sine


def initialise_drafter(network: DrafterNetwork, seed: int = 0) -> DrafterNetwork:
    """Weights for training from scratch, reproducible: the block adds nothing and the stream is the hidden state."""
    generator = torch.Generator().manual_seed(seed)
    width = network.config.width
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.5 * width**-0.5, generator=generator)
        elif isinstance(module, RmsNorm):
            nn.init.ones_(module.weight)
    for last in (network.layer.attention.out, network.layer.mlp.down):
        nn.init.normal_(last.weight, std=0.1 * width**-0.5, generator=generator)
    nn.init.eye_(network.from_hidden.weight)
    nn.init.zeros_(network.places)
    return network
