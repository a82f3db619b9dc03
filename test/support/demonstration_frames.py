"""Random frames of two tasks whose names HeiSD's released code confuses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vla_sd_ros.retrieval.frames import DemonstrationFrames, steps_to_change
from vla_sd_ros.retrieval.projection import KeyProjection, fit_projection
from vla_sd_ros.retrieval.stores import IndexMetadata

BLOCK_WIDTHS = (3, 3)
VISUAL_WIDTH = 4 * sum(BLOCK_WIDTHS)
KEY_WIDTH = VISUAL_WIDTH + 3
FINGERPRINT = "a" * 64
EPISODE_STEPS = 10
CLOSES_AT = 4
BUTTER, MILK = "pick up the butter and place it in the basket", "pick up the milk and place it in the basket"


def random_keys(rng: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    """Keys [count, KEY_WIDTH]: unit vectors, and positions near 0.5 m."""
    visual = rng.normal(size=(count, VISUAL_WIDTH))
    visual /= np.linalg.norm(visual, axis=1, keepdims=True)
    return np.concatenate([visual, rng.normal(0.5, 0.05, (count, 3))], axis=1).astype(np.float32)


PROJECTION: KeyProjection = fit_projection(random_keys(np.random.default_rng(9), 200), VISUAL_WIDTH, components=12)
METADATA = IndexMetadata(
    policy_fingerprint=FINGERPRINT, key_width=KEY_WIDTH, block_widths=BLOCK_WIDTHS, with_position=True
)


def random_frames(count: int, seed: int) -> DemonstrationFrames:
    """Frames of episodes of ten steps; the gripper closes at the fifth."""
    rng = np.random.default_rng(seed)
    keys, steps = random_keys(rng, count), np.arange(count) % EPISODE_STEPS
    return DemonstrationFrames(
        keys=PROJECTION(keys).astype(np.float16),
        tokens=rng.integers(31744, 32000, (count, 7)),
        expert_tokens=rng.integers(31744, 32000, (count, 7)),
        positions=keys[:, -3:],
        gripper_open=steps < CLOSES_AT,
        steps_to_gripper_change=steps_to_change(np.arange(EPISODE_STEPS) < CLOSES_AT)[steps],
        episodes=np.arange(count) // EPISODE_STEPS,
        steps=steps,
    )


def two_tasks() -> dict[str, DemonstrationFrames]:
    """Sixty frames with butter, thirty with milk."""
    return {BUTTER: random_frames(60, 1), MILK: random_frames(30, 2)}
