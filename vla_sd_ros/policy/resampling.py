"""Resampling as OpenVLA's image path does it: Pillow's, and TensorFlow's without TensorFlow.

OpenVLA's training data and its evaluations were resized by ``tf.image.resize(method="lanczos3", antialias=True)`` and
cropped by ``tf.image.crop_and_resize``. Both are done here with the same float32 operations in the same order, since
parity with the published policy is only provable where the pixels are the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.sparse import csr_matrix

Rgb = npt.NDArray[np.uint8]
Float = npt.NDArray[np.float32]

LANCZOS_RADIUS: Final = 3
# More than one camera resolution and model size is rare; each entry is some tens of kB.
_CACHED_SIZES: Final = 16


def bicubic(rgb: Rgb, height: int, width: int) -> Rgb:
    """Pillow's bicubic filter, which widens when shrinking; arguments and result as for :func:`lanczos3`."""
    resized = Image.fromarray(rgb).resize((width, height), Image.Resampling.BICUBIC)
    return np.array(resized, dtype=np.uint8)


def lanczos3(rgb: Rgb, height: int, width: int) -> Rgb:
    """Lanczos filter of radius 3, widened when shrinking so that nothing aliases, rounded to whole levels.

    Args:
        rgb: uint8 [H, W, 3].
        height: of the result.
        width: of the result; the aspect ratio is not kept.

    Returns:
        uint8 [height, width, 3].
    """
    source_height, source_width, channels = rgb.shape
    # A sparse product adds up tap after tap, as TensorFlow does; a dense one would round in another order.
    rows = _lanczos_weights(source_height, height) @ rgb.reshape(source_height, -1).astype(np.float32)
    across = np.ascontiguousarray(rows.reshape(height, source_width, channels).transpose(1, 0, 2))
    columns = _lanczos_weights(source_width, width) @ across.reshape(source_width, -1)
    levels = np.clip(np.rint(columns, out=columns), 0.0, 255.0, out=columns).astype(np.uint8)
    return np.ascontiguousarray(levels.reshape(width, height, channels).transpose(1, 0, 2))


@lru_cache(maxsize=_CACHED_SIZES)
def _lanczos_weights(source: int, target: int) -> csr_matrix:
    """What each of ``target`` samples takes of each of ``source``, float32 [target, source], few entries a row."""
    one = np.float32(1.0)
    step = np.float32(1.0 / float(np.float32(target) / np.float32(source)))
    spread = max(step, one)
    centre = (np.arange(target, dtype=np.float32) + np.float32(0.5)) * step
    reach = np.float32(LANCZOS_RADIUS) * spread
    start = np.clip(np.ceil(centre - reach - np.float32(0.5)).astype(np.int64), 0, source - 1)
    stop = np.clip(np.floor(centre + reach - np.float32(0.5)).astype(np.int64), 0, source - 1) + 1
    data, indices, lengths = [], [], [0]
    for middle, first, end in zip(centre, start, stop, strict=True):
        taps = np.arange(first, end)
        weights = _lanczos_kernel(np.abs((taps.astype(np.float32) + np.float32(0.5) - middle) * (one / spread)))
        total = np.add.accumulate(weights, dtype=np.float32)[-1]  # one after the other, not pairwise
        data.append(weights * (one / total))
        indices.append(taps)
        lengths.append(len(taps))
    return csr_matrix((np.concatenate(data), np.concatenate(indices), np.cumsum(lengths)), shape=(target, source))


def _lanczos_kernel(distance: Float) -> Float:
    """The filter at distances in its own units, float32; sines are rounded once, from double precision."""
    pi, radius = np.float32(np.pi), np.float32(LANCZOS_RADIUS)
    x = np.maximum(distance, np.float32(1e-3))
    sine = np.sin((pi * x).astype(np.float64)).astype(np.float32)
    slow = np.sin((pi * x / radius).astype(np.float64)).astype(np.float32)
    value = radius * sine * slow / (pi * pi * x * x)
    value = np.where(distance <= np.float32(1e-3), np.float32(1.0), value)
    return np.asarray(np.where(distance > radius, np.float32(0.0), value), dtype=np.float32)


def centre_crop(rgb: Rgb, fraction: float) -> Rgb:
    """The middle of an image, enlarged to the image's size by bilinear interpolation between pixel centres.

    Args:
        rgb: uint8 [H, W, 3].
        fraction: share of each side that is kept, in (0, 1]; OpenVLA's fine-tunes with image augmentation keep an area
            of 0.9, that is sqrt(0.9) of each side.

    Returns:
        uint8 [H, W, 3].
    """
    height, width, _ = rgb.shape
    top, down, row_share = _crop_samples(height, fraction)
    left, right, column_share = _crop_samples(width, fraction)
    pixels = rgb.astype(np.float32)
    pixels *= np.float32(1.0 / 255.0)
    # Interpolation along the columns first, on the rows of the source: each is needed about twice.
    begin = pixels[:, left]
    across = begin + (pixels[:, right] - begin) * column_share[:, None]
    upper = across[top]
    cropped = upper + (across[down] - upper) * row_share[:, None, None]
    # TensorFlow's conversion to uint8: half a level above the highest, cut off.
    return np.asarray(np.clip(cropped, 0.0, 1.0) * np.float32(255.5), dtype=np.float32).astype(np.uint8)


@lru_cache(maxsize=_CACHED_SIZES)
def _crop_samples(size: int, fraction: float) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Float]:
    """For each sample of one side: the pixel before, the pixel after, and how far it lies between them."""
    # OpenVLA states the area and takes the root in single precision; a root given in double may be one ulp off it.
    kept = np.sqrt(np.float32(fraction * fraction))
    low = (np.float32(1.0) - kept) / np.float32(2.0)
    high = low + kept
    last = np.float32(size - 1)
    if size == 1:
        position = np.zeros(1, dtype=np.float32)
    else:
        position = low * last + np.arange(size, dtype=np.float32) * ((high - low) * last / last)
    before = np.floor(position)
    return before.astype(np.intp), np.minimum(np.ceil(position), last).astype(np.intp), position - before
