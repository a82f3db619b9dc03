"""A tiny policy folder with everything that is derived from a checkpoint: index, calibration, drafter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from decoder_parts import INSTRUCTION
from tiny_policy import IMAGE_SIZE_PX, tiny_config, write_policy

from vla_sd_ros.drafting.learned_checkpoint import DRAFTER_FOLDER, save_drafter
from vla_sd_ros.drafting.learned_config import DrafterNetworkConfig
from vla_sd_ros.drafting.learned_network import DrafterNetwork
from vla_sd_ros.kinematics.calibration import CALIBRATION_FILE, save_calibration
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.retrieval.acceptance_model import fit_acceptance_model
from vla_sd_ros.retrieval.index import INDEX_FOLDER
from vla_sd_ros.retrieval.skip_calibration import SkipCalibration
from vla_sd_ros.training.calibration import calibrate
from vla_sd_ros.training.demonstrations import Demonstration, demonstration_path, save_demonstration
from vla_sd_ros.training.index_building import build_index

STEPS = 30
#: Trusts every neighbour.
SKIP = SkipCalibration(0.0, 1.0, 0.0, 1.0, 0.0, (0.0, 1.0), (0.0, 1.0), (0.0, 1.0), 1.0, 1.0)


def write_demonstrations(folder: Path, instruction: str, episodes: int = 3) -> list[Path]:
    """Episodes of one task in which the hand moves along an arc and the images are noise."""
    paths = []
    for seed in range(episodes):
        rng = np.random.default_rng(seed)
        angle = np.linspace(0.0, 1.0 + 0.1 * seed, STEPS)
        proprio = np.zeros((STEPS, 16), dtype=np.float32)
        proprio[:, 9:12] = np.stack([0.3 * np.sin(angle), 0.3 * np.cos(angle), 0.2 + 0.1 * angle], axis=1)
        proprio[:, 15] = 1.0
        actions = np.zeros((STEPS, 7), dtype=np.float32)
        actions[:, :3] = np.gradient(proprio[:, 9:12], axis=0)
        actions[:, 6] = angle < 0.5
        demonstration = Demonstration(
            images=rng.integers(0, 256, (STEPS, IMAGE_SIZE_PX, IMAGE_SIZE_PX, 3), dtype=np.uint8),
            actions=actions,
            poses=np.zeros((STEPS, 11), dtype=np.float32),
            proprio=proprio,
            suite="libero_goal",
            task_id=8,
            instruction=instruction,
            seed=seed,
            noise=0.0,
        )
        paths.append(demonstration_path(folder, "libero_goal", 8, seed))
        save_demonstration(paths[-1], demonstration)
    return paths


def write_policy_with_assets(folder: Path, instruction: str = INSTRUCTION) -> Path:
    """Writes all of it; the drafter is untrained."""
    policy_folder = write_policy(folder / "policy")
    policy = load_policy(policy_folder)
    paths = write_demonstrations(folder / "demonstrations", instruction)
    build_index(policy, paths, 3, location=policy_folder / INDEX_FOLDER, progress=False)
    features = np.random.default_rng(0).normal(size=(20, 5))
    model = fit_acceptance_model(features, features[:, 0] > 0)
    calibration = calibrate(policy, paths, policy_tokens=False, progress=False)
    calibration = calibration.model_copy(update={"skip": SKIP.to_json(), "acceptance": model.to_json()})
    save_calibration(policy_folder / CALIBRATION_FILE, calibration)
    torch.manual_seed(0)
    network = DrafterNetwork(DrafterNetworkConfig.of_policy(tiny_config()))
    save_drafter(policy_folder / DRAFTER_FOLDER, network, policy.fingerprint, {"trained": "not at all"})
    return policy_folder
