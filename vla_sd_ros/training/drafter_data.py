"""What the drafter learns from: the policy's own tokens and states at frames of the demonstrations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from tqdm import tqdm

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.training.dataset import Int64Array, Uint8Array, augment, held_out_episodes
from vla_sd_ros.training.demonstrations import find_demonstrations, load_demonstration
from vla_sd_ros.training.drafter_config import DrafterTrainingConfig
from vla_sd_ros.training.stage import Interruption
from vla_sd_ros.training.teacher import GreedyBatch, greedy_batches


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Positions of image and prompt but the last, and what follows each; aligned at the end.

    Attributes:
        embeddings: of the position after each, float16 [N, L, W].
        hidden: the policy's states, float16 [N, L, W].
        lengths: how many of the last positions are no padding, int64 [N].
    """

    embeddings: torch.Tensor
    hidden: torch.Tensor
    lengths: torch.Tensor


@dataclass(frozen=True, eq=False)
class TeacherData:
    """N frames.

    Attributes:
        tokens: the policy's greedy action ids, int64 [N, 7].
        hidden: its states that named them, float16 [N, 7, W].
        prefixes: None where the drafter does not see them.
        training: rows to train on, int64.
        held_out: rows of episodes that are kept for validation, int64.
    """

    tokens: torch.Tensor
    hidden: torch.Tensor
    prefixes: Prefixes | None
    training: Int64Array
    held_out: Int64Array


@dataclass(frozen=True, eq=False)
class _Frames:
    images: Uint8Array
    instructions: list[str]
    held_out: npt.NDArray[np.bool_]


def ask_teacher(
    policy: LoadedPolicy, config: DrafterTrainingConfig, interruption: Interruption, show_progress: bool = True
) -> TeacherData | None:
    """Runs the policy on the demonstrations' frames.

    Returns:
        None where a signal came first.

    Raises:
        FileNotFoundError: there are no demonstrations.
        ValueError: no frame is left to train on, or none to hold out.
    """
    frames = _load_frames(config)
    count, width = len(frames.images), policy.config.llama.width
    tokens = torch.empty((count, N_DOF), dtype=torch.int64)
    hidden = torch.empty((count, N_DOF, width), dtype=torch.float16)
    with_prefix = config.context == "prefix"
    prefixes: list[tuple[Int64Array, torch.Tensor, torch.Tensor]] = []
    with tqdm(total=count, desc="teacher", disable=not show_progress, mininterval=5) as bar:
        for part in greedy_batches(policy, frames.images, frames.instructions, config.teacher_batch, with_prefix):
            if interruption.requested:
                return None
            tokens[part.rows] = torch.from_numpy(part.tokens)
            hidden[part.rows] = part.hidden.to("cpu", torch.float16)
            if with_prefix:
                prefixes.append(_prefix(part))
            bar.update(len(part.rows))
    return TeacherData(
        tokens,
        hidden,
        _align(prefixes, count) if with_prefix else None,
        np.flatnonzero(~frames.held_out),
        np.flatnonzero(frames.held_out),
    )


def _load_frames(config: DrafterTrainingConfig) -> _Frames:
    episodes = [load_demonstration(path) for path in find_demonstrations(config.demonstrations)]
    kept_out = held_out_episodes(episodes, config.held_out_fraction)
    total = sum(len(episode) for episode in episodes)
    chosen = np.zeros(total, dtype=bool)
    chosen[np.linspace(0, total - 1, min(total, config.max_frames), dtype=int)] = True
    images: list[Uint8Array] = []
    instructions: list[str] = []
    held_out: list[bool] = []
    first = 0
    for number, episode in enumerate(episodes):
        seen = episode.images[chosen[first : first + len(episode)]]
        first += len(episode)
        if config.augmentation is not None and not kept_out[number]:
            change, rng = config.augmentation, np.random.default_rng([config.seed, number])
            seen = augment(seen, rng, change.shift_px, change.brightness, change.colour)
        images.append(seen)
        instructions += [episode.instruction] * len(seen)
        held_out += [bool(kept_out[number])] * len(seen)
    flags = np.array(held_out)
    if flags.all() or not flags.any():
        raise ValueError(f"{total} frames of {len(episodes)} episodes: none to train on, or none to hold out")
    return _Frames(np.concatenate(images), instructions, flags)


def _prefix(part: GreedyBatch) -> tuple[Int64Array, torch.Tensor, torch.Tensor]:
    assert part.prefix_hidden is not None
    embeddings, hidden = part.prefix_embeddings[:, 1:], part.prefix_hidden[:, :-1]
    return part.rows, embeddings.to("cpu", torch.float16), hidden.to("cpu", torch.float16)


def _align(parts: list[tuple[Int64Array, torch.Tensor, torch.Tensor]], count: int) -> Prefixes:
    longest = max(hidden.shape[1] for _, _, hidden in parts)
    embeddings = torch.empty((count, longest, parts[0][1].shape[2]), dtype=torch.float16)
    states = torch.empty_like(embeddings)
    lengths = torch.empty(count, dtype=torch.int64)
    for rows, following, hidden in parts:
        padding = (0, 0, longest - hidden.shape[1], 0)
        embeddings[rows], states[rows] = F.pad(following, padding), F.pad(hidden, padding)
        lengths[rows] = hidden.shape[1]
    return Prefixes(embeddings, states, lengths)
