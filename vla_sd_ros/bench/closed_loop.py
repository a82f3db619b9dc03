"""Closed-loop evaluation through the ROS graph: real nodes, real DDS, LIBERO's own initial states."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import rclpy

from vla_sd_ros.ros.environment import private_graph
from vla_sd_ros.sim.client import EpisodeRecord, SimulatorClient
from vla_sd_ros.sim.graph import SimulatedGraph

READY_TIMEOUT_S = 180.0
EPISODE_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class ClosedLoopPlan:
    """What to run.

    Attributes:
        suite: LIBERO suite.
        task_ids: its tasks.
        initial_states: indices of LIBERO's own initial states, for each task.
        launch_file: ``sim.launch.py``.
        policy: checkpoint directory.
        decoder: preset, or YAML file.
        mode: lockstep or realtime.
        composed: one process instead of several.
        out: folder for the log and the videos.
        record: whether to write videos.
        reference: decoder that plays too, for comparison; empty: none.
        reference_states: what it plays, of each task: some of ``initial_states``.
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
    reference: str = ""
    reference_states: Sequence[int] = ()

    @property
    def n_episodes(self) -> int:
        """Episodes of both decoders."""
        return len(self.task_ids) * (len(self.initial_states) + (len(self.reference_states) if self.reference else 0))


@dataclass(frozen=True)
class ClosedLoopResult:
    """What was played.

    Attributes:
        episodes: of the decoder.
        memory_mb: that each process took, and ``total``: proportional set size, peak.
        reference_episodes: of the reference.
    """

    episodes: list[EpisodeRecord]
    memory_mb: dict[str, float]
    reference_episodes: list[EpisodeRecord] = field(default_factory=list)

    @property
    def success_rate(self) -> float:
        """Share of episodes that succeeded."""
        return float(np.mean([episode.success for episode in self.episodes]))


def run_closed_loop(plan: ClosedLoopPlan, on_episode: Callable[[EpisodeRecord], None]) -> ClosedLoopResult:
    """Brings the graph up, runs every episode, takes it down.

    The reference plays in the same graph: the decoder is exchanged while the nodes are active.

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
    reference_episodes: list[EpisodeRecord] = []
    with SimulatedGraph(plan.launch_file, arguments, environment, plan.out / "launch.log") as graph:
        rclpy.init(domain_id=int(environment["ROS_DOMAIN_ID"]))
        client = SimulatorClient(graph.is_alive)
        try:
            client.wait_until_ready(READY_TIMEOUT_S)
            for task_id in plan.task_ids:
                # The reference first: where both play a state, the video that stays is the decoder's.
                if plan.reference:
                    client.choose_decoder(plan.reference, READY_TIMEOUT_S)
                    reference_episodes += play(client, plan.suite, task_id, plan.reference_states, on_episode)
                    client.choose_decoder(plan.decoder, READY_TIMEOUT_S)
                episodes += play(client, plan.suite, task_id, plan.initial_states, on_episode)
        finally:
            client.close()
            rclpy.try_shutdown()
    memory = {**graph.peak_memory_mb, "total": graph.peak_total_mb}
    rounded = {name: round(value, 1) for name, value in memory.items()}
    return ClosedLoopResult(episodes, rounded, reference_episodes)


def play(
    client: SimulatorClient,
    suite: str,
    task_id: int,
    initial_states: Sequence[int],
    on_episode: Callable[[EpisodeRecord], None],
) -> list[EpisodeRecord]:
    """One episode from each initial state.

    Raises:
        GraphError: where one is refused or aborted.
    """
    records = []
    for initial_state in initial_states:
        records.append(client.run_episode(suite, task_id, initial_state, EPISODE_TIMEOUT_S))
        on_episode(records[-1])
    return records


def commit_of(folder: Path) -> str:
    """The commit of the checkout that holds ``folder``; ``unknown`` outside one."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "unknown"
    return answer.stdout.strip() or "unknown"
