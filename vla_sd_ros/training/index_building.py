"""Builds a demonstration index: keys and the policy's own greedy tokens of demonstrated frames.

The drafts an index gives are what the policy itself would have decoded in that frame, not what the expert did: a
draft is accepted where it equals the policy's choice, and the two differ (see ``expert_tokens`` for study).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from vla_sd_ros.actions.bins import N_DOF, Ids
from vla_sd_ros.policy.image import pixel_values
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

GRIPPER_THRESHOLD = 0.5
_POSITION = slice(9, 12)  # of ``Demonstration.proprio``


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
    positions = demonstration.proprio[:, _POSITION].astype(np.float32)
    keys: list[npt.NDArray[np.float32]] = []
    tokens: list[Ids] = []
    for rows in _batches(len(demonstration), batch_size):
        features, greedy = greedy_tokens(policy, demonstration.images[rows], demonstration.instruction, expert[rows])
        keys.extend(
            key_from_features(frame, block_widths(policy), position)
            for frame, position in zip(features, positions[rows], strict=True)
        )
        tokens.append(greedy)
    gripper_open = demonstration.actions[:, N_DOF - 1] > GRIPPER_THRESHOLD
    return DemonstrationFrames(
        keys=np.stack(keys).astype(np.float16),
        tokens=np.concatenate(tokens),
        expert_tokens=expert,
        positions=positions,
        gripper_open=gripper_open,
        steps_to_gripper_change=steps_to_change(gripper_open),
        episodes=np.full(len(demonstration), number, dtype=np.int64),
        steps=np.arange(len(demonstration), dtype=np.int64),
    )


@torch.inference_mode()
def greedy_tokens(
    policy: LoadedPolicy, images: npt.NDArray[np.uint8], instruction: str, guess: Ids
) -> tuple[npt.NDArray[np.float32], Ids]:
    """The tokens greedy decoding gives for every frame, by Jacobi iteration (Santilli et al. 2023).

    One pass scores all seven tokens behind a guess; its choices are the next guess. A token is right once those
    before it are, so a guess that no pass changes is the greedy decode, and seven passes always suffice.

    Args:
        policy: asked.
        images: uint8 [B, S, S, 3].
        instruction: of all frames.
        guess: int64 [B, 7]; a good one saves passes.

    Returns:
        Patch features, float32 [B, P, Dv], and token ids, int64 [B, 7].
    """
    model, first = policy.model, policy.config.first_action_id
    pixels = pixel_values(images, policy.config).to(policy.device, policy.dtype)
    features = model.patch_features(pixels)
    prefix = model.join_prefix(features, policy.prepare_prompt(instruction).expand(len(images), -1))
    tokens = torch.from_numpy(guess).clone().to(policy.device)
    open_rows = torch.arange(len(images), device=policy.device)
    for _ in range(N_DOF):
        before = tokens[open_rows]
        words = model.language_model.embed_tokens(before[:, : N_DOF - 1]).to(prefix.dtype)
        hidden = model.language_model(torch.cat([prefix[open_rows], words], dim=1), outputs=N_DOF)
        after = model.action_logits(hidden).argmax(-1) + first
        tokens[open_rows] = after
        open_rows = open_rows[(after != before).any(dim=1)]
        if len(open_rows) == 0:
            break
    return features.float().cpu().numpy(), tokens.cpu().numpy().astype(np.int64)


def _batches(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _noise(path: Path) -> float:
    with np.load(path, allow_pickle=False) as data:
        return float(data["noise"])
