"""From a camera image to the model's pixels.

The camera node and the gathering of demonstrations both call :func:`fit_image`, so that the policy sees at run time
what it saw in training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import cv2
import numpy as np
import numpy.typing as npt

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.resampling import bicubic, centre_crop, lanczos3

if TYPE_CHECKING:
    import torch

Rgb = npt.NDArray[np.uint8]
Resize = Literal["area", "bicubic", "lanczos3"]
Crop = Literal["before", "after"]


def fit_image(
    rgb: Rgb, size_px: int, crop_fraction: float = 1.0, resize: Resize = "area", crop: Crop = "before"
) -> Rgb:
    """Crop and resize to the square that the policy was trained on.

    OpenVLA (Kim et al. 2024) stretches the whole image to the square: ``crop="after"``. Its published image processor
    resizes ``bicubic``; its training data and its evaluations ``lanczos3``. Fine-tunes with image augmentation then
    want the middle 0.9 of the area, enlarged again: ``crop_fraction`` sqrt(0.9).

    Args:
        rgb: uint8 [H, W, 3], row 0 at the top.
        size_px: side of the result.
        crop_fraction: share of the side that the crop keeps, in (0, 1].
        resize: filter. ``area`` averages when shrinking and is Lanczos (without widening) when enlarging; ``bicubic``
            is Pillow's; ``lanczos3`` is TensorFlow's with antialiasing.
        crop: ``before`` takes a centred square of the camera image, a share of its shorter side, and resizes that;
            ``after`` stretches the whole image to the square, takes the middle of it and enlarges that bilinearly to
            the same square, as TensorFlow does.

    Returns:
        uint8 [size_px, size_px, 3], contiguous.

    Raises:
        ValueError: on a wrong dtype, shape, size, fraction, filter or place of the crop.
    """
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
        raise ValueError(f"image: {rgb.dtype} {rgb.shape}; legal: uint8 (H, W, 3), not empty")
    if size_px < 1:
        raise ValueError(f"size_px: {size_px}; legal: at least 1")
    if not 0.0 < crop_fraction <= 1.0:
        raise ValueError(f"crop_fraction: {crop_fraction}; legal: above 0, up to 1")
    for name, value, legal in (("resize", resize, get_args(Resize)), ("crop", crop, get_args(Crop))):
        if value not in legal:
            raise ValueError(f"{name}: {value}; legal: {', '.join(legal)}")
    if crop == "before":
        return _resized(_centred_square(rgb, crop_fraction), size_px, resize)
    stretched = _resized(rgb, size_px, resize)
    return stretched if crop_fraction == 1.0 else centre_crop(stretched, crop_fraction)


def _centred_square(rgb: Rgb, fraction: float) -> Rgb:
    height, width = rgb.shape[:2]
    side = max(1, round(min(height, width) * fraction))
    top, left = (height - side) // 2, (width - side) // 2
    return rgb[top : top + side, left : left + side]


def _resized(rgb: Rgb, size_px: int, resize: Resize) -> Rgb:
    if rgb.shape[:2] == (size_px, size_px):
        return np.ascontiguousarray(rgb)
    if resize == "bicubic":
        return bicubic(rgb, size_px, size_px)
    if resize == "lanczos3":
        return lanczos3(rgb, size_px, size_px)
    interpolation = cv2.INTER_AREA if max(rgb.shape[:2]) > size_px else cv2.INTER_LANCZOS4
    return np.asarray(cv2.resize(rgb, (size_px, size_px), interpolation=interpolation), dtype=np.uint8)


def pixel_values(rgb: npt.NDArray[np.uint8] | torch.Tensor, config: PolicyConfig) -> torch.Tensor:
    """Normalised pixels for both vision towers.

    Args:
        rgb: [..., S, S, 3] in 0 to 255, S = ``config.image_size_px``; a tensor may also be floating point.
        config: gives each tower's mean and standard deviation.

    Returns:
        float32 [..., 6, S, S] on the device of ``rgb``: three channels for DINOv2, then three for SigLIP.

    Raises:
        ValueError: where the image is not of the model's size, or an array is not uint8.
    """
    # Here, since the camera node uses this module and must not wait seconds for torch.
    import torch

    if isinstance(rgb, np.ndarray) and rgb.dtype != np.uint8:
        raise ValueError(f"image: {rgb.dtype}; legal: uint8")
    pixels = torch.from_numpy(np.ascontiguousarray(rgb)) if isinstance(rgb, np.ndarray) else rgb
    size = config.image_size_px
    if tuple(pixels.shape[-3:]) != (size, size, 3):
        raise ValueError(f"image: shape {tuple(pixels.shape)}; legal: (..., {size}, {size}, 3)")
    unit = pixels.movedim(-1, -3).to(torch.float32).div(255.0)
    towers = (config.dinov2, config.siglip)
    mean = torch.tensor([tower.image_mean for tower in towers], device=unit.device).view(2, 3, 1, 1)
    deviation = torch.tensor([tower.image_std for tower in towers], device=unit.device).view(2, 3, 1, 1)
    # Step by step as the published image processor: one multiply and one add would round otherwise.
    return ((unit.unsqueeze(-4) - mean) / deviation).flatten(-4, -3)
