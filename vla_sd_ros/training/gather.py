"""Gather demonstrations with the scripted expert, in several processes, resumable.

Every other episode is executed with correlated noise while the noise-free action is stored as its label, so that the
policy learns to recover (DART: Laskey et al., "DART: Noise Injection for Robust Imitation Learning", 2017).
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from vla_sd_ros.sim.expert import ScriptedExpert
from vla_sd_ros.sim.tasks import ScriptedTask
from vla_sd_ros.sim.world import LiberoWorld
from vla_sd_ros.training.demonstrations import Demonstration, demonstration_path, save_demonstration

logger = logging.getLogger(__name__)

# LIBERO's own initial states are the test set: placements are drawn from seeds far away from any it may have used.
FIRST_SEED = 1_000_000
SEEDS_PER_RUN = 100_000
NOISE_MEMORY = 0.8
NOISE_STEP = 0.6
NOISE_AT_REST = 0.25
RENDER_PX = 224
CROP_FRACTION = 0.875
IMAGE_PX = 112

ImageFunction = Callable[[LiberoWorld], npt.NDArray[np.uint8]]


@dataclass(frozen=True)
class GatheringResult:
    """What a run of :func:`gather_demonstrations` did."""

    written: int
    existing: int
    failed: int


def policy_image(world: LiberoWorld) -> npt.NDArray[np.uint8]:
    """Render what the demo policy sees: uint8 [112, 112, 3]. The camera node does the same to its 224 px frames."""
    from vla_sd_ros.policy.image import fit_image

    return fit_image(world.render(size_px=RENDER_PX), IMAGE_PX, crop_fraction=CROP_FRACTION)


def run_expert(
    world: LiberoWorld,
    task: ScriptedTask,
    seed: int,
    noise: float,
    max_steps: int = 260,
    image: ImageFunction = policy_image,
) -> Demonstration | None:
    """Let the expert play one episode from a random placement; None when it fails within ``max_steps``."""
    world.reset(seed=seed)
    expert = ScriptedExpert(world, task)
    rng = np.random.default_rng(seed)
    disturbance = np.zeros(3)
    images, actions, poses, proprio = [], [], [], []
    for _ in range(max_steps):
        clean = expert.env_action()
        images.append(image(world))
        actions.append(expert.si_action())
        poses.append(expert.poses())
        proprio.append(
            np.concatenate([world.joint_positions(), world.end_effector_position(), world.end_effector_quaternion()])
        )
        disturbance = NOISE_MEMORY * disturbance + NOISE_STEP * rng.normal(0.0, noise, 3)
        executed = clean.copy()
        executed[:3] += disturbance * (NOISE_AT_REST + np.abs(clean[:3]).max())
        if world.step(np.clip(executed, -1.0, 1.0)):
            return Demonstration(
                images=np.stack(images),
                actions=np.stack(actions).astype(np.float32),
                poses=np.stack(poses).astype(np.float32),
                proprio=np.stack(proprio).astype(np.float32),
                suite=task.suite,
                task_id=task.task_id,
                instruction=world.instruction,
                seed=seed,
                noise=noise,
            )
    return None


def gather_demonstrations(
    episodes: Mapping[ScriptedTask, int],
    out_dir: Path,
    seed: int = 0,
    noise: float = 0.3,
    processes: int = 2,
    chunk: int = 12,
) -> GatheringResult:
    """Write so many episodes of each task; those that already exist are kept.

    Episodes that the expert fails are left out, not replaced, so that a seed always means the same episode.

    Args:
        episodes: Seeds to try for each task; chunks of the tasks take turns, so that an unfinished run is balanced.
        out_dir: Folder of the data set.
        seed: Number of the run; different numbers give different placements.
        noise: Level of the noise of every second episode.
        processes: Worker processes.
        chunk: Episodes of one task per piece of work; a new world costs some seconds.
    """
    jobs = list(_jobs(episodes, out_dir, seed, noise, chunk))
    to_do = sum(len(job.seeds) for job in jobs)
    existing = sum(episodes.values()) - to_do
    written = failed = 0
    if not jobs:
        return GatheringResult(written, existing, failed)
    spawn = multiprocessing.get_context("spawn")  # rendering contexts do not survive a fork
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool, tqdm(total=to_do, unit="episode") as bar:
        for done in as_completed([pool.submit(_run_job, job) for job in jobs]):
            ok, bad = done.result()
            written, failed = written + ok, failed + bad
            bar.update(ok + bad)
            bar.set_postfix(failed=failed)
    return GatheringResult(written, existing, failed)


@dataclass(frozen=True)
class _Job:
    task: ScriptedTask
    seeds: tuple[int, ...]
    noises: tuple[float, ...]
    out_dir: Path


def _jobs(episodes: Mapping[ScriptedTask, int], out_dir: Path, seed: int, noise: float, chunk: int) -> Iterator[_Job]:
    for start in range(0, max(episodes.values(), default=0), chunk):
        for task, count in episodes.items():
            numbers = range(start, min(start + chunk, count))
            first = FIRST_SEED + seed * SEEDS_PER_RUN
            missing = [
                n for n in numbers if not demonstration_path(out_dir, task.suite, task.task_id, first + n).exists()
            ]
            if missing:
                yield _Job(
                    task, tuple(first + n for n in missing), tuple(noise if n % 2 else 0.0 for n in missing), out_dir
                )


_worlds: dict[tuple[str, int], LiberoWorld] = {}  # one world per worker process, the last used


def _run_job(job: _Job) -> tuple[int, int]:
    key = (job.task.suite, job.task.task_id)
    if key not in _worlds:
        for world in _worlds.values():
            world.close()
        _worlds.clear()
        _worlds[key] = LiberoWorld(*key, camera_px=RENDER_PX)
    written = 0
    for seed, noise in zip(job.seeds, job.noises, strict=True):
        demonstration = run_expert(_worlds[key], job.task, seed, noise)
        if demonstration is None:
            logger.warning("the expert failed %s/%d with seed %d and noise %.2f", *key, seed, noise)
            continue
        save_demonstration(demonstration_path(job.out_dir, *key, seed), demonstration)
        written += 1
    return written, len(job.seeds) - written
