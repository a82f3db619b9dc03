"""sensor_msgs images to RGB arrays: row padding, byte order, encodings and compression, or a clear refusal.

``cv_bridge`` reads the buffer where it imports (a ROS distribution); elsewhere numpy does. Either way the sizes are
checked first and OpenCV converts the colours, so that both ways give the same picture.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from vla_sd_ros.types import Rgb

try:
    from cv_bridge import CvBridge
except ImportError:
    CvBridge = None

# ROS names a Bayer pattern by its first row (rggb: R G / G B); OpenCV by the second row's second and third pixels.
_BAYER: Final = {
    "bayer_rggb8": cv2.COLOR_BayerBG2RGB,
    "bayer_bggr8": cv2.COLOR_BayerRG2RGB,
    "bayer_gbrg8": cv2.COLOR_BayerGR2RGB,
    "bayer_grbg8": cv2.COLOR_BayerGB2RGB,
}
_COLOUR: Final = {
    "rgb8": None,
    "bgr8": cv2.COLOR_BGR2RGB,
    "rgba8": cv2.COLOR_RGBA2RGB,
    "bgra8": cv2.COLOR_BGRA2RGB,
    "mono8": cv2.COLOR_GRAY2RGB,
    "yuv422_yuy2": cv2.COLOR_YUV2RGB_YUY2,
    "yuv422": cv2.COLOR_YUV2RGB_UYVY,
    "uyvy": cv2.COLOR_YUV2RGB_UYVY,
    "yuyv": cv2.COLOR_YUV2RGB_YUY2,
    **_BAYER,
}
_CHANNELS: Final = {"rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4, "yuv422_yuy2": 2, "yuv422": 2, "uyvy": 2, "yuyv": 2}

#: Every encoding that can be turned into RGB; ``mono8`` is in the table but must be allowed explicitly.
SUPPORTED_ENCODINGS: Final = tuple(_COLOUR)
DEFAULT_ENCODINGS: Final = tuple(name for name in _COLOUR if name != "mono8")


class InvalidImage(ValueError):
    """An image that cannot be used; it is rejected whole, and the message says why."""


def rgb_from_image(message: Any, allowed: Collection[str] = DEFAULT_ENCODINGS) -> Rgb:
    """A ``sensor_msgs/Image`` as RGB, uint8 [height, width, 3].

    Args:
        message: the image; rows may be padded (``step`` larger than a row).
        allowed: encodings that are accepted, of ``SUPPORTED_ENCODINGS``.

    Raises:
        InvalidImage: on an encoding that is not allowed (depth and 16-bit ones never are), empty or short data, or a
            step that cannot hold a row; the message names the sizes.
    """
    encoding = message.encoding.lower()
    if encoding not in allowed or encoding not in _COLOUR:
        raise InvalidImage(f"encoding {message.encoding!r} is not accepted; legal: {sorted(allowed)}")
    height, width, step = int(message.height), int(message.width), int(message.step)
    channels = _CHANNELS.get(encoding, 1)
    row = width * channels
    if height == 0 or width == 0:
        raise InvalidImage(f"image of {width} x {height} px is empty")
    if step < row:
        raise InvalidImage(f"step {step} cannot hold a row of {width} px in {encoding} ({row} bytes)")
    # The last row may come without its padding.
    needed = step * (height - 1) + row
    if len(message.data) < needed:
        raise InvalidImage(f"data holds {len(message.data)} bytes; {width} x {height} px of {encoding} need {needed}")
    return _to_rgb(_pixels(message, height, row, step).reshape(height, width, channels), encoding)


def rgb_from_compressed(message: Any, allowed: Collection[str] = DEFAULT_ENCODINGS) -> Rgb:
    """A ``sensor_msgs/CompressedImage`` (JPEG or PNG, 8 bit) as RGB, uint8 [height, width, 3].

    ``format`` may name the encoding before compression ("bayer_rggb8; jpeg compressed bayer_rggb8"): Bayer pictures
    that were compressed as they are, in one channel, are then demosaiced, as raw ones are. Where it names none ("jpeg")
    a colour picture is taken as soon as any colour encoding is allowed, and a grey one where ``mono8`` is.

    Raises:
        InvalidImage: on an encoding that is not allowed, depth, 16-bit pixels, or data that does not decode.
    """
    form = message.format.lower()
    named = form.split(";")[0].strip()
    if "depth" in form:
        raise InvalidImage(f"format {message.format!r} is depth, not colour")
    if (";" in form or named in _COLOUR) and (named not in allowed or named not in _COLOUR):
        raise InvalidImage(f"encoding {named!r} is not accepted; legal: {sorted(allowed)}")
    picture = _decompressed(message)
    grey = picture.ndim == 2
    encoding = (named if named in _BAYER else "mono8") if grey else "bgr8"
    if named not in _COLOUR and (encoding not in allowed if grey else not _names_colour(allowed)):
        raise InvalidImage(f"a {'grey' if grey else 'colour'} picture is not accepted; legal: {sorted(allowed)}")
    if grey and named in _CHANNELS and "mono8" not in allowed:
        raise InvalidImage(f"the picture is grey, though its format is {message.format!r}")
    return _to_rgb(np.atleast_3d(picture), encoding)


def _names_colour(allowed: Collection[str]) -> bool:
    return any(name in _CHANNELS for name in allowed)


def _decompressed(message: Any) -> npt.NDArray[np.uint8]:
    """Grey, uint8 [height, width], or B, G, R, uint8 [height, width, 3]."""
    if len(message.data) == 0:
        raise InvalidImage("compressed image is empty")
    buffer = np.frombuffer(message.data, dtype=np.uint8)
    try:
        picture = cv2.imdecode(buffer, cv2.IMREAD_ANYDEPTH | cv2.IMREAD_ANYCOLOR)
    except cv2.error as error:
        raise InvalidImage(f"compressed image does not decode: {error}") from error
    if picture is None:
        raise InvalidImage(f"compressed image of {len(message.data)} bytes does not decode as {message.format!r}")
    if picture.dtype != np.uint8:
        raise InvalidImage(f"compressed image has {picture.dtype} pixels; legal: uint8")
    return np.asarray(picture, dtype=np.uint8)


def _pixels(message: Any, height: int, row: int, step: int) -> npt.NDArray[np.uint8]:
    if CvBridge is not None and step == row and len(message.data) == step * height:
        array = CvBridge().imgmsg_to_cv2(message, desired_encoding="passthrough")
        return np.asarray(array, dtype=np.uint8).reshape(height, row)
    buffer = np.frombuffer(message.data, dtype=np.uint8)
    return np.lib.stride_tricks.as_strided(buffer, shape=(height, row), strides=(step, 1))


def _to_rgb(pixels: npt.NDArray[np.uint8], encoding: str) -> Rgb:
    code = _COLOUR[encoding]
    if code is None:
        return np.ascontiguousarray(pixels)
    single = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    try:
        return np.asarray(cv2.cvtColor(np.ascontiguousarray(single), code), dtype=np.uint8)
    except cv2.error as error:
        raise InvalidImage(f"{pixels.shape[1]} x {pixels.shape[0]} px of {encoding} cannot be converted") from error
