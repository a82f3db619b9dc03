"""``config.json`` and ``preprocessor_config.json`` of a published checkpoint, as our configuration.

The published files name the vision towers and leave sizes to the libraries' defaults; what a size is follows from the
tensors, and what cannot follow from them (heads, registers) from the family that a tower belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vla_sd_ros.actions.bins import N_BINS
from vla_sd_ros.policy.config import AttentionKernel, PolicyConfig
from vla_sd_ros.policy.openvla.names import TOWERS
from vla_sd_ros.policy.openvla.shards import CheckpointError, StoredTensor

CONFIG_FILE: Final = "config.json"
PROCESSOR_FILE: Final = "preprocessor_config.json"
MODEL_TYPE: Final = "openvla"
#: The empty string after the prompt's colon (Kim et al. 2024, ``predict_action``).
LAST_PROMPT_ID: Final = 29871


@dataclass(frozen=True)
class TowerFamily:
    """What the tensors of a timm tower do not tell."""

    head_width: int
    class_token: bool


FAMILIES: Final = {
    "vit_large_patch14_reg4_dinov2.lvd142m": TowerFamily(head_width=64, class_token=True),
    "vit_so400m_patch14_siglip_224": TowerFamily(head_width=72, class_token=False),
}


class PublishedConfig(BaseModel):
    """The part of ``config.json`` that decides what is loaded; other keys are the libraries' business."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model_type: str
    vision_backbone_id: str
    arch_specifier: str = "no-align+fused-gelu-mlp"
    llm_backbone_id: str = "llama2-7b-pure"
    use_fused_vision_backbone: bool = True
    timm_model_ids: tuple[str, str]
    image_sizes: tuple[int, int]
    image_resize_strategy: str = "resize-naive"
    n_action_bins: int = N_BINS
    pad_to_multiple_of: int = Field(ge=0)
    text_config: dict[str, Any]
    norm_stats: dict[str, Any] | None = None


#: What we build; a checkpoint that says anything else is refused.
LEGAL: Final[dict[str, tuple[Any, ...]]] = {
    "model_type": (MODEL_TYPE,),
    "vision_backbone_id": ("dinosiglip-vit-so-224px",),
    "arch_specifier": ("no-align+fused-gelu-mlp",),
    "llm_backbone_id": ("llama2-7b-pure",),
    "use_fused_vision_backbone": (True,),
    "timm_model_ids": (tuple(FAMILIES),),
    "image_resize_strategy": ("resize-naive",),
    "n_action_bins": (N_BINS,),
}


def is_published(folder: Path) -> bool:
    """Whether a folder's ``config.json`` is that of a published OpenVLA checkpoint."""
    try:
        found = json.loads((folder / CONFIG_FILE).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "text_config" in found


def read_published(folder: Path) -> PublishedConfig:
    """Reads and checks ``config.json``.

    Raises:
        CheckpointError: it is malformed, or describes an architecture that is not OpenVLA's.
    """
    file = folder / CONFIG_FILE
    try:
        config = PublishedConfig.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise CheckpointError(f"{file}: {error}") from error
    for key, legal in LEGAL.items():
        value = getattr(config, key)
        if value not in legal:
            raise CheckpointError(f"{file}: {key}: {value!r}; legal: {', '.join(map(repr, legal))}")
    return config


def policy_config(
    folder: Path,
    published: PublishedConfig,
    tensors: Mapping[str, StoredTensor],
    attention: AttentionKernel,
) -> PolicyConfig:
    """Our configuration of a checkpoint.

    Raises:
        CheckpointError: a tensor that tells a size is missing, or sizes contradict each other.
    """
    means, deviations = _colours(folder)
    full = PolicyConfig.openvla_7b().model_dump()
    towers = {
        tower: {
            **full[tower],
            **_tower_sizes(tensors, prefix, FAMILIES[timm_id]),
            "image_mean": means[place],
            "image_std": deviations[place],
        }
        for place, ((tower, prefix), timm_id) in enumerate(zip(TOWERS.items(), published.timm_model_ids, strict=True))
    }
    llama = _llama_sizes(folder, published.text_config)
    shape = _shape(tensors, TOWERS["dinov2"] + "patch_embed.proj.weight")
    fields = {
        **full,
        **towers,
        "llama": {**full["llama"], **llama},
        "image_size_px": published.image_sizes[0],
        "patch_px": shape[2],
        "vocabulary_size": llama["embedding_rows"] - published.pad_to_multiple_of,
        "extra_prompt_id": LAST_PROMPT_ID,
        "attention": attention,
    }
    try:
        return PolicyConfig.model_validate(fields)
    except ValidationError as error:
        raise CheckpointError(f"{folder / CONFIG_FILE}: {error}") from error


def _tower_sizes(tensors: Mapping[str, StoredTensor], prefix: str, family: TowerFamily) -> dict[str, Any]:
    width = _shape(tensors, prefix + "patch_embed.proj.weight")[0]
    depth = 1 + max((int(name.split(".")[3]) for name in tensors if name.startswith(f"{prefix}blocks.")), default=-1)
    if width % family.head_width or depth < 2:
        raise CheckpointError(
            f"{prefix}: width {width}, {depth} blocks; legal: a multiple of {family.head_width}, at least 2 blocks"
        )
    return {
        "width": width,
        "depth": depth,
        "heads": width // family.head_width,
        "mlp_width": _shape(tensors, prefix + "blocks.0.mlp.fc1.weight")[0],
        "class_token": family.class_token,
        "registers": _shape(tensors, prefix + "reg_token")[1] if family.class_token else 0,
    }


def _llama_sizes(folder: Path, text: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the language model; what ``text_config`` leaves out has the value of transformers' ``LlamaConfig``."""
    from transformers import LlamaConfig

    if text.get("model_type", "llama") != "llama":
        raise CheckpointError(f"{folder / CONFIG_FILE}: text_config.model_type: {text['model_type']!r}; legal: 'llama'")
    llama = LlamaConfig(**{key: value for key, value in text.items() if key != "model_type"})
    if llama.num_key_value_heads != llama.num_attention_heads:
        raise CheckpointError(
            f"{folder / CONFIG_FILE}: text_config.num_key_value_heads: {llama.num_key_value_heads}; "
            f"legal: {llama.num_attention_heads}, as many as heads"
        )
    rope = getattr(llama, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        raise CheckpointError(f"{folder / CONFIG_FILE}: text_config rope_type: {rope['rope_type']!r}; legal: 'default'")
    return {
        "width": llama.hidden_size,
        "depth": llama.num_hidden_layers,
        "heads": llama.num_attention_heads,
        "mlp_width": llama.intermediate_size,
        "embedding_rows": llama.vocab_size,
        "norm_epsilon": llama.rms_norm_eps,
        "rope_theta": float(rope.get("rope_theta", getattr(llama, "rope_theta", 10000.0))),
        "max_positions": llama.max_position_embeddings,
    }


def _colours(folder: Path) -> tuple[list[Any], list[Any]]:
    file = folder / PROCESSOR_FILE
    try:
        found = json.loads(file.read_text())
        means, deviations = found["means"], found["stds"]
    except OSError as error:
        raise CheckpointError(f"policy folder {folder} lacks {PROCESSOR_FILE}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{file}: means and stds are needed: {error}") from error
    if [len(means), len(deviations)] != [len(TOWERS)] * 2:
        raise CheckpointError(f"{file}: means and stds of {len(means)} and {len(deviations)} towers; legal: 2 of each")
    return means, deviations


def _shape(tensors: Mapping[str, StoredTensor], name: str) -> tuple[int, ...]:
    if name not in tensors:
        raise CheckpointError(f"the weights lack {name}")
    return tensors[name].shape
