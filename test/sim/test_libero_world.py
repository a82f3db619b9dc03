"""Conventions of the LIBERO world: frames, signs, names, determinism; and the expert in it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from vla_sd_ros.sim.action_units import env_action_from_si
from vla_sd_ros.sim.expert import ScriptedExpert
from vla_sd_ros.sim.tasks import scripted_task
from vla_sd_ros.sim.world import LiberoWorld


@pytest.fixture(scope="module")
def world() -> Iterator[LiberoWorld]:
    with LiberoWorld("libero_goal", 8) as made:
        yield made


def _move(world: LiberoWorld, action: list[float], steps: int = 8) -> np.ndarray:
    before = world.end_effector_position()
    for _ in range(steps):
        world.step(env_action_from_si(action))
    return world.end_effector_position() - before


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_displacement_moves_the_end_effector_along_the_same_base_axis(
    world: LiberoWorld, axis: int, sign: int
) -> None:
    world.reset(initial_state=0)
    action = [0.0] * 6 + [1.0]
    action[axis] = sign * 0.01
    moved = _move(world, action)
    assert sign * moved[axis] > 0.01  # the controller is soft: it covers a fifth of what it is told from rest
    assert np.abs(np.delete(moved, axis)).max() < 0.005


def test_a_rotation_about_z_turns_the_hand_about_the_base_z_axis(world: LiberoWorld) -> None:
    from scipy.spatial.transform import Rotation

    world.reset(initial_state=0)
    before = Rotation.from_quat(world.end_effector_quaternion())
    _move(world, [0, 0, 0, 0, 0, 0.03, 1.0])
    turn = (Rotation.from_quat(world.end_effector_quaternion()) * before.inv()).as_rotvec()
    assert turn[2] > 0.03
    assert np.abs(turn[:2]).max() < 0.02


def test_gripper_1_opens_and_0_closes(world: LiberoWorld) -> None:
    world.reset(initial_state=0)
    _move(world, [0.0] * 6 + [0.0], steps=15)
    closed = world.gripper_opening()
    _move(world, [0.0] * 6 + [1.0], steps=15)
    assert closed < 0.01 < 0.07 < world.gripper_opening()


def test_joints_have_the_pandas_names_and_plausible_values(world: LiberoWorld) -> None:
    world.reset(initial_state=0)
    assert world.joint_names[0] == "panda_joint1"
    assert world.joint_names[-2:] == ("panda_finger_joint1", "panda_finger_joint2")
    positions, velocities = world.joint_positions(), world.joint_velocities()
    assert positions.shape == velocities.shape == (9,)
    assert -3.1 < positions[3] < 0.0
    assert (positions[-2:] > 0.03).all()


def test_a_moving_joint_has_the_velocity_of_its_position(world: LiberoWorld) -> None:
    world.reset(initial_state=0)
    _move(world, [0.0, 0.02, 0.0, 0.0, 0.0, 0.0, 1.0], steps=6)
    before, speed_before = world.joint_positions(), world.joint_velocities()
    _move(world, [0.0, 0.02, 0.0, 0.0, 0.0, 0.0, 1.0], steps=1)
    difference = (world.joint_positions() - before) / 0.05
    mean_speed = (speed_before + world.joint_velocities()) / 2
    assert np.abs(difference - mean_speed)[:7].max() < 0.1
    assert np.abs(difference[:7]).max() > 0.1


def test_the_base_frame_is_the_world_moved_to_the_foot_of_the_arm(world: LiberoWorld) -> None:
    world.reset(initial_state=0)
    np.testing.assert_allclose(
        world.end_effector_position() + world.base_position, world.end_effector_world_position(), atol=1e-12
    )
    assert 0.2 < world.end_effector_position()[0] < 0.8


def test_images_are_upright(world: LiberoWorld) -> None:
    world.reset(initial_state=0)
    before = world.render()
    assert before.shape == (224, 224, 3)
    assert before.dtype == np.uint8
    _move(world, [0.0, 0.0, 0.03, 0.0, 0.0, 0.0, 1.0], steps=8)
    changed = np.abs(world.render().astype(int) - before).sum(-1) > 60
    rows_arm = np.flatnonzero(changed.any(1))
    # The arm hangs into the picture from above: raising it changes the upper part, not the table in front.
    assert rows_arm.mean() < 112


def test_worlds_of_one_process_may_be_made_and_closed_in_any_order_and_draw_as_if_alone(world: LiberoWorld) -> None:
    world.reset(initial_state=0)
    picture = world.render()
    older, newer = LiberoWorld("libero_goal", 1), LiberoWorld("libero_goal", 8)
    older.close()
    newer.reset(initial_state=0)
    assert (newer.render() == picture).all()
    newer.close()
    assert (world.render() == picture).all()


@pytest.mark.parametrize("start", [{"seed": 7}, {"initial_state": 2}])
def test_the_same_arguments_give_the_same_episode_whatever_went_before(
    world: LiberoWorld, start: dict[str, int]
) -> None:
    def episode() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        world.reset(**start)
        _move(world, [0.01, -0.01, 0.0, 0.0, 0.0, 0.0, 1.0], steps=3)
        return world.joint_positions(), world.world_position("akita_black_bowl_1"), world.render(size_px=64)

    first = episode()
    world.reset(initial_state=1)
    _move(world, [0.0, 0.0, -0.01, 0.0, 0.0, 0.0, 0.0], steps=6)  # leaves the gripper closed
    for before, after in zip(first, episode(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_time_counts_control_periods_since_the_reset(world: LiberoWorld) -> None:
    world.reset(initial_state=0)
    assert world.time_s == 0.0
    _move(world, [0.0] * 6 + [1.0], steps=4)
    assert world.time_s == pytest.approx(0.2)


def test_the_expert_solves_an_official_initial_state(world: LiberoWorld) -> None:
    world.reset(initial_state=0)
    expert = ScriptedExpert(world, scripted_task("libero_goal", 8))
    assert any(world.step(expert.env_action()) for _ in range(200))
    assert world.is_successful()


def test_unknown_names_are_refused_with_the_legal_ones(world: LiberoWorld) -> None:
    with pytest.raises(ValueError, match="libero_goal"):
        LiberoWorld("libero_gaol", 0)
    with pytest.raises(ValueError, match="put the bowl on the plate"):
        LiberoWorld("libero_goal", 10)
    with pytest.raises(ValueError, match="agentview"):
        LiberoWorld("libero_goal", 8, cameras=("eye",))
    with pytest.raises(ValueError, match="agentview"):
        world.render("frontview")
    with pytest.raises(ValueError, match="akita_black_bowl_1"):
        world.world_position("spoon")
    with pytest.raises(ValueError, match="0..49"):
        world.reset(initial_state=50)
    with pytest.raises(ValueError, match="7 finite"):
        world.step([0.0] * 6 + [float("nan")])
    assert os.environ["MUJOCO_GL"] in ("egl", "osmesa", "glfw")
