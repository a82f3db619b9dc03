"""The runtime of fixed shapes computes what the plain one does, whatever lies in the cache and in its buffers."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from counting_backend import Counting
from draft_trees import draft_trees
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.graphs.backend import PlainCalls
from vla_sd_ros.policy.graphs.buckets import bucket_for
from vla_sd_ros.policy.graphs.runtime import GraphRuntime, install
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.verification.draft_tree import DraftTree
from vla_sd_ros.verification.tree_forward import NonFiniteState, forward_tree, keep_path

TOLERANCE = {"rtol": 0.0, "atol": 1e-5}
EXTRA_SLOTS = 64


@pytest.fixture(scope="module")
def plain(tiny_config: PolicyConfig) -> VisionLanguageActionModel:
    torch.set_num_threads(1)
    return random_policy(tiny_config).model


@pytest.fixture(scope="module")
def graphed(tiny_config: PolicyConfig) -> VisionLanguageActionModel:
    model = random_policy(tiny_config).model
    install(model, GraphRuntime(model, Counting()))
    return model


def runtime_of(model: VisionLanguageActionModel) -> GraphRuntime:
    assert isinstance(model.runtime, GraphRuntime)
    return model.runtime


def rows_of(model: VisionLanguageActionModel, count: int, seed: int) -> torch.Tensor:
    width = model.config.llama.width
    return torch.randn(1, count, width, generator=torch.Generator().manual_seed(seed))


def random_mask(length: int, start: int, generator: torch.Generator) -> torch.Tensor:
    """Causal with holes; every query sees itself."""
    shown = torch.rand(length, start + length, generator=generator) < 0.7
    mask = shown & torch.ones_like(shown).tril(start)
    mask[torch.arange(length), start + torch.arange(length)] = True
    return mask


@settings(max_examples=60)
@given(st.data(), st.integers(0, 2**20))
@torch.inference_mode()
def test_any_forward_gives_the_states_of_the_plain_way(
    plain: VisionLanguageActionModel, graphed: VisionLanguageActionModel, data: st.DataObject, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = graphed.new_cache(EXTRA_SLOTS), plain.new_cache(EXTRA_SLOTS)
    # Whatever an earlier action left; finite, as everything that is not is cleared.
    ours.keys.normal_(0, 1e3, generator=generator)
    ours.values.normal_(0, 1e3, generator=generator)
    start = 0
    for _ in range(data.draw(st.integers(1, 3))):
        length = data.draw(st.sampled_from([1, 2, 7, 8, 9, 16, 33, 64, 65]))
        outputs = data.draw(st.one_of(st.none(), st.integers(1, length)))
        positions = mask = None
        if data.draw(st.booleans()):
            positions = torch.randint(0, 200, (length,), generator=generator)
            mask = random_mask(length, start, generator)
        embeddings = rows_of(plain, length, seed + start)
        wanted = plain.language_model(embeddings, positions, mask, theirs, start, outputs)
        found = graphed.language_model(embeddings, positions, mask, ours, start, outputs)
        torch.testing.assert_close(found, wanted, **TOLERANCE)
        start += length
    torch.testing.assert_close(ours.keys[..., :start, :], theirs.keys[..., :start, :], **TOLERANCE)
    torch.testing.assert_close(ours.values[..., :start, :], theirs.values[..., :start, :], **TOLERANCE)


@settings(max_examples=30)
@given(st.data(), st.integers(0, 2**20))
@torch.inference_mode()
def test_a_tree_and_what_follows_its_kept_path_are_those_of_the_plain_way(
    plain: VisionLanguageActionModel, graphed: VisionLanguageActionModel, data: st.DataObject, seed: int
) -> None:
    tree: DraftTree = data.draw(draft_trees(plain.config.first_action_id))
    path = tree.path(data.draw(st.integers(0, len(tree) - 1)))
    found = []
    for model in (plain, graphed):
        cache = model.new_cache(EXTRA_SLOTS)
        forward = forward_tree(model, cache, rows_of(model, 12, seed), 0, tree)
        keep_path(cache, forward, path)
        stem = model.language_model.embed_tokens.weight[40:41][None]
        after = forward_tree(model, cache, stem, forward.first_slot + len(path), tree)
        found.append(torch.cat([forward.hidden, after.hidden]))
    torch.testing.assert_close(found[1], found[0], **TOLERANCE)


@torch.inference_mode()
def test_an_input_that_is_not_finite_is_refused_and_leaves_nothing_behind(graphed: VisionLanguageActionModel) -> None:
    cache, prefix = graphed.new_cache(EXTRA_SLOTS), rows_of(graphed, 30, 1)
    clean = forward_tree(graphed, cache, prefix[:, :10], 0, None).hidden
    spoilt = prefix.clone()
    spoilt[0, 20] = float("nan")
    with pytest.raises(NonFiniteState):
        forward_tree(graphed, cache, spoilt, 0, None)
    assert torch.isfinite(cache.keys).all() and torch.isfinite(cache.values).all()
    torch.testing.assert_close(forward_tree(graphed, cache, prefix[:, :10], 0, None).hidden, clean)


@torch.inference_mode()
def test_rows_that_fill_a_bucket_up_are_zeros_and_so_is_the_spare_slot(graphed: VisionLanguageActionModel) -> None:
    cache = graphed.new_cache(EXTRA_SLOTS)
    cache.keys.fill_(1.0)
    graphed.language_model(rows_of(graphed, 7, 3), cache=cache)
    graphed.language_model(rows_of(graphed, 5, 4), cache=cache)
    assert not cache.keys[..., cache.max_slots, :].any() and not cache.values[..., cache.max_slots, :].any()


@torch.inference_mode()
def test_states_of_an_earlier_forward_stay_as_they_were(graphed: VisionLanguageActionModel) -> None:
    cache = graphed.new_cache(EXTRA_SLOTS)
    first = graphed.language_model(rows_of(graphed, 7, 3), cache=cache)
    copy = first.clone()
    graphed.language_model(rows_of(graphed, 7, 4), cache=cache)
    torch.testing.assert_close(first, copy, rtol=0, atol=0)


@torch.inference_mode()
def test_preparing_a_bucket_changes_nothing_that_the_cache_holds(graphed: VisionLanguageActionModel) -> None:
    cache = graphed.new_cache(EXTRA_SLOTS)
    graphed.language_model(rows_of(graphed, 20, 3), cache=cache)
    before = cache.keys[..., : cache.max_slots, :].clone()
    runtime_of(graphed).prepare(cache, nodes=20)
    torch.testing.assert_close(cache.keys[..., : cache.max_slots, :], before, rtol=0, atol=0)


@torch.inference_mode()
def test_a_cache_that_is_ready_prepares_nothing_later(graphed: VisionLanguageActionModel) -> None:
    runtime, config = runtime_of(graphed), graphed.config
    cache = graphed.new_cache(EXTRA_SLOTS, ready=True)
    prepared = runtime.language_model.prepared(cache)
    for prompt in (1, 9, 60, config.max_prompt_ids):
        prefix = rows_of(graphed, config.n_patches + prompt, prompt)
        for nodes in (0, 1, 6, 24, 57):
            graphed.language_model(prefix, cache=cache, outputs=nodes + 1 if nodes < prefix.shape[1] else None)
        graphed.language_model(prefix[:, :1], cache=cache, start=prefix.shape[1])
    assert runtime.language_model.prepared(cache) == prepared
    assert bucket_for(1, 1) in prepared


def test_a_model_of_few_positions_prepares_what_its_cache_can_hold(tiny_config: PolicyConfig) -> None:
    llama = tiny_config.llama.model_copy(update={"max_positions": 100})
    model = random_policy(tiny_config.model_copy(update={"llama": llama})).model
    install(model, GraphRuntime(model, PlainCalls()))
    cache = model.new_cache(EXTRA_SLOTS, ready=True)
    assert cache.max_slots == 100
    with torch.inference_mode():
        assert model.language_model(rows_of(model, 100, 1), cache=cache).shape[1] == 100


def test_what_was_prepared_for_a_cache_goes_with_it(graphed: VisionLanguageActionModel) -> None:
    runtime = runtime_of(graphed)
    cache = graphed.new_cache(EXTRA_SLOTS)
    with torch.inference_mode():
        graphed.language_model(rows_of(graphed, 7, 3), cache=cache)
    session = weakref.ref(runtime.language_model._session(cache))
    keys = weakref.ref(cache.keys)
    del cache
    gc.collect()
    assert session() is None and keys() is None


@torch.inference_mode()
def test_a_cache_that_was_moved_gets_new_steps(graphed: VisionLanguageActionModel) -> None:
    cache, rows = graphed.new_cache(EXTRA_SLOTS), rows_of(graphed, 7, 3)
    before = graphed.language_model(rows, cache=cache)
    cache.double().float()
    torch.testing.assert_close(graphed.language_model(rows, cache=cache), before)
    assert cache.keys[..., :7, :].any()


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["no spare slot", "additive mask"])
def test_what_the_runtime_does_not_know_goes_the_plain_way(
    kind: str, plain: VisionLanguageActionModel, graphed: VisionLanguageActionModel
) -> None:
    mask = None
    cache: KeyValueCache = plain.new_cache(EXTRA_SLOTS)
    if kind == "additive mask":
        cache = graphed.new_cache(EXTRA_SLOTS)
        mask = torch.zeros(5, 5)
    rows = rows_of(graphed, 5, 3)
    found = graphed.language_model(rows, mask=mask, cache=cache)
    wanted = plain.language_model(rows, mask=mask, cache=plain.new_cache(EXTRA_SLOTS))
    torch.testing.assert_close(found, wanted)
    assert not runtime_of(graphed).language_model.prepared(cache)


@torch.inference_mode()
def test_a_sequence_longer_than_the_cache_is_refused_as_ever(graphed: VisionLanguageActionModel) -> None:
    cache = graphed.new_cache()
    with pytest.raises(ValueError, match=f"legal: up to {cache.max_slots}"):
        graphed.language_model(rows_of(graphed, 1, 3), cache=cache, start=cache.max_slots)


@torch.inference_mode()
def test_towers_and_projector_give_what_they_gave_and_batches_go_the_plain_way(
    plain: VisionLanguageActionModel, graphed: VisionLanguageActionModel
) -> None:
    size = plain.config.image_size_px
    pixels = torch.randn(3, 6, size, size, generator=torch.Generator().manual_seed(0))
    ids = torch.full((3, 6), plain.config.bos_id)
    for count in (1, 3):
        found = graphed.embed_prefix(pixels[:count], ids[:count])
        torch.testing.assert_close(found, plain.embed_prefix(pixels[:count], ids[:count]))
    first = graphed.patch_features(pixels[:1])
    second = graphed.patch_features(pixels[1:2])
    assert not torch.equal(first, second), "the first must not have become the second"


def test_a_policy_is_prepared_once_for_vision_once_for_the_projector(tiny_policy: LoadedPolicy) -> None:
    backend = Counting()
    install(tiny_policy.model, GraphRuntime(tiny_policy.model, backend))
    assert backend.prepared == 2
    tiny_policy.warm_up()
    after = backend.prepared
    tiny_policy.warm_up()
    assert backend.prepared == after + (after - 2), "a cache of its own each time, nothing else"
