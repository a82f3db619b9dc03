"""Weights under the names that transformers gives them, and back.

The fused projections of :class:`~vla_sd_ros.policy.llama.Llama` are the concatenation of transformers' separate ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

Weights = dict[str, torch.Tensor]

_OUTER = {"model.embed_tokens": "embed_tokens", "model.norm": "norm", "lm_head": "lm_head"}
_INNER = {
    "input_layernorm": "input_norm",
    "post_attention_layernorm": "mlp_norm",
    "self_attn.o_proj": "attention.out",
    "mlp.down_proj": "mlp.down",
}
_FUSED = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
}


def llama_from_transformers(weights: Mapping[str, torch.Tensor]) -> Weights:
    """State of ``LlamaForCausalLM`` as state of our :class:`~vla_sd_ros.policy.llama.Llama`.

    Raises:
        KeyError: where a layer lacks a projection.
    """
    ours = {f"{ours}.weight": weights[f"{theirs}.weight"] for theirs, ours in _OUTER.items()}
    indices = {int(match[1]) for name in weights if (match := re.match(r"model\.layers\.(\d+)\.", name))}
    for index in sorted(indices):
        theirs_at, ours_at = f"model.layers.{index}", f"layers.{index}"
        for theirs, name in _INNER.items():
            ours[f"{ours_at}.{name}.weight"] = weights[f"{theirs_at}.{theirs}.weight"]
        for name, parts in _FUSED.items():
            ours[f"{ours_at}.{name}.weight"] = torch.cat([weights[f"{theirs_at}.{part}.weight"] for part in parts])
    return ours


def llama_parts(name: str) -> tuple[str, ...]:
    """Names in ``LlamaForCausalLM`` of the tensors that, one below the other, are one of our Llama's.

    Raises:
        KeyError: our Llama has no such tensor.
    """
    outer = next((theirs for theirs, ours in _OUTER.items() if name == f"{ours}.weight"), None)
    if outer is not None:
        return (f"{outer}.weight",)
    match = re.match(r"layers\.(\d+)\.(.+)\.weight", name)
    if match is None:
        raise KeyError(f"language model: no tensor {name!r}")
    theirs = _FUSED.get(match[2]) or tuple(theirs for theirs, ours in _INNER.items() if ours == match[2])
    return tuple(f"model.layers.{match[1]}.{part}.weight" for part in theirs)


def llama_to_transformers(weights: Mapping[str, torch.Tensor]) -> Weights:
    """State of our :class:`~vla_sd_ros.policy.llama.Llama` as state of ``LlamaForCausalLM``."""
    theirs = {}
    for name, tensor in weights.items():
        match = re.match(r"layers\.(\d+)\.(.+)\.weight", name)
        if match is None:
            outer = next(key for key, value in _OUTER.items() if name == f"{value}.weight")
            theirs[f"{outer}.weight"] = tensor
            continue
        at, part = f"model.layers.{match[1]}", match[2]
        if part in _FUSED:
            parts = _FUSED[part]
            for piece, rows in zip(parts, tensor.chunk(len(parts)), strict=True):
                theirs[f"{at}.{piece}.weight"] = rows
        else:
            inner = next(key for key, value in _INNER.items() if value == part)
            theirs[f"{at}.{inner}.weight"] = tensor
    return theirs


def dinov2_from_transformers(weights: Mapping[str, torch.Tensor]) -> Weights:
    """State of ``Dinov2WithRegistersModel`` as state of our tower.

    Our class token carries its own position embedding, as timm's does.
    """
    positions = weights["embeddings.position_embeddings"]
    ours = {
        "cls_token": weights["embeddings.cls_token"] + positions[:, :1],
        "reg_token": weights["embeddings.register_tokens"],
        "pos_embed": positions[:, 1:],
    }
    renamed = {
        "embeddings.patch_embeddings.projection": "patch_embed.proj",
        "layernorm": "norm",
        "norm1": "norm1",
        "norm2": "norm2",
        "attention.o_proj": "attn.proj",
        "mlp.fc1": "mlp.fc1",
        "mlp.fc2": "mlp.fc2",
    }
    attention = [f"attention.{part}_proj" for part in ("q", "k", "v")]
    ours |= _tower(weights, r"(?:encoder\.)?layer\.", renamed, attention)
    for name, tensor in weights.items():
        if match := re.match(r"(?:encoder\.)?layer\.(\d+)\.layer_scale([12])\.lambda1", name):
            ours[f"blocks.{match[1]}.ls{match[2]}.scale_factor"] = tensor
    return ours


def siglip_from_transformers(weights: Mapping[str, torch.Tensor]) -> Weights:
    """State of ``SiglipVisionModel`` as state of our tower; the pooling head is left out."""
    prefix = "vision_model." if any(name.startswith("vision_model.") for name in weights) else ""
    weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    ours = {"pos_embed": weights["embeddings.position_embedding.weight"][None]}
    renamed = {
        "embeddings.patch_embedding": "patch_embed.proj",
        "post_layernorm": "norm",
        "layer_norm1": "norm1",
        "layer_norm2": "norm2",
        "self_attn.out_proj": "attn.proj",
        "mlp.fc1": "mlp.fc1",
        "mlp.fc2": "mlp.fc2",
    }
    attention = [f"self_attn.{part}_proj" for part in ("q", "k", "v")]
    return ours | _tower(weights, r"(?:encoder\.)?layers\.", renamed, attention)


def _tower(
    weights: Mapping[str, torch.Tensor], layer_pattern: str, renamed: Mapping[str, str], attention: list[str]
) -> Weights:
    ours: Weights = {}
    fused: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in weights.items():
        match = re.match(rf"(?:{layer_pattern}(\d+)\.)?(.+)\.(weight|bias)$", name)
        if match is None:
            continue
        at = "" if match[1] is None else f"blocks.{match[1]}."
        if match[2] in renamed:
            ours[f"{at}{renamed[match[2]]}.{match[3]}"] = tensor
        elif match[2] in attention:
            fused.setdefault(f"{at}attn.qkv.{match[3]}", {})[match[2]] = tensor
    return ours | {name: torch.cat([parts[part] for part in attention]) for name, parts in fused.items()}
