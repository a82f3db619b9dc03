"""Images as OpenVLA sees them, against what TensorFlow and the published processor made (``golden/make_*.py``)."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_image import synthetic_image

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.image import fit_image, pixel_values
from vla_sd_ros.policy.resampling import centre_crop, lanczos3

GOLDEN = Path(__file__).parent / "golden"
STRIDE = 5
SOURCES = [(256, 256), (480, 640), (720, 1280), (97, 131)]
SIDE_OF_AREA = math.sqrt(0.9)


@pytest.fixture(scope="module")
def tensorflow() -> Any:
    return np.load(GOLDEN / "tensorflow_images.npz")


@pytest.fixture(scope="module")
def processor() -> Any:
    return np.load(GOLDEN / "processor_images.npz")


def key(step: str, source: tuple[int, int]) -> str:
    return f"{step}_{source[0]}x{source[1]}"


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("step", "fraction"), [("resized", 1.0), ("cropped", SIDE_OF_AREA)])
def test_lanczos_and_crop_are_tensorflows(source: tuple[int, int], step: str, fraction: float, tensorflow: Any) -> None:
    ours = fit_image(synthetic_image(*source), 224, fraction, resize="lanczos3", crop="after")
    wanted = tensorflow[key(step, source)]
    difference = np.abs(ours[::STRIDE, ::STRIDE].astype(int) - wanted)
    assert difference.max() <= 1 and (difference > 0).mean() < 1e-3


@pytest.mark.parametrize("source", [(256, 256), (480, 640), (97, 131)])
def test_no_pixel_differs_from_tensorflows(source: tuple[int, int], tensorflow: Any) -> None:
    # Of 1280 x 720 px one value of 150 528 does, where a sine of the C library is rounded otherwise.
    small = lanczos3(synthetic_image(*source), 224, 224)
    assert digest(small) == str(tensorflow[key("resized", source) + "_sha256"])
    assert digest(centre_crop(small, SIDE_OF_AREA)) == str(tensorflow[key("cropped", source) + "_sha256"])


def test_the_root_of_the_area_may_be_written_to_seven_digits() -> None:
    image = synthetic_image(224, 224)
    np.testing.assert_array_equal(centre_crop(image, 0.9486833), centre_crop(image, SIDE_OF_AREA))


@pytest.mark.parametrize("source", SOURCES)
def test_bicubic_is_the_published_processors(source: tuple[int, int], processor: Any) -> None:
    ours = fit_image(synthetic_image(*source), 224, resize="bicubic", crop="after")
    np.testing.assert_array_equal(ours[::STRIDE, ::STRIDE], processor[key("resized", source)])
    assert digest(ours) == str(processor[key("resized", source) + "_sha256"])


def test_pixels_are_the_published_processors_dinov2_first(processor: Any) -> None:
    image = fit_image(synthetic_image(*SOURCES[-1]), 224, resize="bicubic", crop="after")
    pixels = pixel_values(image, PolicyConfig.openvla_7b()).numpy()
    wanted = processor["pixels"]
    np.testing.assert_allclose(pixels[:, :: 2 * STRIDE, :: 2 * STRIDE], wanted, rtol=0.0, atol=1e-6)
    assert digest(pixels) == str(processor["pixels_sha256"])
    assert not np.allclose(wanted[:3], wanted[3:], atol=0.1)


def test_pixels_on_their_way_in_as_floats_are_the_same() -> None:
    image, config = synthetic_image(224, 224), PolicyConfig.openvla_7b()
    levels = torch.from_numpy(image).float()
    torch.testing.assert_close(pixel_values(levels, config), pixel_values(image, config), rtol=0.0, atol=0.0)
    assert levels.max() > 1.0  # what was given is not changed


@pytest.mark.parametrize("resize", ["bicubic", "lanczos3"])
def test_before_the_resize_the_crop_is_a_square_of_the_camera_image(resize: Any) -> None:
    image = synthetic_image(40, 60)
    fitted = fit_image(image, 28, 0.5, resize)
    np.testing.assert_array_equal(fitted, fit_image(np.ascontiguousarray(image[10:30, 20:40]), 28, 1.0, resize))


@pytest.mark.parametrize("resize", ["area", "bicubic", "lanczos3"])
def test_after_the_resize_the_crop_is_of_the_whole_stretched_image(resize: Any) -> None:
    image = np.zeros((40, 80, 3), dtype=np.uint8)
    image[:, :8] = image[:, -8:] = 255
    whole = fit_image(image, 40, 1.0, resize, crop="after")
    assert whole[:, 0].min() > 200 and whole[:, 20].max() < 10
    assert fit_image(image, 40, 0.75, resize, crop="after").max() < 60


@pytest.mark.parametrize("resize", ["area", "bicubic", "lanczos3"])
@pytest.mark.parametrize("crop", ["before", "after"])
@settings(max_examples=15, deadline=None)
@given(
    height=st.integers(1, 60),
    width=st.integers(1, 60),
    size_px=st.integers(1, 40),
    fraction=st.floats(0.05, 1.0),
    level=st.integers(0, 255),
)
def test_one_colour_stays_one_colour_under_every_filter(
    resize: Any, crop: Any, height: int, width: int, size_px: int, fraction: float, level: int
) -> None:
    image = np.full((height, width, 3), (level, 10, 200), dtype=np.uint8)
    fitted = fit_image(image, size_px, fraction, resize, crop)
    assert fitted.shape == (size_px, size_px, 3) and fitted.dtype == np.uint8
    assert fitted.flags.c_contiguous and (fitted == np.array([level, 10, 200])).all()


@pytest.mark.parametrize("resize", ["bicubic", "lanczos3"])
def test_an_image_of_the_models_size_passes_unchanged(resize: Any) -> None:
    image = synthetic_image(28, 28)
    np.testing.assert_array_equal(fit_image(image, 28, resize=resize, crop="after"), image)
    np.testing.assert_array_equal(lanczos3(image, 28, 28), image)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"resize": "letterbox"}, "resize: letterbox; legal: area, bicubic, lanczos3"),
        ({"crop": "instead"}, "crop: instead; legal: before, after"),
    ],
)
def test_an_unknown_filter_or_place_of_the_crop_is_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        fit_image(synthetic_image(8, 8), 4, **arguments)
