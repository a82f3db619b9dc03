"""A checkpoint in OpenVLA's published layout drives the simulated arm through the whole graph."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import openvla_checkpoint as published
import rclpy
import yaml
from reference_policy import ReferencePolicy

from vla_sd_ros.actions.convention import ActionConvention
from vla_sd_ros.cli.paths import share
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.image import fit_image
from vla_sd_ros.sim.action_units import env_action_from_si
from vla_sd_ros.sim.client import SimulatorClient
from vla_sd_ros.sim.graph import SimulatedGraph
from vla_sd_ros.sim.world import LiberoWorld

READY_S = 120.0
EPISODE_S = 90.0
STEPS = 6
TASK, STATE, KEY = 1, 0, published.KEYS[1]


def parameters_for_openvla(folder: Path) -> Path:
    """The simulation's parameters as the user of an OpenVLA checkpoint changes them; float32, and a few steps."""
    parameters = yaml.safe_load((share() / "config" / "sim.yaml").read_text())
    camera = parameters["/**/camera_node"]["ros__parameters"]
    camera |= {"image_size_px": published.IMAGE_PX, "resize": "bicubic", "crop": "after", "crop_fraction": 1.0}
    parameters["/**/inference_node"]["ros__parameters"] |= {"dtype": "float32", "statistics_key": KEY}
    parameters["/**/simulator_node"]["ros__parameters"]["max_steps"] = STEPS
    file = folder / "parameters.yaml"
    file.write_text(yaml.safe_dump(parameters))
    return file


def reference_episode(checkpoint: Path) -> tuple[list[tuple[int, ...]], float]:
    """Tokens that transformers' own modules give in the same episode, and how far the arm moved, m."""
    reference, policy = ReferencePolicy(checkpoint, published.HEADS), load_policy(checkpoint, statistics_key=KEY)
    convention = ActionConvention(rotation_representation="axis_angle", action_frame="base")
    tokens = []
    with LiberoWorld("libero_goal", TASK) as world:
        world.reset(initial_state=STATE)
        before = world.end_effector_world_position()
        for _ in range(STEPS):
            image = fit_image(world.render(), published.IMAGE_PX, resize="bicubic", crop="after")
            tokens.append(tuple(reference.tokens(image, world.instruction)))
            values = policy.values_from_ids(np.array(tokens[-1]))
            world.step(env_action_from_si(convention.to_base_si(values, world.end_effector_quaternion())))
        return tokens, float(np.linalg.norm(world.end_effector_world_position() - before))


def test_a_published_checkpoint_moves_the_arm_by_the_references_tokens(tmp_path: Path) -> None:
    checkpoint = published.write_openvla_checkpoint(tmp_path / "openvla")
    arguments = {"policy": str(checkpoint), "params": str(parameters_for_openvla(tmp_path))}
    log = tmp_path / "launch.log"
    rclpy.init()
    try:
        with SimulatedGraph(share() / "launch" / "sim.launch.py", arguments, os.environ, log) as graph:
            client = SimulatorClient(graph.is_alive)
            try:
                client.wait_until_ready(READY_S)
                record = client.run_episode("libero_goal", TASK, STATE, EPISODE_S)
            finally:
                client.close()
    finally:
        rclpy.try_shutdown()
    expected, moved_m = reference_episode(checkpoint)
    assert (record.decoders, record.tokens) == (["lossless"] * STEPS, expected), log.read_text()
    assert moved_m > 0.005
