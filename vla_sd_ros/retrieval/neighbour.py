"""What a search in the demonstrations finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import Ids


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A frame of a demonstration that looks like the present one.

    Attributes:
        similarity: 1 - d^2 / 2 of the keys' distance d: their cosine, where both are of unit length; at most 1.
        tokens: the policy's own greedy tokens at that frame, int64 [7]: a draft in the policy's own convention.
        next_tokens: the policy's own greedy tokens of the frames after it, int64 [L, 7]; the last action repeated
            past the episode's end.
        position: end-effector position there, float32 [3], m, base frame.
        gripper_open: whether the fingers' command was open there.
        steps_to_gripper_change: control periods to the nearest change of the gripper's command in the demonstration,
            before or after this frame; the episode's length where there is none.
        episode: number of the demonstration.
        step: control period in it.
    """

    similarity: float
    tokens: Ids
    next_tokens: Ids
    position: npt.NDArray[np.float32]
    gripper_open: bool
    steps_to_gripper_change: int
    episode: int
    step: int
