"""Keys, instructions, frames and the projection."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from demonstration_frames import VISUAL_WIDTH, random_frames, random_keys
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.retrieval.frames import join_frames, look_ahead, steps_to_change
from vla_sd_ros.retrieval.instruction import normalise_instruction
from vla_sd_ros.retrieval.keys import key_from_features, visual_width
from vla_sd_ros.retrieval.projection import POSITION_WEIGHT_PER_M, fit_projection

SEEDS = st.integers(0, 2**32 - 1)


def some_features(seed: int = 0, patches: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(patches, 10)).astype(np.float32)


@given(SEEDS, st.sampled_from([1, 2, 4]))
def test_the_image_part_of_a_key_has_unit_length(seed: int, cells: int) -> None:
    key = key_from_features(some_features(seed), (4, 6), cells=cells)
    assert key.shape == (visual_width((4, 6), cells),)
    assert key.dtype == np.float32
    assert np.linalg.norm(key) == pytest.approx(1.0, abs=1e-5)


@given(SEEDS, st.floats(0.01, 100), st.floats(0.01, 100))
def test_a_key_does_not_depend_on_how_loud_a_tower_is(seed: int, first: float, second: float) -> None:
    features = some_features(seed)
    loud = features * np.repeat([first, second], [4, 6])
    np.testing.assert_allclose(key_from_features(loud, (4, 6)), key_from_features(features, (4, 6)), atol=1e-5)


def test_a_cell_is_the_mean_of_its_own_patches() -> None:
    features = np.zeros((16, 10), np.float32)
    features[[0, 1, 4, 5]] = 1.0  # the top left quarter of four by four patches
    key = key_from_features(features, (4, 6))
    assert (key[:4] > 0).all() and (key[4:16] == 0).all()
    assert (key[16:22] > 0).all() and (key[22:] == 0).all()


def test_the_position_is_appended_in_metres() -> None:
    alone = key_from_features(some_features(), (4, 6))
    with_position = key_from_features(some_features(), (4, 6), np.array([0.4, -0.1, 0.2]))
    np.testing.assert_array_equal(with_position[:-3], alone)
    np.testing.assert_allclose(with_position[-3:], [0.4, -0.1, 0.2], rtol=1e-6)
    assert with_position.dtype == np.float32


def test_features_of_a_black_hole_give_a_key_of_zeros_not_of_nan() -> None:
    assert (key_from_features(np.zeros((16, 10)), (4, 6)) == 0).all()


@pytest.mark.parametrize(
    ("patches", "widths", "message"),
    [(16, (4, 5), "the sum of"), (15, (4, 6), "a square"), (9, (4, 6), "cells divide")],
)
def test_features_of_a_wrong_shape_are_refused(patches: int, widths: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        key_from_features(some_features(patches=patches), widths)


def test_a_position_of_a_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="position"):
        key_from_features(some_features(), (4, 6), np.zeros(2))


@given(st.text(min_size=1).filter(lambda text: text.split()))
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise_instruction(text)
    assert normalise_instruction(once) == once
    assert unicodedata.is_normalized("NFC", once)


def test_spellings_of_one_instruction_are_one_and_of_two_are_two() -> None:
    assert normalise_instruction("  Put the\tBowl\n on the  plate ") == "put the bowl on the plate"
    assert normalise_instruction("cafe\u0301") == normalise_instruction("CAF\u00c9")
    assert normalise_instruction("pick up the butter") != normalise_instruction("pick up the milk")
    with pytest.raises(ValueError, match="empty"):
        normalise_instruction(" \n")


def test_the_look_ahead_repeats_the_last_action_and_stays_in_its_episode() -> None:
    tokens = np.arange(7)[None] + 100 * np.arange(1, 6)[:, None]
    ahead = look_ahead(tokens, np.array([3, 3, 3, 1, 1]), length=3)
    assert (
        ahead[:, :, 0] == [[200, 300, 300], [300, 300, 300], [300, 300, 300], [500, 500, 500], [500, 500, 500]]
    ).all()


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 9))
def test_the_look_ahead_is_what_walking_the_episode_gives(lengths: list[int], length: int) -> None:
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    tokens = np.random.default_rng(0).integers(0, 256, (len(episodes), 7))
    ahead = look_ahead(tokens, episodes, length)
    for row in range(len(tokens)):
        last = np.flatnonzero(episodes == episodes[row])[-1]
        for j in range(length):
            np.testing.assert_array_equal(ahead[row, j], tokens[min(row + 1 + j, last)])


def test_steps_to_a_change_of_the_gripper_count_both_ways() -> None:
    command = np.array([True, True, True, False, False, False, False, True])
    assert steps_to_change(command).tolist() == [3, 2, 1, 0, 1, 2, 1, 0]
    assert steps_to_change(np.ones(4, bool)).tolist() == [4, 4, 4, 4]


def test_frames_of_wrong_shapes_are_refused() -> None:
    frames = random_frames(20, 0)
    for change, message in (
        ({"tokens": frames.tokens[:, :6]}, "tokens"),
        ({"episodes": frames.episodes[:-1]}, "episodes"),
        ({"keys": frames.keys.astype(np.float32)}, "float16"),
        ({"keys": frames.keys * np.float16(np.nan)}, "not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(frames, **change)
    with pytest.raises(ValueError, match="at least 1"):
        join_frames([])


def test_joined_frames_keep_their_order() -> None:
    first, second = random_frames(20, 0), random_frames(10, 1)
    joined = join_frames([first, second])
    np.testing.assert_array_equal(joined.tokens, np.concatenate([first.tokens, second.tokens]))


@given(SEEDS)
def test_all_components_keep_every_distance_and_weigh_the_position(seed: int) -> None:
    keys = random_keys(np.random.default_rng(seed), 60)
    projected = fit_projection(keys, VISUAL_WIDTH)(keys)
    weighed = keys * np.repeat([1.0, POSITION_WEIGHT_PER_M], [VISUAL_WIDTH, 3])
    np.testing.assert_allclose(
        np.linalg.norm(projected[0] - projected[1:], axis=1),
        np.linalg.norm(weighed[0] - weighed[1:], axis=1),
        atol=1e-4,
    )


def test_few_components_keep_what_varies() -> None:
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(100, 20)) * np.repeat([1.0, 1e-3], [4, 16])
    projection = fit_projection(keys, 20, components=4)
    assert projection.matrix.shape == (20, 4)
    kept, whole = projection(keys), keys - keys.mean(0)
    np.testing.assert_allclose((kept**2).sum(), (whole**2).sum(), rtol=1e-3)


def test_a_projection_of_too_few_frames_has_fewer_components() -> None:
    assert fit_projection(random_keys(np.random.default_rng(0), 3), VISUAL_WIDTH).matrix.shape[1] == 3 + 3
    with pytest.raises(ValueError, match="width"):
        fit_projection(np.zeros((5, VISUAL_WIDTH + 1)), VISUAL_WIDTH)
