"""Intervals and results of closed-loop evaluation (the simulator itself is tested in test/sim)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.training import evaluate
from vla_sd_ros.training.evaluate import Episode, TaskResult, play_episode, wilson_interval, write_results


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_measured_share(counts: tuple[int, int]) -> None:
    low, high = wilson_interval(*counts)
    assert 0 <= low <= counts[0] / counts[1] + 1e-12
    assert counts[0] / counts[1] - 1e-12 <= high <= 1


def test_the_interval_has_the_published_value() -> None:
    low, high = wilson_interval(58, 60)
    assert (low, high) == (pytest.approx(0.886, abs=1e-3), pytest.approx(0.991, abs=1e-3))
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="0..trials"):
        wilson_interval(3, 2)


class _Corridor:
    """A world that is solved after five steps forward with a closed gripper."""

    instruction = "go"

    def __init__(self) -> None:
        self.place = 0
        self.grippers: list[float] = []

    def reset(self, initial_state: int) -> None:
        self.place = initial_state

    def step(self, action: npt.NDArray[np.float64]) -> bool:
        self.place += int(action[0] > 0)
        self.grippers.append(float(action[6]))
        return self.place >= 5


def test_an_episode_ends_with_success_or_the_step_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "policy_image", lambda world: np.zeros((2, 2, 3), np.uint8))
    world = _Corridor()
    forward = np.array([0.01, 0, 0, 0, 0, 0, 0.4])
    assert play_episode(world, lambda image, text: forward, 1, 10) == Episode(1, True, 4)  # type: ignore[arg-type]
    assert play_episode(world, lambda image, text: forward, 0, 3) == Episode(0, False, 3)  # type: ignore[arg-type]
    assert set(world.grippers) == {1.0}


def test_results_are_written_with_totals(tmp_path: Path) -> None:
    episodes = (Episode(0, True, 90), Episode(1, False, 220))
    write_results(tmp_path / "r.json", [TaskResult("s", 1, "do", 1, episodes, (0.1, 0.9))], {"policy": "demo"})
    content = json.loads((tmp_path / "r.json").read_text())
    assert (content["successes"], content["trials"], content["policy"]) == (1, 2, "demo")
    assert content["tasks"][0]["episodes"][1]["steps"] == 220
