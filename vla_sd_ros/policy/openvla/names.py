"""One spelling for the tensors of a checkpoint, whatever wrote it; and which of them each of our tensors is made of."""

from __future__ import annotations

import re
from typing import Final

from vla_sd_ros.policy.openvla.vision_names import our_name
from vla_sd_ros.policy.transformers_names import llama_parts

#: Applied in turn: from what training wrappers and newer libraries write to what was published.
SPELLINGS: Final[tuple[tuple[str, str], ...]] = (
    (r"^(?:module\.)?(?:base_model\.model\.)?", ""),
    (r"^model\.(vision_backbone|projector)\.", r"\1."),
    (r"^model\.language_model\.(?!model\.|lm_head\.)", "language_model.model."),
    (r"^model\.language_model\.", "language_model."),
    (r"^lm_head\.", "language_model.lm_head."),
    (r"\.(ls[12])\.gamma$", r".\1.scale_factor"),
)
TOWERS: Final = {"dinov2": "vision_backbone.featurizer.", "siglip": "vision_backbone.fused_featurizer."}
_LANGUAGE: Final = "language_model."
#: What older checkpoints carry along: recomputed from the configuration.
_IGNORED: Final = re.compile(r"\.rotary_emb\.inv_freq$")


def published_name(name: str) -> str:
    """A tensor's name as ``openvla/openvla-7b`` spells it."""
    for pattern, replacement in SPELLINGS:
        name = re.sub(pattern, replacement, name)
    return name


def parts_of(our_tensor: str) -> tuple[str, ...]:
    """Published names of the tensors that, one below the other, are one of ours."""
    for tower, prefix in TOWERS.items():
        if our_tensor.startswith(f"vision.{tower}."):
            return (prefix + our_tensor.removeprefix(f"vision.{tower}."),)
    if our_tensor.startswith(_LANGUAGE):
        return tuple(_LANGUAGE + part for part in llama_parts(our_tensor.removeprefix(_LANGUAGE)))
    return (our_tensor,)


def is_left_out(published: str, built_blocks: dict[str, int]) -> bool:
    """Whether a tensor is known and not needed: what follows a tower's feature layer, tables that are recomputed."""
    if _IGNORED.search(published):
        return True
    for tower, prefix in TOWERS.items():
        if published.startswith(prefix):
            try:
                return our_name(published.removeprefix(prefix), built_blocks[tower]) is None
            except KeyError:
                return False
    return False
