"""Synthetic demonstrations and a policy small enough to train within a second or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_sd_ros.training.config import TrainingConfig
from vla_sd_ros.training.demonstrations import Demonstration, demonstration_path, save_demonstration

SIZE_PX = 28
_TOWER = {"width": 16, "depth": 1, "heads": 2, "mlp_width": 32}
TINY_POLICY: dict[str, Any] = {
    "image_size_px": SIZE_PX,
    "dinov2": _TOWER,
    "siglip": _TOWER,
    "llama": {"width": 32, "depth": 1, "heads": 2, "mlp_width": 32},
}

MakeDemonstration = Callable[..., Demonstration]


@pytest.fixture
def make_demonstration() -> MakeDemonstration:
    """Builds an episode in which the brightness of the image tells the action."""

    def make(seed: int = 1, task_id: int = 8, instruction: str = "put the bowl on the plate", steps: int = 12) -> Any:
        rng = np.random.default_rng([seed, task_id])
        level = rng.uniform(-1, 1, steps).astype(np.float32)
        images = np.broadcast_to(((level + 1) * 100)[:, None, None, None], (steps, SIZE_PX, SIZE_PX, 3))
        actions = np.zeros((steps, 7), dtype=np.float32)
        actions[:, 0] = 0.03 * level
        actions[:, 6] = level > 0
        return Demonstration(
            images=images.astype(np.uint8),
            actions=actions,
            poses=rng.normal(size=(steps, 11)).astype(np.float32),
            proprio=np.zeros((steps, 16), dtype=np.float32),
            suite="libero_goal",
            task_id=task_id,
            instruction=instruction,
            seed=seed,
            noise=0.3 if seed % 2 else 0.0,
        )

    return make


@pytest.fixture
def demonstrations(tmp_path: Path, make_demonstration: MakeDemonstration) -> Path:
    """A folder with ten episodes of two tasks whose prompts differ in length."""
    folder = tmp_path / "demonstrations"
    for seed in range(1, 6):
        for task_id, text in ((8, "put the bowl on the plate"), (4, "put the bowl on top of the cabinet")):
            path = demonstration_path(folder, "libero_goal", task_id, seed)
            save_demonstration(path, make_demonstration(seed, task_id, text))
    return folder


@pytest.fixture
def tiny_config(tmp_path: Path, demonstrations: Path) -> TrainingConfig:
    """Two short stages on the synthetic episodes, without a time limit and so reproducible."""
    stage = {"epochs": 6, "max_minutes": None, "batch_size": 8, "warm_up_steps": 2, "learning_rate": 3e-3}
    return TrainingConfig.model_validate(
        {
            "demonstrations": demonstrations,
            "out": tmp_path / "policy",
            "policy": TINY_POLICY,
            "threads": 1,
            "bf16": False,
            "held_out_fraction": 0.2,
            "augmentation": {"shift_px": 1, "brightness": 0.0, "colour": 0.0},
            "vision": stage,
            "cloning": {**stage, "epochs": 20},
        }
    )
