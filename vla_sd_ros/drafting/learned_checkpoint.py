"""The learned drafter's folder, beside the policy that it was trained for: ``model.safetensors`` and ``config.json``.

A drafter speaks another policy's language badly rather than not at all, so one that was trained for another policy is
refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load, save

from vla_sd_ros.drafting.learned import LearnedDrafter
from vla_sd_ros.drafting.learned_config import DrafterNetworkConfig, LearnedDraftConfig
from vla_sd_ros.drafting.learned_network import DrafterNetwork
from vla_sd_ros.policy.loaded import LoadedPolicy

DRAFTER_FOLDER = "drafter"
WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
FORMAT_VERSION = 1


class DrafterError(ValueError):
    """A drafter's folder is missing, damaged or another policy's; the message names the file."""


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: Literal[1]
    policy_fingerprint: str
    weights_sha256: str
    network: DrafterNetworkConfig
    recipe: dict[str, Any]


def save_drafter(folder: Path, network: DrafterNetwork, policy_fingerprint: str, recipe: Mapping[str, Any]) -> None:
    """Writes a drafter, half precision on disk; an interrupted write leaves no drafter that can be loaded by mistake.

    Args:
        folder: made where it does not exist; a drafter that stood there is replaced.
        network: not packed.
        policy_fingerprint: of the policy that it was trained for.
        recipe: how it was trained and what it reached; anything JSON can hold.

    Raises:
        DrafterError: where a weight is not finite in half precision.
    """
    state = {
        name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in network.state_dict().items()
    }
    bad = [name for name, tensor in state.items() if not torch.isfinite(tensor).all()]
    if bad:
        raise DrafterError(f"weights: {bad[0]} is not finite in half precision")
    weights = save(state)
    header = _Header(
        format_version=FORMAT_VERSION,
        policy_fingerprint=policy_fingerprint,
        weights_sha256=hashlib.sha256(weights).hexdigest(),
        network=network.config,
        recipe=dict(recipe),
    )
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / WEIGHTS_FILE, weights)
    _replace(folder / CONFIG_FILE, (json.dumps(header.model_dump(mode="json"), indent=2) + "\n").encode())


def load_drafter(folder: Path, policy: LoadedPolicy, config: LearnedDraftConfig | None = None) -> LearnedDrafter:
    """Reads a drafter and makes it ready to draft for its policy.

    Args:
        folder: written by :func:`save_drafter`.
        policy: that it was trained for.
        config: shape of its trees.

    Raises:
        DrafterError: missing or damaged files, another format, weights that do not fit, or another policy's drafter.
    """
    for name in (WEIGHTS_FILE, CONFIG_FILE):
        if not (folder / name).is_file():
            raise DrafterError(f"drafter folder {folder} lacks {name}; make one with: vla-sd train drafter")
    try:
        header = _Header.model_validate_json((folder / CONFIG_FILE).read_bytes())
    except ValidationError as error:
        raise DrafterError(f"{folder / CONFIG_FILE}: {error}") from error
    if header.policy_fingerprint != policy.fingerprint:
        raise DrafterError(
            f"{folder} was trained for the policy {header.policy_fingerprint}, this one is {policy.fingerprint}; "
            "train it anew with: vla-sd train drafter"
        )
    if header.network.width != policy.config.llama.width:
        raise DrafterError(f"{folder}: width {header.network.width}; the policy's is {policy.config.llama.width}")
    weights = (folder / WEIGHTS_FILE).read_bytes()
    if hashlib.sha256(weights).hexdigest() != header.weights_sha256:
        raise DrafterError(f"{folder / WEIGHTS_FILE} is not the file that {CONFIG_FILE} describes")
    network = DrafterNetwork(header.network, kernel="sdpa")
    try:
        network.load_state_dict({name: tensor.float() for name, tensor in load(weights).items()})
    except RuntimeError as error:
        raise DrafterError(f"{folder / WEIGHTS_FILE}: {error}") from error
    return LearnedDrafter(network, policy, config)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)
