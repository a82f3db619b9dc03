"""Calibrates what judges retrieved actions before the policy has run: verify-skip by similarity, the acceptance gate.

Verify-skip is fitted on pairs of frames of clean episodes and of disturbed ones; the gate on frames of disturbed ones
alone, which the index does not hold: the arm is beside the demonstrated way there, as it is under a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from vla_sd_ros.actions.bins import N_DOF, Ids
from vla_sd_ros.kinematics.estimator import MAX_GAP_S, WINDOW_S
from vla_sd_ros.kinematics.path import PoseHistory
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.retrieval.acceptance_model import (
    AcceptanceModel,
    acceptance_features,
    area_under_curve,
    fit_acceptance_model,
)
from vla_sd_ros.retrieval.index import DemonstrationIndex
from vla_sd_ros.retrieval.keys import key_from_features
from vla_sd_ros.retrieval.skip_calibration import SkipCalibration, fit_skip_calibration, sequence_wise
from vla_sd_ros.sim.action_units import CONTROL_PERIOD_NS
from vla_sd_ros.training.demonstrations import Demonstration, load_demonstration
from vla_sd_ros.training.teacher import greedy_batches

NEIGHBOURS = 3
#: Higher precisions leave next to nothing to skip: neighbours look more alike than they act.
TARGET_PRECISION = 0.8


@dataclass(frozen=True)
class GateCalibration:
    """What was fitted, and how well it judges.

    Attributes:
        skip: bounds of verify-skip by similarity.
        acceptance: probability that a retrieved draft is accepted.
        area_under_curve: of that probability on every second episode, the model being fitted on the others.
        frames: that were looked at.
    """

    skip: SkipCalibration
    acceptance: AcceptanceModel
    area_under_curve: float
    frames: int


@dataclass(frozen=True)
class _Frames:
    hidden: npt.NDArray[np.float64]
    positions: npt.NDArray[np.float64]
    keys: npt.NDArray[np.float32]
    tokens: Ids
    features: npt.NDArray[np.float64]
    accepted: npt.NDArray[np.bool_]
    disturbed: npt.NDArray[np.bool_]


def calibrate_gates(
    policy: LoadedPolicy,
    index: DemonstrationIndex,
    demonstration_paths: Sequence[Path],
    episodes_per_task: int = 2,
    progress: bool = True,
) -> GateCalibration:
    """Fits both.

    Args:
        policy: whose tokens decide whether a retrieved action is acceptable.
        index: of the same checkpoint.
        demonstration_paths: episode files, of tasks that the index knows and of others.
        episodes_per_task: at most how many clean ones, and as many disturbed ones.
        progress: whether a bar is shown.

    Raises:
        ValueError: where no episode fits.
    """
    chosen = list(_chosen(index, demonstration_paths, episodes_per_task))
    if not chosen:
        raise ValueError(f"no episodes of {list(index.instructions)} among {len(demonstration_paths)} files")
    found = [_frames_of(policy, index, each) for each in tqdm(chosen, desc="gates", disable=not progress)]
    lengths = [len(frames.tokens) for frames in found]
    episodes = np.repeat(np.arange(len(found)), lengths)
    names = sorted({each.instruction for each in chosen})
    tasks = np.repeat([names.index(each.instruction) for each in chosen], lengths)
    apart = np.concatenate([frames.disturbed for frames in found])
    features = np.concatenate([frames.features for frames in found])[apart]
    accepted = np.concatenate([frames.accepted for frames in found])[apart]
    second = np.unique(episodes[apart], return_inverse=True)[1] % 2 == 1
    halved = fit_acceptance_model(features[~second], accepted[~second])
    return GateCalibration(
        skip=fit_skip_calibration(
            np.concatenate([frames.hidden for frames in found]),
            np.concatenate([frames.positions for frames in found]),
            np.concatenate([frames.keys for frames in found]),
            episodes,
            np.concatenate([frames.tokens for frames in found]),
            tasks,
            target_precision=TARGET_PRECISION,
        ),
        acceptance=fit_acceptance_model(features, accepted),
        area_under_curve=float(area_under_curve(halved.probability(features[second]), accepted[second])),
        frames=len(accepted),
    )


def _chosen(index: DemonstrationIndex, paths: Sequence[Path], per_task: int) -> list[Demonstration]:
    taken: dict[tuple[Path, bool], int] = {}
    chosen = []
    for path in paths:
        with np.load(path, allow_pickle=False) as data:
            kind = path.parent, float(data["noise"]) > 0
            wanted = index.size(str(data["instruction"])) > 0
        if wanted and taken.get(kind, 0) < per_task:
            taken[kind] = taken.get(kind, 0) + 1
            chosen.append(load_demonstration(path))
    return chosen


def _frames_of(policy: LoadedPolicy, index: DemonstrationIndex, demonstration: Demonstration) -> _Frames:
    metadata, count = index.metadata, len(demonstration)
    positions = demonstration.end_effector_positions.astype(np.float64)
    orientations = demonstration.end_effector_orientations.astype(np.float64)
    hidden = np.zeros((count, policy.config.llama.width))
    tokens = np.zeros((count, N_DOF), dtype=np.int64)
    keys = []
    for batch in greedy_batches(policy, demonstration.images, demonstration.instruction):
        tokens[batch.rows] = batch.tokens
        hidden[batch.rows] = batch.hidden[:, 0].float().cpu().numpy()
        for row, patches in zip(batch.rows, batch.features.float().cpu().numpy(), strict=True):
            position = positions[row] if metadata.with_position else None
            keys.append((row, key_from_features(patches, metadata.block_widths, position)))
    ordered = [key for _, key in sorted(keys, key=lambda entry: int(entry[0]))]
    history, features, accepted = PoseHistory(WINDOW_S, MAX_GAP_S), [], []
    for step, key in enumerate(ordered):
        path = history.add(step * CONTROL_PERIOD_NS, positions[step], orientations[step])
        neighbours = index.search(demonstration.instruction, key, NEIGHBOURS)
        speed_m_per_s = float(np.linalg.norm(path.linear_velocity))
        features.append(acceptance_features(neighbours, speed_m_per_s, path.curvature_per_m))
        accepted.append(bool(sequence_wise(neighbours[0].tokens[None], tokens[step][None])[0]))
    return _Frames(
        hidden,
        positions,
        index.store.projection(np.stack(ordered)),
        tokens,
        np.stack(features),
        np.array(accepted, dtype=np.bool_),
        np.full(count, demonstration.noise > 0),
    )
