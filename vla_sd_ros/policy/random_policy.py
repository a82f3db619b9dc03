"""A policy of random weights, in memory: for timing without a checkpoint and for tests."""

from __future__ import annotations

import numpy as np
import torch

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.actions.statistics import ActionStatistics
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.model import VisionLanguageActionModel, initialise, pack_for_cpu
from vla_sd_ros.policy.tokenizer import PromptTokenizer, build_word_tokenizer


def random_policy(
    config: PolicyConfig | None = None, dtype: torch.dtype = torch.float32, seed: int = 0
) -> LoadedPolicy:
    """A policy that knows nothing but answers different images with different actions.

    Args:
        config: with the demo's vocabulary; None: the demo policy as it runs (fused attention kernel).
        dtype: of the weights.
        seed: same seed, same weights.
    """
    config = PolicyConfig.demo(attention="sdpa") if config is None else config
    # Deviation 1 / sqrt(width) keeps activations of order one, so that the scores depend on the input.
    model = initialise(VisionLanguageActionModel(config), seed, deviation=config.llama.width**-0.5)
    model = model.to(dtype).eval().requires_grad_(False)
    pack_for_cpu(model)
    mask = np.arange(N_DOF) < N_DOF - 1
    statistics = ActionStatistics(q01=np.where(mask, -0.05, 0.0), q99=np.where(mask, 0.05, 1.0), mask=mask)
    return LoadedPolicy(model, PromptTokenizer(build_word_tokenizer(), config), statistics)
