"""The auxiliary head: poses from vision features. It exists in training only."""

from __future__ import annotations

import torch
from torch import nn


class PoseHead(nn.Module):
    """Regresses standardised poses from all patches.

    Behaviour cloning alone teaches the vision towers little where the objects are; this loss does.

    Args:
        feature_width: Width of a patch feature.
        n_patches: Patches per image.
        n_poses: Values to regress.
    """

    def __init__(self, feature_width: int, n_patches: int, n_poses: int) -> None:
        super().__init__()
        self.narrow = nn.Linear(feature_width, 32)
        self.hidden = nn.Linear(32 * n_patches, 128)
        self.out = nn.Linear(128, n_poses)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map features [B, P, D] to poses [B, K]."""
        return self.out(nn.functional.gelu(self.hidden(self.narrow(features).flatten(1))))  # type: ignore[no-any-return]
