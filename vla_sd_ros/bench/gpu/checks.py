"""Do the figures fit together, and do they reach what is aimed at?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.bench.gpu.floors import AIM_RATIO, Floors
from vla_sd_ros.bench.gpu.stages import PREFILL_DRAFTS, VERIFIED_NODES, Row
from vla_sd_ros.bench.gpu.trace import Step, Trace


class StageSum:
    """What actions should take by the stages alone.

    Args:
        rows: of the stages; one that failed makes the sums that need it not a number.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._ms = medians(rows)

    def step_ms(self, trace: Trace, step: Step) -> float:
        """Of one step; verifications of other sizes lie between those that were measured."""
        ms = self._ms
        total = ms["skipped"] if step.skipped else 0.0
        if step.vision:
            total += ms["preprocess"] + ms["vision"]
        if step.searched:
            total += ms["search"]
        if step.skipped:
            return total
        total += ms["projector"]
        if trace.autoregressive:
            return total + ms["prefill"] + (N_DOF - 1) * ms["decode"]
        for number, forward in enumerate(step.forwards):
            total += self._prefill(forward.nodes) if number == 0 else self._verify(forward.nodes)
            if forward.learned and trace.learned is not None:
                total += ms[f"draft_{trace.learned.top_k}x{trace.learned.total_nodes}"]
        return total

    def mean_ms(self, trace: Trace) -> float:
        """Per action of a trace."""
        counts = Counter(trace.order)
        total = sum(count * self.step_ms(trace, trace.patterns[index]) for index, count in counts.items())
        return total / len(trace)

    def _prefill(self, nodes: int) -> float:
        measured = [self._ms["prefill"], *(self._ms[f"prefill_draft_{count}"] for count in PREFILL_DRAFTS)]
        return float(np.interp(nodes, (0, *PREFILL_DRAFTS), measured))

    def _verify(self, nodes: int) -> float:
        return float(np.interp(nodes, VERIFIED_NODES, [self._ms[f"verify_{count}"] for count in VERIFIED_NODES]))


def medians(rows: Sequence[Row]) -> Mapping[str, float]:
    """Median milliseconds by name; not a number where a row failed."""
    return {row.name: math.nan if row.timing is None else row.timing.median_ms for row in rows}


@dataclass(frozen=True)
class Aim:
    """Something that is aimed at.

    Attributes:
        name: what.
        measured_ms: median.
        limit_ms: not to be exceeded.
        basis: where the limit comes from.
    """

    name: str
    measured_ms: float
    limit_ms: float
    basis: str

    @property
    def passed(self) -> bool:
        """Whether it is reached; a figure that is missing reaches nothing."""
        return self.measured_ms <= self.limit_ms


def aims(rows: Sequence[Row], floors: Floors | None) -> list[Aim]:
    """What is aimed at; the first needs a floor."""
    ms = medians(rows)
    parts_ms = ms["vision"] + ms["prefill"]
    found = [
        Aim(
            "fully accepted action",
            ms["action_accepted"],
            AIM_RATIO * parts_ms,
            f"{AIM_RATIO} x vision + prefill, measured",
        )
    ]
    if floors is not None:
        limit_ms = AIM_RATIO * floors.autoregressive_ms
        found.insert(
            0, Aim("autoregressive action", ms["action_ar"], limit_ms, f"{AIM_RATIO} x floor of the {floors.card}")
        )
    return found
