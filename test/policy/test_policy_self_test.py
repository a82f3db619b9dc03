from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.policy.self_test import SelfTestFailed, self_test


class Constant(nn.Module):
    """A stage that answers everything with the same tensor."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(self.stage(inputs))


def bypass_projector(model: VisionLanguageActionModel) -> None:
    model.projector = Constant(model.projector)  # type: ignore[assignment]


def bypass_vision(model: VisionLanguageActionModel) -> None:
    model.vision = Constant(model.vision)  # type: ignore[assignment]


def drop_patches(model: VisionLanguageActionModel) -> None:
    model.join_prefix = lambda features, ids: model.language_model.embed_tokens(ids)  # type: ignore[method-assign]


def ignore_context(model: VisionLanguageActionModel) -> None:
    for layer in model.language_model.layers:
        layer.attention = ZeroAttention()  # type: ignore[union-attr]


class ZeroAttention(nn.Module):
    def forward(self, hidden: torch.Tensor, *context: object) -> torch.Tensor:
        return torch.zeros_like(hidden[:, -int(context[-1]) :])  # type: ignore[call-overload]


def test_a_policy_that_sees_passes(tiny_policy: LoadedPolicy) -> None:
    self_test(tiny_policy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fault", [bypass_projector, bypass_vision, drop_patches, ignore_context])
def test_a_policy_whose_vision_is_bypassed_fails(
    fault: Callable[[VisionLanguageActionModel], None], dtype: torch.dtype, tiny_config: PolicyConfig
) -> None:
    policy = random_policy(tiny_config, dtype)
    fault(policy.model)
    with pytest.raises(SelfTestFailed, match="does not see"):
        self_test(policy)


def test_weights_that_are_not_finite_fail(tiny_policy: LoadedPolicy) -> None:
    with torch.no_grad():
        tiny_policy.model.language_model.norm.weight[3] = float("nan")
    with pytest.raises(SelfTestFailed, match="not finite"):
        self_test(tiny_policy)


def test_an_empty_output_matrix_fails(tiny_policy: LoadedPolicy) -> None:
    with torch.no_grad():
        tiny_policy.model.language_model.lm_head.weight.zero_()
    with pytest.raises(SelfTestFailed, match="are equal"):
        self_test(tiny_policy)


def test_the_self_test_does_not_change_the_next_decode(tiny_policy: LoadedPolicy) -> None:
    state = {name: tensor.clone() for name, tensor in tiny_policy.model.state_dict().items()}
    self_test(tiny_policy)
    for name, tensor in tiny_policy.model.state_dict().items():
        torch.testing.assert_close(tensor, state[name], rtol=0, atol=0)
