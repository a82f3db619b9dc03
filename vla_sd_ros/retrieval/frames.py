"""The frames of one task's demonstrations as arrays: what an index is filled with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_DOF, Ids

LOOK_AHEAD = 7

Keys = npt.NDArray[np.float16]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class DemonstrationFrames:
    """N frames of one task; those of an episode lie together, in order.

    Attributes:
        keys: float16 [N, D]; half precision is that of the file, so that an index gives the same answers before and
            after it was saved. In a store they are projected, [N, W].
        tokens: the policy's own greedy tokens, int64 [N, 7].
        expert_tokens: what the demonstration did, int64 [N, 7].
        positions: end-effector position, float32 [N, 3], m, base frame.
        gripper_open: the demonstration's command, bool [N].
        steps_to_gripper_change: see :func:`steps_to_change`, int64 [N].
        episodes: number of the demonstration, int64 [N].
        steps: control period in it, int64 [N].

    Raises:
        ValueError: on wrong shapes or precision, keys that are not finite, or no frames at all.
    """

    keys: Keys
    tokens: Ids
    expert_tokens: Ids
    positions: npt.NDArray[np.float32]
    gripper_open: Bools
    steps_to_gripper_change: Ids
    episodes: Ids
    steps: Ids

    def __post_init__(self) -> None:
        n = len(self.keys)
        if n == 0:
            raise ValueError("frames: 0; legal: at least 1")
        if self.keys.dtype != np.float16:
            raise ValueError(f"keys: {self.keys.dtype}; legal: float16")
        shapes = {"tokens": (n, N_DOF), "expert_tokens": (n, N_DOF), "positions": (n, 3)}
        for field in fields(self):
            array = getattr(self, field.name)
            legal = (n, *self.keys.shape[1:2]) if field.name == "keys" else shapes.get(field.name, (n,))
            if array.shape != legal:
                raise ValueError(f"{field.name}: shape {array.shape}; legal: {legal}")
        for name in ("keys", "positions"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name}: not finite")

    def __len__(self) -> int:
        return len(self.keys)


def join_frames(parts: Sequence[DemonstrationFrames]) -> DemonstrationFrames:
    """Frames of several episodes, one after the other.

    Raises:
        ValueError: where there are none.
    """
    if not parts:
        raise ValueError("episodes: 0; legal: at least 1")
    return DemonstrationFrames(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(DemonstrationFrames)
        }
    )


def look_ahead(tokens: Ids, episodes: Ids, length: int = LOOK_AHEAD) -> Ids:
    """Tokens of the frames after each frame, int64 [N, length, 7].

    Past an episode's end its last action is repeated. (HeiSD's released code fills with zeros, which a gripper takes
    for "close".)

    Args:
        tokens: int64 [N, 7].
        episodes: int64 [N]; equal numbers lie together.
        length: how many frames ahead.
    """
    last = np.searchsorted(np.flatnonzero(np.diff(episodes)), np.arange(len(episodes)))
    ends = np.append(np.flatnonzero(np.diff(episodes)), len(episodes) - 1)[last]
    ahead = np.arange(len(tokens))[:, None] + np.arange(1, length + 1)
    return tokens[np.minimum(ahead, ends[:, None])]


def steps_to_change(gripper_open: Bools) -> Ids:
    """Control periods from each frame of an episode to the nearest change of the gripper's command.

    Args:
        gripper_open: bool [T].

    Returns:
        int64 [T]: 0 at the first frame with the new command; before and after it counts alike; T where the command
        never changes.
    """
    length = len(gripper_open)
    changes = np.flatnonzero(np.diff(gripper_open)) + 1
    if len(changes) == 0:
        return np.full(length, length, dtype=np.int64)
    return np.abs(np.arange(length)[:, None] - changes).min(axis=1).astype(np.int64)
