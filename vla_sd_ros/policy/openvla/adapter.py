"""A LoRA adapter in PEFT's layout, merged into the weights as they are read.

PEFT itself computes what an adapter adds, one linear layer at a time, so that its variants (scaling by rank, patterns
of ranks, weight decomposition) come out as they do there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final, cast

import torch
from safetensors.torch import load_file
from torch import nn

from vla_sd_ros.policy.openvla.names import published_name
from vla_sd_ros.policy.openvla.shards import CheckpointError

CONFIG_FILE: Final = "adapter_config.json"
WEIGHTS_FILE: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."


def has_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter."""
    return (folder / CONFIG_FILE).is_file()


def base_of(folder: Path) -> Path:
    """Folder of the checkpoint that an adapter is for: its own, where that is whole, or the one that it names.

    Raises:
        CheckpointError: neither is a folder here.
    """
    if (folder / "config.json").is_file():
        return folder
    named = str(json.loads((folder / CONFIG_FILE).read_text()).get("base_model_name_or_path") or "")
    for place in (Path(named), folder / named):
        if named and (place / "config.json").is_file():
            return place
    raise CheckpointError(
        f"{folder / CONFIG_FILE}: base_model_name_or_path: {named!r} is no folder with a checkpoint; download it, and "
        f"name its folder there"
    )


class Adapter:
    """What an adapter adds to weights.

    Args:
        folder: of the adapter.

    Raises:
        CheckpointError: it is incomplete, or of another kind than LoRA.
    """

    def __init__(self, folder: Path) -> None:
        self.weights_path = folder / WEIGHTS_FILE
        self._folder = folder
        if not self.weights_path.is_file():
            raise CheckpointError(f"adapter {folder} lacks {WEIGHTS_FILE}")
        kind = json.loads((folder / CONFIG_FILE).read_text()).get("peft_type")
        if kind != "LORA":
            raise CheckpointError(f"{folder / CONFIG_FILE}: peft_type: {kind!r}; legal: 'LORA'")
        self._left: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
        for name, tensor in load_file(self.weights_path).items():
            layer, dot, part = name.partition(".lora_")
            if not dot:
                raise CheckpointError(f"{self.weights_path}: {name} is no part of a LoRA layer")
            self._left[published_name(layer)][f"lora_{part}"] = tensor

    def merge(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """A weight with what the adapter adds; itself where the adapter leaves it alone.

        Args:
            name: published name, ending in ``.weight``.
            weight: [out, in].

        Raises:
            CheckpointError: the adapter does not fit the weight.
        """
        layer = name.removesuffix(".weight")
        parts = self._left.pop(layer, None)
        if parts is None:
            return weight
        if weight.dim() != 2:
            raise CheckpointError(f"{self.weights_path}: {layer} is no linear layer")
        from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

        config = LoraConfig.from_pretrained(str(self._folder))
        config.target_modules, config.inference_mode, config.modules_to_save = {layer}, False, None
        config.base_model_name_or_path = None  # what it is put around here is one layer
        # In single precision: the sum is rounded once, to the precision that the policy runs in.
        adapted = get_peft_model(_around(layer, weight.float()), config)
        state = {f"{_PREFIX}{layer}.{part}": tensor for part, tensor in parts.items()}
        try:
            report: Any = set_peft_model_state_dict(adapted, state)
        except RuntimeError as error:
            raise CheckpointError(f"{self.weights_path}: {layer} does not fit: {error}") from error
        unknown: list[str] = list(cast("Any", report).unexpected_keys)
        if unknown:
            raise CheckpointError(f"{self.weights_path}: unknown: {', '.join(unknown[:4])}")
        merged: torch.Tensor = adapted.merge_and_unload().get_submodule(layer).weight.detach()
        return merged

    def require_used(self) -> None:
        """Checks that every layer of the adapter has found its weight.

        Raises:
            CheckpointError: some have not; up to four are named.
        """
        if self._left:
            raise CheckpointError(
                f"{self.weights_path} adapts {len(self._left)} layers that the policy does not have or does not use: "
                f"{', '.join(sorted(self._left)[:4])}"
            )


def _around(layer: str, weight: torch.Tensor) -> nn.Module:
    """Modules around one linear layer, so that it has its own name."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    module: nn.Module = linear
    for name in reversed(layer.split(".")):
        outer = nn.Module()
        outer.add_module(name, module)
        module = outer
    return module
