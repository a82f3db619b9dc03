"""A scripted pick-and-place expert without memory.

Its action depends only on what the current image shows (end effector, object and destination poses, finger gap), so
a policy that sees one image can imitate it. Hysteresis between open and closed is carried by the finger gap.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vla_sd_ros.sim.action_units import si_action_from_env
from vla_sd_ros.sim.tasks import ScriptedTask
from vla_sd_ros.sim.world import LiberoWorld

Float64Array = npt.NDArray[np.float64]

POSITION_GAIN = 8.0
POSITION_LIMIT = 0.75  # share of the controller's range
ROTATION_LIMIT = 0.3
TABLE_CARRY_HEIGHT_M = 0.898  # world height of an object's origin when it lies on LIBERO's table
APPROACH_HEIGHT_M = 0.09


class ScriptedExpert:
    """Solves one :class:`ScriptedTask` in the world it is given."""

    def __init__(self, world: LiberoWorld, task: ScriptedTask) -> None:
        if (world.suite, world.task_id) != (task.suite, task.task_id):
            raise ValueError(f"world runs {world.suite}/{world.task_id}, task is {task.suite}/{task.task_id}")
        self.world = world
        self.task = task

    def env_action(self) -> Float64Array:
        """Return the action [7] for the current state in the controller's units (see ``world.step``)."""
        hand = self.world.end_effector_world_position()
        target, closed = self._target(hand)
        action = np.empty(7)
        action[:3] = np.clip(POSITION_GAIN * (target - hand), -POSITION_LIMIT, POSITION_LIMIT)
        action[3:6] = self._upright_rotation()
        action[6] = 1.0 if closed else -1.0
        return action

    def si_action(self) -> Float64Array:
        """Return the action [7] in SI units: metres, radians, gripper 1 = open."""
        return si_action_from_env(self.env_action())

    def poses(self) -> Float64Array:
        """Return [11]: end effector (3), both fingers (2), object (3), destination (3); world frame, metres."""
        return np.concatenate(
            [
                self.world.end_effector_world_position(),
                self.world.finger_positions(),
                self.world.world_position(self.task.grasp_object),
                self.world.world_position(self.task.destination),
            ]
        )

    def _target(self, hand: Float64Array) -> tuple[Float64Array, bool]:
        task = self.task
        item = self.world.world_position(task.grasp_object)
        destination = self.world.world_position(task.destination)
        gap_m = self.world.gripper_opening()
        grasp_point = item + np.asarray(task.grasp_offset_m)
        miss = hand - grasp_point
        miss_level = float(np.linalg.norm(miss[:2]))
        level_tolerance, height_tolerance = (0.012, 0.010) if gap_m > task.open_gap_m else (0.025, 0.03)
        at_grasp = miss_level < level_tolerance and abs(miss[2]) < height_tolerance
        if at_grasp and gap_m > task.grasped_gap_m:
            return grasp_point, True
        if at_grasp:
            return hand + self._carry(item, destination), True
        # A funnel: stay above the object until over the grasp point.
        return grasp_point + np.array([0.0, 0.0, min(APPROACH_HEIGHT_M, 4 * max(0.0, miss_level - 0.008))]), False

    def _carry(self, item: Float64Array, destination: Float64Array) -> Float64Array:
        """Displacement [3] of a held object: lift, then go level, then sink onto the destination."""
        task = self.task
        way = destination[:2] - item[:2]
        distance = float(np.linalg.norm(way))
        carry_height = max(destination[2], TABLE_CARRY_HEIGHT_M) + task.carry_clearance_m
        release_height = destination[2] + task.release_height_m
        height = release_height + min(carry_height - release_height, 3 * max(0.0, distance - 0.012))
        # Level motion starts once the object is nearly at carrying height; close to the goal it is free.
        share = float(np.clip((item[2] - (carry_height - 0.05)) / 0.04, 0.0, 1.0)) if distance > 0.03 else 1.0
        return np.array([share * way[0], share * way[1], height - item[2]])

    def _upright_rotation(self) -> Float64Array:
        """Turn [3] of the hand back to the orientation it had after the reset."""
        error = _multiply(self.world.initial_quaternion, _conjugate(self.world.end_effector_quaternion()))
        error = error if error[3] >= 0 else -error
        turn: Float64Array = np.clip(2 * error[:3], -ROTATION_LIMIT, ROTATION_LIMIT)
        return turn


def _conjugate(q: Float64Array) -> Float64Array:
    return q * np.array([-1.0, -1.0, -1.0, 1.0])


def _multiply(a: Float64Array, b: Float64Array) -> Float64Array:
    """Product of quaternions x, y, z, w."""
    vector = a[3] * b[:3] + b[3] * a[:3] + np.cross(a[:3], b[:3])
    return np.append(vector, a[3] * b[3] - a[:3] @ b[:3])
