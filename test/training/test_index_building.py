"""The index holds what the policy itself would have done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_policy
from typer.testing import CliRunner

from vla_sd_ros.cli.index import app
from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.retrieval.faiss_store import FaissStore
from vla_sd_ros.retrieval.index import load_index
from vla_sd_ros.retrieval.keys import key_from_features
from vla_sd_ros.training.dataset import action_ids
from vla_sd_ros.training.demonstrations import Demonstration, find_demonstrations, load_demonstration
from vla_sd_ros.training.index_building import block_widths, build_index, choose_episodes, frames_of
from vla_sd_ros.types import Observation

PLATE = "put the bowl on the plate"


@pytest.fixture
def policy() -> LoadedPolicy:
    return random_policy(tiny_policy.tiny_config())


def test_an_index_of_demonstrations_finds_their_frames_again(
    policy: LoadedPolicy, demonstrations: Path, tmp_path: Path
) -> None:
    paths = find_demonstrations(demonstrations)
    built = build_index(policy, paths, 2, batch_size=5, location=tmp_path / "index", progress=False)
    index = load_index(tmp_path / "index", policy.fingerprint)
    assert (
        index.instructions == built.instructions == ("put the bowl on the plate", "put the bowl on top of the cabinet")
    )
    assert index.size(PLATE) == 2 * 12
    demonstration = load_demonstration(demonstrations / "libero_goal" / "8" / "2.npz")
    pixels = policy.prepare_pixels(demonstration.images[3])
    features = policy.model.patch_features(pixels)[0].numpy()
    key = key_from_features(features, block_widths(policy), demonstration.proprio[3, 9:12])
    best = index.search(PLATE, key, 1)[0]
    assert best.similarity == pytest.approx(1.0, abs=1e-3)
    assert best.step == 3
    observation = Observation({"camera": demonstration.images[3]}, PLATE, 0)
    np.testing.assert_array_equal(best.tokens, AutoregressiveDecoder(policy).decode(observation).tokens)


def test_the_gripper_is_open_where_the_policy_means_open(
    policy: LoadedPolicy, make_demonstration: Callable[..., Demonstration]
) -> None:
    demonstration = make_demonstration()
    frames = frames_of(policy, demonstration, 0, 32)
    np.testing.assert_array_equal(frames.gripper_open, demonstration.actions[:, 6] == 1)
    gripper = [policy.values_from_ids(tokens)[6] for tokens in frames.expert_tokens]
    np.testing.assert_array_equal(frames.gripper_open, np.array(gripper) > 0.5)
    assert frames.gripper_open.any() and not frames.gripper_open.all()
    np.testing.assert_array_equal(
        frames.expert_tokens, action_ids(demonstration.actions, policy.statistics, policy.bins)
    )


def test_disturbed_episodes_are_left_out_unless_they_are_asked_for(demonstrations: Path) -> None:
    paths = find_demonstrations(demonstrations)
    assert [path.stem for path in choose_episodes(paths, 9, clean_only=True)] == ["2", "4", "2", "4"]
    assert [path.stem for path in choose_episodes(paths, 3, clean_only=False)] == ["1", "2", "3"] * 2
    with pytest.raises(ValueError, match="at least 1"):
        choose_episodes(paths, 0, clean_only=True)
    with pytest.raises(ValueError, match="no clean demonstrations among 1 files"):
        choose_episodes(paths[:1], 3, clean_only=True)


def test_two_builds_of_the_same_demonstrations_are_the_same(
    policy: LoadedPolicy, demonstrations: Path, tmp_path: Path
) -> None:
    stores = [build_index(policy, find_demonstrations(demonstrations), 1, progress=False).store for _ in range(2)]
    for store in stores:
        assert isinstance(store, FaissStore)
    first, second = (store.frames(PLATE) for store in stores)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(first.keys, second.keys)
    np.testing.assert_array_equal(first.tokens, second.tokens)


def test_the_command_builds_an_index_and_says_what_it_holds(demonstrations: Path, tmp_path: Path) -> None:
    folder = tiny_policy.write_policy(tmp_path / "policy")
    run = CliRunner().invoke(
        app,
        [
            "build",
            "--policy",
            str(folder),
            "--demonstrations",
            str(demonstrations),
            "--episodes",
            "1",
            "--dtype",
            "float32",
        ],
    )
    assert run.exit_code == 0, run.output
    assert "24 frames of 2 tasks" in run.output
    said = CliRunner().invoke(app, ["info", str(folder / "index")])
    assert said.exit_code == 0, said.output
    assert PLATE in said.output and "12 frames" in said.output
