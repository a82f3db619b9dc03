"""A policy's folder: weights, configuration, tokenizer, action statistics, recipe; saving and loading.

``model.safetensors`` is half precision; ``config.json``, ``tokenizer.json``, ``dataset_statistics.json`` (OpenVLA's
layout) and ``recipe.json`` (how it was trained) complete it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import safe_open
from safetensors.torch import save_file

from vla_sd_ros.actions.statistics import load_statistics
from vla_sd_ros.policy.config import AttentionKernel, PolicyConfig
from vla_sd_ros.policy.llama import rotary_table
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.memory import require_memory
from vla_sd_ros.policy.model import VisionLanguageActionModel, pack_for_cpu
from vla_sd_ros.policy.openvla.adapter import has_adapter
from vla_sd_ros.policy.openvla.loading import inspect, read_model
from vla_sd_ros.policy.openvla.published import is_published
from vla_sd_ros.policy.openvla.shards import CheckpointError, weight_files
from vla_sd_ros.policy.tokenizer import load_tokenizer

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
STATISTICS_FILE = "dataset_statistics.json"
RECIPE_FILE = "recipe.json"


def save_policy(
    directory: Path,
    model: VisionLanguageActionModel,
    tokenizer_path: Path,
    statistics: Mapping[str, Any],
    recipe: Mapping[str, Any],
) -> None:
    """Writes a policy's folder, half precision on disk.

    Args:
        directory: made where it does not exist; files of the same names are replaced.
        model: whose weights and configuration to write.
        tokenizer_path: its ``tokenizer.json``.
        statistics: content of ``dataset_statistics.json``.
        recipe: how the policy was trained; anything JSON can hold.

    Raises:
        CheckpointError: where a weight is not finite in half precision.
    """
    directory.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in model.state_dict().items()}
    for name, tensor in state.items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(f"weights: {name} is not finite in half precision")
    save_file(state, directory / WEIGHTS_FILE)
    (directory / WEIGHTS_FILE).chmod(0o644)  # the library writes for its owner alone
    if tokenizer_path.resolve() != (directory / TOKENIZER_FILE).resolve():
        shutil.copyfile(tokenizer_path, directory / TOKENIZER_FILE)
    for name, content in (
        (CONFIG_FILE, model.config.model_dump(mode="json")),
        (STATISTICS_FILE, dict(statistics)),
        (RECIPE_FILE, dict(recipe)),
    ):
        (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load_policy(
    directory: Path,
    dtype: torch.dtype = torch.float32,
    statistics_key: str | None = None,
    device: torch.device | str = "cpu",
    attention: AttentionKernel = "sdpa",
) -> LoadedPolicy:
    """Reads a policy's folder; everything that can be wrong is checked before the weights are read.

    Args:
        directory: written by :func:`save_policy`; or in the layout of ``openvla/openvla-7b`` and its fine-tunes; or of
            a LoRA adapter for one of those.
        dtype: float32, bfloat16 or float16.
        statistics_key: data set whose statistics un-normalise the actions; None takes the only one.
        device: where the weights go.
        attention: kernel at run time; the one in the configuration is for training.

    Raises:
        CheckpointError: missing files (named), wrong configuration, weights that do not fit it or are not finite.
        UnknownStatisticsKey: the key is unknown or ambiguous; the message lists the keys.
        InsufficientMemory: the weights do not fit.
        ValueError: malformed statistics, or a tokenizer of another vocabulary.
    """
    if is_published(directory) or has_adapter(directory):
        return _load_published(directory, dtype, statistics_key, torch.device(device), attention)
    required = (WEIGHTS_FILE, CONFIG_FILE, TOKENIZER_FILE, STATISTICS_FILE)
    missing = [name for name in required if not (directory / name).is_file()]
    if missing:
        raise CheckpointError(f"policy folder {directory} lacks {', '.join(missing)}")
    try:
        config = PolicyConfig.model_validate_json((directory / CONFIG_FILE).read_bytes())
    except ValidationError as error:
        raise CheckpointError(f"{directory / CONFIG_FILE}: {error}") from error
    statistics = load_statistics(directory / STATISTICS_FILE, statistics_key)
    tokenizer = load_tokenizer(directory / TOKENIZER_FILE, config)
    config = config.model_copy(update={"attention": attention})
    model = _load_model(directory / WEIGHTS_FILE, config, dtype, torch.device(device))
    return LoadedPolicy(model, tokenizer, statistics, directory / WEIGHTS_FILE)


def _load_model(
    weights: Path, config: PolicyConfig, dtype: torch.dtype, device: torch.device
) -> VisionLanguageActionModel:
    with torch.device("meta"):
        model = VisionLanguageActionModel(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    with safe_open(weights, framework="pt") as file:
        found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        _require_same(weights, expected, found)
        require_memory(sum(math.prod(shape) for shape in expected.values()) * dtype.itemsize, device)
        state = _read_weights(file, expected, dtype, device)
    bad = [name for name, tensor in state.items() if not torch.isfinite(tensor).all()]
    if bad:
        raise CheckpointError(f"{weights}: not finite: {', '.join(bad[:4])}")
    model.load_state_dict(state, assign=True)
    return _made_ready(model, dtype, device)


def _load_published(
    directory: Path, dtype: torch.dtype, statistics_key: str | None, device: torch.device, attention: AttentionKernel
) -> LoadedPolicy:
    checkpoint = inspect(directory, attention)
    statistics = load_statistics(checkpoint.statistics, statistics_key)
    tokenizer = load_tokenizer(checkpoint.base / TOKENIZER_FILE, checkpoint.config)
    model = _made_ready(read_model(checkpoint, dtype, device), dtype, device)
    first, *further = checkpoint.weight_files
    return LoadedPolicy(model, tokenizer, statistics, first, further)


def _made_ready(
    model: VisionLanguageActionModel, dtype: torch.dtype, device: torch.device
) -> VisionLanguageActionModel:
    model.language_model.rotary = rotary_table(model.config.llama).to(device, dtype)
    model = model.eval().requires_grad_(False)
    return pack_for_cpu(model) if device.type == "cpu" else model


def policy_weight_files(directory: Path) -> tuple[Path, ...]:
    """The files that a policy's weights come from, in the order of its fingerprint.

    Raises:
        CheckpointError: some are missing.
    """
    if is_published(directory) or has_adapter(directory):
        return inspect(directory).weight_files
    return weight_files(directory)


def _read_weights(file: Any, names: Iterable[str], dtype: torch.dtype, device: torch.device) -> dict[str, torch.Tensor]:
    # One tensor at a time, so that the file's precision and the model's never lie in memory together.
    return {name: file.get_tensor(name).to(device, dtype) for name in names}


def _require_same(weights: Path, expected: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> None:
    for complaint, names in (
        ("lacks", expected.keys() - found.keys()),
        ("has unknown", found.keys() - expected.keys()),
        ("has a wrong shape for", {name for name in expected.keys() & found.keys() if expected[name] != found[name]}),
    ):
        if names:
            listed = ", ".join(sorted(names)[:4])
            raise CheckpointError(f"{weights} does not fit {CONFIG_FILE}: {complaint} {len(names)} tensors: {listed}")
