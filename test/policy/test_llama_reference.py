from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache
from transformers import LlamaConfig as ReferenceConfig
from transformers import LlamaForCausalLM as Reference

from vla_sd_ros.policy.config import AttentionKernel, LlamaConfig
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.llama import Llama
from vla_sd_ros.policy.transformers_names import llama_from_transformers, llama_to_transformers

TOLERANCE = {"rtol": 0.0, "atol": 1e-4}
CONFIG = LlamaConfig(width=64, depth=3, heads=4, mlp_width=112, embedding_rows=90, norm_epsilon=1e-5, max_positions=64)


@pytest.fixture(scope="module")
def reference() -> Reference:
    torch.manual_seed(0)
    return Reference(
        ReferenceConfig(
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=112,
            vocab_size=90,
            rms_norm_eps=1e-5,
            max_position_embeddings=64,
            initializer_range=0.15,
            attn_implementation="eager",
            tie_word_embeddings=False,
        )
    ).eval()


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def ours(request: pytest.FixtureRequest, reference: Reference) -> Llama:
    kernel: AttentionKernel = request.param
    model = Llama(CONFIG, kernel)
    model.load_state_dict(llama_from_transformers(reference.state_dict()))
    return model.eval()


def new_cache(slots: int = 64) -> KeyValueCache:
    return KeyValueCache(CONFIG.depth, CONFIG.heads, slots, CONFIG.head_width)


def embeddings_of(length: int, batch: int = 1, seed: int = 1) -> torch.Tensor:
    return torch.randn(batch, length, 64, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_a_batch_without_cache_gives_the_references_logits(ours: Llama, reference: Reference) -> None:
    embeddings = embeddings_of(19, batch=3)
    expected = reference(inputs_embeds=embeddings).logits
    torch.testing.assert_close(ours.lm_head(ours(embeddings)), expected, **TOLERANCE)


@torch.no_grad()
def test_prefill_and_seven_steps_with_cache_give_the_references_logits(ours: Llama, reference: Reference) -> None:
    embeddings = embeddings_of(20)
    expected = reference(inputs_embeds=embeddings).logits
    cache = new_cache()
    found = [ours(embeddings[:, :13], cache=cache)]
    found += [ours(embeddings[:, i : i + 1], cache=cache, start=i) for i in range(13, 20)]
    torch.testing.assert_close(ours.lm_head(torch.cat(found, dim=1)), expected, **TOLERANCE)


@torch.no_grad()
def test_explicit_positions_and_a_mask_of_ones_own_give_the_references_logits(
    ours: Llama, reference: Reference
) -> None:
    """A draft tree: after a prefix of 9, two branches that do not see each other, positions by depth."""
    prefix, draft = embeddings_of(9), embeddings_of(5, seed=2)
    parents = [-1, 0, 0, 1, 2]
    sees = torch.zeros(5, 14, dtype=torch.bool)
    sees[:, :9] = True
    for node, parent in enumerate(parents):
        sees[node, 9 + node] = True
        while parent >= 0:
            sees[node, 9 + parent] = True
            parent = parents[parent]
    positions = torch.tensor([9, 10, 10, 11, 11])
    additive = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)
    reference_cache = DynamicCache(config=reference.config)
    reference(inputs_embeds=prefix, cache=reference_cache)
    expected = reference(
        inputs_embeds=draft,
        cache=reference_cache,
        position_ids=positions[None],
        attention_mask=additive[None, None],
    ).logits
    for mask in (sees, additive):
        cache = new_cache()
        ours(prefix, cache=cache)
        found = ours.lm_head(ours(draft, positions, mask, cache, start=9))
        torch.testing.assert_close(found, expected, **TOLERANCE)


@torch.no_grad()
@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_any_split_into_chunks_gives_the_same_states(lengths: list[int]) -> None:
    torch.manual_seed(3)
    model = Llama(CONFIG, "sdpa").eval()
    embeddings = embeddings_of(sum(lengths))
    whole, cache, start = model(embeddings), new_cache(), 0
    for length in lengths:
        chunk = model(embeddings[:, start : start + length], cache=cache, start=start)
        torch.testing.assert_close(chunk, whole[:, start : start + length], **TOLERANCE)
        start += length


@torch.no_grad()
@pytest.mark.parametrize("outputs", [1, 4, 12])
def test_asking_for_the_last_states_only_changes_none_of_them(ours: Llama, outputs: int) -> None:
    embeddings = embeddings_of(12)
    few_cache, all_cache = new_cache(), new_cache()
    few = ours(embeddings, cache=few_cache, outputs=outputs)
    torch.testing.assert_close(few, ours(embeddings, cache=all_cache)[:, -outputs:], **TOLERANCE)
    torch.testing.assert_close(few_cache.keys, all_cache.keys)


def test_the_cache_returns_the_slots_before_and_never_those_after() -> None:
    cache = KeyValueCache(layers=2, heads=3, max_slots=10, head_width=4)
    cache.keys.fill_(float("nan"))
    first, second = torch.randn(1, 3, 4, 4), torch.randn(1, 3, 2, 4)
    cache.update(1, 0, first, first)
    keys, values = cache.update(1, 4, second, -second)
    torch.testing.assert_close(keys, torch.cat([first, second], dim=2))
    torch.testing.assert_close(values, torch.cat([first, -second], dim=2))


def test_a_cache_that_is_cast_still_writes_what_it_returns() -> None:
    cache = KeyValueCache(layers=1, heads=1, max_slots=4, head_width=2).to(torch.bfloat16)
    keys, _ = cache.update(0, 0, torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2))
    assert keys.dtype == torch.bfloat16 and cache.keys.sum() == 6


@torch.no_grad()
def test_a_sequence_that_does_not_fit_is_refused(ours: Llama) -> None:
    with pytest.raises(ValueError, match="65 positions; legal: up to 64"):
        ours(embeddings_of(65))
    with pytest.raises(ValueError, match="9 positions; legal: up to 8"):
        ours(embeddings_of(2), cache=new_cache(slots=8), start=7)


def test_weights_go_to_transformers_names_and_back(ours: Llama, reference: Reference) -> None:
    theirs = llama_to_transformers(ours.state_dict())
    assert theirs.keys() == reference.state_dict().keys()
    for name, tensor in llama_from_transformers(theirs).items():
        torch.testing.assert_close(tensor, ours.state_dict()[name], rtol=0, atol=0)
