from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from vla_sd_ros.decoding.interface import DecodeCounts, DecodedAction
from vla_sd_ros.decoding.stage_times import STAGES, StageTimes, Stopwatch


def test_a_stage_entered_twice_adds_up_and_the_total_covers_all() -> None:
    watch = Stopwatch(torch.device("cpu"))
    for _ in range(2):
        with watch.stage("vision"):
            time.sleep(0.002)
    with watch.stage("decode"):
        time.sleep(0.001)
    times = watch.read()
    assert times.vision_ms >= 4 and times.decode_ms >= 1 and times.search_ms == 0
    assert times.total_ms >= sum(getattr(times, f"{stage}_ms") for stage in STAGES)


def test_an_unknown_stage_is_refused_with_the_stages_there_are() -> None:
    with (
        pytest.raises(ValueError, match=r"'thinking'; legal: preprocess, vision"),
        Stopwatch(torch.device("cpu")).stage("thinking"),
    ):
        pass


def test_a_stage_that_raises_is_not_counted_and_the_error_passes() -> None:
    watch = Stopwatch(torch.device("cpu"))
    with pytest.raises(KeyError), watch.stage("vision"):
        raise KeyError("x")
    assert watch.read().vision_ms == 0


def test_the_acceptance_length_counts_verified_passes_only() -> None:
    assert DecodeCounts(forward_passes=9, verified_passes=2, accepted_tokens=7).acceptance_length == 3.5
    assert np.isnan(DecodeCounts(forward_passes=7).acceptance_length)


@pytest.mark.parametrize(
    ("tokens", "values", "named"),
    [
        (np.zeros(8, np.int64), np.zeros(7), r"tokens: int64 \(8,\)"),
        (np.zeros(7, np.int32), np.zeros(7), "tokens: int32"),
        (np.zeros(7, np.int64), np.zeros(6), r"values: float64 \(6,\)"),
        (np.zeros(7, np.int64), np.zeros(7, np.float32), "values: float32"),
        (np.zeros(7, np.int64), np.array([0.0, np.nan, 0, 0, 0, 0, 0]), "not finite"),
    ],
)
def test_an_action_of_a_wrong_shape_type_or_value_cannot_be_made(
    tokens: np.ndarray, values: np.ndarray, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        DecodedAction(tokens, values, "ar", StageTimes(), DecodeCounts(forward_passes=7))
