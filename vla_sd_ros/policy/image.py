"""From a camera image to the model's pixels.

The camera node and the gathering of demonstrations both call :func:`fit_image`, so that the policy sees at run time
what it saw in training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np
import numpy.typing as npt

from vla_sd_ros.policy.config import PolicyConfig

if TYPE_CHECKING:
    import torch

Rgb = npt.NDArray[np.uint8]


def fit_image(rgb: Rgb, size_px: int, crop_fraction: float = 1.0) -> Rgb:
    """Centred square crop, then resize.

    Args:
        rgb: uint8 [H, W, 3], row 0 at the top.
        size_px: side of the result.
        crop_fraction: share of the shorter side that the crop keeps, in (0, 1].

    Returns:
        uint8 [size_px, size_px, 3], contiguous. Shrinking averages areas; enlarging is Lanczos.

    Raises:
        ValueError: on a wrong dtype, shape, size or fraction.
    """
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
        raise ValueError(f"image: {rgb.dtype} {rgb.shape}; legal: uint8 (H, W, 3), not empty")
    if size_px < 1:
        raise ValueError(f"size_px: {size_px}; legal: at least 1")
    if not 0.0 < crop_fraction <= 1.0:
        raise ValueError(f"crop_fraction: {crop_fraction}; legal: above 0, up to 1")
    height, width = rgb.shape[:2]
    side = max(1, round(min(height, width) * crop_fraction))
    top, left = (height - side) // 2, (width - side) // 2
    crop = rgb[top : top + side, left : left + side]
    if side == size_px:
        return np.ascontiguousarray(crop)
    interpolation = cv2.INTER_AREA if side > size_px else cv2.INTER_LANCZOS4
    return np.asarray(cv2.resize(crop, (size_px, size_px), interpolation=interpolation), dtype=np.uint8)


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
    channels = pixels.movedim(-1, -3).to(torch.float32)
    towers = (config.dinov2, config.siglip)
    # One multiply and one add: (x / 255 - mean) / std = x * gain + offset.
    mean = torch.tensor([tower.image_mean for tower in towers], device=channels.device).view(2, 3, 1, 1)
    deviation = torch.tensor([tower.image_std for tower in towers], device=channels.device).view(2, 3, 1, 1)
    both = torch.addcmul(-mean / deviation, channels.unsqueeze(-4), 1.0 / (255.0 * deviation))
    return both.flatten(-4, -3)
