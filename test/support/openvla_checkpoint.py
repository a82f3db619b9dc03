"""Small checkpoints in the layout of ``openvla/openvla-7b``: its files, names, shards and metadata, random weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from llama_tokenizer import build_llama_tokenizer
from safetensors.torch import load_file, save_file

IMAGE_PX, PATCH_PX = 56, 14
VISION_DEPTH, TEXT_DEPTH, TEXT_WIDTH, TEXT_MLP, ROWS = 3, 2, 64, 96, 32064
DINOV2_WIDTH, SIGLIP_WIDTH = 128, 144
#: Attention heads of the two towers: their families' heads are 64 and 72 wide.
HEADS = (2, 2)
SHARDS = 3
KEYS = ("bridge_orig", "libero_goal")
STATISTICS = {
    "action": {
        "q01": [-0.02] * 6 + [0.0],
        "q99": [0.02] * 6 + [1.0],
        "mean": [0.0] * 7,
        "std": [0.01] * 7,
        "mask": [True] * 6 + [False],
    },
    "num_transitions": 100,
    "num_trajectories": 2,
}


def published_config() -> dict[str, Any]:
    """``config.json`` as published, with the sizes of a small one in it."""
    return {
        "architectures": ["OpenVLAForActionPrediction"],
        "arch_specifier": "no-align+fused-gelu-mlp",
        "auto_map": {"AutoConfig": "configuration_prismatic.OpenVLAConfig"},
        "hf_llm_id": "meta-llama/Llama-2-7b-hf",
        "image_resize_strategy": "resize-naive",
        "image_sizes": [IMAGE_PX, IMAGE_PX],
        "llm_backbone_id": "llama2-7b-pure",
        "llm_max_length": 2048,
        "model_type": "openvla",
        "n_action_bins": 256,
        "norm_stats": dict.fromkeys(KEYS, STATISTICS),
        "pad_to_multiple_of": 64,
        "pad_token_id": 32000,
        "text_config": {
            "model_type": "llama",
            "hidden_size": TEXT_WIDTH,
            "intermediate_size": TEXT_MLP,
            "num_hidden_layers": TEXT_DEPTH,
            "num_attention_heads": 2,
            "max_position_embeddings": 512,
            "pad_token_id": 32000,
            "vocab_size": ROWS,
        },
        "timm_model_ids": ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"],
        "timm_override_act_layers": [None, None],
        "torch_dtype": "bfloat16",
        "use_fused_vision_backbone": True,
        "vision_backbone_id": "dinosiglip-vit-so-224px",
    }


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Published names and shapes of every tensor."""
    patches = (IMAGE_PX // PATCH_PX) ** 2
    for prefix, width in (("featurizer", DINOV2_WIDTH), ("fused_featurizer", SIGLIP_WIDTH)):
        at, is_dinov2 = f"vision_backbone.{prefix}", prefix == "featurizer"
        yield from linear(f"{at}.patch_embed.proj", width, (3, PATCH_PX, PATCH_PX))
        yield f"{at}.pos_embed", (1, patches, width)
        if is_dinov2:
            yield f"{at}.cls_token", (1, 1, width)
            yield f"{at}.reg_token", (1, 4, width)
        for index in range(VISION_DEPTH):
            block = f"{at}.blocks.{index}"
            for norm in ("norm1", "norm2"):
                yield from linear(f"{block}.{norm}", width, ())
            yield from linear(f"{block}.attn.qkv", 3 * width, (width,))
            yield from linear(f"{block}.attn.proj", width, (width,))
            yield from linear(f"{block}.mlp.fc1", 2 * width, (width,))
            yield from linear(f"{block}.mlp.fc2", width, (2 * width,))
            if is_dinov2:
                yield f"{block}.ls1.scale_factor", (width,)
                yield f"{block}.ls2.scale_factor", (width,)
        yield from linear(f"{at}.norm", width, ())
        if not is_dinov2:
            yield f"{at}.attn_pool.latent", (1, 1, width)
            yield from linear(f"{at}.attn_pool.kv", 2 * width, (width,))
    features = DINOV2_WIDTH + SIGLIP_WIDTH
    yield from linear("projector.fc1", 4 * features, (features,))
    yield from linear("projector.fc2", TEXT_WIDTH, (4 * features,))
    yield from linear("projector.fc3", TEXT_WIDTH, (TEXT_WIDTH,))
    yield "language_model.model.embed_tokens.weight", (ROWS, TEXT_WIDTH)
    for index in range(TEXT_DEPTH):
        layer = f"language_model.model.layers.{index}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield f"{layer}.self_attn.{name}.weight", (TEXT_WIDTH, TEXT_WIDTH)
        for name in ("gate_proj", "up_proj"):
            yield f"{layer}.mlp.{name}.weight", (TEXT_MLP, TEXT_WIDTH)
        yield f"{layer}.mlp.down_proj.weight", (TEXT_WIDTH, TEXT_MLP)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}.{name}.weight", (TEXT_WIDTH,)
    yield "language_model.model.norm.weight", (TEXT_WIDTH,)
    yield "language_model.lm_head.weight", (ROWS, TEXT_WIDTH)


def linear(name: str, rows: int, columns: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Weight and bias."""
    yield f"{name}.weight", (rows, *columns)
    yield f"{name}.bias", (rows,)


def random_weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights of order one in their effect, so that different images get different actions; bfloat16, as published."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes():
        if len(shape) == 1 and not name.endswith(".bias"):  # gains
            weights[name] = torch.ones(shape, dtype=torch.bfloat16)
            continue
        columns = torch.Size(shape[1:]).numel() if len(shape) > 1 else 1
        deviation = 0.1 if name.endswith(".bias") else 1.0 if "embed_tokens" in name else max(columns, 1) ** -0.5
        weights[name] = (torch.randn(shape, generator=generator) * deviation).to(torch.bfloat16)
    return weights


def write_openvla_checkpoint(
    folder: Path, seed: int = 0, shards: int = SHARDS, rename: Callable[[str], str] = str
) -> Path:
    """Writes a whole checkpoint and returns its folder.

    Args:
        folder: made where it does not exist.
        seed: of the weights.
        shards: files; 1: a single file without an index.
        rename: what a tensor is called in the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {rename(name): tensor for name, tensor in random_weights(seed).items()}
    names = list(weights)
    placed: dict[str, str] = {}
    for shard in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(part, file)
    if shards > 1:
        index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in weights.values())}, "weight_map": placed}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(published_config()))
    processor = {
        "image_processor_type": "PrismaticImageProcessor",
        "image_resize_strategy": "resize-naive",
        "input_sizes": [[3, IMAGE_PX, IMAGE_PX]] * 2,
        "interpolations": ["bicubic", "bicubic"],
        "means": [[0.484375, 0.455078125, 0.40625], [0.5, 0.5, 0.5]],
        "stds": [[0.228515625, 0.2236328125, 0.224609375], [0.5, 0.5, 0.5]],
        "use_fused_vision_backbone": True,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    build_llama_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_fine_tuned_statistics(folder: Path, key: str = "libero_goal") -> None:
    """What a fine-tune adds: statistics of its own data alone."""
    (folder / "dataset_statistics.json").write_text(json.dumps({key: STATISTICS}))


def change_tensor(folder: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Path:
    """Replaces a tensor in its shard, or removes it where the change gives None; returns the shard."""
    file = next(path for path in sorted(folder.glob("model*.safetensors")) if name in load_file(path))
    weights = load_file(file)
    changed = change(weights.pop(name))
    save_file(weights if changed is None else {**weights, name: changed}, file)
    return file


def write_lora_adapter(
    folder: Path, base: Path, layers: tuple[str, ...], rank: int = 4, alpha: int = 8, seed: int = 1
) -> dict[str, torch.Tensor]:
    """Writes an adapter of some linear layers, by their published names; returns what it adds to each weight."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    known, state, added = dict(shapes()), {}, {}
    for layer in layers:
        rows, columns = known[f"{layer}.weight"]
        down, up = (torch.randn(shape, generator=generator) for shape in ((rank, columns), (rows, rank)))
        state[f"base_model.model.{layer}.lora_A.weight"], state[f"base_model.model.{layer}.lora_B.weight"] = down, up
        added[layer] = alpha / rank * up @ down
    save_file(state, folder / "adapter_model.safetensors")
    config = {
        "base_model_name_or_path": str(base),
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": "all-linear",
        "bias": "none",
        "init_lora_weights": "gaussian",
        "task_type": None,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return added
