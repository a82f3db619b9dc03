"""Makes processor_images.npz: what OpenVLA's published image processor does, by the calls that it makes.

The processor ("resize-naive") resizes with Pillow through torchvision, then normalises once for each tower. Run it
where torchvision is installed:

    pip install torchvision pillow && python make_processor_images.py
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
import torchvision
import torchvision.transforms.functional as tvf
from PIL import Image

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
from synthetic_image import synthetic_image  # noqa: E402

SIZE_PX, STRIDE = 224, 5
SOURCES = ((256, 256), (480, 640), (720, 1280), (97, 131))
# Means and standard deviations of openvla/openvla-7b's preprocessor_config.json: DINOv2's, then SigLIP's.
MEANS = ((0.484375, 0.455078125, 0.40625), (0.5, 0.5, 0.5))
DEVIATIONS = ((0.228515625, 0.2236328125, 0.224609375), (0.5, 0.5, 0.5))


def processed(rgb: np.ndarray) -> tuple[np.ndarray, torch.Tensor]:
    """The resized image, uint8 [S, S, 3], and the pixels, float32 [6, S, S]."""
    bicubic = tvf.InterpolationMode.BICUBIC
    small = tvf.resize(Image.fromarray(rgb), [SIZE_PX, SIZE_PX], interpolation=bicubic, max_size=None, antialias=True)
    small = tvf.center_crop(small, [SIZE_PX, SIZE_PX])
    towers = [
        tvf.normalize(tvf.to_tensor(small), list(mean), list(deviation))
        for mean, deviation in zip(MEANS, DEVIATIONS, strict=True)
    ]
    return np.asarray(small), torch.vstack(towers)


def main() -> None:
    """Writes a sample of each result, and the digest of the whole."""
    found: dict[str, Any] = {}
    for height, width in SOURCES:
        small, pixels = processed(synthetic_image(height, width))
        found[f"resized_{height}x{width}"] = small[::STRIDE, ::STRIDE]
        found[f"resized_{height}x{width}_sha256"] = hashlib.sha256(small.tobytes()).hexdigest()
    found["pixels"] = pixels[:, :: 2 * STRIDE, :: 2 * STRIDE].numpy()
    found["pixels_sha256"] = hashlib.sha256(pixels.numpy().tobytes()).hexdigest()
    versions = {"torchvision": torchvision.__version__, "pillow": PIL.__version__, "torch": torch.__version__}
    about = {"size_px": SIZE_PX, "stride": STRIDE, "pixels_of": SOURCES[-1], "versions": versions}
    np.savez_compressed(HERE / "processor_images.npz", about=json.dumps(about), **found)


if __name__ == "__main__":
    main()
