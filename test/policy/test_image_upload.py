from __future__ import annotations

import numpy as np
import pytest
import torch

from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.image import pixel_values
from vla_sd_ros.policy.image_upload import ImageUpload

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_uploaded_pixels_are_those_of_the_host_bit_for_bit(dtype: torch.dtype, tiny_config: PolicyConfig) -> None:
    size = tiny_config.image_size_px
    image = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    found = ImageUpload(tiny_config, CPU, dtype)(image)
    torch.testing.assert_close(found, pixel_values(image, tiny_config)[None].to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("image", "named"),
    [
        (np.zeros((28, 28, 3), np.float32), "image: float32"),
        (np.zeros((28, 27, 3), np.uint8), r"legal: uint8 \(28, 28, 3\)"),
    ],
)
def test_another_image_is_refused(image: np.ndarray, named: str, tiny_config: PolicyConfig) -> None:
    with pytest.raises(ValueError, match=named):
        ImageUpload(tiny_config, CPU, torch.float32)(image)
