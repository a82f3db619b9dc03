"""What a decoder remembers of an episode. It changes only when an action is finished, never half-way through one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import ActionBins, Ids
from vla_sd_ros.decoding.scene import SceneChange
from vla_sd_ros.drafting.history import ActionHistory
from vla_sd_ros.kinematics.position_window import PositionWindow
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.verification.acceptance import GRIPPER, gripper_is_open

#: Longest window that any gate may ask for.
WINDOW = 64


@dataclass
class EpisodeMemory:
    """The past of this episode.

    Attributes:
        history: tokens of the actions.
        positions: where the end effector was.
        decoded: actions that the policy had a part in.
        skipped_in_a_row: actions since the last of those.
        tail_cooldown: steps for which no Kalman tail may be taken.
        anchor: nearest demonstration at the last decode.
        anchor_tokens: what was decoded there.
        deviation_bins: largest move, in bins, from draft to decoded tokens at the last decode.
        spreads: disagreement of the nearest demonstrations at the last steps, oldest first.
        steps_since_gripper_change: control periods; large before the first change.
        gripper_change_position: where the end effector was then; None before the first change.
        scene: the images, coarsely.
        scene_changed: whether something has moved that no decode has seen yet.
    """

    history: ActionHistory = field(default_factory=ActionHistory)
    positions: PositionWindow = field(default_factory=lambda: PositionWindow(WINDOW))
    decoded: int = 0
    skipped_in_a_row: int = 0
    tail_cooldown: int = 0
    anchor: Neighbour | None = None
    anchor_tokens: Ids | None = None
    deviation_bins: int = 254
    spreads: tuple[float, ...] = ()
    steps_since_gripper_change: int = 1_000_000
    gripper_change_position: npt.NDArray[np.float64] | None = None
    scene: SceneChange = field(default_factory=SceneChange)
    scene_changed: bool = False

    def newest_position(self) -> npt.NDArray[np.float64] | None:
        """Where the end effector is, float64 [3], m; None where it is not known."""
        return self.positions.positions()[-1] if len(self.positions) else None

    def travelled_since_gripper_change_m(self) -> float:
        """Distance from where the gripper last changed; infinite before the first change."""
        here = self.newest_position()
        if here is None or self.gripper_change_position is None:
            return float("inf")
        return float(np.linalg.norm(here - self.gripper_change_position))

    def finish(self, tokens: Ids, bins: ActionBins) -> None:
        """Notes an action that is on its way to the arm."""
        before = self.history.last()
        changed = before is not None and bool(
            gripper_is_open(before[GRIPPER], bins) != gripper_is_open(tokens[GRIPPER], bins)
        )
        self.steps_since_gripper_change = 0 if changed else self.steps_since_gripper_change + 1
        if changed:
            self.gripper_change_position = self.newest_position()
        self.history.add(tokens)
