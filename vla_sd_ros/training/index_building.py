"""Builds a demonstration index: keys and the policy's own greedy tokens of demonstrated frames.

The drafts an index gives are what the policy itself would have decoded in that frame, not what the expert did: a
draft is accepted where it equals the policy's choice, and the two differ (see ``expert_tokens`` for study).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.retrieval.faiss_store import FaissStore
from vla_sd_ros.retrieval.frames import DemonstrationFrames, join_frames, steps_to_change
from vla_sd_ros.retrieval.index import DemonstrationIndex, save_index
from vla_sd_ros.retrieval.instruction import normalise_instruction
from vla_sd_ros.retrieval.keys import POSITION_WIDTH, key_from_features, visual_width
from vla_sd_ros.retrieval.projection import fit_projection
from vla_sd_ros.retrieval.stores import IndexMetadata
from vla_sd_ros.training.dataset import action_ids
from vla_sd_ros.training.demonstrations import Demonstration, load_demonstration
from vla_sd_ros.training.teacher import greedy_batches
from vla_sd_ros.verification.acceptance import GRIPPER_OPEN_ABOVE


def build_index(
    policy: LoadedPolicy,
    demonstration_paths: Sequence[Path],
    episodes_per_task: int,
    clean_only: bool = True,
    batch_size: int = 32,
    location: str | Path | None = None,
    progress: bool = True,
) -> DemonstrationIndex:
    """Makes an index of demonstrations, and writes it where a location is given.

    Args:
        policy: whose features and tokens fill it.
        demonstration_paths: episode files; of each task the first ones are taken.
        episodes_per_task: at most how many.
        clean_only: whether episodes gathered with disturbed actions are left out.
        batch_size: frames per forward.
        location: folder, or address of Milvus; None: in memory only.
        progress: whether a bar is shown.

    Returns:
        The index, in memory.

    Raises:
        ValueError: where no episode fits, or an image is not of the policy's size.
    """
    chosen = choose_episodes(demonstration_paths, episodes_per_task, clean_only)
    parts: dict[str, list[DemonstrationFrames]] = {}
    for number, path in enumerate(tqdm(chosen, desc="indexing", unit="episode", disable=not progress)):
        demonstration = load_demonstration(path)
        frames = frames_of(policy, demonstration, number, batch_size)
        parts.setdefault(normalise_instruction(demonstration.instruction), []).append(frames)
    raw = {instruction: join_frames(episodes) for instruction, episodes in sorted(parts.items())}
    widths = block_widths(policy)
    projection = fit_projection(np.concatenate([frames.keys for frames in raw.values()]), visual_width(widths))
    tasks = {name: replace(frames, keys=projection(frames.keys).astype(np.float16)) for name, frames in raw.items()}
    metadata = IndexMetadata(
        policy_fingerprint=policy.fingerprint,
        key_width=visual_width(widths) + POSITION_WIDTH,
        block_widths=widths,
        with_position=True,
        source=f"{len(chosen)} episodes, {'clean' if clean_only else 'clean and disturbed'}, {policy.dtype} weights",
    )
    if location is not None:
        save_index(location, metadata, projection, tasks)
    return DemonstrationIndex(FaissStore(metadata, projection, tasks))


def block_widths(policy: LoadedPolicy) -> tuple[int, ...]:
    """Widths of the vision towers' blocks in the policy's patch features."""
    return policy.config.dinov2.width, policy.config.siglip.width


def choose_episodes(paths: Sequence[Path], episodes_per_task: int, clean_only: bool) -> list[Path]:
    """The first episodes of every task folder, in the order given.

    Raises:
        ValueError: where there are none.
    """
    if episodes_per_task < 1:
        raise ValueError(f"episodes_per_task: {episodes_per_task}; legal: at least 1")
    taken: dict[Path, list[Path]] = {}
    for path in paths:
        of_task = taken.setdefault(path.parent, [])
        if len(of_task) < episodes_per_task and not (clean_only and _noise(path) > 0):
            of_task.append(path)
    chosen = [path for of_task in taken.values() for path in of_task]
    if not chosen:
        kind = "clean demonstrations" if clean_only else "demonstrations"
        raise ValueError(f"no {kind} among {len(paths)} files; legal: at least one")
    return chosen


def frames_of(policy: LoadedPolicy, demonstration: Demonstration, number: int, batch_size: int) -> DemonstrationFrames:
    """Keys, tokens and payload of one episode's frames."""
    expert = action_ids(demonstration.actions, policy.statistics, policy.bins)
    positions = demonstration.end_effector_positions.astype(np.float32)
    keys = np.zeros((len(demonstration), visual_width(block_widths(policy)) + POSITION_WIDTH), dtype=np.float16)
    tokens = np.zeros((len(demonstration), N_DOF), dtype=np.int64)
    for batch in greedy_batches(policy, demonstration.images, demonstration.instruction, batch_size):
        tokens[batch.rows] = batch.tokens
        for row, features in zip(batch.rows, batch.features.float().cpu().numpy(), strict=True):
            keys[row] = key_from_features(features, block_widths(policy), positions[row])
    gripper_open = demonstration.actions[:, N_DOF - 1] > GRIPPER_OPEN_ABOVE
    return DemonstrationFrames(
        keys=keys,
        tokens=tokens,
        expert_tokens=expert,
        positions=positions,
        gripper_open=gripper_open,
        steps_to_gripper_change=steps_to_change(gripper_open),
        episodes=np.full(len(demonstration), number, dtype=np.int64),
        steps=np.arange(len(demonstration), dtype=np.int64),
    )


def _noise(path: Path) -> float:
    with np.load(path, allow_pickle=False) as data:
        return float(data["noise"])
