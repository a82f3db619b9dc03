"""The whole graph, as launched: real processes, real DDS, a real LIBERO world."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import rclpy
import yaml
from probe import DEACTIVATE, Probe
from std_srvs.srv import Trigger
from tiny_policy import write_policy

from vla_sd_ros.actions.convention import ActionConvention
from vla_sd_ros.cli.paths import share
from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.image import fit_image
from vla_sd_ros.sim.action_units import env_action_from_si
from vla_sd_ros.sim.client import GraphError, SimulatorClient
from vla_sd_ros.sim.graph import SimulatedGraph
from vla_sd_ros.sim.world import LiberoWorld
from vla_sd_ros.types import Observation

READY_S = 120.0
EPISODE_S = 90.0
STEPS = 6
LAUNCH_FILE = share() / "launch" / "sim.launch.py"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy") / "random", PolicyConfig.demo())


@pytest.fixture(scope="module")
def short_episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulation's parameters, with episodes of a few steps."""
    parameters = yaml.safe_load((share() / "config" / "sim.yaml").read_text())
    parameters["/**/simulator_node"]["ros__parameters"]["max_steps"] = STEPS
    # So that tokens can be compared with those of another process, bit for bit.
    parameters["/**/inference_node"]["ros__parameters"]["dtype"] = "float32"
    file = tmp_path_factory.mktemp("parameters") / "sim.yaml"
    file.write_text(yaml.safe_dump(parameters))
    return file


@pytest.fixture(scope="module", autouse=True)
def ros() -> Iterator[None]:
    rclpy.init()
    yield
    rclpy.try_shutdown()


@contextmanager
def running(tmp_path: Path, **arguments: str) -> Iterator[tuple[SimulatedGraph, SimulatorClient]]:
    log = tmp_path / f"launch-{uuid.uuid4().hex[:6]}.log"
    with SimulatedGraph(LAUNCH_FILE, arguments, os.environ, log) as graph:
        client = SimulatorClient(graph.is_alive)
        try:
            client.wait_until_ready(READY_S)
            yield graph, client
        except GraphError as error:
            raise AssertionError(f"{error}\n{log.read_text()}") from error
        finally:
            client.close()


def tokens_without_ros(policy_folder: Path, task_id: int, initial_state: int) -> list[tuple[int, ...]]:
    """What the same episode gives in one process: world, image, decoder, world."""
    decoder = AutoregressiveDecoder(load_policy(policy_folder))
    convention = ActionConvention(rotation_representation="axis_angle", action_frame="base")
    tokens = []
    with LiberoWorld("libero_goal", task_id) as world:
        world.reset(initial_state=initial_state)
        for _ in range(STEPS):
            image = fit_image(world.render(), 112, 0.875)
            decoded = decoder.decode(Observation({"camera": image}, world.instruction, 0), None)
            tokens.append(tuple(decoded.tokens.tolist()))
            world.step(env_action_from_si(convention.to_base_si(decoded.values, world.end_effector_quaternion())))
    return tokens


def the_decoder_is_exchanged_between_episodes(client: SimulatorClient, tokens: list[tuple[int, ...]]) -> None:
    assert client.run_episode("libero_goal", 1, 0, EPISODE_S).decoders == ["lossless"] * STEPS
    client.choose_decoder("ar", READY_S)
    plain = client.run_episode("libero_goal", 1, 0, EPISODE_S)
    assert (plain.decoders, plain.forward_passes, plain.tokens) == (["ar"] * STEPS, [7] * STEPS, tokens)
    client.choose_decoder("repeat", READY_S)
    for _ in range(2):
        repeated = client.run_episode("libero_goal", 1, 0, EPISODE_S)
        assert repeated.skipped == [False, True, True] * (STEPS // 3)
        assert [number == 0 for number in repeated.forward_passes] == repeated.skipped
    with pytest.raises(GraphError, match="'magic' is unknown; legal"):
        client.choose_decoder("magic", READY_S)
    with pytest.raises(GraphError, match="'naive_sd' cannot be built.*'repeat' goes on"):
        client.choose_decoder("naive_sd", READY_S)


def reset_ends_an_episode_that_nobody_answers(client: SimulatorClient) -> None:
    probe = Probe()
    try:
        resetter = probe.node.create_client(Trigger, "/simulator_node/reset")
        probe.wait_until(resetter.service_is_ready, what="the reset service")

        def reset() -> Trigger.Response:
            future = resetter.call_async(Trigger.Request())
            probe.wait_until(future.done, what="an answer to the reset")
            return future.result()

        assert not reset().success, "there is nothing to reset"
        assert probe.change_state("inference_node", DEACTIVATE)
        with ThreadPoolExecutor(1) as pool:
            episode = pool.submit(client.run_episode, "libero_goal", 1, 0, EPISODE_S)
            probe.repeat(lambda: None, until=lambda: reset().success, period_s=0.1)
            with pytest.raises(GraphError, match="the episode was reset"):
                episode.result()
    finally:
        probe.close()


def test_in_lockstep_every_observation_gets_one_command_and_the_same_state_gives_the_same_tokens_as_without_ros(
    tmp_path: Path, policy: Path, short_episodes: Path
) -> None:
    videos = tmp_path / "videos"
    arguments = {"policy": str(policy), "params": str(short_episodes), "record": str(videos)}
    with running(tmp_path, **arguments) as (graph, client):
        for task_id in (8, 1):
            record = client.run_episode("libero_goal", task_id, 3, EPISODE_S)
            assert (record.steps, record.success, record.task_id) == (STEPS, False, task_id)
            assert len(record.camera_to_action_ms) == len(record.camera_to_command_ms) == len(record.tokens) == STEPS
        assert record.instruction == "put the bowl on the stove"
        first, again = (client.run_episode("libero_goal", 1, 0, EPISODE_S).tokens for _ in range(2))
        assert first == again == tokens_without_ros(policy, task_id=1, initial_state=0)
        with pytest.raises(GraphError, match="initial_state"):
            client.run_episode("libero_goal", 1, 999, EPISODE_S)
        with pytest.raises(GraphError, match="libero_goal"):
            client.run_episode("libero_nonsense", 0, 0, EPISODE_S)
        the_decoder_is_exchanged_between_episodes(client, first)
        reset_ends_an_episode_that_nobody_answers(client)
        assert graph.is_alive()
    assert sorted(video.name for video in videos.glob("*.mp4")) == [
        "libero_goal_1_00.mp4",
        "libero_goal_1_03.mp4",
        "libero_goal_8_03.mp4",
    ]


def test_in_real_time_and_one_process_the_world_moves_at_its_rate_whatever_the_decoder_takes(
    tmp_path: Path, policy: Path, short_episodes: Path
) -> None:
    arguments = {"policy": str(policy), "params": str(short_episodes), "mode": "realtime", "composed": "true"}
    with running(tmp_path, **arguments) as (_, client):
        record = client.run_episode("libero_goal", 8, 0, EPISODE_S)
        assert record.steps == STEPS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"suite": "libero_nonsense"}, "libero_goal"), ({"task": "99"}, "task_id"), ({"policy": "/nowhere"}, "lacks")],
)
def test_an_unknown_suite_task_or_checkpoint_brings_the_launch_down_and_says_why(
    tmp_path: Path, policy: Path, arguments: dict[str, str], says: str
) -> None:
    log = tmp_path / "launch.log"
    graph = SimulatedGraph(LAUNCH_FILE, {"policy": str(policy), **arguments}, os.environ, log)
    status = graph.wait(READY_S)
    graph.close()
    assert status == 1
    assert says in log.read_text()
