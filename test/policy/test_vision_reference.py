from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from vla_sd_ros.policy.config import AttentionKernel, PolicyConfig, VisionTowerConfig
from vla_sd_ros.policy.transformers_names import Weights, dinov2_from_transformers, siglip_from_transformers
from vla_sd_ros.policy.vision import FusedVision, VisionTower

TOLERANCE = {"rtol": 0.0, "atol": 1e-4}
IMAGE_PX, PATCH_PX = 42, 14
COLOURS: dict[str, Any] = {"image_mean": (0.5, 0.5, 0.5), "image_std": (0.5, 0.5, 0.5)}
SIZES: dict[str, Any] = {"width": 48, "depth": 3, "heads": 3, "mlp_width": 192}
KERNELS: tuple[AttentionKernel, ...] = ("eager", "sdpa")


def dinov2_config(feature_layer: int, feature_norm: bool) -> VisionTowerConfig:
    return VisionTowerConfig(
        **SIZES,
        **COLOURS,
        class_token=True,
        registers=4,
        layer_scale=0.5,
        feature_layer=feature_layer,
        feature_norm=feature_norm,
    )


def siglip_config(feature_layer: int, feature_norm: bool) -> VisionTowerConfig:
    return VisionTowerConfig(
        **SIZES,
        **COLOURS,
        class_token=False,
        registers=0,
        layer_scale=None,
        feature_layer=feature_layer,
        feature_norm=feature_norm,
    )


def load(config: VisionTowerConfig, weights: Weights, kernel: AttentionKernel) -> VisionTower:
    tower = VisionTower(config, IMAGE_PX, PATCH_PX, kernel).eval()
    wanted = tower.state_dict().keys()
    tower.load_state_dict({name: weights[name] for name in wanted})
    return tower


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return torch.randn(2, 3, IMAGE_PX, IMAGE_PX, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
@pytest.mark.parametrize("kernel", KERNELS)
def test_our_dinov2_gives_the_references_patch_tokens(kernel: AttentionKernel, pixels: torch.Tensor) -> None:
    torch.manual_seed(1)
    reference = Dinov2WithRegistersModel(
        Dinov2WithRegistersConfig(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=3,
            mlp_ratio=4,
            num_register_tokens=4,
            image_size=IMAGE_PX,
            patch_size=PATCH_PX,
            layerscale_value=0.5,
            initializer_range=0.1,
        )
    ).eval()
    for parameter in reference.parameters():  # zeros and ones would hide a missing term
        parameter.add_(0.05 * torch.randn_like(parameter))
    weights = dinov2_from_transformers(reference.state_dict())
    output = reference(pixels, output_hidden_states=True)
    last = load(dinov2_config(-1, True), weights, kernel)(pixels)
    torch.testing.assert_close(last, output.last_hidden_state[:, 5:], **TOLERANCE)
    second_to_last = load(dinov2_config(-2, False), weights, kernel)(pixels)
    torch.testing.assert_close(second_to_last, output.hidden_states[-2][:, 5:], **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("kernel", KERNELS)
def test_our_siglip_gives_the_references_patch_tokens(kernel: AttentionKernel, pixels: torch.Tensor) -> None:
    torch.manual_seed(2)
    reference = SiglipVisionModel(
        SiglipVisionConfig(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=3,
            intermediate_size=192,
            image_size=IMAGE_PX,
            patch_size=PATCH_PX,
            hidden_act="gelu",
        )
    ).eval()
    for parameter in reference.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))
    weights = siglip_from_transformers(reference.state_dict())
    output = reference(pixels, output_hidden_states=True)
    last = load(siglip_config(-1, True), weights, kernel)(pixels)
    torch.testing.assert_close(last, output.last_hidden_state, **TOLERANCE)
    second_to_last = load(siglip_config(-2, False), weights, kernel)(pixels)
    torch.testing.assert_close(second_to_last, output.hidden_states[-2], **TOLERANCE)


def test_blocks_past_the_feature_layer_are_not_built() -> None:
    assert len(VisionTower(siglip_config(-2, False), IMAGE_PX, PATCH_PX, "eager").blocks) == 2


@torch.no_grad()
def test_each_tower_sees_its_own_three_channels(tiny_config: PolicyConfig) -> None:
    torch.manual_seed(0)
    vision = FusedVision(tiny_config).eval()
    width = tiny_config.dinov2.width
    pixels = torch.randn(1, 6, 28, 28)
    before = vision(pixels)
    changed = pixels.clone()
    changed[:, :3] += 1.0
    after = vision(changed)
    assert not torch.allclose(before[..., :width], after[..., :width])
    torch.testing.assert_close(before[..., width:], after[..., width:])


def test_openvlas_sizes_are_the_published_ones() -> None:
    config = PolicyConfig.openvla_7b()
    assert config.n_patches == 256 and config.feature_width == 2176
    assert config.first_action_id == 31744 and config.llama.embedding_rows - config.vocabulary_size == 64
    with torch.device("meta"):
        vision = FusedVision(config)
    assert len(vision.dinov2.blocks) == 23 and len(vision.siglip.blocks) == 26
