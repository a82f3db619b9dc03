"""The probability of acceptance."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.retrieval.acceptance_model import (
    FAR_STEPS,
    FEATURE_NAMES,
    AcceptanceModel,
    acceptance_features,
    area_under_curve,
    fit_acceptance_model,
)
from vla_sd_ros.retrieval.neighbour import Neighbour


def sample(seed: int = 0, count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Features of very different scales, and acceptance by a known law."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 5)) * [0.1, 2, 0.05, 1, 10] + [0.9, 3, 0.1, 2, 20]
    odds = 8 * (features[:, 0] - 0.9) - 0.7 * (features[:, 1] - 3) + 0.3
    return features, rng.random(count) < 1 / (1 + np.exp(-odds))


def a_neighbour(tokens: list[int], similarity: float = 0.9, steps: int = 3) -> Neighbour:
    ahead = np.tile(tokens, (7, 1))
    return Neighbour(similarity, np.array(tokens), ahead, np.zeros(3, np.float32), True, steps, 0, 0)


def test_the_fit_finds_the_law_behind_the_data() -> None:
    features, accepted = sample()
    model = fit_acceptance_model(features, accepted)
    weights = np.array(model.weights) / np.array(model.deviation)
    assert weights[0] == pytest.approx(8, rel=0.2)
    assert weights[1] == pytest.approx(-0.7, rel=0.2)
    probability = model.probability(features)
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
        inside = (probability >= low) & (probability < high)
        assert accepted[inside].mean() == pytest.approx(probability[inside].mean(), abs=0.05)


def test_a_model_knows_more_than_its_best_feature() -> None:
    features, accepted = sample()
    model = fit_acceptance_model(features, accepted)
    fresh, outcome = sample(seed=1)
    assert area_under_curve(model.probability(fresh), outcome) > area_under_curve(fresh[:, 0], outcome)


def test_a_feature_that_is_not_known_counts_as_its_mean() -> None:
    features, accepted = sample()
    features[::7, 3] = np.nan
    model = fit_acceptance_model(features, accepted)
    row = features[1].copy()
    row[3] = np.nan
    missing = model.probability(row)
    row[3] = model.mean[3]
    assert missing == pytest.approx(model.probability(row))


def test_separable_drafts_still_give_finite_weights() -> None:
    features, _ = sample(count=200)
    model = fit_acceptance_model(features, features[:, 0] > 0.9)
    assert np.isfinite([*model.weights, model.bias]).all()


def test_drafts_that_all_end_alike_are_refused() -> None:
    features, _ = sample(count=20)
    with pytest.raises(ValueError, match="at least one draft accepted"):
        fit_acceptance_model(features, np.ones(20, bool))
    with pytest.raises(ValueError, match="shape"):
        fit_acceptance_model(features[:, :4], np.arange(20) > 3)


def test_a_model_survives_json() -> None:
    model = fit_acceptance_model(*sample(count=100))
    assert AcceptanceModel.from_json(json.loads(json.dumps(model.to_json()))) == model
    with pytest.raises(ValueError, match="weights"):
        AcceptanceModel.from_json({**model.to_json(), "weights": [1.0]})


def test_features_say_how_much_the_demonstrations_agree() -> None:
    tokens = [31800] * 7
    same = acceptance_features([a_neighbour(tokens), a_neighbour(tokens)], 0.1, 2.0)
    apart = acceptance_features([a_neighbour(tokens), a_neighbour([31840] * 7, steps=99)], 0.1, 2.0)
    assert same.shape == (len(FEATURE_NAMES),)
    assert same[1] == 0 and apart[1] == pytest.approx(np.log(21))
    assert acceptance_features([a_neighbour(tokens, steps=99)], 0.1, 2.0)[4] == FAR_STEPS
    with pytest.raises(ValueError, match="neighbours"):
        acceptance_features([], 0.1, 2.0)


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2, max_size=30))
def test_the_area_is_the_share_of_pairs_in_the_right_order(pairs: list[tuple[int, bool]]) -> None:
    good = [score for score, label in pairs if label]
    bad = [score for score, label in pairs if not label]
    scores, labels = zip(*pairs, strict=True)
    if not good or not bad:
        with pytest.raises(ValueError, match="all the same"):
            area_under_curve(scores, labels)
        return
    expected = np.mean([(g > b) + 0.5 * (g == b) for g in good for b in bad])
    assert area_under_curve(scores, labels) == pytest.approx(expected)
