"""Training of the learned drafter on the frozen policy's own answers.

Loss: smooth L1 distance between the predicted and the policy's state, and cross-entropy against the policy's
distribution over the 256 action ids, averaged over the six places that are guessed (EAGLE, Li et al. 2024).
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.drafting.learned import LearnedDrafter
from vla_sd_ros.drafting.learned_checkpoint import DRAFTER_FOLDER, load_drafter, save_drafter
from vla_sd_ros.drafting.learned_config import DrafterNetworkConfig, LearnedDraftConfig
from vla_sd_ros.drafting.learned_network import DrafterNetwork, initialise_drafter
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.precision import choose_dtype
from vla_sd_ros.training.config import TrainingConfig
from vla_sd_ros.training.dataset import Int64Array
from vla_sd_ros.training.drafter_config import DrafterTrainingConfig
from vla_sd_ros.training.drafter_data import Prefixes, TeacherData, ask_teacher
from vla_sd_ros.training.drafter_rollout import roll_out
from vla_sd_ros.training.stage import Interruption, Metrics, Objective, Progress, run_stage

logger = logging.getLogger(__name__)

TOLERANCES_BINS = (5, 9, 15)
VALIDATION_BATCH = 512
_MEASURED_TREES = 200


@dataclass(frozen=True)
class DrafterTrainingResult:
    """How a run ended.

    Attributes:
        finished: False when a signal stopped it; nothing was written then.
        folder: of the drafter, when finished.
        held_out: figures on held-out episodes, when finished.
    """

    finished: bool
    folder: Path | None
    held_out: dict[str, Any]


class DrafterLearner:
    """The network, its teacher's answers, and the losses.

    Args:
        policy: the teacher; frozen.
        data: its answers.
        config: of the run.
    """

    def __init__(self, policy: LoadedPolicy, data: TeacherData, config: DrafterTrainingConfig) -> None:
        self.policy, self.data, self.config = policy, data, config
        network = DrafterNetwork(DrafterNetworkConfig.of_policy(policy.config, config.context))
        self.network = initialise_drafter(network, config.seed)

    def loss(self, rows: Int64Array, rng: np.random.Generator) -> tuple[torch.Tensor, Metrics]:
        """Loss of a batch: some samples are given their first token alone, the others any number of tokens."""
        known = rng.integers(1, N_DOF, len(rows))
        known[rng.random(len(rows)) < self.config.rollout_share] = 1
        predicted, target = self._predict(rows, torch.from_numpy(known))
        distance = F.smooth_l1_loss(predicted, target)
        model = self.policy.model
        wanted = torch.softmax(model.action_logits(target), -1)
        tokens = F.cross_entropy(model.action_logits(predicted).flatten(0, 1), wanted.flatten(0, 1))
        loss = self.config.hidden_loss_weight * distance + self.config.token_loss_weight * tokens
        return loss, {"hidden": distance.item(), "tokens": tokens.item()}

    @torch.no_grad()
    def validate(self) -> dict[str, Any]:
        """Acceptance on the held-out frames; see :func:`acceptance`.

        ``teacher_forced``: the policy's own states and tokens lead up to each guess. ``rolled_out``: the first token
        alone is given, as behind a prefill.
        """
        figures: dict[str, Any] = {}
        for name, known in (("teacher_forced", N_DOF), ("rolled_out", 1)):
            starts = range(0, len(self.data.held_out), VALIDATION_BATCH)
            batches = [self.data.held_out[first : first + VALIDATION_BATCH] for first in starts]
            figures.update(acceptance(torch.cat([self._bins_apart(rows, known) for rows in batches]), name))
        return figures

    def _bins_apart(self, rows: Int64Array, known: int) -> torch.Tensor:
        predicted, _ = self._predict(rows, torch.full((len(rows),), known))
        guesses = self.policy.model.action_logits(predicted).argmax(-1) + self.policy.config.first_action_id
        return (guesses - self.data.tokens[rows][:, 1:]).abs()

    def _predict(self, rows: Int64Array, known: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Predicted and true states of the places 1 to 6, float32 [B, 6, W]."""
        hidden, prefixes = self.data.hidden[rows].float(), self.data.prefixes
        if prefixes is not None:
            prefixes = Prefixes(prefixes.embeddings[rows], prefixes.hidden[rows], prefixes.lengths[rows])
        predicted = roll_out(self.network, self.policy.model, self.data.tokens[rows], hidden, known, prefixes)
        return predicted, hidden[:, 1:]


def acceptance(bins_apart: torch.Tensor, name: str) -> dict[str, Any]:
    """How many guesses a rule of acceptance lets through.

    Args:
        bins_apart: distance of each guess from the policy's token, int64 [N, 6].
        name: begins the name of each figure.

    Returns:
        ``*_exact`` and ``*_within_r_bins``: share of the guesses at each place, 6 of them; ``*_accepted_*``: mean
        number of guesses before the first that is not accepted.
    """
    figures: dict[str, Any] = {}
    for label, bins in (("exact", 0), *((f"within_{bins}_bins", bins) for bins in TOLERANCES_BINS)):
        accepted = bins_apart <= bins
        figures[f"{name}_{label}"] = [round(share, 4) for share in accepted.float().mean(0).tolist()]
        figures[f"{name}_accepted_{label}"] = round(accepted.long().cumprod(1).sum(1).float().mean().item(), 3)
    return figures


def train_drafter(config: DrafterTrainingConfig, show_progress: bool = True) -> DrafterTrainingResult:
    """Trains a drafter for a policy and writes it beside the policy, under ``drafter/``.

    Args:
        config: what to do.
        show_progress: progress bars.

    Raises:
        FileNotFoundError: there are no demonstrations.
        CheckpointError: the policy cannot be read.
    """
    torch.set_num_threads(config.threads)
    policy = load_policy(config.policy, choose_dtype(config.precision, "cpu"))
    with Interruption().listening() as interruption:
        data = ask_teacher(policy, config, interruption, show_progress)
        if data is None:
            return DrafterTrainingResult(False, None, {})
        learner = DrafterLearner(policy, data, config)
        objective = Objective(
            "drafter",
            learner.network.parameters,
            learner.loss,
            lambda: {name: value for name, value in learner.validate().items() if isinstance(value, float)},
            data.training,
        )
        settings = TrainingConfig(
            seed=config.seed, weight_decay=config.weight_decay, evaluate_every_steps=config.evaluate_every_steps
        )
        progress = Progress("drafter")
        if not run_stage(
            objective, config.stage, settings, progress, None, lambda *_: None, interruption, show_progress
        ):
            logger.warning("interrupted at step %d; nothing was written", progress.step)
            return DrafterTrainingResult(False, None, {})
        held_out = learner.validate()
        folder = config.policy / DRAFTER_FOLDER
        recipe = {
            "training": config.model_dump(mode="json", exclude={"policy", "demonstrations"}),
            "frames": len(data.training),
            "steps": progress.step,
            "held_out": held_out,
            "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        }
        save_drafter(folder, learner.network, policy.fingerprint, recipe)
    measured = measure_trees(load_drafter(folder, policy), data, config.draft)
    return DrafterTrainingResult(True, folder, {**held_out, **measured})


def measure_trees(drafter: LearnedDrafter, data: TeacherData, config: LearnedDraftConfig) -> dict[str, float]:
    """Drafts behind the first token at held-out frames.

    Returns:
        ``tree_accepted``: mean number of levels that hold the policy's own token below accepted ones;
        ``chain_accepted``: the same with one guess per level; ``tree_ms`` and ``chain_ms``: median wall time.
    """
    chain = config.model_copy(update={"top_k": 1})
    rows = data.held_out[np.linspace(0, len(data.held_out) - 1, _MEASURED_TREES, dtype=int)]
    figures: dict[str, float] = {}
    for name, shape in (("tree", config), ("chain", chain)):
        times, accepted = [], []
        for row in rows:
            given = _arguments(drafter, data, int(row))
            begin = time.perf_counter()
            tree = drafter.draft(config=shape, **given)
            times.append((time.perf_counter() - begin) * 1e3)
            assert tree is not None
            truth, node = data.tokens[row].tolist()[1:], -1
            for depth, token in enumerate(truth):
                hit = [child for child in tree.children(node) if tree.tokens[child] == token]
                if not hit:
                    accepted.append(depth)
                    break
                node = hit[0]
        figures[f"{name}_accepted"] = round(float(np.mean(accepted)), 3)
        figures[f"{name}_ms"] = round(float(np.median(times[_MEASURED_TREES // 10 :])), 3)
    return figures


def _arguments(drafter: LearnedDrafter, data: TeacherData, row: int) -> Mapping[str, Any]:
    hidden = data.hidden[row, :1].float()
    given = {"hidden": hidden, "tokens": data.tokens[row, :1].numpy()}
    if drafter.sees_prefix:
        assert data.prefixes is not None
        length = int(data.prefixes.lengths[row])
        states, embeddings = data.prefixes.hidden[row, -length:], data.prefixes.embeddings[row, -length:]
        # The embedding of the first position is nobody's successor.
        given["prefix_hidden"] = torch.cat([states.float(), hidden])
        given["prefix_embeddings"] = torch.cat([embeddings[:1].float(), embeddings.float()])
    return given
