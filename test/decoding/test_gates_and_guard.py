"""Gates judge by what there is to judge by, and never in favour of what is unknown."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from decoder_parts import neighbour

from vla_sd_ros.actions.bins import ActionBins
from vla_sd_ros.decoding.config import GuardConfig
from vla_sd_ros.decoding.gate import AcceptanceGate, FusedMetricGate, always
from vla_sd_ros.decoding.guard import is_near_contact
from vla_sd_ros.decoding.memory import EpisodeMemory
from vla_sd_ros.kinematics.fused_metric import FusedMetric, MetricRanges

BINS = ActionBins(400)
METRIC = FusedMetric(
    "curvature", 15, 0.5, ranges=MetricRanges(radius_m=(0.0, 1.0), path_length_m=(0.0, 0.2))
)  # a fast straight way scores 1, rest 0
NOTHING: Any = SimpleNamespace(neighbours=())


def moved(step_m: float, steps: int = 15) -> EpisodeMemory:
    memory = EpisodeMemory()
    for step in range(steps):
        memory.positions.add(step + 1, (step * step_m, 0.0, 0.2))
    return memory


def action(is_open: bool) -> np.ndarray:
    gripper = int(BINS.ids_from_normalised(1.0 if is_open else 0.0))
    return np.array([BINS.first_id + 128] * 6 + [gripper], dtype=np.int64)


def test_a_fast_straight_way_is_confident_and_rest_is_not() -> None:
    gate = FusedMetricGate(METRIC, 0.5)
    assert gate(moved(0.015), NOTHING).confident
    assert not gate(moved(0.0), NOTHING).confident


def test_too_short_a_history_is_not_confident_and_has_no_score() -> None:
    verdict = FusedMetricGate(METRIC, 0.0)(moved(0.015, steps=2), NOTHING)
    assert not verdict.confident
    assert math.isnan(verdict.score)


def test_without_demonstrations_the_calibrated_gate_is_not_confident() -> None:
    verdict = AcceptanceGate(lambda *_: 1.0, 0.5)(EpisodeMemory(), NOTHING)
    assert not verdict.confident
    found: Any = SimpleNamespace(neighbours=(neighbour(action(True)),))
    assert AcceptanceGate(lambda *_: 1.0, 0.5)(EpisodeMemory(), found).confident
    assert always(EpisodeMemory(), NOTHING).confident


@pytest.mark.parametrize(("steps", "near"), [(0, True), (4, True), (5, False)])
def test_so_many_steps_after_a_gripper_change_the_arm_is_near_contact(steps: int, near: bool) -> None:
    memory = EpisodeMemory()
    for is_open in (True, False, *[False] * steps):
        memory.finish(action(is_open), BINS)
    assert is_near_contact(GuardConfig(contact_steps=5), memory) == near


def test_without_a_change_without_a_demonstration_and_without_a_guard_nothing_is_near() -> None:
    memory = EpisodeMemory()
    memory.finish(action(True), BINS)
    assert not is_near_contact(GuardConfig(contact_steps=5, contact_travel_m=0.1), memory)
    memory.anchor = neighbour(action(True), steps_to_gripper_change=0)
    assert not is_near_contact(GuardConfig(), memory)
    assert is_near_contact(GuardConfig(contact_steps=1), memory)
