"""What a training run of the learned drafter is told, validated."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from vla_sd_ros.drafting.learned_config import DraftingContext, LearnedDraftConfig
from vla_sd_ros.policy.precision import Precision
from vla_sd_ros.training.config import AugmentationConfig, StageConfig


class DrafterTrainingConfig(BaseModel):
    """A run of :func:`vla_sd_ros.training.drafter_training.train_drafter`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: Path = Field(Path("models/demo_policy"), description="the teacher; receives the folder drafter/")
    demonstrations: Path = Path("out/demonstrations")
    precision: Precision = Field("auto", description="of the teacher: that in which the policy will run")
    context: DraftingContext = "tail"
    seed: int = 0
    threads: int = Field(1, ge=1)
    max_frames: int = Field(12000, ge=1, description="frames for the teacher, evenly spread; a prefix needs 90 kB each")
    teacher_batch: int = Field(32, ge=1)
    held_out_fraction: float = Field(0.05, gt=0, lt=1, description="share of each task's episodes")
    augmentation: AugmentationConfig | None = Field(None, description="changes to the images the teacher sees")
    stage: StageConfig = StageConfig(epochs=30, max_minutes=8, batch_size=128, learning_rate=1e-3, warm_up_steps=50)
    weight_decay: float = Field(0.02, ge=0)
    hidden_loss_weight: float = Field(1.0, ge=0, description="smooth L1 distance of the states")
    token_loss_weight: float = Field(1.0, ge=0, description="cross-entropy against the teacher's distribution")
    rollout_share: float = Field(0.5, ge=0, le=1, description="samples of which only the first token is given")
    evaluate_every_steps: int = Field(500, ge=1)
    draft: LearnedDraftConfig = Field(LearnedDraftConfig(), description="trees of the closing measurement")
