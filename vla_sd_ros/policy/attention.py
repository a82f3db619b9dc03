"""Scaled dot-product attention with a choice of kernel."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from vla_sd_ros.policy.config import AttentionKernel


def attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    kernel: AttentionKernel,
) -> torch.Tensor:
    """Attention of every head.

    Args:
        queries: [B, H, S, d].
        keys: [B, H, L, d].
        values: [B, H, L, d].
        mask: broadcastable to [B, H, S, L]; boolean (true: may attend) or additive; None: everything may be attended.
        kernel: ``eager`` (matrix products and softmax) or ``sdpa`` (PyTorch's fused kernels).

    Returns:
        [B, H, S, d].
    """
    if kernel == "sdpa":
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(queries.dtype)
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    scores = torch.matmul(queries * queries.shape[-1] ** -0.5, keys.transpose(-1, -2))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return torch.matmul(torch.softmax(scores, -1, dtype=scores.dtype), values)
