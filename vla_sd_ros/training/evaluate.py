"""Closed-loop success of a policy without ROS: one decode per observation, in lockstep with the simulator.

LIBERO's own initial states are the test set; images go through the same function as when demonstrations were gathered.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from vla_sd_ros.sim.tasks import ScriptedTask
from vla_sd_ros.sim.world import LiberoWorld, env_action_from_si
from vla_sd_ros.training.gather import CROP_FRACTION, IMAGE_PX, RENDER_PX, policy_image

Policy = Callable[[npt.NDArray[np.uint8], str], npt.NDArray[np.float64]]
"""(image uint8 [S, S, 3], instruction) -> action [7] in SI units."""

PolicyFactory = Callable[[], Policy]
"""Builds a policy in a worker process; must be picklable (a function, or a functools.partial of one)."""

GRIPPER_THRESHOLD = 0.5


@dataclass(frozen=True)
class Episode:
    """Outcome of one episode."""

    initial_state: int
    success: bool
    steps: int


@dataclass(frozen=True)
class TaskResult:
    """Successes of one task and their 95% interval."""

    suite: str
    task_id: int
    instruction: str
    successes: int
    episodes: tuple[Episode, ...]
    interval: tuple[float, float]


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """95% interval of a proportion (Wilson, "Probable inference", 1927); (0, 1) without trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"successes = {successes} must lie in 0..trials = {trials}")
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / (1 + z * z / trials)
    return max(0.0, centre - half), min(1.0, centre + half)


def play_episode(world: LiberoWorld, policy: Policy, initial_state: int, max_steps: int) -> Episode:
    """Play one of LIBERO's initial states to success or ``max_steps`` control periods."""
    world.reset(initial_state=initial_state)
    for step in range(1, max_steps + 1):
        action = np.array(policy(policy_image(world), world.instruction), dtype=np.float64)
        action[6] = 1.0 if action[6] > GRIPPER_THRESHOLD else 0.0
        if world.step(env_action_from_si(action)):
            return Episode(initial_state, True, step)
    return Episode(initial_state, False, max_steps)


def evaluate_policy(
    policy: PolicyFactory,
    tasks: Sequence[ScriptedTask],
    initial_states: Sequence[int] = tuple(range(50)),
    max_steps: int = 220,
    processes: int = 2,
) -> list[TaskResult]:
    """Play every task from every initial state.

    Args:
        policy: Factory, called once per piece of work in a worker process.
        tasks: What to play (any task with suite and number).
        initial_states: Indices of LIBERO's initial states.
        max_steps: Control periods per episode.
        processes: Worker processes.
    """
    share = max(1, math.ceil(len(initial_states) / processes))
    pieces = [tuple(initial_states[i : i + share]) for i in range(0, len(initial_states), share)]
    spawn = multiprocessing.get_context("spawn")
    episodes: dict[tuple[str, int], list[Episode]] = {(t.suite, t.task_id): [] for t in tasks}
    instructions: dict[tuple[str, int], str] = {}
    with (
        ProcessPoolExecutor(processes, mp_context=spawn) as pool,
        tqdm(total=len(tasks) * len(initial_states), unit="episode") as bar,
    ):
        futures = [
            pool.submit(_play_piece, policy, t.suite, t.task_id, piece, max_steps) for t in tasks for piece in pieces
        ]
        for future in as_completed(futures):
            suite, task_id, instruction, played = future.result()
            episodes[suite, task_id].extend(played)
            instructions[suite, task_id] = instruction
            bar.update(len(played))
            done = [e.success for task in episodes.values() for e in task]
            bar.set_postfix(success=f"{sum(done)}/{len(done)}")
    return [_task_result(key, instructions.get(key, ""), found) for key, found in episodes.items()]


def _play_piece(
    policy: PolicyFactory, suite: str, task_id: int, initial_states: Sequence[int], max_steps: int
) -> tuple[str, int, str, list[Episode]]:
    with LiberoWorld(suite, task_id, camera_px=RENDER_PX) as world:
        act = policy()
        played = [play_episode(world, act, state, max_steps) for state in initial_states]
        return suite, task_id, world.instruction, played


def _task_result(key: tuple[str, int], instruction: str, episodes: list[Episode]) -> TaskResult:
    episodes.sort(key=lambda e: e.initial_state)
    successes = sum(e.success for e in episodes)
    return TaskResult(*key, instruction, successes, tuple(episodes), wilson_interval(successes, len(episodes)))


def checkpoint_policy(folder: Path, dtype: str = "float32", statistics_key: str | None = None) -> Policy:
    """Load a checkpoint as a greedy autoregressive policy on one thread (for ``functools.partial``).

    Args:
        folder: What ``save_policy`` wrote.
        dtype: ``float32`` or ``bfloat16``.
        statistics_key: Which data set's statistics; None: the only one there is.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    from vla_sd_ros.training.greedy import GreedyPolicy

    torch.set_num_threads(1)
    return GreedyPolicy(folder, getattr(torch, dtype), statistics_key)


def write_results(path: Path, results: Sequence[TaskResult], about: dict[str, object]) -> None:
    """Write results and what they were made with as JSON."""
    total = sum(r.successes for r in results)
    trials = sum(len(r.episodes) for r in results)
    content = {
        **about,
        "image": {"render_px": RENDER_PX, "crop_fraction": CROP_FRACTION, "size_px": IMAGE_PX, "fast_rendering": True},
        "successes": total,
        "trials": trials,
        "interval_95": wilson_interval(total, trials),
        "tasks": [asdict(r) for r in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
