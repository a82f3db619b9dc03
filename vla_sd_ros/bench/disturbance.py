"""A push: the object that is about to be grasped is moved aside, once, and the policy has to notice.

Skipped and repeated actions are blind. How many control periods pass until an action comes from an image taken after
the push is what skipping costs where the world does not stand still.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.bench.steps import Steps
from vla_sd_ros.sim.action_units import CONTROL_PERIOD_S
from vla_sd_ros.sim.tasks import ScriptedTask
from vla_sd_ros.sim.world import LiberoWorld

NEAR_M: Final = 0.12
LEAST_M: Final = 0.04
MOST_M: Final = 0.06
# Half sides of the part of LIBERO's table (1.0 m by 1.2 m) that the arm reaches, world axes.
REACH_M: Final = (0.3, 0.4)
CANDIDATES: Final = 64
MS_PER_S: Final = 1e3


@dataclass(frozen=True)
class Push:
    """A push that happened: before the image of control period ``step`` (from 0), by ``offset_m`` [3], world axes."""

    step: int
    offset_m: tuple[float, float, float]


@dataclass(frozen=True)
class Reaction:
    """Until the first action that came from an image taken after the push.

    Attributes:
        periods: control periods before it that were still blind; 0 where the next action saw the push.
        delay_ms: those periods and the decode of that action.
    """

    periods: int
    delay_ms: float


class Disturbance:
    """Pushes the task's object once, when the open gripper has come near it.

    The displacement depends on task and initial state alone, so that every decoder meets the same one.

    Args:
        task: says which object.
        initial_state: index of the initial state.
    """

    def __init__(self, task: ScriptedTask, initial_state: int) -> None:
        self._task = task
        self._offsets = push_offsets(task, initial_state)
        self.push: Push | None = None

    def maybe_push(self, world: LiberoWorld, step: int) -> None:
        """Pushes where the moment has come; to be called before the image of a control period is taken."""
        if self.push is not None or world.gripper_opening() < self._task.open_gap_m:
            return
        place = world.world_position(self._task.grasp_object)
        grasp_point = place + np.asarray(self._task.grasp_offset_m)
        if np.linalg.norm(world.end_effector_world_position() - grasp_point) > NEAR_M:
            return
        for offset in self._offsets:
            if (np.abs((place + offset)[:2]) <= REACH_M).all() and world.displace_object(
                self._task.grasp_object, offset
            ):
                self.push = Push(step, (float(offset[0]), float(offset[1]), 0.0))
                return


def push_offsets(task: ScriptedTask, initial_state: int, count: int = CANDIDATES) -> Values:
    """Seeded level displacements, float64 [count, 3], m; the first one that leads to a free place is taken."""
    seed = zlib.crc32(f"{task.suite}/{task.task_id}/{initial_state}".encode())
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0.0, 2 * np.pi, count)
    lengths = rng.uniform(LEAST_M, MOST_M, count)
    return np.stack([lengths * np.cos(angles), lengths * np.sin(angles), np.zeros(count)], axis=1)


def reaction_to(push: Push, steps: Steps) -> Reaction | None:
    """When a decoder's action first came from an image that showed the push; None where the episode ended before."""
    seen: npt.NDArray[np.intp] = np.flatnonzero((steps["skipped"] == 0) & (steps["forward_passes"] > 0))
    after = seen[seen >= push.step]
    if not len(after):
        return None
    periods = int(after[0]) - push.step
    return Reaction(periods, periods * CONTROL_PERIOD_S * MS_PER_S + float(steps["action_ms"][after[0]]))
