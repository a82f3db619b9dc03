"""What a training run is told, validated; the YAML file is the truth, single fields can be overridden."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GatheringConfig(_Checked):
    """Which scripted demonstrations the training needs; those that exist already are not gathered again."""

    episodes: dict[str, int] = Field(default_factory=dict, description="suite/number: seeds to try")
    seed: int = Field(0, ge=0)
    noise: float = Field(0.3, ge=0, description="disturbance of every second episode; its labels stay clean")
    processes: int = Field(2, ge=1)


class AugmentationConfig(_Checked):
    """Changes to each training image."""

    shift_px: int = Field(3, ge=0)
    brightness: float = Field(0.15, ge=0, lt=1, description="relative, all channels together")
    colour: float = Field(10.0, ge=0, description="grey levels, per channel")


class StageConfig(_Checked):
    """One stage of training; it ends after ``epochs`` or ``max_minutes``, whichever comes first.

    The learning rate warms up over ``warm_up_steps`` and follows a cosine to its end, which is the sooner of the two
    limits, so that it always anneals.
    """

    epochs: float = Field(gt=0)
    max_minutes: float | None = Field(None, gt=0)
    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(6e-4, gt=0)
    warm_up_steps: int = Field(200, ge=0)


class TrainingConfig(_Checked):
    """A run of :func:`vla_sd_ros.training.behaviour_cloning.train_policy`."""

    gathering: GatheringConfig = GatheringConfig()
    demonstrations: Path = Path("out/demonstrations")
    out: Path = Path("out/demo_policy")
    tasks: tuple[str, ...] = Field((), description="suite/number or suite/*; empty: all demonstrations found")
    statistics_key: str = "libero_demo"
    seed: int = 0
    threads: int = Field(2, ge=1)
    bf16: bool = True
    held_out_fraction: float = Field(0.05, ge=0, lt=1)
    held_out_frames: int = Field(512, ge=1, description="frames of the validation during training; all at the end")
    evaluate_every_steps: int = Field(500, ge=1)
    checkpoint_minutes: float = Field(5.0, gt=0)
    weight_decay: float = Field(0.02, ge=0)
    betas: tuple[float, float] = (0.9, 0.98)
    gradient_clip: float = Field(1.0, gt=0)
    pose_loss_weight: float = Field(2.0, ge=0)
    gripper_loss_weight: float = Field(1.0, gt=0, description="weight of the gripper token against the other six")
    augmentation: AugmentationConfig = AugmentationConfig()
    vision: StageConfig = StageConfig(epochs=4, max_minutes=8, batch_size=64)
    cloning: StageConfig = StageConfig(epochs=8, max_minutes=50)
    refining: StageConfig | None = Field(None, description="cloning again, from its end, with a rate of its own")
    consistency: StageConfig | None = Field(None, description="cloning again, on action tokens disturbed like a draft")
    draft_noise_bins: float = Field(16.0, ge=0, description="largest deviation of the disturbance in that stage")
    label_grid_bins: int = Field(1, ge=1, le=32, description="in that stage labels lie on every so manieth bin")
    policy: dict[str, Any] = Field(default_factory=dict, description="fields of PolicyConfig other than its defaults")


Config = TypeVar("Config", bound=BaseModel)


def load_training_config(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> TrainingConfig:
    """Read the configuration of a policy's training; see :func:`load_config`."""
    return load_config(TrainingConfig, path, overrides)


def load_config(model: type[Config], path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a YAML file and apply overrides.

    Args:
        model: What the file describes; every field of it has a default.
        path: The file; None: the defaults.
        overrides: Values by dotted key (``{"cloning.max_minutes": 20}``).

    Raises:
        ValueError: A key is unknown or a value is not allowed (pydantic names key, value and rule).
    """
    content: dict[str, Any] = {}
    if path is not None:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(loaded, dict):
            raise ValueError(f"{path} must hold a mapping, holds {type(loaded).__name__}")
        content = loaded
    defaults = model().model_dump(mode="json") if overrides else {}
    for key, value in (overrides or {}).items():
        *parents, last = key.split(".")
        place = content
        for parent in parents:
            inner = place.setdefault(parent, defaults.get(parent, {}))
            if not isinstance(inner, dict):
                raise ValueError(f"{key}: {parent} is not a group of values")
            place = inner
        place[last] = value
    return model.model_validate(content)
