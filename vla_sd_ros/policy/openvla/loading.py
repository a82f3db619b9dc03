"""Loads a published checkpoint: everything that can be wrong is checked before the first weight is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from vla_sd_ros.policy.config import AttentionKernel, PolicyConfig
from vla_sd_ros.policy.memory import require_memory
from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.policy.openvla.adapter import WEIGHTS_FILE as ADAPTER_WEIGHTS_FILE
from vla_sd_ros.policy.openvla.adapter import Adapter, base_of, has_adapter
from vla_sd_ros.policy.openvla.names import TOWERS, is_left_out, parts_of
from vla_sd_ros.policy.openvla.published import policy_config, read_published
from vla_sd_ros.policy.openvla.shards import CheckpointError, StoredTensor, stored_tensors, weight_files

TOKENIZER_FILE: Final = "tokenizer.json"
STATISTICS_FILE: Final = "dataset_statistics.json"


@dataclass(frozen=True)
class PublishedCheckpoint:
    """A checkpoint that was looked at and found whole; no weight has been read.

    Attributes:
        folder: what was asked for: of the checkpoint, or of an adapter.
        base: folder of the checkpoint.
        config: ours.
        tensors: by published name.
        statistics: file or table of action statistics: what a fine-tune wrote wins over what its base came with.
    """

    folder: Path
    base: Path
    config: PolicyConfig
    tensors: Mapping[str, StoredTensor]
    statistics: Path | Mapping[str, Any]

    @property
    def weight_files(self) -> tuple[Path, ...]:
        """Every file that the weights come from, the adapter's first."""
        adapter = (self.folder / ADAPTER_WEIGHTS_FILE,) if has_adapter(self.folder) else ()
        return (*adapter, *weight_files(self.base))


def inspect(folder: Path, attention: AttentionKernel = "sdpa") -> PublishedCheckpoint:
    """Looks at a checkpoint, or at an adapter and its base.

    Raises:
        CheckpointError: something is missing or contradicts something else; the message names it.
    """
    base = base_of(folder) if has_adapter(folder) else folder
    published = read_published(base)
    if not (base / TOKENIZER_FILE).is_file():
        raise CheckpointError(f"policy folder {base} lacks {TOKENIZER_FILE}")
    tensors = stored_tensors(base)
    statistics: Path | Mapping[str, Any] | None = next(
        (place / STATISTICS_FILE for place in (folder, base) if (place / STATISTICS_FILE).is_file()),
        published.norm_stats,
    )
    if not statistics:
        raise CheckpointError(f"policy folder {folder} lacks {STATISTICS_FILE}, and config.json has no norm_stats")
    config = policy_config(base, published, tensors, attention)
    checkpoint = PublishedCheckpoint(folder, base, config, tensors, statistics)
    _require_same(checkpoint)
    return checkpoint


def read_model(checkpoint: PublishedCheckpoint, dtype: torch.dtype, device: torch.device) -> VisionLanguageActionModel:
    """The model, in its final precision and place; a part at a time, so that nothing lies in memory twice.

    Raises:
        InsufficientMemory: it does not fit.
        CheckpointError: a weight is not finite, or the adapter does not fit.
    """
    model = _empty_model(checkpoint.config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    require_memory(sum(math.prod(shape) for shape in shapes.values()) * dtype.itemsize, device)
    adapter = Adapter(checkpoint.folder) if has_adapter(checkpoint.folder) else None
    state = dict(_read(checkpoint, shapes, adapter, dtype, device))
    if adapter is not None:
        adapter.require_used()
    model.load_state_dict(state, assign=True)
    return model


def _read(
    checkpoint: PublishedCheckpoint,
    shapes: Mapping[str, tuple[int, ...]],
    adapter: Adapter | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Iterator[tuple[str, torch.Tensor]]:
    for name in shapes:
        parts = []
        for part in parts_of(name):
            tensor = checkpoint.tensors[part].read()
            if adapter is not None:
                tensor = adapter.merge(part, tensor)
            parts.append(tensor.to(device, dtype))
            if not torch.isfinite(parts[-1]).all():
                raise CheckpointError(f"{checkpoint.tensors[part].file}: not finite: {checkpoint.tensors[part].name}")
        yield name, parts[0] if len(parts) == 1 else torch.cat(parts)


def _empty_model(config: PolicyConfig) -> VisionLanguageActionModel:
    with torch.device("meta"):
        return VisionLanguageActionModel(config)


def _require_same(checkpoint: PublishedCheckpoint) -> None:
    """Every tensor of ours is there in its shape, and every tensor there is used or known to be of no use."""
    config, tensors = checkpoint.config, checkpoint.tensors
    expected = {name: tuple(tensor.shape) for name, tensor in _empty_model(config).state_dict().items()}
    needed = {part for name in expected for part in parts_of(name)}
    blocks = {tower: getattr(config, tower).built_blocks for tower in TOWERS}
    wrong = [name for name, shape in expected.items() if not _fits(shape, name, tensors)]
    for complaint, names in (
        ("lack", needed - tensors.keys()),
        ("have unknown", {name for name in tensors.keys() - needed if not is_left_out(name, blocks)}),
        ("have a wrong shape for", wrong),
    ):
        if names:
            raise CheckpointError(
                f"the weights in {checkpoint.base} {complaint} {len(names)} tensors: {', '.join(sorted(names)[:4])}"
            )


def _fits(shape: tuple[int, ...], name: str, tensors: Mapping[str, StoredTensor]) -> bool:
    parts = [tensors[part].shape for part in parts_of(name) if part in tensors]
    if len(parts) != len(parts_of(name)):
        return True  # what is missing is told apart
    rows = sum(part[0] for part in parts) if len(parts) > 1 else parts[0][0]
    return (rows, *parts[0][1:]) == shape
