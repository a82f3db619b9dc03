from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.drafting.tree_growth import Candidates, build_tree, grow, rerank
from vla_sd_ros.verification.draft_tree import DraftTree

VOCABULARY = 9


class RandomScorer:
    """Scores that hang on the path alone; remembers the path of every beam row, as a drafter's cache does."""

    def __init__(self, seed: int, top_k: int, sharpness: float) -> None:
        self.seed, self.top_k, self.sharpness = seed, top_k, sharpness
        self.paths: list[tuple[int, ...]] = [()]

    def scores(self, path: tuple[int, ...]) -> np.ndarray:
        logits = np.random.default_rng([self.seed, *path]).normal(size=VOCABULARY) * self.sharpness
        return logits - np.log(np.exp(logits).sum())

    def children(self) -> tuple[np.ndarray, np.ndarray]:
        scores = np.stack([self.scores(path) for path in self.paths])
        tokens = np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k].astype(np.int64)
        return tokens, np.take_along_axis(scores, tokens, 1)

    def first(self) -> tuple[np.ndarray, np.ndarray]:
        tokens, scores = self.children()
        return tokens[0], scores[0]

    def extend(self, tokens: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.paths = [(*self.paths[row], token) for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)]
        return self.children()


def path_tokens(tree: DraftTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[tree.path(node)].tolist())


growths = st.tuples(
    st.integers(0, 2**31),
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from([0.0, 0.3, 2.0, 8.0]),
    st.integers(1, 40),
)


def grown(seed: int, top_k: int, depth: int, sharpness: float) -> tuple[RandomScorer, Candidates]:
    scorer = RandomScorer(seed, top_k, sharpness)
    return scorer, grow(scorer.first(), scorer.extend, depth, top_k)


@given(growths)
def test_parents_come_before_their_children_and_are_at_least_as_likely(growth: tuple) -> None:
    _, nodes = grown(*growth[:4])
    for node, parent in enumerate(nodes.parents.tolist()):
        assert -1 <= parent < node
        assert nodes.scores[node] <= (nodes.scores[parent] if parent >= 0 else 0.0)


@given(growths)
def test_every_nodes_score_is_that_of_its_path(growth: tuple) -> None:
    scorer, nodes = grown(*growth[:4])
    tree = build_tree(nodes, len(nodes.tokens), "test")
    for node in range(len(tree)):
        path = path_tokens(tree, node)
        expected = sum(scorer.scores(path[:i])[token] for i, token in enumerate(path))
        assert nodes.scores[node] == pytest.approx(expected)


@given(growths)
def test_what_is_kept_is_closed_under_parents_and_within_its_size(growth: tuple) -> None:
    _, nodes = grown(*growth[:4])
    kept = rerank(nodes, growth[4])
    assert len(kept) == min(len(nodes.tokens), growth[4])
    assert len(set(kept.tolist())) == len(kept)
    assert all(nodes.parents[node] in {-1, *kept.tolist()} for node in kept)
    tree = build_tree(nodes, growth[4], "test")
    assert len(tree) == len(kept)
    assert set(tree.sources) == {"test"}
    assert tree.depths.max() < growth[2]


@given(growths)
def test_the_greedy_chain_is_always_inside(growth: tuple) -> None:
    seed, top_k, depth, sharpness, total = growth
    scorer, nodes = grown(seed, top_k, depth, sharpness)
    chain: tuple[int, ...] = ()
    for _ in range(min(depth, total)):
        chain = (*chain, int(np.argsort(-scorer.scores(chain), kind="stable")[0]))
    tree = build_tree(nodes, total, "test")
    assert chain in {path_tokens(tree, node) for node in range(len(tree))}


@given(growths)
def test_siblings_differ(growth: tuple) -> None:
    _, nodes = grown(*growth[:4])
    tree = build_tree(nodes, growth[4], "test")
    for node in range(-1, len(tree)):
        tokens = tree.tokens[tree.children(node)].tolist()
        assert len(set(tokens)) == len(tokens)


def test_of_the_nodes_beside_the_chain_the_likeliest_stay() -> None:
    _, nodes = grown(seed=1, top_k=3, depth=3, sharpness=2.0)
    kept = rerank(nodes, 6)
    beside = set(kept.tolist()) - set(nodes.greedy)
    left_out = set(range(len(nodes.tokens))) - set(kept.tolist())
    assert len(beside) == 3
    assert min(nodes.scores[list(beside)]) >= max(nodes.scores[list(left_out)])


def test_a_score_that_is_no_log_probability_is_refused() -> None:
    scorer = RandomScorer(0, 2, 1.0)
    tokens = np.array([1, 2], dtype=np.int64)
    for bad in (np.nan, 0.5):
        with pytest.raises(ValueError, match="log probabilities"):
            grow((tokens, np.array([bad, -1.0])), scorer.extend, 3, 2)
