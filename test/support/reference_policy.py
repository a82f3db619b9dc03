"""OpenVLA as plainly as it can be written: transformers' modules, no cache, no draft, the whole sequence every time.

Reads a published checkpoint's files by itself and shares no code with the package but the meaning of a token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import (
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    LlamaConfig,
    LlamaForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
)

Tensors = dict[str, torch.Tensor]

MEANS = {"dinov2": (0.484375, 0.455078125, 0.40625), "siglip": (0.5, 0.5, 0.5)}
DEVIATIONS = {"dinov2": (0.228515625, 0.2236328125, 0.224609375), "siglip": (0.5, 0.5, 0.5)}
VOCABULARY, BINS, DOF, LAST_PROMPT_ID = 32000, 256, 7, 29871


def below(tensors: Mapping[str, torch.Tensor], prefix: str) -> Tensors:
    """Tensors whose names begin so, without it."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


class ReferencePolicy:
    """A checkpoint folder in OpenVLA's layout, in float32.

    Args:
        folder: of the checkpoint.
        heads: attention heads of the DINOv2 and of the SigLIP tower.
    """

    def __init__(self, folder: Path, heads: tuple[int, int]) -> None:
        files = sorted(folder.glob("*.safetensors"))
        tensors = {name: part for file in files for name, part in load_file(file).items()}
        tensors = {name: tensor.float() for name, tensor in tensors.items()}
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._dinov2 = dinov2(below(tensors, "vision_backbone.featurizer."), heads[0])
        self._siglip = siglip(below(tensors, "vision_backbone.fused_featurizer."), heads[1])
        self._projector = below(tensors, "projector.")
        text = json.loads((folder / "config.json").read_text())["text_config"]
        self._llama = LlamaForCausalLM(LlamaConfig(**{key: text[key] for key in text if key not in ("model_type",)}))
        self._llama.load_state_dict(below(tensors, "language_model."))
        self._llama.eval()

    @torch.inference_mode()
    def tokens(self, rgb: np.ndarray, instruction: str) -> list[int]:
        """Seven greedy action ids for an image, uint8 [S, S, 3], of the policy's size."""
        ids = self._tokenizer.encode(f"In: What action should the robot take to {instruction.lower()}?\nOut:").ids
        if ids[-1] != LAST_PROMPT_ID:
            ids.append(LAST_PROMPT_ID)
        embed = self._llama.get_input_embeddings()
        patches = self._patches(rgb)
        found: list[int] = []
        while len(found) < DOF:
            words = embed(torch.tensor([ids + found]))
            sequence = torch.cat([words[:, :1], patches, words[:, 1:]], dim=1)
            scores = self._llama(inputs_embeds=sequence, use_cache=False).logits[0, -1]
            found.append(VOCABULARY - BINS + int(scores[VOCABULARY - BINS : VOCABULARY].argmax()))
        return found

    def _patches(self, rgb: np.ndarray) -> torch.Tensor:
        image = torch.from_numpy(rgb.copy()).permute(2, 0, 1)[None].float() / 255.0
        features = []
        for name, tower, skipped in (("dinov2", self._dinov2, 5), ("siglip", self._siglip, 0)):
            mean, deviation = (torch.tensor(table[name])[None, :, None, None] for table in (MEANS, DEVIATIONS))
            states = tower(pixel_values=(image - mean) / deviation, output_hidden_states=True).hidden_states
            features.append(states[-2][:, skipped:])  # what goes into the last block
        hidden = torch.cat(features, dim=-1)
        for index in (1, 2, 3):
            hidden = F.linear(hidden, self._projector[f"fc{index}.weight"], self._projector[f"fc{index}.bias"])
            hidden = F.gelu(hidden) if index < 3 else hidden
        return hidden


def dinov2(timm: Tensors, heads: int) -> Dinov2WithRegistersModel:
    """A DINOv2 tower with registers from timm's names."""
    width, depth, patch_px, side = sizes(timm)
    config = Dinov2WithRegistersConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        mlp_ratio=timm["blocks.0.mlp.fc1.weight"].shape[0] // width,
        image_size=side * patch_px,
        patch_size=patch_px,
        num_register_tokens=timm["reg_token"].shape[1],
        layer_norm_eps=1e-6,
    )
    model = Dinov2WithRegistersModel(config)
    # timm gives the class token no position.
    state = {
        "embeddings.cls_token": timm["cls_token"],
        "embeddings.mask_token": torch.zeros(1, width),
        "embeddings.register_tokens": timm["reg_token"],
        "embeddings.position_embeddings": F.pad(timm["pos_embed"], (0, 0, 1, 0)),
        "embeddings.patch_embeddings.projection.weight": timm["patch_embed.proj.weight"],
        "embeddings.patch_embeddings.projection.bias": timm["patch_embed.proj.bias"],
        **renamed(timm, "norm", "layernorm"),
    }
    for index in range(depth):
        theirs, ours = f"blocks.{index}", f"encoder.layer.{index}"
        state |= block(timm, theirs, ours, "attention", "o_proj", ("norm1", "norm2"))
        for scale in (1, 2):
            state[f"{ours}.layer_scale{scale}.lambda1"] = timm[f"{theirs}.ls{scale}.scale_factor"]
    model.load_state_dict(state)
    return model.eval()


def siglip(timm: Tensors, heads: int) -> SiglipVisionModel:
    """A SigLIP tower from timm's names; its pooling head is of no use and keeps random weights."""
    width, depth, patch_px, side = sizes(timm)
    config = SiglipVisionConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=timm["blocks.0.mlp.fc1.weight"].shape[0],
        image_size=side * patch_px,
        patch_size=patch_px,
        hidden_act="gelu",
        layer_norm_eps=1e-6,
    )
    model = SiglipVisionModel(config)
    state = {
        "embeddings.patch_embedding.weight": timm["patch_embed.proj.weight"],
        "embeddings.patch_embedding.bias": timm["patch_embed.proj.bias"],
        "embeddings.position_embedding.weight": timm["pos_embed"][0],
        **renamed(timm, "norm", "post_layernorm"),
    }
    for index in range(depth):
        theirs, ours = f"blocks.{index}", f"encoder.layers.{index}"
        state |= block(timm, theirs, ours, "self_attn", "out_proj", ("layer_norm1", "layer_norm2"))
    unknown = model.load_state_dict(state, strict=False)
    assert not unknown.unexpected_keys
    assert all(name.startswith("head.") for name in unknown.missing_keys)
    return model.eval()


def sizes(timm: Tensors) -> tuple[int, int, int, int]:
    """Width, depth, side of a patch in pixels, patches per side."""
    depth = 1 + max(int(name.split(".")[1]) for name in timm if name.startswith("blocks."))
    width, _, patch_px, _ = timm["patch_embed.proj.weight"].shape
    return width, depth, patch_px, round(timm["pos_embed"].shape[1] ** 0.5)


def renamed(timm: Tensors, theirs: str, ours: str) -> Tensors:
    """Weight and bias of one layer under another name."""
    return {f"{ours}.{part}": timm[f"{theirs}.{part}"] for part in ("weight", "bias")}


def block(timm: Tensors, theirs: str, ours: str, attention: str, out: str, norms: tuple[str, str]) -> Tensors:
    """One block with its fused projection taken apart."""
    state = {}
    for part in ("weight", "bias"):
        for name, rows in zip("qkv", timm[f"{theirs}.attn.qkv.{part}"].chunk(3), strict=True):
            state[f"{ours}.{attention}.{name}_proj.{part}"] = rows
    state |= renamed(timm, f"{theirs}.attn.proj", f"{ours}.{attention}.{out}")
    for name in ("mlp.fc1", "mlp.fc2"):
        state |= renamed(timm, f"{theirs}.{name}", f"{ours}.{name}")
    for index, norm in enumerate(norms, start=1):
        state |= renamed(timm, f"{theirs}.norm{index}", f"{ours}.{norm}")
    return state
