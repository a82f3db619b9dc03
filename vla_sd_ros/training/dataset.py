"""Demonstrations as training arrays: action ids, standardised poses, a split by episode, augmentation.

The whole set is held in memory (112 px frames: 38 kB each).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_BINS, N_DOF, ActionBins
from vla_sd_ros.actions.statistics import ActionStatistics, load_statistics
from vla_sd_ros.training.demonstrations import Demonstration, load_demonstration

LOW_QUANTILE, HIGH_QUANTILE = 0.001, 0.999
# Half-ranges that the statistics never fall below. The expert hardly turns the hand; without a floor its rotation
# labels, numerical noise of a milliradian, would be spread over all 256 bins.
MINIMUM_HALF_RANGE = (0.0375, 0.0375, 0.0375, 0.15, 0.15, 0.15)

Uint8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PoseScale:
    """Mean and standard deviation, float32 [K], of the auxiliary pose targets."""

    mean: Float32Array
    deviation: Float32Array

    def standardise(self, poses: Float32Array) -> Float32Array:
        """Map poses [..., K] to zero mean and unit deviation."""
        return ((poses - self.mean) / self.deviation).astype(np.float32)


@dataclass(frozen=True)
class FrameDataset:
    """N frames of all episodes.

    Attributes:
        images: uint8 [N, S, S, 3].
        action_ids: int64 [N, 7].
        poses: float32 [N, K], standardised.
        instruction_of: int64 [N], index into ``instructions``.
        instructions: Distinct instructions.
        training: int64 [.], rows to train on.
        held_out: int64 [.], rows of the episodes kept for validation.
        pose_scale: How ``poses`` were standardised.
        episodes_per_task: ``suite/task_id`` -> number of episodes.
        noises: Levels of noise found in the episodes.
        seeds: Lowest and highest seed of the episodes.
    """

    images: Uint8Array
    action_ids: Int64Array
    poses: Float32Array
    instruction_of: Int64Array
    instructions: tuple[str, ...]
    training: Int64Array
    held_out: Int64Array
    pose_scale: PoseScale
    episodes_per_task: dict[str, int]
    noises: tuple[float, ...]
    seeds: tuple[int, int]

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.images)


def action_statistics(actions: Float32Array, n_trajectories: int) -> dict[str, Any]:
    """Statistics of SI actions [N, 7] in OpenVLA's layout (one entry of ``dataset_statistics.json``).

    ``q01`` and ``q99`` are the 0.001 and 0.999 quantiles, widened to ``MINIMUM_HALF_RANGE`` around zero: the true 1%
    quantiles would clip the fast motions that a scripted expert makes often, and its rotations hardly vary.
    """
    low, high = np.quantile(actions, [LOW_QUANTILE, HIGH_QUANTILE], axis=0)
    floor = np.array([*MINIMUM_HALF_RANGE, 0.0])
    q01 = np.minimum(low, -floor)
    q99 = np.maximum(high, floor)
    q01[6], q99[6] = 0.0, 1.0
    return {
        "action": {
            "q01": q01.tolist(),
            "q99": q99.tolist(),
            "mask": [True] * 6 + [False],
            "mean": actions.mean(0).tolist(),
            "std": actions.std(0).tolist(),
            "min": actions.min(0).tolist(),
            "max": actions.max(0).tolist(),
        },
        "num_transitions": len(actions),
        "num_trajectories": n_trajectories,
    }


def action_ids(actions: npt.ArrayLike, statistics: ActionStatistics, bins: ActionBins) -> Int64Array:
    """Turn SI actions [..., 7] into token ids [..., 7]."""
    return bins.ids_from_normalised(statistics.normalise(actions))


def held_out_episodes(demonstrations: Sequence[Demonstration], fraction: float) -> npt.NDArray[np.bool_]:
    """Choose every k-th episode of each task for validation: bool [E]; at least one where a task has two or more."""
    chosen = np.zeros(len(demonstrations), dtype=bool)
    by_task: dict[tuple[str, int], list[int]] = {}
    for index, demonstration in enumerate(demonstrations):
        by_task.setdefault((demonstration.suite, demonstration.task_id), []).append(index)
    for members in by_task.values():
        count = max(1, round(fraction * len(members))) if fraction > 0 and len(members) > 1 else 0
        chosen[[members[i] for i in np.linspace(0, len(members) - 1, count, dtype=int)]] = True
    return chosen


def load_frames(
    paths: Sequence[Path], bins: ActionBins, statistics_key: str, held_out_fraction: float
) -> tuple[FrameDataset, dict[str, Any]]:
    """Read episodes; return the frames and the statistics file's content (one key)."""
    demonstrations = [load_demonstration(path) for path in paths]
    actions = np.concatenate([d.actions for d in demonstrations])
    statistics = {statistics_key: action_statistics(actions, len(demonstrations))}
    poses = np.concatenate([d.poses for d in demonstrations])
    scale = PoseScale(poses.mean(0), poses.std(0) + np.float32(1e-4))
    instructions = tuple(sorted({d.instruction for d in demonstrations}))
    lengths = [len(d) for d in demonstrations]
    held_out = np.repeat(held_out_episodes(demonstrations, held_out_fraction), lengths)
    per_task: dict[str, int] = {}
    for d in demonstrations:
        per_task[f"{d.suite}/{d.task_id}"] = per_task.get(f"{d.suite}/{d.task_id}", 0) + 1
    frames = FrameDataset(
        images=np.concatenate([d.images for d in demonstrations]),
        action_ids=action_ids(actions, load_statistics(statistics, statistics_key), bins),
        poses=scale.standardise(poses),
        instruction_of=np.repeat([instructions.index(d.instruction) for d in demonstrations], lengths).astype(np.int64),
        instructions=instructions,
        training=np.flatnonzero(~held_out),
        held_out=np.flatnonzero(held_out),
        pose_scale=scale,
        episodes_per_task=per_task,
        noises=tuple(sorted({round(d.noise, 6) for d in demonstrations})),
        seeds=(min(d.seed for d in demonstrations), max(d.seed for d in demonstrations)),
    )
    return frames, statistics


def augment(
    images: Uint8Array,
    rng: np.random.Generator,
    shift_px: int,
    brightness: float,
    colour: float,
) -> Uint8Array:
    """Shift each image by its own few pixels (edges repeated), and change its brightness and its colours.

    Args:
        images: uint8 [B, S, S, 3].
        rng: Source of chance.
        shift_px: Largest shift along either axis.
        brightness: Largest relative change of all channels together.
        colour: Largest change of each channel, in grey levels.
    """
    count, height, width, _ = images.shape
    padded = np.pad(images, ((0, 0), (shift_px, shift_px), (shift_px, shift_px), (0, 0)), mode="edge")
    offsets = rng.integers(0, 2 * shift_px + 1, (count, 2))
    shifted = np.stack(
        [image[dy : dy + height, dx : dx + width] for image, (dy, dx) in zip(padded, offsets, strict=True)]
    ).astype(np.float32)
    gain = 1 + brightness * rng.uniform(-1, 1, (count, 1, 1, 1)).astype(np.float32)
    tint = colour * rng.uniform(-1, 1, (count, 1, 1, 3)).astype(np.float32)
    changed: Uint8Array = np.clip(np.rint(shifted * gain + tint), 0, 255).astype(np.uint8)
    return changed


def coarsen_tokens(ids: Int64Array, bins: ActionBins, grid_bins: int) -> Int64Array:
    """Action ids [B, 7] moved to the nearest of every ``grid_bins``-th bin, counted from the middle; not the gripper's.

    A policy that is several bins off cannot use the bins between: they only make its tokens flicker from frame to
    frame, which costs acceptance. The outermost bins stay reachable.
    """
    middle = N_BINS // 2 - 1
    steps = np.rint((bins.bin_of(ids[:, : N_DOF - 1]) - middle) / grid_bins)
    moved = np.clip(middle + grid_bins * steps.astype(np.int64), 0, N_BINS - 2)
    return np.concatenate([bins.vocab_size - 1 - moved, ids[:, N_DOF - 1 :]], axis=1)


def disturb_tokens(ids: Int64Array, bins: ActionBins, rng: np.random.Generator, deviation_bins: float) -> Int64Array:
    """Action ids [B, 7] as a draft would have them: near the truth, not equal to it.

    Every row gets a deviation of its own between 0 and ``deviation_bins``, so that the policy learns to name the next
    token from what it sees, whether the tokens before it are exact or roughly right. The gripper's token stays: no
    token follows it.
    """
    deviation = rng.uniform(0, deviation_bins, (len(ids), 1))
    shift = np.rint(rng.normal(size=(len(ids), N_DOF - 1)) * deviation).astype(np.int64)
    moved = np.clip(ids[:, : N_DOF - 1] + shift, bins.first_id, bins.first_id + N_BINS - 1)
    return np.concatenate([moved, ids[:, N_DOF - 1 :]], axis=1)


@dataclass(frozen=True)
class Batch:
    """Rows of a :class:`FrameDataset` ready for the model.

    Attributes:
        images: uint8 [B, S, S, 3].
        prompts: B prompts, each int64 [T_i].
        action_ids: int64 [B, 7].
        poses: float32 [B, K].
    """

    images: Uint8Array
    prompts: tuple[Int64Array, ...]
    action_ids: Int64Array
    poses: Float32Array


def make_batch(
    frames: FrameDataset,
    prompts: Sequence[Int64Array],
    rows: Int64Array,
    augmentation: Callable[[Uint8Array], Uint8Array] | None = None,
) -> Batch:
    """Collect rows; ``prompts`` is parallel to ``frames.instructions``."""
    images = frames.images[rows]
    return Batch(
        images=augmentation(images) if augmentation is not None else images,
        prompts=tuple(prompts[i] for i in frames.instruction_of[rows]),
        action_ids=frames.action_ids[rows],
        poses=frames.poses[rows],
    )
