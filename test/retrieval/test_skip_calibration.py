"""Verify-skip: what is near enough."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_sd_ros.retrieval.skip_calibration import SkipCalibration, fit_skip_calibration, sequence_wise


def walks(seed: int = 0, episodes: int = 8, steps: int = 60, noise: float = 0.01) -> dict[str, Any]:
    """Episodes along a curve: frames that are near look, feel and act alike; a few episodes go astray."""
    rng = np.random.default_rng(seed)
    place = np.tile(np.linspace(0, 1, steps), episodes) + rng.normal(0, noise, episodes * steps)
    aside = np.repeat(rng.normal(0, 0.2, episodes) * (rng.random(episodes) < 0.4), steps)
    angles = np.stack([place * 3, aside * 3], axis=1)
    hidden = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return {
        "hidden": hidden,
        "positions": np.stack([place, aside, np.zeros_like(place)], axis=1),
        "keys": hidden / np.linalg.norm(hidden, axis=1, keepdims=True),
        "episodes": np.repeat(np.arange(episodes), steps),
        "tokens": np.stack([np.rint(400 * place), np.rint(400 * aside), *[np.zeros_like(place)] * 5], 1).astype(int),
    }


def test_what_the_rule_takes_is_acceptable_often_enough() -> None:
    fitted = fit_skip_calibration(**walks(), target_precision=0.9)
    assert fitted.coverage > 0.1
    assert fitted.precision >= 0.9
    assert fitted.floor <= fitted.min_similarity <= 1.0
    assert fitted.max_distance_m > 0


def test_a_stricter_target_takes_less() -> None:
    loose, strict = (fit_skip_calibration(**walks(), target_precision=p, floor=0.0) for p in (0.5, 0.99))
    assert strict.min_similarity >= loose.min_similarity
    assert strict.coverage <= loose.coverage


@settings(max_examples=50)
@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_nearer_frame_is_never_judged_worse(s1: float, s2: float, d1: float, d2: float) -> None:
    near, far = (max(s1, s2), min(d1, d2)), (min(s1, s2), max(d1, d2))
    assert FITTED.similarity(*near) >= FITTED.similarity(*far)
    assert FITTED.acceptance(*near) >= FITTED.acceptance(*far)
    assert FITTED.may_skip(*near) or not FITTED.may_skip(*far)


FITTED = fit_skip_calibration(**walks())


def test_drafts_that_are_never_acceptable_are_never_taken() -> None:
    data = walks()
    data["tokens"] = np.arange(len(data["tokens"]))[:, None] * 100 + np.zeros(7, int)
    fitted = fit_skip_calibration(**data)
    assert fitted.coverage == 0
    assert np.isnan(fitted.precision)
    assert fitted.max_distance_m == 0
    assert not fitted.may_skip(0.999, 0.001)


def test_episodes_move_the_bounds_but_not_below_the_floor() -> None:
    assert not FITTED.may_skip(1.0, FITTED.max_distance_m * 1.01)
    assert FITTED.may_skip(1.0, 0.0)
    assert not FITTED.may_skip(1.0, 0.0, max_distance_m=-1.0)
    assert not FITTED.may_skip(1.0, 0.0, min_similarity=1.1)
    assert not FITTED.may_skip(-1.0, 0.0, min_similarity=-1.0), "the floor holds"


def test_frames_of_other_tasks_are_no_neighbours() -> None:
    data = walks(episodes=2)
    with pytest.raises(ValueError, match="at least two episodes"):
        fit_skip_calibration(**data, tasks=data["episodes"])


def test_a_calibration_survives_json() -> None:
    for fitted in (FITTED, fit_skip_calibration(**walks(), accepts=lambda draft, target: np.zeros(len(draft), bool))):
        back = SkipCalibration.from_json(json.loads(json.dumps(fitted.to_json(), allow_nan=False)))
        assert back.to_json() == fitted.to_json()
    with pytest.raises(ValueError, match="floor"):
        SkipCalibration.from_json({key: value for key, value in FITTED.to_json().items() if key != "floor"})


def test_data_that_do_not_belong_together_are_refused() -> None:
    data = walks()
    with pytest.raises(ValueError, match="tokens"):
        fit_skip_calibration(**{**data, "tokens": data["tokens"][1:]})
    data["hidden"][3, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        fit_skip_calibration(**data)


@pytest.mark.parametrize(
    ("bias", "accepted"),
    [
        ((15, 15, 0, 0, 0, 0, 0), True),
        ((16, 0, 0, 0, 0, 0, 0), False),
        ((15, -15, 1, 0, 0, 0, 0), False),
        ((15, 15, 0, -15, 15, 0, 0), True),
        ((0, 0, 0, 11, 11, 11, 0), False),
        ((0, 0, 0, 0, 0, 0, 1), False),
    ],
)
def test_sequences_are_accepted_whole(bias: tuple[int, ...], accepted: bool) -> None:
    target = np.full((1, 7), 31800)
    assert sequence_wise(target + np.array([bias]), target).tolist() == [accepted]
