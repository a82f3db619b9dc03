from __future__ import annotations

import pytest
import torch

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.random_policy import random_policy


@pytest.fixture(scope="session")
def tiny_config() -> PolicyConfig:
    """Four patches, two layers everywhere: the demo's architecture at a size that costs nothing."""
    tower = {"width": 32, "depth": 2, "mlp_width": 64}
    return PolicyConfig.demo(
        image_size_px=28,
        dinov2=tower,
        siglip=tower,
        llama={"width": 64, "depth": 2, "heads": 4, "mlp_width": 96},
        attention="sdpa",
    )


@pytest.fixture
def tiny_policy(tiny_config: PolicyConfig) -> LoadedPolicy:
    torch.set_num_threads(1)
    return random_policy(tiny_config)
