"""Success rates without ROS: episodes end when they should, and every rate has its interval."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tiny_policy import write_policy

from vla_sd_ros.bench.success_rate import Episode as Played
from vla_sd_ros.bench.success_rate import (
    EvaluatedPolicy,
    TaskResult,
    evaluate_policy,
    play_episode,
    summary_of,
    table_of,
    write_summary,
)
from vla_sd_ros.decoding.interface import DecodeCounts, DecodedAction
from vla_sd_ros.decoding.stage_times import StageTimes
from vla_sd_ros.types import KinematicState, Observation


class Corridor:
    """A world that is solved after five steps forward."""

    instruction = "go"

    def __init__(self) -> None:
        self.place = 0
        self.grippers: set[float] = set()

    def reset(self, initial_state: int) -> None:
        self.place = initial_state

    def render(self) -> npt.NDArray[np.uint8]:
        return np.zeros((32, 32, 3), np.uint8)

    def end_effector_quaternion(self) -> npt.NDArray[np.float64]:
        return np.array([0.0, 0.0, 0.0, 1.0])

    def step(self, action: npt.NDArray[np.float64]) -> bool:
        self.place += int(action[0] > 0)
        self.grippers.add(float(action[6]))
        return self.place >= 5


class Forward:
    """Always one centimetre forward, the gripper more closed than open."""

    def decode(self, observation: Observation, state: KinematicState | None) -> DecodedAction:
        assert observation.views["camera"].shape == (28, 28, 3)
        values = np.array([0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4])
        return DecodedAction(np.zeros(7, np.int64), values, "forward", StageTimes(), DecodeCounts(7))


def test_an_episode_ends_with_success_or_at_the_step_limit_and_the_gripper_is_a_class() -> None:
    world = Corridor()
    assert play_episode(world, Forward(), 28, 0.875, 1, 10) == Played(1, True, 4)  # type: ignore[arg-type]
    assert play_episode(world, Forward(), 28, 0.875, 0, 3) == Played(0, False, 3)  # type: ignore[arg-type]
    assert world.grippers == {1.0}  # LIBERO's closing


def test_a_real_world_and_a_real_policy_are_evaluated_in_worker_processes(tmp_path: Path) -> None:
    policy = EvaluatedPolicy(write_policy(tmp_path / "random"), max_steps=4)
    (result,) = evaluate_policy(policy, [("libero_goal", 8)], [3, 1], processes=1)
    assert result.instruction == "put the bowl on the plate"
    assert result.episodes == (Played(1, False, 4), Played(3, False, 4))


def test_the_summary_holds_totals_and_intervals(tmp_path: Path) -> None:
    results = [TaskResult("libero_goal", 8, "do", (Played(0, True, 90), Played(1, False, 220)))]
    write_summary(tmp_path / "summary.json", summary_of(EvaluatedPolicy(Path("models/demo")), results))
    content = json.loads((tmp_path / "summary.json").read_text())
    assert (content["successes"], content["trials"], content["policy"]) == (1, 2, "demo")
    assert content["tasks"][0]["episodes"][1] == {"initial_state": 1, "success": False, "steps": 220}
    low, high = content["tasks"][0]["interval_95"]
    assert 0.0 < low < 0.5 < high < 1.0
    assert "| libero_goal | 8 | do | 1/2 |" in table_of(results)
