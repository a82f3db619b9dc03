"""Closed-loop evaluation through the ROS graph: real nodes, real DDS, LIBERO's own initial states."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rclpy

from vla_sd_ros.ros.environment import private_graph
from vla_sd_ros.sim.client import EpisodeRecord, SimulatorClient
from vla_sd_ros.sim.graph import SimulatedGraph
from vla_sd_ros.sim.success import wilson_interval

READY_TIMEOUT_S = 180.0
EPISODE_TIMEOUT_S = 300.0
QUANTILES = (50, 95, 99)


@dataclass(frozen=True)
class ClosedLoopPlan:
    """What to run.

    Attributes:
        suite: LIBERO suite.
        task_ids: its tasks.
        initial_states: indices of LIBERO's own initial states, for each task.
        launch_file: ``sim.launch.py``.
        policy: checkpoint directory.
        decoder: how tokens are decoded.
        mode: lockstep or realtime.
        composed: one process instead of several.
        out: folder for the log and the videos.
        record: whether to write videos.
    """

    suite: str
    task_ids: Sequence[int]
    initial_states: Sequence[int]
    launch_file: Path
    policy: Path
    decoder: str
    mode: str
    composed: bool
    out: Path
    record: bool


@dataclass(frozen=True)
class ClosedLoopResult:
    """Episodes, and the memory that the graph took (MB, proportional set size, peak)."""

    episodes: list[EpisodeRecord]
    memory_mb: dict[str, float]

    @property
    def success_rate(self) -> float:
        """Share of episodes that succeeded."""
        return float(np.mean([episode.success for episode in self.episodes]))


def run_closed_loop(plan: ClosedLoopPlan, on_episode: Callable[[EpisodeRecord], None]) -> ClosedLoopResult:
    """Brings the graph up, runs every episode, takes it down.

    Raises:
        GraphError: where the graph does not come up or an episode is aborted; the log in ``plan.out`` says why.
    """
    environment = private_graph()
    arguments = {
        "suite": plan.suite,
        "task": str(plan.task_ids[0]),
        "policy": str(plan.policy),
        "decoder": plan.decoder,
        "mode": plan.mode,
        "composed": str(plan.composed).lower(),
        "record": str(plan.out / "videos") if plan.record else "",
    }
    episodes: list[EpisodeRecord] = []
    with SimulatedGraph(plan.launch_file, arguments, environment, plan.out / "launch.log") as graph:
        rclpy.init(domain_id=int(environment["ROS_DOMAIN_ID"]))
        client = SimulatorClient(graph.is_alive)
        try:
            client.wait_until_ready(READY_TIMEOUT_S)
            for task_id in plan.task_ids:
                for initial_state in plan.initial_states:
                    record = client.run_episode(plan.suite, task_id, initial_state, EPISODE_TIMEOUT_S)
                    episodes.append(record)
                    on_episode(record)
        finally:
            client.close()
            rclpy.try_shutdown()
    memory = {**graph.peak_memory_mb, "total": graph.peak_total_mb}
    return ClosedLoopResult(episodes, {name: round(value, 1) for name, value in memory.items()})


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


def report_of(plan: ClosedLoopPlan, result: ClosedLoopResult) -> dict[str, Any]:
    """The report as JSON-serialisable data; latencies in ms, memory in MB."""
    stages: dict[str, list[float]] = {}
    for episode in result.episodes:
        for name, samples in episode.stage_ms.items():
            stages.setdefault(name, []).extend(samples)
    action = [sample for episode in result.episodes for sample in episode.camera_to_action_ms]
    command = [sample for episode in result.episodes for sample in episode.camera_to_command_ms]
    successes = sum(episode.success for episode in result.episodes)
    low, high = wilson_interval(successes, len(result.episodes))
    return {
        "suite": plan.suite,
        "policy": plan.policy.name,
        "decoder": plan.decoder,
        "mode": plan.mode,
        "composed": plan.composed,
        "episodes": [
            {
                "task": episode.instruction,
                "task_id": episode.task_id,
                "initial_state": episode.initial_state,
                "success": episode.success,
                "steps": episode.steps,
            }
            for episode in result.episodes
        ],
        "success_rate": round(result.success_rate, 4),
        "success_rate_95_interval": [round(low, 4), round(high, 4)],
        "latency_ms": {
            "camera_to_action": quantiles_ms(action),
            "camera_to_command": quantiles_ms(command),
            "above_decode": quantiles_ms(above_decode_ms(result.episodes)),
            "stages": {name: quantiles_ms(samples) for name, samples in stages.items()},
        },
        "memory_mb": result.memory_mb,
        "commit": commit_of(Path(__file__).parent),
    }


def commit_of(folder: Path) -> str:
    """The commit of the checkout that holds ``folder``; ``unknown`` outside one."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "unknown"
    return answer.stdout.strip() or "unknown"
