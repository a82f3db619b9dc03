"""Closed-loop success of a policy without ROS: one decode per observation, in lockstep with the simulator.

LIBERO's own initial states are the test set. World, image, decoder and action go through the same functions as in the
nodes, so that the graph must reach the same rate.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from vla_sd_ros.actions.convention import ActionConvention
from vla_sd_ros.decoding.interface import Decoder
from vla_sd_ros.decoding.registry import make_decoder
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.image import fit_image
from vla_sd_ros.policy.precision import choose_dtype
from vla_sd_ros.sim.action_units import env_action_from_si
from vla_sd_ros.sim.success import wilson_interval
from vla_sd_ros.sim.suites import MAX_STEPS
from vla_sd_ros.sim.world import LiberoWorld
from vla_sd_ros.types import Observation

# The demo policy speaks SI in base axes; an OpenVLA checkpoint brings a convention of its own.
SI_IN_BASE_AXES = ActionConvention(rotation_representation="axis_angle", action_frame="base")
CAMERA = "camera"


@dataclass(frozen=True)
class EvaluatedPolicy:
    """What is evaluated.

    Attributes:
        folder: checkpoint directory.
        decoder: name in the registry of decoders.
        dtype: auto, float32 or bfloat16.
        camera_px: side of the camera's image.
        crop_fraction: share of the side that the policy's view keeps.
        max_steps: step limit; 0 takes the suite's own.
    """

    folder: Path
    decoder: str = "autoregressive"
    dtype: str = "auto"
    camera_px: int = 224
    crop_fraction: float = 0.875
    max_steps: int = 0

    def load(self) -> tuple[Decoder, int]:
        """The decoder, on one thread, and the side of the policy's image in px."""
        torch.set_num_threads(1)
        policy = load_policy(self.folder, dtype=choose_dtype(self.dtype, "cpu"))
        policy.warm_up()
        return make_decoder(self.decoder, policy, CAMERA), policy.config.image_size_px


@dataclass(frozen=True)
class Episode:
    """Outcome of one episode."""

    initial_state: int
    success: bool
    steps: int


@dataclass(frozen=True)
class TaskResult:
    """Outcomes of one task, in the order of the initial states."""

    suite: str
    task_id: int
    instruction: str
    episodes: tuple[Episode, ...]

    @property
    def successes(self) -> int:
        """How many episodes succeeded."""
        return sum(episode.success for episode in self.episodes)


def play_episode(
    world: LiberoWorld, decoder: Decoder, image_size_px: int, crop_fraction: float, initial_state: int, max_steps: int
) -> Episode:
    """Plays one of LIBERO's initial states to success, or to ``max_steps`` control periods."""
    world.reset(initial_state=initial_state)
    for step in range(1, max_steps + 1):
        view = fit_image(world.render(), image_size_px, crop_fraction)
        decoded = decoder.decode(Observation({CAMERA: view}, world.instruction, stamp_ns=0), None)
        action = SI_IN_BASE_AXES.to_base_si(decoded.values, world.end_effector_quaternion())
        if world.step(env_action_from_si(action)):
            return Episode(initial_state, True, step)
    return Episode(initial_state, False, max_steps)


def evaluate_policy(
    policy: EvaluatedPolicy,
    tasks: Sequence[tuple[str, int]],
    initial_states: Sequence[int] = tuple(range(50)),
    processes: int = 2,
) -> list[TaskResult]:
    """Plays every task from every initial state, in worker processes.

    Args:
        policy: what to evaluate.
        tasks: (suite, index) of each task.
        initial_states: indices of LIBERO's initial states.
        processes: how many at once.
    """
    pieces = [(suite, task, tuple(initial_states[k::processes])) for suite, task in tasks for k in range(processes)]
    found: dict[tuple[str, int], list[Episode]] = {task: [] for task in tasks}
    instructions: dict[tuple[str, int], str] = {}
    spawn = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(processes, mp_context=spawn) as pool,
        tqdm(total=len(tasks) * len(initial_states), unit="episode") as bar,
    ):
        futures = [pool.submit(_play_piece, policy, *piece) for piece in pieces if piece[2]]
        for future in as_completed(futures):
            task, instructions_of_task, episodes = future.result()
            found[task].extend(episodes)
            instructions[task] = instructions_of_task
            bar.update(len(episodes))
            outcomes = [episode.success for played in found.values() for episode in played]
            bar.set_postfix(success=f"{sum(outcomes)}/{len(outcomes)}")
    return [
        TaskResult(*task, instructions[task], tuple(sorted(episodes, key=lambda episode: episode.initial_state)))
        for task, episodes in found.items()
    ]


def _play_piece(
    policy: EvaluatedPolicy, suite: str, task_id: int, initial_states: Sequence[int]
) -> tuple[tuple[str, int], str, list[Episode]]:
    decoder, size_px = policy.load()
    with LiberoWorld(suite, task_id, camera_px=policy.camera_px) as world:
        episodes = [
            play_episode(world, decoder, size_px, policy.crop_fraction, state, policy.max_steps or MAX_STEPS[suite])
            for state in initial_states
        ]
        return (suite, task_id), world.instruction, episodes


def summary_of(policy: EvaluatedPolicy, results: Sequence[TaskResult]) -> dict[str, Any]:
    """The results as JSON-serialisable data, each rate with its number of episodes and 95 % Wilson interval."""
    successes = sum(result.successes for result in results)
    trials = sum(len(result.episodes) for result in results)
    return {
        "policy": policy.folder.name,
        "decoder": policy.decoder,
        "dtype": str(choose_dtype(policy.dtype, "cpu")).removeprefix("torch."),
        "camera": {"px": policy.camera_px, "crop_fraction": policy.crop_fraction, "fast_rendering": True},
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
