"""The vision towers with timm's weights, against the features that timm itself gives (``golden/make_vision.py``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vla_sd_ros.policy.config import AttentionKernel, PolicyConfig, VisionTowerConfig
from vla_sd_ros.policy.openvla.vision_names import vision_from_timm
from vla_sd_ros.policy.vision import VisionTower

GOLDEN = Path(__file__).parent / "golden"
TOWERS = ("dinov2", "siglip")


class Golden:
    """One tower as timm made it: sizes, weights under timm's names, pixels, features."""

    def __init__(self, name: str) -> None:
        file = np.load(GOLDEN / f"vision_{name}.npz")
        self.about: dict[str, Any] = json.loads(str(file["about"]))
        self.pixels = torch.from_numpy(file["pixels"].astype(np.float32))
        self.features = torch.from_numpy(file["features"])
        self.weights = {
            key.removeprefix("weights/"): torch.from_numpy(file[key].astype(np.float32))
            for key in file.files
            if key.startswith("weights/")
        }
        published: VisionTowerConfig = getattr(PolicyConfig.openvla_7b(), name)
        sizes = {
            "width": self.about["embed_dim"],
            "depth": self.about["depth"],
            "heads": self.about["num_heads"],
            "mlp_width": len(self.weights["blocks.0.mlp.fc1.weight"]),
        }
        self.config = published.model_copy(update=sizes)

    def tower(self, weights: dict[str, torch.Tensor], kernel: AttentionKernel = "sdpa") -> VisionTower:
        tower = VisionTower(self.config, self.about["img_size"], 14, kernel).eval()
        tower.load_state_dict(vision_from_timm(weights, self.config.built_blocks))  # strict: nothing more, nothing less
        return tower


@pytest.fixture(scope="module", params=TOWERS)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_the_features_are_timms(golden: Golden, kernel: AttentionKernel) -> None:
    features = golden.tower(golden.weights, kernel)(golden.pixels)
    torch.testing.assert_close(features, golden.features, rtol=0.0, atol=1e-4)


@torch.no_grad()
def test_layer_scale_under_openvlas_name_is_the_same() -> None:
    golden = Golden("dinov2")
    renamed = {name.replace(".gamma", ".scale_factor"): tensor for name, tensor in golden.weights.items()}
    assert renamed.keys() != golden.weights.keys()
    torch.testing.assert_close(golden.tower(renamed)(golden.pixels), golden.tower(golden.weights)(golden.pixels))


@torch.no_grad()
def test_what_follows_the_feature_layer_changes_nothing(golden: Golden) -> None:
    last = f"blocks.{golden.config.depth - 1}."
    unused = {name for name in golden.weights if name.startswith((last, "norm.", "attn_pool."))}
    assert unused
    without = {name: tensor for name, tensor in golden.weights.items() if name not in unused}
    changed = {**golden.weights, **{name: golden.weights[name] + 1.0 for name in unused}}
    torch.testing.assert_close(golden.tower(without)(golden.pixels), golden.tower(changed)(golden.pixels))


@pytest.mark.parametrize("name", ["head.weight", "blocks.0.attn.q_norm.weight", "norm_pre.bias"])
def test_a_tensor_of_no_known_name_is_refused_by_name(golden: Golden, name: str) -> None:
    with pytest.raises((KeyError, ValueError), match=name):
        vision_from_timm({**golden.weights, name: torch.zeros(1)}, golden.config.built_blocks)
