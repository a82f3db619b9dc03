from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.drafting.learned import LearnedDrafter
from vla_sd_ros.drafting.learned_checkpoint import DrafterError, load_drafter, save_drafter
from vla_sd_ros.drafting.learned_config import DrafterNetworkConfig, DraftingContext, LearnedDraftConfig
from vla_sd_ros.drafting.learned_network import DrafterNetwork, initialise_drafter
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.verification.draft_tree import DraftTree

CHAIN = LearnedDraftConfig(top_k=1, total_nodes=7)
TREE = LearnedDraftConfig(top_k=3, total_nodes=20)


def random_network(policy: LoadedPolicy, context: DraftingContext = "tail", seed: int = 0) -> DrafterNetwork:
    """A drafter whose guesses hang on all that it sees."""
    network = DrafterNetwork(DrafterNetworkConfig.of_policy(policy.config, context))
    initialise_drafter(network, seed)
    generator = torch.Generator().manual_seed(seed)
    width = network.config.width
    for parameter in network.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=width**-0.5, generator=generator)
    return network


def inputs(policy: LoadedPolicy, known: int, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    hidden = torch.from_numpy(rng.normal(size=(known, policy.config.llama.width)).astype(np.float32))
    return hidden, rng.integers(policy.config.first_action_id, policy.config.vocabulary_size, known)


def prefix_of(policy: LoadedPolicy, hidden: torch.Tensor, length: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(length, policy.config.llama.width, generator=generator)
    states[-1] = hidden[0]
    return {
        "prefix_hidden": states,
        "prefix_embeddings": torch.randn(length, policy.config.llama.width, generator=generator),
    }


def as_nodes(tree: DraftTree | None) -> tuple[list[int], list[int]]:
    assert tree is not None
    return tree.tokens.tolist(), tree.parents.tolist()


@torch.no_grad()
def greedy_by_hand(
    network: DrafterNetwork, policy: LoadedPolicy, hidden: torch.Tensor, tokens: np.ndarray, steps: int
) -> list[int]:
    """The chain without a cache of the rows: everything is computed anew for each token."""
    model, guesses = policy.model, []
    states, ids = hidden, torch.from_numpy(tokens)
    for _ in range(steps):
        rows = len(ids)
        cache = KeyValueCache(1, network.config.heads, 16, network.config.llama.head_width)
        fused = network.fuse(model.language_model.embed_tokens(ids)[None], states[None])
        mask = torch.ones(rows, rows, dtype=torch.bool).tril()
        state = network(fused, 0, mask, cache, 0)[0, -1:]
        token = model.action_logits(state).argmax(-1) + policy.config.first_action_id
        guesses.append(int(token))
        states, ids = torch.cat([states, state]), torch.cat([ids, token])
    return guesses


@pytest.mark.parametrize("known", [1, 2, 4])
def test_a_chain_is_the_networks_own_greedy_continuation(tiny_policy: LoadedPolicy, known: int) -> None:
    hidden, tokens = inputs(tiny_policy, known)
    expected = greedy_by_hand(random_network(tiny_policy), tiny_policy, hidden, tokens, N_DOF - known)
    drafter = LearnedDrafter(random_network(tiny_policy), tiny_policy)
    found = drafter.draft(hidden, tokens, CHAIN, depth=N_DOF)
    assert as_nodes(found) == (expected, list(range(-1, len(expected) - 1)))
    assert len(set(expected)) > 1, "the guesses must differ for this test to mean anything"


@pytest.mark.parametrize("context", ["tail", "prefix"])
def test_every_path_of_a_tree_is_scored_as_if_it_were_alone(
    tiny_policy: LoadedPolicy, context: DraftingContext
) -> None:
    drafter = LearnedDrafter(random_network(tiny_policy, context), tiny_policy)
    hidden, tokens = inputs(tiny_policy, 2)
    prefix = prefix_of(tiny_policy, hidden, 9) if context == "prefix" else {}
    whole = LearnedDraftConfig(top_k=3, total_nodes=100)
    tree = drafter.draft(hidden, tokens, whole, depth=3, **prefix)
    chain = drafter.draft(hidden, tokens, CHAIN, depth=3, **prefix)
    assert tree is not None
    paths = {tuple(tree.tokens[tree.path(node)].tolist()) for node in tree.leaves()}
    assert tuple(as_nodes(chain)[0]) in paths
    assert len(tree) == 3 + 9 + 9


def test_the_prefix_matters_to_a_drafter_that_sees_it(tiny_policy: LoadedPolicy) -> None:
    drafter = LearnedDrafter(random_network(tiny_policy, "prefix"), tiny_policy)
    hidden, tokens = inputs(tiny_policy, 1)
    drafts = {
        tuple(as_nodes(drafter.draft(hidden, tokens, CHAIN, **prefix_of(tiny_policy, hidden, 12, seed)))[0])
        for seed in range(4)
    }
    assert len(drafts) > 1
    with pytest.raises(ValueError, match="prefix_hidden and prefix_embeddings"):
        drafter.draft(hidden, tokens, CHAIN)


def test_calls_leave_nothing_behind(tiny_policy: LoadedPolicy) -> None:
    cases = [(inputs(tiny_policy, known, seed=known), shape) for known in (1, 3, 5) for shape in (CHAIN, TREE)]
    alone = [
        as_nodes(LearnedDrafter(random_network(tiny_policy), tiny_policy).draft(*given, shape))
        for given, shape in cases
    ]
    drafter = LearnedDrafter(random_network(tiny_policy), tiny_policy)
    for _ in range(2):
        assert [as_nodes(drafter.draft(*given, shape)) for given, shape in cases] == alone
    reversed_order = [as_nodes(drafter.draft(*given, shape)) for given, shape in reversed(cases)]
    assert reversed_order[::-1] == alone


@pytest.mark.parametrize("known", range(1, N_DOF + 1))
def test_the_depth_is_what_remains_without_the_last_token(tiny_policy: LoadedPolicy, known: int) -> None:
    drafter = LearnedDrafter(random_network(tiny_policy), tiny_policy)
    hidden, tokens = inputs(tiny_policy, known)
    left = N_DOF - known
    for depth, expected in ((None, max(0, left - 1)), (N_DOF, left), (1, min(1, left)), (0, 0)):
        tree = drafter.draft(hidden, tokens, TREE, depth=depth)
        assert (0 if tree is None else int(tree.depths.max()) + 1) == expected


def test_guesses_are_action_ids_of_this_drafter(tiny_policy: LoadedPolicy) -> None:
    tree = LearnedDrafter(random_network(tiny_policy), tiny_policy, TREE).draft(*inputs(tiny_policy, 1))
    assert tree is not None
    assert len(tree) == TREE.total_nodes
    assert set(tree.sources) == {"learned"}
    tiny_policy.bins.bin_of(tree.tokens)


def test_a_policy_in_bfloat16_drafts_the_likes(tiny_config: PolicyConfig) -> None:
    policy = random_policy(tiny_config, torch.bfloat16)
    tree = LearnedDrafter(random_network(policy), policy, TREE).draft(*inputs(policy, 2))
    assert tree is not None
    assert len(tree) == TREE.total_nodes


def test_states_that_are_not_finite_are_refused_and_forgotten(tiny_policy: LoadedPolicy) -> None:
    drafter = LearnedDrafter(random_network(tiny_policy), tiny_policy)
    hidden, tokens = inputs(tiny_policy, 3)
    before = as_nodes(drafter.draft(hidden, tokens, TREE))
    broken = hidden.clone()
    broken[1, 3] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        drafter.draft(broken, tokens, TREE)
    assert as_nodes(drafter.draft(hidden, tokens, TREE)) == before


def test_inputs_that_do_not_fit_are_refused(tiny_policy: LoadedPolicy) -> None:
    drafter = LearnedDrafter(random_network(tiny_policy), tiny_policy)
    hidden, tokens = inputs(tiny_policy, 2)
    with pytest.raises(ValueError, match=r"hidden: \(1, 64\); legal: \(2, 64\)"):
        drafter.draft(hidden[:1], tokens)
    with pytest.raises(ValueError, match="not action ids"):
        drafter.draft(hidden, tokens - tiny_policy.config.vocabulary_size)
    with pytest.raises(ValueError, match="tokens"):
        drafter.draft(hidden[:0], tokens[:0])


@pytest.mark.parametrize("context", ["tail", "prefix"])
def test_a_saved_drafter_drafts_as_before(tiny_policy: LoadedPolicy, tmp_path: Path, context: DraftingContext) -> None:
    network = random_network(tiny_policy, context)
    halved = {name: tensor.half().float() for name, tensor in network.state_dict().items()}
    network.load_state_dict(halved)
    save_drafter(tmp_path / "drafter", network, tiny_policy.fingerprint, {"frames": 3})
    hidden, tokens = inputs(tiny_policy, 2)
    prefix = prefix_of(tiny_policy, hidden, 9) if context == "prefix" else {}
    loaded = load_drafter(tmp_path / "drafter", tiny_policy)
    expected = LearnedDrafter(network, tiny_policy).draft(hidden, tokens, TREE, **prefix)
    assert as_nodes(loaded.draft(hidden, tokens, TREE, **prefix)) == as_nodes(expected)
    assert sorted(path.name for path in (tmp_path / "drafter").iterdir()) == ["config.json", "model.safetensors"]


def test_another_policys_drafter_is_refused_with_both_fingerprints(
    tiny_policy: LoadedPolicy, tiny_config: PolicyConfig, tmp_path: Path
) -> None:
    save_drafter(tmp_path, random_network(tiny_policy), tiny_policy.fingerprint, {})
    other = random_policy(tiny_config, seed=1)
    with pytest.raises(DrafterError, match=f"{tiny_policy.fingerprint}.*{other.fingerprint}"):
        load_drafter(tmp_path, other)


def test_a_damaged_folder_is_refused_by_name(tiny_policy: LoadedPolicy, tmp_path: Path) -> None:
    with pytest.raises(DrafterError, match=r"lacks model.safetensors.*train drafter"):
        load_drafter(tmp_path, tiny_policy)
    save_drafter(tmp_path, random_network(tiny_policy), tiny_policy.fingerprint, {})
    header = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**header, "format_version": 2}))
    with pytest.raises(DrafterError, match="format_version"):
        load_drafter(tmp_path, tiny_policy)
    (tmp_path / "config.json").write_text(json.dumps(header))
    weights = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(DrafterError, match=r"model.safetensors is not the file"):
        load_drafter(tmp_path, tiny_policy)


def test_weights_that_are_not_finite_are_not_written(tiny_policy: LoadedPolicy, tmp_path: Path) -> None:
    network = random_network(tiny_policy)
    network.places.data[0, 0] = float("inf")
    with pytest.raises(DrafterError, match="places is not finite"):
        save_drafter(tmp_path / "drafter", network, tiny_policy.fingerprint, {})
    assert not (tmp_path / "drafter").exists()
