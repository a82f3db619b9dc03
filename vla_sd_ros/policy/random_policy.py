"""A policy of random weights, in memory: for timing without a checkpoint and for tests."""

from __future__ import annotations

import numpy as np
import torch

from vla_sd_ros.actions.bins import N_BINS, N_DOF
from vla_sd_ros.actions.statistics import ActionStatistics
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.libero_words import DEMO_VOCABULARY
from vla_sd_ros.policy.llama import rotary_table
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.memory import require_memory
from vla_sd_ros.policy.model import VisionLanguageActionModel, initialise, pack_for_cpu
from vla_sd_ros.policy.tokenizer import PromptTokenizer, build_word_tokenizer


def random_policy(
    config: PolicyConfig | None = None, dtype: torch.dtype = torch.float32, seed: int = 0
) -> LoadedPolicy:
    """A policy that knows nothing but answers different images with different actions.

    Args:
        config: of any size; None: the demo policy as it runs (fused attention kernel).
        dtype: of the weights.
        seed: same seed, same weights.
    """
    config = PolicyConfig.demo(attention="sdpa") if config is None else config
    # Deviation 1 / sqrt(width) keeps activations of order one, so that the scores depend on the input.
    model = initialise(VisionLanguageActionModel(config), seed, deviation=config.llama.width**-0.5)
    model = model.to(dtype).eval().requires_grad_(False)
    pack_for_cpu(model)
    return _with_words(model)


def random_policy_on(
    device: torch.device | str, config: PolicyConfig, dtype: torch.dtype, seed: int = 0
) -> LoadedPolicy:
    """The same on any device, drawn there in its final precision: seven billion weights in seconds on a GPU.

    Args:
        device: where the weights are drawn and stay.
        config: of any size.
        dtype: of the weights.
        seed: same seed, same device, same weights.

    Raises:
        InsufficientMemory: the weights do not fit.
    """
    device = torch.device(device)
    with torch.device("meta"):
        model = VisionLanguageActionModel(config)
    model = model.to(dtype).eval().requires_grad_(False)
    require_memory(sum(tensor.numel() for tensor in model.parameters()) * dtype.itemsize, device)
    model = model.to_empty(device=device)
    model.language_model.rotary = rotary_table(config.llama).to(device, dtype)
    _draw(model, torch.Generator(device).manual_seed(seed), deviation=config.llama.width**-0.5)
    return _with_words(pack_for_cpu(model) if device.type == "cpu" else model)


def tiny_openvla(**changes: object) -> PolicyConfig:
    """OpenVLA's structure at widths that cost nothing: image, patches, blocks that give features, prompt, vocabulary.

    Args:
        **changes: as for :meth:`~vla_sd_ros.policy.config.PolicyConfig.demo`.
    """
    sizes: dict[str, object] = {
        "dinov2": {"width": 64, "depth": 3, "heads": 4, "mlp_width": 128},
        "siglip": {"width": 72, "depth": 3, "heads": 4, "mlp_width": 144},
        "llama": {"width": 128, "depth": 4, "heads": 4, "mlp_width": 344},
    }
    full = PolicyConfig.openvla_7b().model_dump()
    for name, values in (*sizes.items(), *changes.items()):
        full[name] = {**full[name], **values} if isinstance(values, dict) else values
    return PolicyConfig.model_validate(full)


@torch.no_grad()
def _draw(model: VisionLanguageActionModel, generator: torch.Generator, deviation: float) -> None:
    for name, parameter in model.named_parameters():
        last = name.rpartition(".")[2]
        if last == "scale_factor":
            parameter.fill_(model.config.dinov2.layer_scale or 1.0)
        elif last == "bias":
            parameter.zero_()
        elif parameter.dim() == 1:  # gains of the norms
            parameter.fill_(1.0)
        else:
            parameter.normal_(0.0, deviation, generator=generator)


def _with_words(model: VisionLanguageActionModel) -> LoadedPolicy:
    """Completes a model with statistics and with a tokenizer of as many entries as it has ids."""
    config = model.config
    unused = config.vocabulary_size - N_BINS - len(DEMO_VOCABULARY)
    words = [*DEMO_VOCABULARY, *(f"<unused_{index}>" for index in range(unused))]
    mask = np.arange(N_DOF) < N_DOF - 1
    statistics = ActionStatistics(q01=np.where(mask, -0.05, 0.0), q99=np.where(mask, 0.05, 1.0), mask=mask)
    return LoadedPolicy(model, PromptTokenizer(build_word_tokenizer(words), config), statistics)
