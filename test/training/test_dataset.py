"""Statistics, split and augmentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.actions.bins import ActionBins
from vla_sd_ros.actions.statistics import load_statistics
from vla_sd_ros.training.dataset import (
    action_ids,
    action_statistics,
    augment,
    coarsen_tokens,
    disturb_tokens,
    load_frames,
    make_batch,
)
from vla_sd_ros.training.demonstrations import find_demonstrations, load_demonstration

BINS = ActionBins(400)


def test_labels_survive_the_tokens_to_within_half_a_bin(demonstrations: Path) -> None:
    paths = find_demonstrations(demonstrations)
    frames, table = load_frames(paths, BINS, "demo", 0.2)
    statistics = load_statistics(table, "demo")
    actions = np.concatenate([load_demonstration(path).actions for path in paths])
    back = statistics.unnormalise(BINS.normalised_from_ids(frames.action_ids))
    half_bin = (statistics.q99 - statistics.q01) / 255 / 2 + 1e-6
    assert (np.abs(back - actions)[:, :6] <= half_bin[:6]).all()
    assert ((back[:, 6] > 0.5) == (actions[:, 6] > 0.5)).all()


def test_rotation_statistics_have_a_floor() -> None:
    actions = np.random.default_rng(0).normal(0, 1e-4, (1000, 7)).astype(np.float32)
    entry = action_statistics(actions, 3)
    assert entry["action"]["q99"][3:] == [0.15, 0.15, 0.15, 1.0]
    assert entry["action"]["mask"] == [True] * 6 + [False]
    assert (entry["num_transitions"], entry["num_trajectories"]) == (1000, 3)


def test_a_rest_action_has_the_same_token_in_every_direction() -> None:
    statistics = load_statistics({"demo": action_statistics(np.zeros((10, 7), np.float32), 1)}, "demo")
    assert len(set(action_ids(np.zeros(7), statistics, BINS)[:6].tolist())) == 1


def test_whole_episodes_of_every_task_are_held_out(demonstrations: Path) -> None:
    frames, _ = load_frames(find_demonstrations(demonstrations), BINS, "demo", 0.2)
    assert len(frames.held_out) == 2 * 12
    assert set(frames.instruction_of[frames.held_out]) == {0, 1}
    assert not set(frames.held_out) & set(frames.training)
    assert frames.episodes_per_task == {"libero_goal/4": 5, "libero_goal/8": 5}
    np.testing.assert_allclose(frames.poses.mean(0), 0, atol=1e-5)


def test_a_batch_pairs_each_image_with_its_own_prompt(demonstrations: Path) -> None:
    frames, _ = load_frames(find_demonstrations(demonstrations), BINS, "demo", 0.2)
    prompts = [np.array([1, 2]), np.array([1, 3, 4])]
    rows = np.array([0, 119, 5])
    batch = make_batch(frames, prompts, rows)
    for prompt, row in zip(batch.prompts, rows, strict=True):
        np.testing.assert_array_equal(prompt, prompts[frames.instruction_of[row]])
    np.testing.assert_array_equal(batch.images, frames.images[rows])


@given(st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_augmentation_moves_each_image_by_at_most_the_shift(shift: int, seed: int) -> None:
    image = np.random.default_rng(0).integers(0, 255, (4, 16, 16, 3), dtype=np.uint8)
    changed = augment(image, np.random.default_rng(seed), shift, 0.0, 0.0)
    for before, after in zip(image, changed, strict=True):
        inner = after[3:-3, 3:-3]
        places = [
            (dy, dx)
            for dy in range(-shift, shift + 1)
            for dx in range(-shift, shift + 1)
            if np.array_equal(inner, before[3 + dy : 13 + dy, 3 + dx : 13 + dx])
        ]
        assert places


def test_brightness_changes_whole_images_and_stays_in_range() -> None:
    image = np.full((64, 8, 8, 3), 250, dtype=np.uint8)
    changed = augment(image, np.random.default_rng(0), 0, 0.15, 10.0)
    assert changed.dtype == np.uint8
    assert changed.max() == 255
    assert len({int(v) for v in changed[:, 0, 0, 0]}) > 3
    assert (changed == changed[:, :1, :1]).all()


def test_statistics_of_a_wrong_key_are_refused(demonstrations: Path) -> None:
    _, table = load_frames(find_demonstrations(demonstrations), BINS, "demo", 0.2)
    with pytest.raises(ValueError, match="demo"):
        load_statistics(table, "other")


@given(st.integers(0, 2**20), st.floats(0, 60))
def test_disturbed_tokens_stay_legal_and_keep_the_gripper(seed: int, deviation_bins: float) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(BINS.first_id, BINS.vocab_size, (16, 7))
    disturbed = disturb_tokens(ids, BINS, rng, deviation_bins)
    assert ((disturbed >= BINS.first_id) & (disturbed < BINS.vocab_size)).all()
    np.testing.assert_array_equal(disturbed[:, 6], ids[:, 6])


def test_tokens_are_disturbed_by_as_much_as_is_asked_for() -> None:
    ids = np.full((4000, 7), BINS.first_id + 128)
    np.testing.assert_array_equal(disturb_tokens(ids, BINS, np.random.default_rng(0), 0.0), ids)
    spread = (disturb_tokens(ids, BINS, np.random.default_rng(0), 16.0) - ids)[:, :6].std()
    assert 0.8 * 16 / np.sqrt(3) < spread < 1.2 * 16 / np.sqrt(3), "a deviation between 0 and 16 for every row"


@given(st.integers(0, 2**20), st.integers(1, 32))
def test_coarser_labels_are_at_most_half_a_step_away_and_keep_rest_and_gripper(seed: int, grid_bins: int) -> None:
    ids = np.random.default_rng(seed).integers(BINS.first_id, BINS.vocab_size, (16, 7))
    ids[0, :6] = BINS.ids_from_normalised(0.0)
    coarse = coarsen_tokens(ids, BINS, grid_bins)
    moved = np.abs(BINS.bin_of(coarse) - BINS.bin_of(ids))
    assert moved.max() <= grid_bins / 2
    np.testing.assert_array_equal(coarse[0, :6], ids[0, :6])
    np.testing.assert_array_equal(coarse[:, 6], ids[:, 6])
    inner = (BINS.bin_of(coarse) > 0) & (BINS.bin_of(coarse) < 254)
    inner[:, 6] = False
    assert ((BINS.bin_of(coarse)[inner] - 127) % grid_bins == 0).all()
