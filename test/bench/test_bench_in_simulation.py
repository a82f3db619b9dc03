"""The comparison with a real world and a real, tiny policy, in a worker process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny_policy import write_policy

from vla_sd_ros.bench.arm_state import GRIPPER
from vla_sd_ros.bench.decoder_choice import AUTOREGRESSIVE, choose_decoder
from vla_sd_ros.bench.disturbance import LEAST_M, MOST_M, Disturbance, push_offsets
from vla_sd_ros.bench.plan import BenchPlan, EpisodeSetting, pieces_of
from vla_sd_ros.bench.run import play_piece, run_plan, weights_fingerprint
from vla_sd_ros.sim.expert import ScriptedExpert
from vla_sd_ros.sim.tasks import scripted_task
from vla_sd_ros.sim.world import LiberoWorld

ROOT = Path(__file__).parents[2]
TASK = scripted_task("libero_goal", 8)


@pytest.fixture(scope="module")
def world() -> Iterator[LiberoWorld]:
    with LiberoWorld(TASK.suite, TASK.task_id) as libero:
        yield libero


def test_episodes_are_played_in_a_worker_shadowed_and_timed_against_generate(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "random")
    plan = BenchPlan(
        folder,
        (choose_decoder(AUTOREGRESSIVE, tmp_path, folder),),
        (("libero_goal", 8),),
        initial_states=(3, 1),
        shadow=1,
        setting=EpisodeSetting(dtype="float32", max_steps=4, generate_every=2),
    )
    first, second = run_plan(plan, weights_fingerprint(folder), jobs=1)
    assert (first.initial_state, second.initial_state) == (3, 1)
    assert first.instruction == "put the bowl on the plate"
    assert (len(first.steps), len(second.steps), first.success) == (4, 4, False)
    assert (first.steps["forward_passes"] == 7).all()
    assert (first.steps["shadow_same_tokens"] == 1.0).all()
    assert np.isnan(second.steps["shadow_same_tokens"]).all()
    assert np.isfinite(first.steps["generate_ms"]).tolist() == [True, False, True, False]


def test_a_policy_that_changes_on_the_way_stops_the_comparison(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "random")
    plan = BenchPlan(folder, (choose_decoder(AUTOREGRESSIVE, tmp_path, folder),), (("libero_goal", 8),), (0,))
    (piece,) = pieces_of(list(plan.slots()), jobs=1)
    with pytest.raises(ValueError, match="changed"):
        play_piece(plan, "0" * 64, piece, lambda episode: None)


def test_the_object_is_pushed_once_when_the_open_hand_comes_near(world: LiberoWorld) -> None:
    world.reset(initial_state=2)
    expert, disturbance, start = ScriptedExpert(world, TASK), Disturbance(TASK, 2), world.world_position("plate_1")
    lay_at = world.world_position(TASK.grasp_object)
    for step in range(60):
        disturbance.maybe_push(world, step)
        if disturbance.push is not None:
            break
        world.step(expert.env_action())
    assert disturbance.push is not None and disturbance.push.step > 0
    moved = world.world_position(TASK.grasp_object) - lay_at
    np.testing.assert_allclose(moved, disturbance.push.offset_m, atol=1e-3)
    assert LEAST_M <= np.linalg.norm(moved[:2]) <= MOST_M
    before = disturbance.push
    disturbance.maybe_push(world, 99)
    assert disturbance.push is before
    np.testing.assert_allclose(world.world_position("plate_1"), start, atol=1e-3)
    for _ in range(200):  # the expert has no plan to lose
        if world.step(expert.env_action()):
            break
    assert world.is_successful()


def test_every_decoder_meets_the_same_push() -> None:
    np.testing.assert_array_equal(push_offsets(TASK, 5), push_offsets(TASK, 5))
    assert not np.array_equal(push_offsets(TASK, 5), push_offsets(TASK, 6))
    lengths = np.linalg.norm(push_offsets(TASK, 5), axis=1)
    assert (lengths >= LEAST_M).all() and (lengths <= MOST_M).all()


def test_an_object_is_not_put_into_another(world: LiberoWorld) -> None:
    world.reset(initial_state=0)
    before = world.world_position(TASK.grasp_object)
    assert not world.displace_object(TASK.grasp_object, world.world_position("plate_1") - before)
    np.testing.assert_allclose(world.world_position(TASK.grasp_object), before, atol=1e-5)
    with pytest.raises(ValueError, match="does not lie free"):
        world.displace_object("wooden_cabinet_1", [0.1, 0.0, 0.0])


def test_the_arm_state_uses_the_simulation_s_own_parameters() -> None:
    nodes = yaml.safe_load((ROOT / "config" / "sim.yaml").read_text())
    parameters = nodes["/**/kinematic_state_node"]["ros__parameters"]
    assert (GRIPPER.closed, GRIPPER.open) == (parameters["gripper_closed"], parameters["gripper_open"])
