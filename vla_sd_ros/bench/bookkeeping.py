"""What a decoder costs beside the model: everything between image and action that is no forward of the network."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from vla_sd_ros.bench.decoder_choice import choose_decoder, decoder_for
from vla_sd_ros.bench.rendering import NS_PER_MS
from vla_sd_ros.decoding.interface import DecodedAction, Decoder
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

    The image is noise that changes a little from frame to frame; the arm moves along an arc. Preparing the pixels does
    not count, nor does any network; what remains is choosing tokens, building and judging drafts, searching, gates
    and un-normalisation.

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
    for name, decoded, took_ns, _ in _decode_in_turn(chosen, policy, instruction, warm_up, frames, lambda: 0):
        if decoded.counts.forward_passes:
            whole[name].append(took_ns / NS_PER_MS)
    with _timed_networks(policy) as network_ns:  # its hooks slow the networks down, not what lies between them
        for name, decoded, took_ns, spent_ns in _decode_in_turn(
            chosen, policy, instruction, warm_up, frames, network_ns
        ):
            if decoded.counts.forward_passes:
                pixels_ns = decoded.stage_times.preprocess_ms * NS_PER_MS
                outside[name].append((took_ns - spent_ns - pixels_ns) / NS_PER_MS)
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


def _decode_in_turn(
    decoders: Mapping[str, Decoder],
    policy: LoadedPolicy,
    instruction: str,
    warm_up: int,
    frames: int,
    clock: Callable[[], int],
) -> Iterator[tuple[str, DecodedAction, int, int]]:
    """Every decoder on the same images: its name, its action, what it took, and what a clock went on by, ns.

    The first ``warm_up`` actions of each are not given.
    """
    rng = np.random.default_rng(0)
    size = policy.config.image_size_px
    image = rng.integers(0, 256, (size, size, 3)).astype(np.float64)
    for decoder in decoders.values():
        decoder.reset()
    for step in range(warm_up + frames):
        image = np.clip(image + rng.normal(0.0, 4.0, image.shape), 0, 255)
        observation = Observation({"camera": image.astype(np.uint8)}, instruction, step)
        for name, decoder in decoders.items():
            before, began = clock(), time.perf_counter_ns()
            decoded = decoder.decode(observation, _state(step))
            took_ns = time.perf_counter_ns() - began
            if step >= warm_up:
                yield name, decoded, took_ns, clock() - before


@contextmanager
def _timed_networks(policy: LoadedPolicy) -> Iterator[Callable[[], int]]:
    """Adds up the time inside networks of any kind: the policy's parts, its scores, the learned drafter's."""
    spent_ns = depth = began_ns = 0

    def enter(*_: object) -> None:
        nonlocal depth, began_ns
        depth += 1
        if depth == 1:
            began_ns = time.perf_counter_ns()

    def leave(*_: object) -> None:
        nonlocal depth, spent_ns
        depth -= 1
        if depth == 0:
            spent_ns += time.perf_counter_ns() - began_ns

    scores = policy.model.action_logits

    def timed_scores(hidden: torch.Tensor) -> torch.Tensor:
        enter()
        try:
            return scores(hidden)
        finally:
            leave()

    policy.model.action_logits = timed_scores  # type: ignore[method-assign]
    handles = (register_module_forward_pre_hook(enter), register_module_forward_hook(leave))
    try:
        yield lambda: spent_ns
    finally:
        del policy.model.action_logits
        for handle in handles:
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
