"""Success rates of one decoder as ``vla-sd evaluate`` reports them: every rate with its number of episodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vla_sd_ros.bench.plan import BenchPlan
from vla_sd_ros.bench.played_episode import PlayedEpisode
from vla_sd_ros.sim.success import wilson_interval


@dataclass(frozen=True)
class Outcome:
    """How one episode ended."""

    initial_state: int
    success: bool
    steps: int


@dataclass(frozen=True)
class TaskResult:
    """Outcomes of one task, in the order of the initial states."""

    suite: str
    task_id: int
    instruction: str
    episodes: tuple[Outcome, ...]

    @property
    def successes(self) -> int:
        """How many episodes succeeded."""
        return sum(episode.success for episode in self.episodes)


def task_results(episodes: Sequence[PlayedEpisode]) -> list[TaskResult]:
    """Episodes of one decoder, grouped by task in the order of their first appearance."""
    tasks: dict[tuple[str, int, str], list[Outcome]] = {}
    for episode in episodes:
        outcome = Outcome(episode.initial_state, episode.success, len(episode.steps))
        tasks.setdefault((episode.suite, episode.task_id, episode.instruction), []).append(outcome)
    return [
        TaskResult(*task, tuple(sorted(outcomes, key=lambda outcome: outcome.initial_state)))
        for task, outcomes in tasks.items()
    ]


def summary_of(plan: BenchPlan, results: Sequence[TaskResult]) -> dict[str, Any]:
    """The results as JSON-serialisable data, each rate with its number of episodes and 95 % Wilson interval."""
    successes = sum(result.successes for result in results)
    trials = sum(len(result.episodes) for result in results)
    setting = plan.setting
    return {
        "policy": plan.policy.name,
        "decoder": plan.reference,
        "dtype": setting.dtype_in_use,
        "camera": {"px": setting.camera_px, "crop_fraction": setting.crop_fraction, "fast_rendering": True},
        "successes": successes,
        "trials": trials,
        "interval_95": wilson_interval(successes, trials),
        "tasks": [
            {
                **asdict(result),
                "successes": result.successes,
                "interval_95": wilson_interval(result.successes, len(result.episodes)),
            }
            for result in results
        ],
    }


def table_of(results: Sequence[TaskResult]) -> str:
    """The results as a Markdown table."""
    lines = ["| suite | task | instruction | success | 95 % interval |", "|---|---|---|---|---|"]
    for result in results:
        trials = len(result.episodes)
        low, high = wilson_interval(result.successes, trials)
        lines.append(
            f"| {result.suite} | {result.task_id} | {result.instruction} | {result.successes}/{trials} "
            f"| {low:.0%} to {high:.0%} |"
        )
    return "\n".join(lines)


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Writes the summary as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=2) + "\n")
