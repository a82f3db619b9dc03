"""The fused projector from vision features to the language model's embeddings (Kim et al. 2024, section 3.1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class FusedProjector(nn.Module):
    """Three linear layers: Dv to 4 Dv, GELU, to the hidden size, GELU, hidden size to hidden size."""

    def __init__(self, feature_width: int, hidden_width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(feature_width, 4 * feature_width)
        self.fc2 = nn.Linear(4 * feature_width, hidden_width)
        self.fc3 = nn.Linear(hidden_width, hidden_width)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Features [B, P, Dv] to embeddings [B, P, hidden]."""
        return self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(features)))))
