"""A change of the scene is told from the arm's own motion by where it happens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_sd_ros.decoding.scene import SceneChange

SIDE_PX = 112


def scene(square_at: tuple[int, int] | None = None, brightness: int = 60, size_px: int = SIDE_PX) -> np.ndarray:
    """A grey table with a white square of 16 px."""
    image = np.full((size_px, size_px, 3), brightness, dtype=np.uint8)
    if square_at is not None:
        row, column = square_at
        image[row : row + 16, column : column + 16] = 255
    return image


def surprises(*images: np.ndarray) -> list[float]:
    watch = SceneChange()
    return [watch.look(image) for image in images]


def test_the_first_two_images_surprise_nobody() -> None:
    assert surprises(scene(), scene((40, 40))) == [0.0, 0.0]


def test_an_object_that_appears_in_a_quiet_scene_is_a_surprise() -> None:
    found = surprises(scene((8, 8)), scene((8, 8)), scene((8, 24)))
    assert found[2] == pytest.approx((255 - 60) / 255, abs=0.01)


def test_a_steady_motion_is_no_surprise_and_one_elsewhere_beside_it_is() -> None:
    steady = [scene((40, 8 + 4 * step)) for step in range(8)]
    assert max(surprises(*steady)) < 0.05
    pushed = steady[-1].copy()
    pushed[90:106, 90:106] = 255
    assert surprises(*steady[:-1], pushed)[-1] > 0.7


@settings(max_examples=50, deadline=None)
@given(st.integers(14, 260), st.integers(0, 2**32 - 1))
def test_a_scene_that_stands_still_never_surprises_at_any_size(size_px: int, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (size_px, size_px, 3), dtype=np.uint8)
    assert surprises(image, image, image) == [0.0, 0.0, 0.0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6))
def test_a_surprise_lies_between_nothing_and_everything(seeds: list[int]) -> None:
    images = [np.random.default_rng(seed).integers(0, 256, (28, 28, 3), dtype=np.uint8) for seed in seeds]
    assert all(0.0 <= each <= 1.0 for each in surprises(*images))
