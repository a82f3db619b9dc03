"""The report of a closed-loop run: outcomes, latencies, memory, and one decoder beside another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vla_sd_ros.bench.closed_loop import ClosedLoopPlan, ClosedLoopResult, commit_of
from vla_sd_ros.sim.client import EpisodeRecord
from vla_sd_ros.sim.success import wilson_interval

QUANTILES = (50, 95, 99)


def report_of(plan: ClosedLoopPlan, result: ClosedLoopResult) -> dict[str, Any]:
    """The report as JSON-serialisable data; latencies in ms, memory in MB."""
    stages: dict[str, list[float]] = {}
    for episode in result.episodes:
        for name, samples in episode.stage_ms.items():
            stages.setdefault(name, []).extend(samples)
    action = [sample for episode in result.episodes for sample in episode.camera_to_action_ms]
    command = [sample for episode in result.episodes for sample in episode.camera_to_command_ms]
    decoded = decoder_figures(result.episodes)
    report: dict[str, Any] = {
        "suite": plan.suite,
        "policy": plan.policy.name,
        "decoder": plan.decoder,
        "mode": plan.mode,
        "composed": plan.composed,
        "episodes": [_outcome(episode) for episode in result.episodes],
        "success_rate": decoded["success_rate"],
        "success_rate_95_interval": decoded["success_rate_95_interval"],
        "decoders": {plan.decoder: decoded},
        "latency_ms": {
            "camera_to_action": quantiles_ms(action),
            "camera_to_command": quantiles_ms(command),
            "above_decode": quantiles_ms(above_decode_ms(result.episodes)),
            "stages": {name: quantiles_ms(samples) for name, samples in stages.items()},
            # Over all actions, also those that leave a stage out: these add up to the mean of the total.
            "stage_means": {name: round(sum(samples) / len(stages["total"]), 3) for name, samples in stages.items()},
        },
        "memory_mb": result.memory_mb,
        "commit": commit_of(Path(__file__).parent),
    }
    if result.reference_episodes:
        report["decoders"][plan.reference] = decoder_figures(result.reference_episodes)
        report["reference"] = {
            "decoder": plan.reference,
            "episodes": [_outcome(episode) for episode in result.reference_episodes],
            **comparison(result.episodes, result.reference_episodes),
        }
    return report


def decoder_figures(episodes: Sequence[EpisodeRecord]) -> dict[str, Any]:
    """What a decoder reached and what it cost: shares 0 to 1, decode times in ms per action."""
    successes = sum(episode.success for episode in episodes)
    low, high = wilson_interval(successes, len(episodes))
    actions_ms = [duration for episode in episodes for duration in episode.stage_ms.get("total", [])]
    passes = [number for episode in episodes for number in episode.forward_passes]
    skipped = [skip for episode in episodes for skip in episode.skipped]
    return {
        "episodes": len(episodes),
        "success_rate": round(successes / len(episodes), 4),
        "success_rate_95_interval": [round(low, 4), round(high, 4)],
        "steps": round(_mean([episode.steps for episode in episodes]), 1),
        "ms_per_action": {"mean": round(_mean(actions_ms), 3), **quantiles_ms(actions_ms)},
        "forward_passes_per_action": round(_mean(passes), 3),
        "skip_share": round(_mean(skipped), 4),
    }


def comparison(episodes: Sequence[EpisodeRecord], reference: Sequence[EpisodeRecord]) -> dict[str, Any]:
    """The reference's mean decode time per action over the decoder's, on the episodes that both played."""
    places = {_place(episode) for episode in episodes} & {_place(episode) for episode in reference}
    ours, theirs = (
        _mean([ms for episode in played if _place(episode) in places for ms in episode.stage_ms.get("total", [])])
        for played in (episodes, reference)
    )
    return {"shared_episodes": len(places), "speed_up": round(theirs / ours, 3) if ours > 0.0 else None}


def _place(episode: EpisodeRecord) -> tuple[str, int, int]:
    return episode.suite, episode.task_id, episode.initial_state


def _outcome(episode: EpisodeRecord) -> dict[str, Any]:
    return {
        "task": episode.instruction,
        "task_id": episode.task_id,
        "initial_state": episode.initial_state,
        "success": episode.success,
        "steps": episode.steps,
    }


def _mean(samples: Sequence[float]) -> float:
    return float(np.mean(samples)) if len(samples) else 0.0


def above_decode_ms(episodes: Sequence[EpisodeRecord]) -> list[float]:
    """What the nodes and the middleware add to each decode, ms: only where every observation was answered."""
    added: list[float] = []
    for episode in episodes:
        decodes = episode.stage_ms.get("total", [])
        if len(decodes) == len(episode.camera_to_action_ms):
            added.extend(whole - decode for whole, decode in zip(episode.camera_to_action_ms, decodes, strict=True))
    return added


def quantiles_ms(samples: Sequence[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile; empty where there are no samples."""
    if not samples:
        return {}
    return {f"p{q}": round(float(np.percentile(samples, q)), 3) for q in QUANTILES}
