"""Each node of a verified tree gets what decoding its path alone gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from draft_trees import draft_trees
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.policy.runtime import prefill
from vla_sd_ros.verification.draft_tree import DraftTree, chain
from vla_sd_ros.verification.tree_forward import NonFiniteState, forward_tree, keep_path


@pytest.fixture(scope="module")
def policy(tiny_config: PolicyConfig) -> LoadedPolicy:
    return random_policy(tiny_config)


def prefix_of(policy: LoadedPolicy, seed: int) -> torch.Tensor:
    return torch.randn(1, 12, policy.config.llama.width, generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
def logits_along(policy: LoadedPolicy, prefix: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Logits [256] after the prefix and some tokens, computed without a tree or a cache."""
    embed = policy.model.language_model.embed_tokens
    sequence = torch.cat([prefix, embed(torch.tensor([tokens], dtype=torch.int64))], dim=1) if tokens else prefix
    return policy.model.action_logits(policy.model.language_model(sequence)[0, -1])


def drawn_tree(policy: LoadedPolicy, data: st.DataObject) -> DraftTree:
    return data.draw(draft_trees(policy.config.first_action_id))


@torch.inference_mode()
def check(policy: LoadedPolicy, prefix: torch.Tensor, tree: DraftTree, states: torch.Tensor, known: list[int]) -> None:
    found = policy.model.action_logits(states)
    torch.testing.assert_close(found[0], logits_along(policy, prefix, known), rtol=0, atol=1e-4)
    for node in range(len(tree)):
        path = [*known, *(int(tree.tokens[i]) for i in tree.path(node))]
        torch.testing.assert_close(found[node + 1], logits_along(policy, prefix, path), rtol=0, atol=1e-4)


@settings(max_examples=30)
@given(st.data(), st.integers(0, 2**20))
def test_a_tree_inside_the_prefill_gives_every_node_its_own_logits(
    policy: LoadedPolicy, data: st.DataObject, seed: int
) -> None:
    tree, prefix = drawn_tree(policy, data), prefix_of(policy, seed)
    with torch.inference_mode():
        forward = forward_tree(policy.model, policy.model.new_cache(32), prefix, 0, tree)
    check(policy, prefix, tree, forward.hidden, [])


@settings(max_examples=30)
@given(st.data(), st.integers(0, 2**20), st.integers(1, 3))
def test_a_tree_after_the_prefill_and_known_tokens_does_too(
    policy: LoadedPolicy, data: st.DataObject, seed: int, known: int
) -> None:
    prefix, first = prefix_of(policy, seed), policy.config.first_action_id
    tree = data.draw(draft_trees(first, max_depth=6 - known))
    tokens = [first + 7 * i for i in range(known)]
    cache = policy.model.new_cache(32)
    with torch.inference_mode():
        prefill(policy.model, cache, prefix)
        stem = policy.model.language_model.embed_tokens(torch.tensor([tokens]))
        forward = forward_tree(policy.model, cache, stem, prefix.shape[1], tree)
    check(policy, prefix, tree, forward.hidden, tokens)


@settings(max_examples=30)
@given(st.data(), st.integers(0, 2**20))
def test_what_follows_a_kept_path_is_as_if_no_other_node_had_been_there(
    policy: LoadedPolicy, data: st.DataObject, seed: int
) -> None:
    tree, prefix = drawn_tree(policy, data), prefix_of(policy, seed)
    path = tree.path(data.draw(st.integers(0, len(tree) - 1)))
    cache = policy.model.new_cache(32)
    with torch.inference_mode():
        forward = forward_tree(policy.model, cache, prefix, 0, tree)
        keep_path(cache, forward, path)
        token = policy.config.first_action_id + 3
        stem = policy.model.language_model.embed_tokens(torch.tensor([[token]]))
        after = forward_tree(policy.model, cache, stem, forward.first_slot + len(path), None)
    known = [*(int(tree.tokens[node]) for node in path), token]
    found = policy.model.action_logits(after.hidden[0])
    torch.testing.assert_close(found, logits_along(policy, prefix, known), rtol=0, atol=1e-4)


def test_targets_stand_at_the_place_of_the_node_not_after_it(policy: LoadedPolicy) -> None:
    prefix = prefix_of(policy, 1)
    tree = chain(np.arange(3) + policy.config.first_action_id, "test")
    with torch.inference_mode():
        forward = forward_tree(policy.model, policy.model.new_cache(32), prefix, 0, tree)
    np.testing.assert_array_equal(forward.targets(tree), forward.choices[:-1])


def test_numbers_that_are_not_finite_are_refused(policy: LoadedPolicy) -> None:
    prefix = prefix_of(policy, 1)
    prefix[0, 3, 0] = float("nan")
    with torch.inference_mode(), pytest.raises(NonFiniteState):
        forward_tree(policy.model, policy.model.new_cache(32), prefix, 0, None)
