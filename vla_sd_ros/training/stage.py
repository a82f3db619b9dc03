"""The loop of one training stage: schedule, clock, checkpoints, interruption. It knows no model in particular.

Every random choice is a function of (seed, stage, step), so a resumed run repeats what an uninterrupted one does.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from tqdm import tqdm

from vla_sd_ros.training.config import StageConfig, TrainingConfig

logger = logging.getLogger(__name__)

Int64Array = npt.NDArray[np.int64]
Metrics = Mapping[str, float]
FINAL_RATE_SHARE = 0.01


@dataclass
class Interruption:
    """Set by SIGTERM or SIGINT; a loop that sees it saves and returns."""

    requested: bool = False

    @contextmanager
    def listening(self) -> Iterator[Interruption]:
        """Catch the two signals while inside."""

        def note(signal_number: int, frame: FrameType | None) -> None:
            self.requested = True

        try:
            previous = {s: signal.signal(s, note) for s in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # not the main thread: signals are somebody else's business
            yield self
            return
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@dataclass
class Progress:
    """How far a run has come; part of the checkpoint."""

    stage: str
    step: int = 0
    elapsed_s: float = 0.0
    done_stages: list[str] = field(default_factory=list)
    stage_steps: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Objective:
    """What a stage trains.

    Attributes:
        name: Of the stage; also part of the random seeds.
        parameters: Trained ones.
        loss: (rows, rng) -> loss and figures for the progress bar.
        validate: () -> figures on held-out frames.
        rows: Rows of the data set to train on.
    """

    name: str
    parameters: Callable[[], Iterable[nn.Parameter]]
    loss: Callable[[Int64Array, np.random.Generator], tuple[torch.Tensor, Metrics]]
    validate: Callable[[], Metrics]
    rows: Int64Array


def learning_rate(peak: float, step: int, warm_up_steps: int, fraction: float) -> float:
    """Linear warm-up, then a cosine down to 1% at ``fraction`` = 1."""
    warm_up = min(1.0, (step + 1) / warm_up_steps) if warm_up_steps else 1.0
    cosine = 0.5 * (1 + math.cos(math.pi * min(fraction, 1.0)))
    return peak * warm_up * (FINAL_RATE_SHARE + (1 - FINAL_RATE_SHARE) * cosine)


def batch_rows(rows: Int64Array, step: int, batch_size: int, seed: int, stage: str) -> Int64Array:
    """Rows [B] of a step: a fresh permutation per epoch; the incomplete last batch is left out."""
    per_epoch = max(1, len(rows) // batch_size)
    epoch, position = divmod(step, per_epoch)
    order = np.random.default_rng([seed, *stage.encode(), epoch]).permutation(rows)
    return order[position * batch_size : (position + 1) * batch_size]


def run_stage(
    objective: Objective,
    stage: StageConfig,
    config: TrainingConfig,
    progress: Progress,
    optimiser_state: dict[str, Any] | None,
    save: Callable[[Progress, dict[str, Any]], None],
    interruption: Interruption,
    show_progress: bool = True,
) -> bool:
    """Train until the stage's end; False when interrupted (the state is saved)."""
    parameters = [p for p in objective.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(
        parameters, lr=stage.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
    )
    if optimiser_state is not None:
        optimiser.load_state_dict(optimiser_state)
    total_steps = max(1, int(stage.epochs * max(1, len(objective.rows) // stage.batch_size)))
    limit_s = stage.max_minutes * 60 if stage.max_minutes is not None else math.inf
    started = time.monotonic() - progress.elapsed_s
    saved_at = entered = time.monotonic()
    first_step = progress.step
    with tqdm(
        total=total_steps, initial=progress.step, desc=objective.name, disable=not show_progress, mininterval=5
    ) as bar:
        while progress.step < total_steps:
            progress.elapsed_s = time.monotonic() - started
            fraction = max(progress.step / total_steps, progress.elapsed_s / limit_s)
            if fraction >= 1:
                break
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(stage.learning_rate, progress.step, stage.warm_up_steps, fraction)
            rows = batch_rows(objective.rows, progress.step, stage.batch_size, config.seed, objective.name)
            rng = np.random.default_rng([config.seed, *objective.name.encode(), 1, progress.step])
            loss, figures = objective.loss(rows, rng)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(parameters, config.gradient_clip)
            optimiser.step()
            progress.step += 1
            bar.update()
            if progress.step % 20 == 0:
                rate = (progress.step - first_step) * stage.batch_size / (time.monotonic() - entered + 1e-9)
                bar.set_postfix({**{k: f"{v:.3f}" for k, v in figures.items()}, "samples/s": f"{rate:.0f}"})
            if progress.step % config.evaluate_every_steps == 0:
                logger.info("%s step %d: %s", objective.name, progress.step, _text(objective.validate()))
            if interruption.requested or time.monotonic() - saved_at > config.checkpoint_minutes * 60:
                progress.elapsed_s = time.monotonic() - started
                save(progress, optimiser.state_dict())
                saved_at = time.monotonic()
                if interruption.requested:
                    return False
    progress.elapsed_s = time.monotonic() - started
    return True


def _text(figures: Metrics) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in figures.items())


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a training state so that an interrupted write leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    torch.save(dict(state), partial)
    partial.replace(path)
