"""What a decoder costs beside the model: everything between image and action that is no forward of the network."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from vla_sd_ros.bench.decoder_choice import choose_decoder, decoder_for
from vla_sd_ros.bench.rendering import NS_PER_MS
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.sim.action_units import CONTROL_PERIOD_NS
from vla_sd_ros.types import KinematicState, Observation


def measure_bookkeeping(
    policy: LoadedPolicy,
    folder: Path,
    decoders: Sequence[str],
    presets: Path,
    instruction: str,
    frames: int = 60,
    warm_up: int = 10,
) -> list[dict[str, Any]]:
    """Median milliseconds per action outside the model's forwards, side by side in one run.

    The image is noise that changes a little from frame to frame; the arm moves along an arc.

    Args:
        policy: decodes.
        folder: of its checkpoint.
        decoders: presets or YAML files.
        presets: folder of the presets.
        instruction: that the index has demonstrations of.
        frames: actions that count.
        warm_up: actions before them.
    """
    chosen = {name: decoder_for(choose_decoder(name, presets, folder), policy) for name in decoders}
    outside: dict[str, list[float]] = {name: [] for name in decoders}
    whole: dict[str, list[float]] = {name: [] for name in decoders}
    rng = np.random.default_rng(0)
    size = policy.config.image_size_px
    image = rng.integers(0, 256, (size, size, 3)).astype(np.float64)
    with _timed_forwards(policy) as model_ns:
        for step in range(warm_up + frames):
            image = np.clip(image + rng.normal(0.0, 4.0, image.shape), 0, 255)
            observation = Observation({"camera": image.astype(np.uint8)}, instruction, step)
            for name, decoder in chosen.items():
                before, began = model_ns(), time.perf_counter_ns()
                decoded = decoder.decode(observation, _state(step))
                took = time.perf_counter_ns() - began
                spent = model_ns() - before + decoded.stage_times.preprocess_ms * NS_PER_MS
                if step >= warm_up and decoded.counts.forward_passes:
                    outside[name].append((took - spent) / NS_PER_MS)
                    whole[name].append(took / NS_PER_MS)
    return [
        {
            "decoder": name,
            "outside_model_ms": statistics.median(outside[name]),
            "p95_ms": float(np.percentile(outside[name], 95)),
            "total_ms": statistics.median(whole[name]),
        }
        for name in decoders
    ]


def format_bookkeeping(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = ["| decoder | outside the model, ms: median | p95 | whole decode, ms |", "|---|---|---|---|"]
    lines += [
        f"| {row['decoder']} | {row['outside_model_ms']:.2f} | {row['p95_ms']:.2f} | {row['total_ms']:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


@contextmanager
def _timed_forwards(policy: LoadedPolicy) -> Iterator[Callable[[], int]]:
    """Adds up the time inside vision towers, projector, language model and output matrix."""
    spent_ns = 0
    began: list[int] = []

    def enter(*_: object) -> None:
        began.append(time.perf_counter_ns())

    def leave(*_: object) -> None:
        nonlocal spent_ns
        spent_ns += time.perf_counter_ns() - began.pop()

    model, parts = policy.model, []
    watched: tuple[nn.Module, ...] = (model.vision, model.projector, model.language_model)
    for part in watched:
        parts += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
    scores = model.action_logits

    def timed_scores(hidden: torch.Tensor) -> torch.Tensor:
        enter()
        try:
            return scores(hidden)
        finally:
            leave()

    model.action_logits = timed_scores  # type: ignore[method-assign]
    try:
        yield lambda: spent_ns
    finally:
        del model.action_logits
        for handle in parts:
            handle.remove()


def _state(step: int) -> KinematicState:
    angle = step / 20.0
    return KinematicState(
        stamp_ns=step * CONTROL_PERIOD_NS,
        position=np.array([0.3 * np.sin(angle), 0.3 * np.cos(angle), 0.2]),
        orientation=np.array([0.0, 0.0, 0.0, 1.0]),
        linear_velocity=np.zeros(3),
        angular_velocity=np.zeros(3),
        gripper_opening=1.0,
    )
