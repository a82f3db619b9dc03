"""Episodes without ROS: they end when they should, and the decoder sees what the nodes would give it."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pytest

from vla_sd_ros.bench.episode_runner import CAMERA, EpisodeRunner
from vla_sd_ros.bench.plan import EpisodeSetting
from vla_sd_ros.decoding.interface import DecodeCounts, DecodedAction
from vla_sd_ros.decoding.stage_times import Stopwatch
from vla_sd_ros.sim.action_units import Float64Array
from vla_sd_ros.sim.world import ARM_JOINT_NAMES, FINGER_JOINT_NAMES
from vla_sd_ros.types import KinematicState, Observation

DRAWING_S = 0.03


class Corridor:
    """A world that is solved after five steps forward, 1 cm each."""

    suite = "libero_goal"
    task_id = 8
    instruction = "go"
    joint_names = ARM_JOINT_NAMES + FINGER_JOINT_NAMES

    def __init__(self) -> None:
        self.place = 0
        self.drawn = 0
        self.grippers: set[float] = set()

    def reset(self, initial_state: int) -> None:
        self.place = initial_state

    def render(self) -> npt.NDArray[np.uint8]:
        self.drawn += 1
        time.sleep(DRAWING_S)
        return np.zeros((32, 32, 3), np.uint8)

    def joint_positions(self) -> Float64Array:
        return np.array([0.1] * 7 + [0.02, 0.02])

    def joint_velocities(self) -> Float64Array:
        return np.zeros(9)

    def end_effector_position(self) -> Float64Array:
        return np.array([0.01 * self.place, 0.0, 0.3])

    def end_effector_quaternion(self) -> Float64Array:
        return np.array([0.0, 0.0, 0.0, 1.0])

    def step(self, action: Float64Array) -> bool:
        self.place += int(action[0] > 0)
        self.grippers.add(float(action[6]))
        return self.place >= 5


class Forward:
    """Always one centimetre forward, the gripper more closed than open; looks at every second image."""

    def __init__(self) -> None:
        self.states: list[KinematicState] = []
        self.told: list[str] = []

    def decode(self, observation: Observation, state: KinematicState | None) -> DecodedAction:
        import torch

        assert state is not None and observation.stamp_ns == state.stamp_ns
        watch = Stopwatch(torch.device("cpu"))
        if len(self.states) % 2 == 0:
            with watch.stage("preprocess"):
                assert observation.views[CAMERA].shape == (28, 28, 3)
        self.states.append(state)
        values = np.array([0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4])
        return DecodedAction(np.zeros(7, np.int64), values, "forward", watch.read(), DecodeCounts(7))

    def reset(self) -> None:
        self.told.append("reset")

    def end_episode(self, success: bool) -> None:
        self.told.append(f"success: {success}")


def runner(world: Corridor, max_steps: int = 10) -> EpisodeRunner:
    return EpisodeRunner(world, 28, EpisodeSetting(max_steps=max_steps))  # type: ignore[arg-type]


def test_an_episode_ends_with_success_or_at_the_step_limit_and_the_gripper_is_a_class() -> None:
    world, decoder = Corridor(), Forward()
    won, lost = runner(world).play(decoder, 1), runner(world, 3).play(decoder, 0)
    assert (won.success, len(won.steps), won.initial_state) == (True, 4, 1)
    assert (lost.success, len(lost.steps)) == (False, 3)
    assert decoder.told == ["reset", "success: True", "reset", "success: False"]
    assert world.grippers == {1.0}  # LIBERO's closing


def test_the_arm_state_is_what_the_kinematic_state_node_would_say() -> None:
    decoder = Forward()
    runner(Corridor()).play(decoder, 0)
    first, second = decoder.states[:2]
    assert (first.position[0], second.position[0]) == (0.0, 0.01)
    assert second.stamp_ns - first.stamp_ns == 50_000_000
    assert not first.linear_velocity.any()
    assert second.linear_velocity[0] == pytest.approx(0.01 / 0.05)
    assert second.gripper_opening == pytest.approx(0.5)
    assert set(second.joint_positions) == set(ARM_JOINT_NAMES)


def test_images_are_drawn_for_decoders_that_look_and_off_the_clock() -> None:
    world = Corridor()
    steps = runner(world).play(Forward(), 0).steps
    assert (world.drawn, len(steps)) == (3, 5)
    drawing_ms = DRAWING_S * 1e3
    assert (steps["action_ms"] < drawing_ms).all()
    assert (steps["total_ms"] < drawing_ms).all()
    assert (steps["action_ms"] >= steps["total_ms"] - 1.0).all()
