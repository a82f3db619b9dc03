"""Policies of random weights of OpenVLA's structure, on any device."""

from __future__ import annotations

import pytest
import torch

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.memory import InsufficientMemory
from vla_sd_ros.policy.random_policy import random_policy_on, tiny_openvla


def test_a_random_policy_has_the_structure_of_openvla() -> None:
    policy = random_policy_on("cpu", tiny_openvla(), torch.float32)
    config, full = policy.config, PolicyConfig.openvla_7b()
    assert (config.n_patches, config.vocabulary_size, config.extra_prompt_id) == (256, 32000, 29871)
    assert config.llama.embedding_rows == full.llama.embedding_rows
    assert config.dinov2.feature_layer == full.dinov2.feature_layer == -2
    assert int(policy.prepare_prompt("put the bowl on the plate")[0, -1]) == 29871
    assert not policy.model.training
    assert all(torch.isfinite(tensor).all() for tensor in policy.model.state_dict().values())


def test_the_same_seed_draws_the_same_policy() -> None:
    config = tiny_openvla(llama={"depth": 1})
    first, again, other = (random_policy_on("cpu", config, torch.bfloat16, seed).fingerprint for seed in (1, 1, 2))
    assert first == again != other


def test_a_policy_that_does_not_fit_is_refused_before_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vla_sd_ros.policy.memory.free_memory_bytes", lambda device: 8 << 30)
    with pytest.raises(InsufficientMemory, match="GB"):
        random_policy_on("cpu", PolicyConfig.openvla_7b(), torch.bfloat16)
