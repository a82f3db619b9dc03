from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_makers import colour_card, compressed, image

from vla_sd_ros.ros import images
from vla_sd_ros.ros.images import (
    DEFAULT_ENCODINGS,
    SUPPORTED_ENCODINGS,
    InvalidImage,
    rgb_from_compressed,
    rgb_from_image,
)

# Where row and column parity say which colour a sensor's pixel has: R, G or B by index.
BAYER_COLOURS = {
    "bayer_rggb8": [[0, 1], [1, 2]],
    "bayer_bggr8": [[2, 1], [1, 0]],
    "bayer_gbrg8": [[1, 2], [0, 1]],
    "bayer_grbg8": [[1, 0], [2, 1]],
}
YUV = ("yuv422", "uyvy", "yuv422_yuy2", "yuyv")


def mosaic(rgb: np.ndarray, pattern: str) -> np.ndarray:
    """What a sensor with that pattern sees, uint8 [H, W]."""
    raw = np.zeros(rgb.shape[:2], dtype=np.uint8)
    for row in (0, 1):
        for column in (0, 1):
            raw[row::2, column::2] = rgb[row::2, column::2, BAYER_COLOURS[pattern][row][column]]
    return raw


def yuv(rgb: np.ndarray, encoding: str) -> np.ndarray:
    """BT.601 video range, 4:2:2, uint8 [H, W, 2]."""
    r, g, b = (rgb[..., channel].astype(float) / 255.0 for channel in range(3))
    luma = 16.0 + 65.481 * r + 128.553 * g + 24.966 * b
    blue = (128.0 - 37.797 * r - 74.203 * g + 112.0 * b)[:, ::2]
    red = (128.0 + 112.0 * r - 93.786 * g - 18.214 * b)[:, ::2]
    packed = np.zeros((*rgb.shape[:2], 2))
    luma_at = 1 if encoding in ("yuv422", "uyvy") else 0
    packed[..., luma_at] = luma
    packed[:, 0::2, 1 - luma_at], packed[:, 1::2, 1 - luma_at] = blue, red
    return np.rint(packed).astype(np.uint8)


def encoded(rgb: np.ndarray, encoding: str) -> np.ndarray:
    alpha = np.full((*rgb.shape[:2], 1), 77, dtype=np.uint8)
    if encoding in BAYER_COLOURS:
        return mosaic(rgb, encoding)
    if encoding in YUV:
        return yuv(rgb, encoding)
    return {
        "rgb8": rgb,
        "bgr8": rgb[..., ::-1],
        "rgba8": np.concatenate([rgb, alpha], axis=2),
        "bgra8": np.concatenate([rgb[..., ::-1], alpha], axis=2),
    }[encoding]


def assert_shows_the_card(found: np.ndarray, card: np.ndarray, tolerance: int) -> None:
    assert found.dtype == np.uint8 and found.shape == card.shape
    height, width = card.shape[:2]
    for row in (height // 4, 3 * height // 4):
        for column in (width // 4, 3 * width // 4):
            assert np.abs(found[row, column].astype(int) - card[row, column]).max() <= tolerance, (row, column)


COLOUR_ENCODINGS = [name for name in SUPPORTED_ENCODINGS if name != "mono8"]


@pytest.mark.parametrize("padding", [0, 1, 13])
@pytest.mark.parametrize("encoding", COLOUR_ENCODINGS)
def test_a_colour_card_keeps_its_colours_in_every_encoding(encoding: str, padding: int) -> None:
    card = colour_card(32, 48)
    pixels = encoded(card, encoding)
    row = pixels.reshape(32, -1).shape[1]
    found = rgb_from_image(image(pixels, encoding, step=row + padding))
    assert_shows_the_card(found, card, tolerance=3 if encoding in YUV else 0)


@pytest.mark.parametrize("encoding", COLOUR_ENCODINGS)
def test_big_endian_is_the_same_for_eight_bits(encoding: str) -> None:
    little = image(encoded(colour_card(16, 16), encoding), encoding)
    big = image(encoded(colour_card(16, 16), encoding), encoding)
    big.is_bigendian = 1
    assert (rgb_from_image(little) == rgb_from_image(big)).all()


@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 40), st.booleans(), st.randoms(use_true_random=False))
def test_padded_rows_give_the_same_picture(height: int, width: int, padding: int, short: bool, random: Any) -> None:
    rgb = np.frombuffer(random.randbytes(height * width * 3), dtype=np.uint8).reshape(height, width, 3)
    message = image(rgb, step=width * 3 + padding)
    if short and padding:
        message.data = message.data[:-padding]  # the last row may come without its padding
    assert (rgb_from_image(message) == rgb).all()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"step": 0}, "step 0 cannot hold a row of 16 px in rgb8 .48 bytes"),
        ({"step": 47}, "step 47 cannot hold"),
        ({"data": []}, "data holds 0 bytes; 16 x 8 px of rgb8 need 384"),
        ({"data": bytes(383)}, "data holds 383 bytes"),
        ({"height": 0}, "16 x 0 px is empty"),
        ({"width": 0}, "0 x 8 px is empty"),
        ({"height": 2**32 - 1}, "need"),
        ({"width": 2**32 - 1, "step": 2**32 - 1}, "step"),
        ({"width": 2**30, "step": 2**32 - 1, "height": 2**32 - 1}, "need"),
        ({"step": 2**32 - 1}, "need"),
    ],
)
def test_sizes_that_do_not_fit_the_data_are_refused_with_the_figures(changes: dict[str, Any], named: str) -> None:
    message = image(colour_card(8, 16))
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(InvalidImage, match=named):
        rgb_from_image(message)


@pytest.mark.parametrize(
    "encoding", ["mono16", "16UC1", "32FC1", "rgb16", "bgr16", "bayer_rggb16", "8UC1", "8UC3", "nv21", "", "RGB"]
)
def test_depth_and_sixteen_bits_and_unknown_encodings_are_refused_by_name(encoding: str) -> None:
    message = image(np.zeros((8, 16, 8), dtype=np.uint8), encoding)
    with pytest.raises(InvalidImage, match=f"encoding '{encoding}' is not accepted; legal"):
        rgb_from_image(message, SUPPORTED_ENCODINGS)


def test_grey_is_refused_unless_it_is_asked_for() -> None:
    grey = np.arange(128, dtype=np.uint8).reshape(8, 16)
    with pytest.raises(InvalidImage, match="mono8"):
        rgb_from_image(image(grey, "mono8"))
    assert (rgb_from_image(image(grey, "mono8"), ["mono8"]) == grey[..., None]).all()


def test_only_the_allowed_encodings_pass() -> None:
    with pytest.raises(InvalidImage, match=r"'bgr8' is not accepted; legal: \['rgb8'\]"):
        rgb_from_image(image(colour_card(8, 8), "bgr8"), ["rgb8"])
    assert "mono8" not in DEFAULT_ENCODINGS


@pytest.mark.parametrize("encoding", [*YUV, *BAYER_COLOURS])
def test_a_picture_too_small_for_its_encoding_is_refused_or_read(encoding: str) -> None:
    channels = 2 if encoding in YUV else 1
    for height, width in ((1, 1), (1, 2), (2, 1), (3, 3)):
        try:
            found = rgb_from_image(image(np.full((height, width, channels), 90, dtype=np.uint8), encoding))
        except InvalidImage:
            continue
        assert found.shape == (height, width, 3)


def test_cv_bridge_where_it_is_there_gives_the_same_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bridge:
        """What cv_bridge's ``passthrough`` returns: the pixels by channels, rows unpadded."""

        def imgmsg_to_cv2(self, message: Any, desired_encoding: str) -> np.ndarray:
            assert desired_encoding == "passthrough"
            pixels = np.frombuffer(message.data, dtype=np.uint8).reshape(message.height, message.width, -1)
            return pixels[..., 0] if pixels.shape[-1] == 1 else pixels

    messages = [image(encoded(colour_card(16, 32), name), name) for name in COLOUR_ENCODINGS]
    without = [rgb_from_image(message) for message in messages]
    monkeypatch.setattr(images, "CvBridge", Bridge)
    for message, expected in zip(messages, without, strict=True):
        assert (rgb_from_image(message) == expected).all()


@pytest.mark.parametrize(
    ("form", "allowed"),
    [
        ("png", ["rgb8"]),
        ("png", ["bgr8"]),
        ("", ["rgb8"]),
        ("rgb8; png compressed bgr8", ["rgb8"]),
        ("bgr8; png compressed bgr8", ["bgr8"]),
        ("rgba8; png compressed bgra8", ["rgba8"]),
        ("bayer_rggb8; png compressed bgr8", ["bayer_rggb8"]),
        ("yuv422; jpeg compressed bgr8", ["yuv422"]),
    ],
)
def test_a_png_keeps_the_colours_whatever_its_format_says(form: str, allowed: list[str]) -> None:
    card = colour_card(32, 48)
    assert (rgb_from_compressed(compressed(card[..., ::-1], form=form), allowed) == card).all()


def test_a_png_with_alpha_keeps_its_colours() -> None:
    card = colour_card(32, 48)
    message = compressed(encoded(card, "bgra8"), form="bgra8; png compressed bgra8")
    assert (rgb_from_compressed(message) == card).all()


@pytest.mark.parametrize("form", ["jpeg", "bgr8; jpeg compressed bgr8", "rgb8; jpeg compressed bgr8"])
def test_a_jpeg_keeps_the_colours(form: str) -> None:
    card = colour_card(64, 64)
    assert_shows_the_card(rgb_from_compressed(compressed(card[..., ::-1], ".jpg", form)), card, tolerance=6)


@pytest.mark.parametrize("pattern", BAYER_COLOURS)
def test_a_compressed_bayer_picture_is_demosaiced_like_a_raw_one(pattern: str) -> None:
    card = colour_card(32, 48)
    raw = mosaic(card, pattern)
    found = rgb_from_compressed(compressed(raw, form=f"{pattern}; png compressed {pattern}"))
    assert_shows_the_card(found, card, tolerance=0)
    assert (found == rgb_from_image(image(raw, pattern))).all()


def test_a_bayer_picture_in_a_fine_jpeg_keeps_its_colours_roughly() -> None:
    card = colour_card(64, 64)
    message = compressed(mosaic(card, "bayer_grbg8"), ".jpg", "bayer_grbg8; jpeg compressed", quality=100)
    assert_shows_the_card(rgb_from_compressed(message), card, tolerance=12)


@pytest.mark.parametrize(
    "form",
    ["16UC1; compressedDepth", "32FC1; compressedDepth png", "16UC1; png compressed 16UC1", "mono16; png compressed "],
)
def test_compressed_depth_and_sixteen_bits_are_refused_by_name(form: str) -> None:
    message = compressed(np.full((8, 8), 3000, dtype=np.uint16), form=form)
    with pytest.raises(InvalidImage, match="(?i)depth|16"):
        rgb_from_compressed(message, SUPPORTED_ENCODINGS)


@pytest.mark.parametrize("form", ["png", "rgb8; png compressed bgr8"])
def test_sixteen_bits_under_an_eight_bit_name_are_refused(form: str) -> None:
    message = compressed(np.full((8, 8, 3), 3000, dtype=np.uint16), form=form)
    with pytest.raises(InvalidImage, match="uint16 pixels"):
        rgb_from_compressed(message)


@pytest.mark.parametrize("form", ["png", "rgb8; png compressed bgr8", "mono8; png compressed mono8"])
def test_a_grey_png_is_refused_unless_grey_is_asked_for(form: str) -> None:
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    with pytest.raises(InvalidImage, match="grey|mono8"):
        rgb_from_compressed(compressed(grey, form=form))
    assert (rgb_from_compressed(compressed(grey, form=form), ["rgb8", "mono8"]) == grey[..., None]).all()


def test_a_colour_picture_is_refused_where_only_grey_is_allowed() -> None:
    with pytest.raises(InvalidImage, match="mono8"):
        rgb_from_compressed(compressed(colour_card(8, 8)), ["mono8"])


def test_an_encoding_that_is_not_allowed_is_refused_though_it_decodes() -> None:
    message = compressed(colour_card(8, 8), form="bgr8; png compressed bgr8")
    with pytest.raises(InvalidImage, match=r"'bgr8' is not accepted; legal: \['rgb8'\]"):
        rgb_from_compressed(message, ["rgb8"])


@given(st.binary(max_size=200))
def test_compressed_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidImage, match="empty|does not decode"):
        rgb_from_compressed(SimpleNamespace(format="jpeg", data=data))


@pytest.mark.parametrize("extension", [".png", ".jpg"])
def test_half_a_picture_is_refused(extension: str) -> None:
    noisy = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    _, whole = cv2.imencode(extension, noisy)
    for length in (10, 50, whole.size // 2, whole.size - 1):
        with pytest.raises(InvalidImage, match="does not decode"):
            rgb_from_compressed(SimpleNamespace(format=extension[1:], data=whole[:length].tobytes()))
