"""An image on its way to the device: sent as bytes, normalised there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.transfer import to_device


class ImageUpload:
    """Gives the pixels of :func:`~vla_sd_ros.policy.image.pixel_values` without making the host wait.

    Args:
        config: gives the image's size and each tower's mean and standard deviation.
        device: where the pixels are wanted.
        dtype: in which they are wanted.
    """

    def __init__(self, config: PolicyConfig, device: torch.device, dtype: torch.dtype) -> None:
        self._shape = (config.image_size_px, config.image_size_px, 3)
        self._device, self._dtype = device, dtype
        towers = (config.dinov2, config.siglip)
        self._mean = torch.tensor([tower.image_mean for tower in towers]).view(2, 3, 1, 1).to(device)
        self._deviation = torch.tensor([tower.image_std for tower in towers]).view(2, 3, 1, 1).to(device)
        # A tensor of the device: by a number of the host, CUDA would multiply with a rounded reciprocal.
        self._white = torch.tensor(255.0).to(device)

    def __call__(self, rgb: npt.NDArray[np.uint8]) -> torch.Tensor:
        """One image, uint8 [S, S, 3], as pixels [1, 6, S, S].

        Raises:
            ValueError: where the image is of another dtype or size.
        """
        if rgb.dtype != np.uint8 or rgb.shape != self._shape:
            raise ValueError(f"image: {rgb.dtype} {rgb.shape}; legal: uint8 {self._shape}")
        unit = to_device(rgb, self._device).movedim(-1, -3).to(torch.float32).div(self._white)
        both = (unit - self._mean) / self._deviation
        return both.reshape(1, 6, *self._shape[:2]).to(self._dtype)
