"""Checkpoints in OpenVLA's published layout: what loads, what it gives, what is refused and why."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvla_checkpoint as published
import pytest
import torch
from reference_policy import ReferencePolicy

from vla_sd_ros.actions.statistics import UnknownStatisticsKey
from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.policy import memory
from vla_sd_ros.policy.checkpoint import CheckpointError, load_policy, policy_weight_files
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.loaded import LoadedPolicy, files_fingerprint
from vla_sd_ros.policy.memory import InsufficientMemory
from vla_sd_ros.policy.self_test import self_test
from vla_sd_ros.types import Observation

INSTRUCTION = "put the bowl on the plate"
KEY = published.KEYS[1]
ATTENTION = "language_model.model.layers.0.self_attn.q_proj"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return published.write_openvla_checkpoint(tmp_path / "openvla")


def image(seed: int) -> np.ndarray:
    size = (published.IMAGE_PX, published.IMAGE_PX, 3)
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def tokens(policy: LoadedPolicy, seed: int) -> list[int]:
    observation = Observation({"camera": image(seed)}, INSTRUCTION, 0)
    return AutoregressiveDecoder(policy).decode(observation).tokens.tolist()


def test_actions_are_those_of_transformers_own_modules_token_for_token(folder: Path) -> None:
    policy, reference = load_policy(folder, statistics_key=KEY), ReferencePolicy(folder, published.HEADS)
    self_test(policy)
    found = [tokens(policy, seed) for seed in range(6)]
    assert found == [reference.tokens(image(seed), INSTRUCTION) for seed in range(6)]
    assert len({tuple(each) for each in found}) > 1, "the actions depend on the image"


def to_new_names(name: str) -> str:
    name = re.sub(r"^language_model\.model\.", "model.language_model.", name)
    name = re.sub(r"^language_model\.lm_head\.", "lm_head.", name)
    return re.sub(r"^(vision_backbone|projector)\.", r"model.\1.", name).replace(".scale_factor", ".gamma")


@pytest.mark.parametrize(
    ("shards", "rename"),
    [(1, str), (5, str), (3, to_new_names), (1, lambda name: f"module.{name}"), (1, lambda n: f"base_model.model.{n}")],
)
def test_one_file_or_many_and_old_or_new_names_load_the_same(
    folder: Path, tmp_path: Path, shards: int, rename: Callable[[str], str]
) -> None:
    other = published.write_openvla_checkpoint(tmp_path / "other", shards=shards, rename=rename)
    ours, theirs = (load_policy(each, statistics_key=KEY).model.state_dict() for each in (folder, other))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_sizes_come_from_the_files_and_the_vocabulary_is_that_without_padding(folder: Path) -> None:
    config = load_policy(folder, statistics_key=KEY).config
    assert (config.vocabulary_size, config.first_action_id, config.extra_prompt_id) == (32000, 31744, 29871)
    assert (config.image_size_px, config.n_patches, config.llama.width) == (published.IMAGE_PX, 16, 64)
    assert (config.dinov2.heads, config.dinov2.registers, config.siglip.class_token) == (2, 4, False)
    full = PolicyConfig.openvla_7b()
    assert config.dinov2.image_mean == full.dinov2.image_mean and config.llama.norm_epsilon == full.llama.norm_epsilon


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_come_in_the_precision_that_is_asked_for(folder: Path, dtype: torch.dtype) -> None:
    assert load_policy(folder, dtype, KEY).dtype == dtype


def test_statistics_of_a_fine_tune_win_over_its_bases_and_several_need_a_choice(folder: Path) -> None:
    with pytest.raises(UnknownStatisticsKey, match="bridge_orig.*libero_goal"):
        load_policy(folder)
    with pytest.raises(UnknownStatisticsKey, match="bridge_orig.*libero_goal"):
        load_policy(folder, statistics_key="fractal")
    published.write_fine_tuned_statistics(folder)
    assert load_policy(folder).statistics.q99[0] == 0.02
    with pytest.raises(UnknownStatisticsKey, match="libero_goal"):
        load_policy(folder, statistics_key="bridge_orig")


def test_the_fingerprint_is_that_of_every_file_with_weights(folder: Path, tmp_path: Path) -> None:
    before = load_policy(folder, statistics_key=KEY).fingerprint
    assert before == files_fingerprint(policy_weight_files(folder))
    published.change_tensor(folder, "projector.fc3.bias", lambda tensor: tensor + 1)
    changed = load_policy(folder, statistics_key=KEY).fingerprint
    adapter = tmp_path / "adapter"
    published.write_lora_adapter(adapter, folder, (ATTENTION,))
    assert len({before, changed, load_policy(adapter, statistics_key=KEY).fingerprint}) == 3


@pytest.mark.parametrize("inside", [True, False])
def test_an_adapter_adds_its_scaled_product_to_every_layer_that_it_names(
    folder: Path, tmp_path: Path, inside: bool
) -> None:
    layers = (ATTENTION, "projector.fc2", "vision_backbone.featurizer.blocks.1.attn.qkv")
    before = load_policy(folder, statistics_key=KEY).model.state_dict()
    place = folder if inside else tmp_path / "adapter"
    added = published.write_lora_adapter(place, folder, layers)
    after = load_policy(place, statistics_key=KEY).model.state_dict()
    ours = ("language_model.layers.0.attention.qkv", "projector.fc2", "vision.dinov2.blocks.1.attn.qkv")
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert changed == {f"{name}.weight" for name in ours}
    for name, layer in zip(ours, layers, strict=True):
        rows = len(added[layer])  # the queries come first in the fused projection
        found = after[f"{name}.weight"][:rows] - before[f"{name}.weight"][:rows]
        torch.testing.assert_close(found, added[layer], rtol=1e-4, atol=1e-4)


def test_an_adapter_of_a_layer_that_is_not_there_is_refused(folder: Path, tmp_path: Path) -> None:
    published.write_lora_adapter(tmp_path / "adapter", folder, (ATTENTION,))
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    weights = published.load_file(file)
    published.save_file({name.replace("layers.0", "layers.9"): tensor for name, tensor in weights.items()}, file)
    with pytest.raises(CheckpointError, match="layers.9"):
        load_policy(tmp_path / "adapter", statistics_key=KEY)


def test_an_adapter_without_its_base_says_where_the_base_is_named(folder: Path, tmp_path: Path) -> None:
    published.write_lora_adapter(tmp_path / "adapter", Path("openvla/openvla-7b"), (ATTENTION,))
    with pytest.raises(CheckpointError, match="base_model_name_or_path.*openvla/openvla-7b"):
        load_policy(tmp_path / "adapter", statistics_key=KEY)


@pytest.mark.parametrize("missing", ["tokenizer.json", "preprocessor_config.json", "model-00002-of-00003.safetensors"])
def test_a_missing_file_is_named(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(CheckpointError, match=re.escape(missing)):
        load_policy(folder, statistics_key=KEY)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("projector.fc1.bias", lambda _: None, "projector.fc1.bias"),
        ("projector.fc1.bias", lambda tensor: tensor[:-1].clone(), "wrong shape.*projector.fc1.bias"),
        ("projector.fc1.bias", lambda tensor: tensor * float("nan"), "not finite: projector.fc1.bias"),
    ],
)
def test_a_tensor_that_is_missing_misshapen_or_not_finite_is_named(
    folder: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor | None], says: str
) -> None:
    published.change_tensor(folder, name, change)
    with pytest.raises(CheckpointError, match=says):
        load_policy(folder, statistics_key=KEY)


def test_a_tensor_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    folder = published.write_openvla_checkpoint(tmp_path / "one", shards=1)
    weights = published.load_file(folder / "model.safetensors")
    published.save_file({**weights, "action_head.fc1.weight": torch.zeros(2)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="unknown 1 tensors: action_head.fc1.weight"):
        load_policy(folder, statistics_key=KEY)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vision_backbone_id", "siglip-vit-so400m"),
        ("llm_backbone_id", "vicuna-v15-7b"),
        ("image_resize_strategy", "letterbox"),
        ("use_fused_vision_backbone", False),
        ("n_action_bins", 128),
    ],
)
def test_another_architecture_is_refused_with_key_value_and_what_is_legal(
    folder: Path, key: str, value: object
) -> None:
    config = {**published.published_config(), key: value}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"{key}: {value!r}; legal"):
        load_policy(folder, statistics_key=KEY)


def test_too_little_memory_is_told_before_a_weight_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory_bytes", lambda _: 1000)
    published.change_tensor(folder, "projector.fc1.bias", lambda tensor: tensor * float("nan"))
    with pytest.raises(InsufficientMemory, match="needs"):
        load_policy(folder, statistics_key=KEY)
