from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.image import fit_image, pixel_values


@settings(max_examples=40, deadline=None)
@given(
    height=st.integers(1, 90),
    width=st.integers(1, 90),
    size_px=st.integers(1, 64),
    crop_fraction=st.floats(0.05, 1.0),
    level=st.integers(0, 255),
)
def test_any_image_of_one_colour_fits_and_keeps_its_colour(
    height: int, width: int, size_px: int, crop_fraction: float, level: int
) -> None:
    image = np.full((height, width, 3), (level, 10, 200), dtype=np.uint8)
    fitted = fit_image(image, size_px, crop_fraction)
    assert fitted.shape == (size_px, size_px, 3) and fitted.dtype == np.uint8
    assert (fitted == np.array([level, 10, 200])).all()


def test_the_crop_is_square_and_centred() -> None:
    image = np.zeros((40, 80, 3), dtype=np.uint8)
    image[10:30, 30:50] = 255
    assert (fit_image(image, 20, crop_fraction=0.5) == 255).all()


def test_an_image_of_the_right_size_is_not_changed() -> None:
    image = np.random.default_rng(0).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    np.testing.assert_array_equal(fit_image(image, 28), image)


def test_shrinking_by_two_averages_four_pixels() -> None:
    image = np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    mean = image.reshape(28, 2, 28, 2, 3).mean((1, 3))
    assert np.abs(fit_image(image, 28) - mean).max() <= 0.5


@pytest.mark.parametrize(
    ("image", "size_px", "crop_fraction", "named"),
    [
        (np.zeros((4, 4, 3), np.float32), 2, 1.0, "float32"),
        (np.zeros((4, 4), np.uint8), 2, 1.0, r"\(4, 4\)"),
        (np.zeros((0, 4, 3), np.uint8), 2, 1.0, r"\(0, 4, 3\)"),
        (np.zeros((4, 4, 3), np.uint8), 0, 1.0, "size_px: 0"),
        (np.zeros((4, 4, 3), np.uint8), 2, 0.0, "crop_fraction: 0.0"),
        (np.zeros((4, 4, 3), np.uint8), 2, float("nan"), "crop_fraction: nan"),
    ],
)
def test_what_is_no_image_is_refused_by_name(image: np.ndarray, size_px: int, crop_fraction: float, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        fit_image(image, size_px, crop_fraction)


def test_each_tower_gets_its_own_normalisation(tiny_config: PolicyConfig) -> None:
    image = np.random.default_rng(0).integers(0, 256, (2, 28, 28, 3), dtype=np.uint8)
    pixels = pixel_values(image, tiny_config).numpy()
    unit = image.transpose(0, 3, 1, 2) / 255.0
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(pixels[:, :3], (unit - mean[:, None, None]) / deviation[:, None, None], atol=1e-5)
    np.testing.assert_allclose(pixels[:, 3:], unit * 2 - 1, atol=1e-5)


def test_array_and_tensor_give_the_same_pixels_whatever_their_leading_shape(tiny_config: PolicyConfig) -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 3), dtype=np.uint8)
    batch = pixel_values(image, tiny_config)
    assert batch.shape == (3, 6, 28, 28) and batch.dtype == torch.float32
    torch.testing.assert_close(pixel_values(torch.from_numpy(image).float(), tiny_config), batch)
    torch.testing.assert_close(pixel_values(image[1], tiny_config), batch[1])


@pytest.mark.parametrize(
    "image", [np.zeros((27, 28, 3), np.uint8), np.zeros((28, 28, 4), np.uint8), np.zeros((28, 28, 3), np.float32)]
)
def test_pixels_of_another_size_or_type_are_refused(image: np.ndarray, tiny_config: PolicyConfig) -> None:
    with pytest.raises(ValueError, match="image"):
        pixel_values(image, tiny_config)
