"""The vision towers: DINOv2 with registers (Oquab et al. 2023, Darcet et al. 2023) and SigLIP (Zhai et al. 2023).

One class serves both; they differ in class and register tokens and in LayerScale. Parameters carry timm's names,
which are those of OpenVLA's published weights. Positions are embedded for the patches only: a published class
token's position embedding is part of the token, as in timm.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from vla_sd_ros.policy.attention import attend
from vla_sd_ros.policy.config import AttentionKernel, PolicyConfig, VisionTowerConfig


class VisionTower(nn.Module):
    """A pre-norm vision transformer that returns the patch tokens of its feature layer."""

    def __init__(self, config: VisionTowerConfig, image_size_px: int, patch_px: int, kernel: AttentionKernel) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbedding(config.width, patch_px)
        self.pos_embed = nn.Parameter(torch.zeros(1, (image_size_px // patch_px) ** 2, config.width))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width)) if config.class_token else None
        self.reg_token = nn.Parameter(torch.zeros(1, config.registers, config.width)) if config.registers else None
        self.blocks = nn.ModuleList(Block(config, kernel) for _ in range(config.built_blocks))
        self.norm = nn.LayerNorm(config.width, config.norm_epsilon) if config.feature_norm else nn.Identity()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixels, float [B, 3, H, W], to patch features [B, P, width]."""
        hidden = self.patch_embed(pixels) + self.pos_embed
        prefix = [token.expand(len(hidden), -1, -1) for token in (self.cls_token, self.reg_token) if token is not None]
        hidden = torch.cat([*prefix, hidden], dim=1) if prefix else hidden
        for block in self.blocks:
            hidden = block(hidden)
        features: torch.Tensor = self.norm(hidden[:, self.config.prefix_tokens :])
        return features


class PatchEmbedding(nn.Module):
    """Linear embedding of patches that do not overlap."""

    def __init__(self, width: int, patch_px: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch_px, patch_px)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixels [B, 3, H, W] to [B, P, width], row by row."""
        batch, channels, height, width = pixels.shape
        side = self.proj.kernel_size[0]
        # The convolution as one matrix product: faster than the convolution kernel on a CPU.
        patches = pixels.view(batch, channels, height // side, side, width // side, side)
        rows = patches.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * side * side)
        return F.linear(rows, self.proj.weight.flatten(1), self.proj.bias)


class Block(nn.Module):
    """Attention and perceptron, each behind a layer norm, on a residual stream."""

    def __init__(self, config: VisionTowerConfig, kernel: AttentionKernel) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, config.norm_epsilon)
        self.attn = VisionAttention(config.width, config.heads, kernel)
        self.ls1 = _layer_scale(config)
        self.norm2 = nn.LayerNorm(config.width, config.norm_epsilon)
        self.mlp = Perceptron(config.width, config.mlp_width)
        self.ls2 = _layer_scale(config)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Residual stream [B, N, width] to the same shape."""
        hidden = hidden + self.ls1(self.attn(self.norm1(hidden)))
        return hidden + self.ls2(self.mlp(self.norm2(hidden)))


class VisionAttention(nn.Module):
    """Multi-head self-attention over all tokens."""

    def __init__(self, width: int, heads: int, kernel: AttentionKernel) -> None:
        super().__init__()
        self.heads = heads
        self.kernel = kernel
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, N, width] to the same shape."""
        batch, tokens, width = hidden.shape
        queries, keys, values = self.qkv(hidden).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = attend(queries, keys, values, None, self.kernel)
        return self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Perceptron(nn.Module):
    """Two linear layers with an exact GELU between them."""

    def __init__(self, width: int, mlp_width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, mlp_width)
        self.fc2 = nn.Linear(mlp_width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, N, width] to the same shape."""
        return self.fc2(F.gelu(self.fc1(hidden)))


class LayerScale(nn.Module):
    """A learned gain per channel (Touvron et al. 2021)."""

    def __init__(self, width: int, initial: float) -> None:
        super().__init__()
        self.scale_factor = nn.Parameter(torch.full((width,), initial))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, N, width] to the same shape."""
        return hidden * self.scale_factor


def _layer_scale(config: VisionTowerConfig) -> nn.Module:
    return nn.Identity() if config.layer_scale is None else LayerScale(config.width, config.layer_scale)


class FusedVision(nn.Module):
    """Both towers on the same image; their patch features side by side."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        size = (config.image_size_px, config.patch_px, config.attention)
        self.dinov2 = VisionTower(config.dinov2, *size)
        self.siglip = VisionTower(config.siglip, *size)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixels, float [B, 6, H, W] (DINOv2's three channels, then SigLIP's), to features [B, P, Dv]."""
        return torch.cat([self.dinov2(pixels[:, :3]), self.siglip(pixels[:, 3:])], dim=-1)
