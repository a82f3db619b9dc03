"""The gates are fitted on what the index does not hold, and judge by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_policy

from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.training.demonstrations import (
    Demonstration,
    demonstration_path,
    find_demonstrations,
    save_demonstration,
)
from vla_sd_ros.training.gate_calibration import calibrate_gates
from vla_sd_ros.training.index_building import build_index


def test_both_gates_are_fitted_on_clean_and_disturbed_episodes(
    make_demonstration: Callable[..., Demonstration], tmp_path: Path
) -> None:
    policy = random_policy(tiny_policy.tiny_config())
    for seed in range(8):
        demonstration = make_demonstration(seed=seed, steps=10)
        demonstration.proprio[:, 9:12] = np.random.default_rng(seed).normal(0, 0.01, (10, 3)).cumsum(0)
        demonstration.proprio[:, 15] = 1.0
        save_demonstration(demonstration_path(tmp_path, "libero_goal", 8, seed), demonstration)
    paths = find_demonstrations(tmp_path)
    index = build_index(policy, paths, 4, progress=False)
    judged = calibrate_gates(policy, index, paths, episodes_per_task=4, progress=False)
    assert judged.frames == 4 * 10, "the acceptance gate looks at disturbed episodes alone"
    assert 0.0 <= judged.area_under_curve <= 1.0
    assert judged.skip.max_distance_m >= 0.0


def test_demonstrations_of_other_tasks_are_refused(
    make_demonstration: Callable[..., Demonstration], demonstrations: Path, tmp_path: Path
) -> None:
    policy = random_policy(tiny_policy.tiny_config())
    index = build_index(policy, find_demonstrations(demonstrations), 2, progress=False)
    other = tmp_path / "other"
    save_demonstration(
        demonstration_path(other, "libero_goal", 7, 1), make_demonstration(task_id=7, instruction="turn on the stove")
    )
    with pytest.raises(ValueError, match="put the bowl on the plate"):
        calibrate_gates(policy, index, find_demonstrations(other), progress=False)
