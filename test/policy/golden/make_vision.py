"""Makes vision_*.npz: small towers of timm with random weights, and the features that OpenVLA would take from them.

Run it where timm 0.9.10 is installed, the release that OpenVLA names; the package itself never needs timm:

    pip install timm==0.9.10 torch torchvision && python make_vision.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch

HERE = Path(__file__).parent
DEPTH, IMAGE_PX = 3, 42
SIZES: dict[str, Any] = {"embed_dim": 16, "depth": DEPTH, "num_heads": 2, "img_size": IMAGE_PX}
TOWERS = {"dinov2": "vit_large_patch14_reg4_dinov2.lvd142m", "siglip": "vit_so400m_patch14_siglip_224"}


@torch.no_grad()
def make(name: str, timm_id: str) -> None:
    """Writes one tower's weights (half precision, exact), pixels and features."""
    random = np.random.RandomState(len(timm_id))
    tower = timm.create_model(timm_id, pretrained=False, num_classes=0, **SIZES).eval()
    for parameter in tower.parameters():
        values = (0.25 * random.standard_normal(tuple(parameter.shape))).astype(np.float16)
        parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    pixels = random.standard_normal((1, 3, IMAGE_PX, IMAGE_PX)).astype(np.float16)
    # As OpenVLA's modelling code calls it: the tokens after the second-to-last block, patches only, no final norm.
    (features,) = tower.get_intermediate_layers(torch.from_numpy(pixels.astype(np.float32)), n={DEPTH - 2})
    versions = {"timm": timm.__version__, "torch": torch.__version__, "numpy": np.__version__}
    about = {"timm_id": timm_id, **SIZES, "versions": versions}
    weights = {f"weights/{key}": tensor.numpy().astype(np.float16) for key, tensor in tower.state_dict().items()}
    np.savez_compressed(
        HERE / f"vision_{name}.npz", about=json.dumps(about), pixels=pixels, features=features.numpy(), **weights
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for tower_name, identifier in TOWERS.items():
        make(tower_name, identifier)
