"""Whole actions: every decoder's trace replayed, the decoders in turn, within a time that is given."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from vla_sd_ros.bench.gpu.clock import MS_PER_S, Budget, Clock
from vla_sd_ros.bench.gpu.replay import Replay
from vla_sd_ros.bench.gpu.subject import Subject
from vla_sd_ros.bench.gpu.trace import Step, Trace, thin

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

#: Parts into which a trace is cut; the decoders take turns, so that a drift of the clock rate falls on all alike.
TURNS: Final = 4


@dataclass
class Played:
    """Milliseconds of a trace's steps, by pattern.

    Attributes:
        trace: what was replayed.
        times_ms: host's clock, one list per pattern.
        forwards: of the language model that were made.
        error: why the replay broke off; empty where it did not.
    """

    trace: Trace
    times_ms: dict[int, list[float]] = field(default_factory=dict)
    forwards: int = 0
    error: str = ""

    @property
    def replayed(self) -> int:
        """Steps that were timed."""
        return sum(map(len, self.times_ms.values()))

    def weighed(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Times, and how many of the trace's steps each stands for: 1, unless steps had to be left out."""
        counts = Counter(self.trace.order)
        times = [one for pattern in self.times_ms for one in self.times_ms[pattern]]
        weights = [counts[pattern] / len(one) for pattern, one in self.times_ms.items() for _ in one]
        return np.array(times), np.array(weights)

    @property
    def mean_ms(self) -> float:
        """Per action, patterns weighed by how often the trace has them; not a number where one is missing."""
        if self.error or set(self.times_ms) != set(self.trace.order):
            return math.nan
        times, weights = self.weighed()
        return float(np.average(times, weights=weights))

    def quantile_ms(self, share: float) -> float:
        """The time that this share of the trace's actions does not exceed; not a number where it broke off."""
        if math.isnan(self.mean_ms):
            return math.nan
        times, weights = self.weighed()
        order = np.argsort(times)
        reached = np.cumsum(weights[order]) / weights.sum()
        return float(times[order][min(len(times) - 1, int(np.searchsorted(reached, share - 1e-9)))])


def play_traces(
    subject: Subject,
    traces: Sequence[Trace],
    clock: Clock,
    budget: Budget,
    expected_ms: Callable[[Trace, Step], float],
) -> list[Played]:
    """Replays traces.

    Args:
        subject: what is measured.
        traces: of the decoders.
        clock: of the subject's device.
        budget: where not every step fits into what is left of it, all decoders lose the same share of each pattern.
        expected_ms: of a step, from the stages; where it is not a number every step is planned.

    Returns:
        One per trace, in order.
    """
    replays = [_replay(subject, trace) for trace in traces]
    played = [Played(trace) for trace in traces]
    _warm_up(replays, played, budget)
    planned_s = sum(expected_ms(trace, trace.patterns[index]) for trace in traces for index in trace.order) / MS_PER_S
    # A tenth is left for what the stages do not hold.
    share = min(1.0, 0.9 * budget.left_s / planned_s) if planned_s > 0.0 and math.isfinite(planned_s) else 1.0
    plans = [thin(trace.order, share, at_least=1) for trace in traces]
    for turn in range(TURNS):
        for replay, one, plan in zip(replays, played, plans, strict=True):
            part = plan[turn * len(plan) // TURNS : (turn + 1) * len(plan) // TURNS]
            _play(replay, one, part, clock, budget)
    return played


def _replay(subject: Subject, trace: Trace) -> Replay:
    return Replay(subject, trace.autoregressive, trace.looks_at_image, trace.learned)


def _warm_up(replays: Sequence[Replay], played: Sequence[Played], budget: Budget) -> None:
    """Every pattern once, so that no graph is captured and no kernel chosen inside what is timed."""
    for replay, one in zip(replays, played, strict=True):
        for step in one.trace.patterns:
            if budget.left_s > 0.0 and not one.error:
                _guarded(one, partial(replay.play, step))


def _play(replay: Replay, played: Played, patterns: Sequence[int], clock: Clock, budget: Budget) -> None:
    for pattern in patterns:
        step = played.trace.patterns[pattern]
        if played.error or (budget.left_s <= 0.0 and pattern in played.times_ms):
            continue  # past the deadline only what would be missing altogether
        took = _guarded(played, partial(clock.run, partial(replay.play, step)))
        if took is not None:
            played.times_ms.setdefault(pattern, []).append(took[0])
            played.forwards += len(step.forwards)


def _guarded(played: Played, work: Callable[[], Result]) -> Result | None:
    try:
        return work()
    except RuntimeError as error:
        played.error = f"{type(error).__name__}: {error}".splitlines()[0]
        logger.error("%s: %s", played.trace.decoder, played.error)
        return None


def speed_ups(played: Sequence[Played], reference: str = "ar") -> Mapping[str, float]:
    """Mean time of the reference over that of each decoder; empty where the reference was not replayed."""
    base = next((one.mean_ms for one in played if one.trace.decoder == reference), math.nan)
    return {} if math.isnan(base) else {one.trace.decoder: base / one.mean_ms for one in played}
