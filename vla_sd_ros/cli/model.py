"""``vla-sd model``: what a checkpoint is, and whether it would load, without reading its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vla_sd_ros.policy.openvla.loading import PublishedCheckpoint

BYTES_PER_GB = 1e9
PRECISIONS = {"float32": 4, "bfloat16 and float16": 2}

app = typer.Typer(no_args_is_help=True, help="Checkpoints of policies.")


@app.callback()
def model() -> None:
    """Checkpoints of policies."""


@app.command("check")
def check(
    path: Annotated[Path, typer.Argument(help="Folder in OpenVLA's layout, or of a LoRA adapter for one.")],
    hash_weights: Annotated[
        bool, typer.Option("--hash/--no-hash", help="Compute the SHA-256 that names the weights.")
    ] = True,
) -> None:
    """Prints architecture, statistics keys, hash and memory need; status 1 with the reason where it is unfit."""
    from vla_sd_ros.policy.openvla.loading import inspect
    from vla_sd_ros.policy.openvla.shards import CheckpointError
    from vla_sd_ros.policy.tokenizer import load_tokenizer

    try:
        checkpoint = inspect(path)
        load_tokenizer(checkpoint.base / "tokenizer.json", checkpoint.config)
        keys = _statistics_keys(checkpoint)
    except (CheckpointError, ValueError, OSError) as error:
        typer.echo(f"unfit: {error}", err=True)
        raise typer.Exit(1) from error
    for name, value in _facts(checkpoint, keys, hash_weights):
        typer.echo(f"{name:<18} {value}")


def _statistics_keys(checkpoint: PublishedCheckpoint) -> list[str]:
    """The data sets that there are statistics of; every one is checked."""
    from vla_sd_ros.actions.statistics import load_statistics

    source = checkpoint.statistics
    table = json.loads(source.read_text()) if isinstance(source, Path) else source
    for key in table:
        load_statistics(table, key)
    return sorted(table)


def _facts(checkpoint: PublishedCheckpoint, keys: list[str], hash_weights: bool) -> list[tuple[str, str]]:
    import torch

    from vla_sd_ros.policy.loaded import files_fingerprint
    from vla_sd_ros.policy.memory import HEADROOM, free_memory_bytes
    from vla_sd_ros.policy.model import VisionLanguageActionModel
    from vla_sd_ros.policy.openvla.adapter import has_adapter

    config = checkpoint.config
    with torch.device("meta"):
        weights = sum(each.numel() for each in VisionLanguageActionModel(config).parameters())
    towers = ", ".join(
        f"{name} {tower.width} wide, {tower.built_blocks} of {tower.depth} blocks"
        for name, tower in (("DINOv2", config.dinov2), ("SigLIP", config.siglip))
    )
    llama = config.llama
    free_gb = free_memory_bytes(torch.device("cpu")) / BYTES_PER_GB
    needs = ", ".join(
        f"{weights * size * (1 + HEADROOM) / BYTES_PER_GB:.2f} GB in {name}" for name, size in PRECISIONS.items()
    )
    files = checkpoint.weight_files
    facts = [
        ("checkpoint", str(checkpoint.base)),
        ("adapter", str(checkpoint.folder) if has_adapter(checkpoint.folder) else "none"),
        ("vision", f"{towers}; {config.image_size_px} px, {config.n_patches} patches"),
        ("language model", f"{llama.depth} layers, {llama.width} wide, {llama.heads} heads"),
        ("parameters", f"{weights / 1e6:.1f} million"),
        ("action ids", f"{config.first_action_id} to {config.vocabulary_size - 1}"),
        ("weight files", ", ".join(file.name for file in files)),
        ("statistics keys", ", ".join(keys) + ("" if len(keys) == 1 else "; name one as statistics_key")),
        ("memory", f"{needs}; {free_gb:.2f} GB are free on this machine's processor"),
    ]
    return [*facts, ("SHA-256", files_fingerprint(files))] if hash_weights else facts
