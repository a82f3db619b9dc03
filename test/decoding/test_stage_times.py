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


class Mark:
    """A moment of a device that is 5 ms late."""

    clock_ms = 0.0
    waited = 0

    def __init__(self) -> None:
        self.at_ms = Mark.clock_ms + 5.0

    def synchronize(self) -> None:
        Mark.waited += 1

    def elapsed_time(self, other: Mark) -> float:
        return other.at_ms - self.at_ms


def test_on_a_device_stages_are_measured_by_its_clock_and_waited_for_once() -> None:
    Mark.clock_ms, Mark.waited = 0.0, 0
    watch = Stopwatch(torch.device("cpu"), mark=Mark)
    for name, lasts_ms in (("vision", 3.0), ("prefill", 4.0), ("vision", 1.0)):
        with watch.stage(name):
            Mark.clock_ms += lasts_ms
    assert Mark.waited == 0, "nothing waits at a seam"
    times = watch.read()
    assert (times.vision_ms, times.prefill_ms, Mark.waited) == (4.0, 4.0, 1)


def test_a_stage_of_a_device_that_raises_is_not_counted() -> None:
    watch = Stopwatch(torch.device("cpu"), mark=Mark)
    with pytest.raises(KeyError), watch.stage("vision"):
        raise KeyError("x")
    assert watch.read().vision_ms == 0
