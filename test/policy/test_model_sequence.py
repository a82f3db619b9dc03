from __future__ import annotations

import pytest
import torch
from torch import nn

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.model import VisionLanguageActionModel, initialise, pack_for_cpu
from vla_sd_ros.policy.packed_linear import PackedLinear, pack_linears
from vla_sd_ros.policy.runtime import decode_one, extend, prefill

TOLERANCE = {"rtol": 0.0, "atol": 1e-4}


@pytest.fixture(scope="module")
def model(tiny_config: PolicyConfig) -> VisionLanguageActionModel:
    return initialise(VisionLanguageActionModel(tiny_config), seed=1, deviation=0.12)


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return torch.randn(3, 6, 28, 28, generator=torch.Generator().manual_seed(0))


def prompts(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    ids = torch.randint(2, 60, (batch, length), generator=torch.Generator().manual_seed(seed))
    ids[:, 0] = 1
    return ids


def actions(config: PolicyConfig, batch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(config.first_action_id, config.vocabulary_size, (batch, N_DOF), generator=generator)


@torch.no_grad()
def test_the_image_stands_after_bos_and_before_the_words(
    model: VisionLanguageActionModel, pixels: torch.Tensor
) -> None:
    ids = prompts(3, 9)
    prefix = model.embed_prefix(pixels, ids)
    words = model.language_model.embed_tokens(ids)
    patches = model.config.n_patches
    assert prefix.shape == (3, patches + 9, model.config.llama.width)
    torch.testing.assert_close(prefix[:, 0], words[:, 0])
    torch.testing.assert_close(prefix[:, 1 : 1 + patches], model.projector(model.patch_features(pixels)))
    torch.testing.assert_close(prefix[:, 1 + patches :], words[:, 1:])


@torch.no_grad()
def test_decoding_with_the_cache_gives_the_logits_of_training(
    model: VisionLanguageActionModel, pixels: torch.Tensor
) -> None:
    ids, wanted = prompts(1, 9), actions(model.config, 1)
    trained, _ = model.training_logits(pixels[:1], ids, wanted)
    cache = model.new_cache()
    prefix = model.embed_prefix(pixels[:1], ids)
    logits = [prefill(model, cache, prefix)]
    for step in range(N_DOF - 1):
        logits.append(decode_one(model, cache, wanted[:, step], prefix.shape[1] + step))
    torch.testing.assert_close(torch.stack(logits), trained[0], **TOLERANCE)


@torch.no_grad()
def test_a_draft_verified_in_the_prefill_gives_the_logits_of_training(
    model: VisionLanguageActionModel, pixels: torch.Tensor
) -> None:
    ids, wanted = prompts(1, 9), actions(model.config, 1)
    trained, _ = model.training_logits(pixels[:1], ids, wanted)
    prefix = model.embed_prefix(pixels[:1], ids)
    draft = model.language_model.embed_tokens(wanted[:, : N_DOF - 1])
    both = torch.cat([prefix, draft], dim=1)
    verified = extend(model, model.new_cache(), both, start=0, outputs=N_DOF)
    torch.testing.assert_close(verified, trained[0], **TOLERANCE)


@torch.no_grad()
def test_prompts_of_different_lengths_in_a_batch_do_not_see_their_padding(
    model: VisionLanguageActionModel, pixels: torch.Tensor
) -> None:
    lengths = torch.tensor([9, 6, 8])
    ids, wanted = prompts(3, 9), actions(model.config, 3)
    together, _ = model.training_logits(pixels, ids, wanted, lengths)
    for row, length in enumerate(lengths.tolist()):
        at = slice(row, row + 1)
        alone, _ = model.training_logits(pixels[at], ids[at, :length], wanted[at])
        torch.testing.assert_close(together[at], alone, **TOLERANCE)


def test_the_loss_reaches_every_weight_that_can_matter(model: VisionLanguageActionModel, pixels: torch.Tensor) -> None:
    wanted = actions(model.config, 3)
    logits, _ = model.training_logits(pixels, prompts(3, 9), wanted)
    assert logits.shape == (3, N_DOF, 256)
    targets = (wanted - model.config.first_action_id).flatten()
    nn.functional.cross_entropy(logits.flatten(0, 1), targets).backward()
    untouched = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    model.zero_grad()
    assert untouched == []


@torch.no_grad()
def test_a_token_does_not_depend_on_later_ones(model: VisionLanguageActionModel, pixels: torch.Tensor) -> None:
    ids, wanted = prompts(3, 9), actions(model.config, 3)
    other = wanted.clone()
    other[:, 3:] = model.config.first_action_id
    before, _ = model.training_logits(pixels, ids, wanted)
    after, _ = model.training_logits(pixels, ids, other)
    torch.testing.assert_close(before[:, :4], after[:, :4], **TOLERANCE)
    assert not torch.allclose(before[:, 4:], after[:, 4:], atol=1e-3)


@torch.no_grad()
def test_autocast_trains_near_single_precision(model: VisionLanguageActionModel, pixels: torch.Tensor) -> None:
    ids, wanted = prompts(3, 9), actions(model.config, 3)
    exact, _ = model.training_logits(pixels, ids, wanted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, _ = model.training_logits(pixels, ids, wanted)
    assert (cast.float() - exact).abs().max() < 0.1 * exact.std()


def test_the_same_seed_gives_the_same_weights(tiny_config: PolicyConfig) -> None:
    first, second, other = (initialise(VisionLanguageActionModel(tiny_config), seed) for seed in (3, 3, 4))
    weight = "language_model.layers.0.attention.qkv.weight"
    torch.testing.assert_close(first.state_dict()[weight], second.state_dict()[weight], rtol=0, atol=0)
    assert not torch.equal(first.state_dict()[weight], other.state_dict()[weight])


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.0)])
@pytest.mark.parametrize("rows", [1, 2, 7, 64])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_gives_the_layers_product(dtype: torch.dtype, tolerance: float, rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    for linear in (nn.Linear(64, 160, bias, dtype=dtype), nn.Linear(160, 64, bias, dtype=dtype)):
        inputs = torch.randn(1, rows, linear.in_features, dtype=dtype)
        packed = PackedLinear(linear)
        exact = nn.functional.linear(inputs.double(), linear.weight.double())
        exact = exact if linear.bias is None else exact + linear.bias.double()
        found = packed(inputs)
        assert found.dtype == dtype
        spacing = 2.0**-8 if dtype == torch.bfloat16 else 1e-6
        assert ((found - exact).abs() <= spacing * (exact.abs() + 1.0)).all()


@torch.no_grad()
def test_in_bfloat16_a_rows_result_does_not_depend_on_the_other_rows() -> None:
    torch.manual_seed(0)
    packed = PackedLinear(nn.Linear(256, 688, bias=False, dtype=torch.bfloat16))
    inputs = torch.randn(1, 7, 256, dtype=torch.bfloat16)
    one_by_one = torch.cat([packed(inputs[:, row : row + 1]) for row in range(7)], dim=1)
    torch.testing.assert_close(packed(inputs), one_by_one, rtol=0, atol=0)


def test_packed_weights_keep_their_state_and_refuse_to_be_cast() -> None:
    plain = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 8, bias=False))
    state = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    pack_linears(plain)
    assert plain.state_dict().keys() == state.keys()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(tensor, state[name], rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="load the policy anew"):
        plain.to(torch.bfloat16)


@torch.no_grad()
def test_packing_does_not_change_the_logits(tiny_config: PolicyConfig, pixels: torch.Tensor) -> None:
    plain = initialise(VisionLanguageActionModel(tiny_config), seed=1, deviation=0.12)
    ids, wanted = prompts(3, 9), actions(tiny_config, 3)
    before, _ = plain.training_logits(pixels, ids, wanted)
    after, _ = pack_for_cpu(plain).training_logits(pixels, ids, wanted)
    torch.testing.assert_close(after, before, **TOLERANCE)


@torch.no_grad()
def test_a_bfloat16_policy_scores_in_single_precision_near_the_exact_ones(
    tiny_config: PolicyConfig, tiny_policy: LoadedPolicy, pixels: torch.Tensor
) -> None:
    from vla_sd_ros.policy.random_policy import random_policy

    half = random_policy(tiny_config, torch.bfloat16).model
    ids = prompts(1, 9)
    exact = prefill(tiny_policy.model, tiny_policy.model.new_cache(), tiny_policy.model.embed_prefix(pixels[:1], ids))
    rounded = prefill(half, half.new_cache(), half.embed_prefix(pixels[:1].bfloat16(), ids))
    assert rounded.dtype == torch.float32
    assert (rounded - exact).abs().max() < 0.1 * exact.std()
