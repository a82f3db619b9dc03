from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from vla_sd_ros.actions.statistics import ActionStatistics, UnknownStatisticsKey, load_statistics

LOW = [-0.03, -0.02, -0.025, -0.1, -0.12, -0.2, 0.0]
HIGH = [0.03, 0.04, 0.02, 0.11, 0.1, 0.2, 1.0]
MASK = [True] * 6 + [False]


def entry(**changes: Any) -> dict[str, Any]:
    return {"action": {"q01": LOW, "q99": HIGH, "mask": MASK, **changes}, "num_transitions": 3}


@pytest.fixture
def statistics() -> ActionStatistics:
    return load_statistics({"libero_goal": entry()}, None)


bounded = npst.arrays(np.float64, (4, 7), elements=st.floats(0.0, 1.0)).map(
    lambda share: np.asarray(LOW) + share * (np.asarray(HIGH) - np.asarray(LOW))
)


@given(bounded)
def test_an_action_inside_the_quantiles_survives_the_round_trip(action: np.ndarray) -> None:
    statistics = load_statistics({"libero_goal": entry()}, "libero_goal")
    assert statistics.unnormalise(statistics.normalise(action)) == pytest.approx(action, abs=1e-12)


@given(npst.arrays(np.float64, (7,), elements=st.floats(-1e6, 1e6)))
def test_a_normalised_action_keeps_the_unit_range_whatever_the_action(action: np.ndarray) -> None:
    normalised = load_statistics({"libero_goal": entry()}, None).normalise(action)
    assert (np.abs(normalised[:6]) <= 1.0).all()
    assert normalised[6] == action[6]


def test_the_unit_range_spans_the_quantiles(statistics: ActionStatistics) -> None:
    assert statistics.unnormalise([-1.0] * 6 + [0.0]) == pytest.approx(LOW)
    assert statistics.unnormalise([1.0] * 7) == pytest.approx(HIGH)


def test_the_mask_leaves_the_gripper_as_it_is(statistics: ActionStatistics) -> None:
    assert statistics.unnormalise([0.0] * 6 + [0.37])[6] == 0.37
    assert statistics.normalise([0.0] * 6 + [0.37])[6] == 0.37


def test_without_a_mask_every_value_is_normalised_as_openvla_does() -> None:
    unmasked = entry()
    del unmasked["action"]["mask"]
    statistics = load_statistics({"old": unmasked}, "old")
    assert statistics.mask.all()
    assert statistics.unnormalise([0.0] * 7)[6] == pytest.approx(0.5)


def test_an_unknown_key_is_refused_with_the_keys_there_are() -> None:
    with pytest.raises(UnknownStatisticsKey, match=r"'bridge'.*'libero_goal', 'libero_object'"):
        load_statistics({"libero_object": entry(), "libero_goal": entry()}, "bridge")


def test_no_key_is_refused_where_there_are_several() -> None:
    with pytest.raises(UnknownStatisticsKey, match=r"several.*'libero_goal', 'libero_object'"):
        load_statistics({"libero_object": entry(), "libero_goal": entry()}, None)


def test_no_key_is_refused_where_there_are_no_statistics() -> None:
    with pytest.raises(UnknownStatisticsKey, match="holds none"):
        load_statistics({}, None)


def test_a_file_is_read_like_its_content(tmp_path: Path, statistics: ActionStatistics) -> None:
    path = tmp_path / "dataset_statistics.json"
    path.write_text(json.dumps({"libero_goal": entry()}))
    assert load_statistics(path, None).q99.tolist() == statistics.q99.tolist()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"q01": LOW[:6]}, "q01"),
        ({"q99": [*HIGH, 1.0]}, "q99"),
        ({"mask": MASK[:6]}, "mask"),
        ({"q01": [float("nan"), *LOW[1:]]}, "q01"),
        ({"q99": [float("inf"), *HIGH[1:]]}, "q99"),
        ({"q99": [LOW[0], *HIGH[1:]]}, r"\[0\]"),
        ({"q01": None}, "'broken'"),
        ({"q01": ["a"] * 7}, "'broken'"),
        ({"mask": ["yes"] * 7}, "'broken'"),
    ],
)
def test_malformed_statistics_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        load_statistics({"broken": entry(**changes)}, "broken")


@pytest.mark.parametrize("content", [{"broken": {}}, {"broken": []}, {"broken": {"action": {"q01": LOW}}}])
def test_missing_statistics_are_refused_by_name(content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="'broken'"):
        load_statistics(content, None)


def test_equal_quantiles_are_legal_where_the_mask_is_false() -> None:
    still = entry(q01=[*LOW[:6], 1.0])
    assert load_statistics({"still": still}, None).unnormalise([0.0] * 7)[6] == 0.0


@pytest.mark.parametrize("action", [[0.0] * 6, [0.0] * 8, 0.0, [float("nan")] + [0.0] * 6])
def test_a_wrong_action_is_refused_both_ways(statistics: ActionStatistics, action: Any) -> None:
    for way in (statistics.normalise, statistics.unnormalise):
        with pytest.raises(ValueError, match="action"):
            way(action)
