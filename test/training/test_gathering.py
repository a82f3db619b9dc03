"""Gathering: what is tried, what is kept, and that the labels are the expert's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from vla_sd_ros.sim.tasks import scripted_task
from vla_sd_ros.sim.world import LiberoWorld
from vla_sd_ros.training.demonstrations import Demonstration, demonstration_path, save_demonstration
from vla_sd_ros.training.gather import (
    FIRST_SEED,
    GatheringResult,
    _jobs,
    gather_demonstrations,
    policy_image,
    run_expert,
)

TASKS = [scripted_task("libero_goal", 8), scripted_task("libero_goal", 4)]


def test_pieces_of_the_tasks_take_turns_and_every_other_episode_is_noisy(tmp_path: Path) -> None:
    jobs = list(_jobs(dict.fromkeys(TASKS, 5), tmp_path, seed=2, noise=0.3, chunk=3))
    assert [job.task.task_id for job in jobs] == [8, 4, 8, 4]
    first = FIRST_SEED + 200_000
    assert jobs[0].seeds == (first, first + 1, first + 2)
    assert jobs[2].seeds == (first + 3, first + 4)
    assert jobs[0].noises == (0.0, 0.3, 0.0)
    assert jobs[2].noises == (0.3, 0.0)


def test_existing_episodes_are_kept(tmp_path: Path, make_demonstration: Callable[..., Demonstration]) -> None:
    for task in TASKS:
        for number in range(2):
            path = demonstration_path(tmp_path, task.suite, task.task_id, FIRST_SEED + number)
            save_demonstration(path, make_demonstration(FIRST_SEED + number, task.task_id))
    assert gather_demonstrations(dict.fromkeys(TASKS, 2), tmp_path) == GatheringResult(written=0, existing=4, failed=0)


def test_a_noisy_episode_stores_clean_labels_and_can_be_repeated() -> None:
    with LiberoWorld("libero_goal", 8) as world:
        image = policy_image(world)
        assert image.shape == (112, 112, 3)
        blank = np.zeros_like(image)
        noisy = run_expert(world, TASKS[0], seed=5, noise=0.3, image=lambda _: blank)
        again = run_expert(world, TASKS[0], seed=5, noise=0.3, image=lambda _: blank)
        clean = run_expert(world, TASKS[0], seed=5, noise=0.0, image=lambda _: blank)
    assert noisy is not None
    assert again is not None
    assert clean is not None
    np.testing.assert_array_equal(noisy.actions, again.actions)
    np.testing.assert_array_equal(noisy.actions[0], clean.actions[0])
    assert np.abs(noisy.actions[:, :3]).max() <= 0.0375 + 1e-6
    assert set(np.unique(noisy.actions[:, 6])) == {0.0, 1.0}
    assert np.abs(noisy.poses[5] - clean.poses[5])[:3].max() > 1e-4
