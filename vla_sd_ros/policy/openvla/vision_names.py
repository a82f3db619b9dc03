"""A vision tower's weights under timm's names, as OpenVLA's checkpoints hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

_BLOCK = re.compile(
    r"blocks\.(\d+)\.(?:norm[12]\.(?:weight|bias)|attn\.(?:qkv|proj)\.(?:weight|bias)|mlp\.fc[12]\.(?:weight|bias)"
    r"|ls[12]\.(?:gamma|scale_factor))"
)
_FRONT = ("patch_embed.proj.weight", "patch_embed.proj.bias", "pos_embed", "cls_token", "reg_token")
#: Behind the feature layer: the final norm and the pooling head take no part in the features.
_UNUSED = ("norm.", "attn_pool.")


def our_name(name: str, built_blocks: int) -> str | None:
    """What one of a tower's tensors is called in our :class:`~vla_sd_ros.policy.vision.VisionTower`.

    Args:
        name: timm's, without the tower's prefix; LayerScale as ``gamma`` or, as OpenVLA renames it, ``scale_factor``.
        built_blocks: blocks up to the feature layer.

    Returns:
        None where nothing that we build needs it.

    Raises:
        KeyError: no such tensor is known.
    """
    if name in _FRONT:
        return name
    if name.startswith(_UNUSED):
        return None
    match = _BLOCK.fullmatch(name)
    if match is None:
        raise KeyError(f"vision tower: no tensor {name!r} is known")
    return name.replace(".gamma", ".scale_factor") if int(match[1]) < built_blocks else None


def vision_from_timm(weights: Mapping[str, torch.Tensor], built_blocks: int) -> dict[str, torch.Tensor]:
    """State of one of timm's towers as state of ours.

    Raises:
        KeyError: there is a tensor of no known name.
    """
    named = {our_name(name, built_blocks): tensor for name, tensor in weights.items()}
    return {name: tensor for name, tensor in named.items() if name is not None}
