"""Gates: on which steps a decoder may be confident."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vla_sd_ros.decoding.memory import EpisodeMemory
from vla_sd_ros.decoding.perception import Perception
from vla_sd_ros.kinematics.fused_metric import FusedMetric


@dataclass(frozen=True)
class GateVerdict:
    """What a gate says.

    Attributes:
        confident: whether the step may be decoded with confidence.
        score: what was compared with the threshold; not a number where there was nothing to judge by.
    """

    confident: bool
    score: float


Gate = Callable[[EpisodeMemory, Perception], GateVerdict]


def always(memory: EpisodeMemory, perception: Perception) -> GateVerdict:
    """Confident on every step."""
    return GateVerdict(True, math.nan)


class FusedMetricGate:
    """HeiSD's boundary: fast and straight is confident, slow, curved or unknown is not.

    Args:
        metric: F.
        threshold: confident above it.
    """

    def __init__(self, metric: FusedMetric, threshold: float) -> None:
        self._metric = metric
        self._threshold = threshold

    def __call__(self, memory: EpisodeMemory, perception: Perception) -> GateVerdict:
        """Judges by where the end effector was; the image is not looked at."""
        score = self._metric.value(memory.positions.positions())
        return GateVerdict(score > self._threshold, score)  # false where it is not a number


class AcceptanceGate:
    """Confident where a retrieved draft would probably be accepted.

    Args:
        probability: of the features below, calibrated on demonstrations.
        threshold: confident from here on.
    """

    def __init__(self, probability: Callable[[EpisodeMemory, Perception], float], threshold: float) -> None:
        self._probability = probability
        self._threshold = threshold

    def __call__(self, memory: EpisodeMemory, perception: Perception) -> GateVerdict:
        """Judges by the nearest demonstrations and the arm's motion."""
        if not perception.neighbours:
            return GateVerdict(False, math.nan)
        score = self._probability(memory, perception)
        return GateVerdict(score >= self._threshold, score)
