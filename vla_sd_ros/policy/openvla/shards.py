"""The weight files of a folder: which tensor lies where, and of what shape, without reading any."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open

from vla_sd_ros.policy.openvla.names import published_name

INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"


class CheckpointError(ValueError):
    """A policy's folder is incomplete or inconsistent; the message names the file."""


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies: its file, its name there, its shape."""

    file: Path
    name: str
    shape: tuple[int, ...]

    def read(self) -> torch.Tensor:
        """The tensor, as it is stored."""
        with safe_open(self.file, framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(self.name)
            return tensor


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files with weights, in the order of their names.

    Raises:
        CheckpointError: there is neither a single file nor an index, or a file of the index is missing.
    """
    index = folder / INDEX_FILE
    if not index.is_file():
        if not (folder / SINGLE_FILE).is_file():
            raise CheckpointError(f"policy folder {folder} lacks {SINGLE_FILE}, or {INDEX_FILE} and the files it names")
        return (folder / SINGLE_FILE,)
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index}: no weight_map: {error}") from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"policy folder {folder} lacks {', '.join(missing)}, which {INDEX_FILE} names")
    return tuple(folder / name for name in names)


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of a folder by its published name.

    Raises:
        CheckpointError: a file is missing or damaged, two tensors share a name, or the index names one that is not
            where it says.
    """
    found: dict[str, StoredTensor] = {}
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
        for name, shape in shapes.items():
            known = published_name(name)
            if known in found:
                raise CheckpointError(f"{path}: {name} is there twice, also as {found[known].name}")
            found[known] = StoredTensor(path, name, shape)
    index = folder / INDEX_FILE
    if index.is_file():
        promised = {published_name(name): file for name, file in json.loads(index.read_text())["weight_map"].items()}
        lost = [name for name, file in promised.items() if name not in found or found[name].file.name != file]
        if lost:
            raise CheckpointError(f"{index}: {', '.join(sorted(lost)[:4])} not in the file that it names")
    return found
