"""The simulated arm's kinematic state, estimated as ``kinematic_state_node`` estimates it."""

from __future__ import annotations

from typing import Final

from vla_sd_ros.kinematics.clock import NS_PER_S
from vla_sd_ros.kinematics.estimator import GripperCalibration, KinematicEstimator
from vla_sd_ros.sim.action_units import CONTROL_PERIOD_NS
from vla_sd_ros.sim.world import ARM_JOINT_NAMES, FINGER_JOINT_NAMES, LiberoWorld
from vla_sd_ros.types import KinematicState

#: Sums of the finger joints, m, as in config/sim.yaml.
GRIPPER: Final = GripperCalibration(closed=0.0, open=0.08)


class SimulatedArmState:
    """Feeds joints and poses of a world to the estimator, one control period apart."""

    def __init__(self) -> None:
        self._estimator = KinematicEstimator(ARM_JOINT_NAMES, FINGER_JOINT_NAMES, GRIPPER)
        self._stamp_ns = 0

    def begin(self) -> None:
        """A new episode: nothing is differentiated across it."""
        self._estimator.reset()
        self._stamp_ns = NS_PER_S  # a stamp of 0 means that no clock has started

    def read(self, world: LiberoWorld) -> KinematicState:
        """The state at the end of another control period.

        Raises:
            InvalidPose, InvalidJointState: the world's values are not finite.
        """
        self._stamp_ns += CONTROL_PERIOD_NS
        self._estimator.add_joints(world.joint_names, world.joint_positions(), world.joint_velocities(), self._stamp_ns)
        complete = self._estimator.add_pose(
            world.end_effector_position(), world.end_effector_quaternion(), self._stamp_ns
        )
        if complete is None:
            raise RuntimeError("joints and pose of one instant gave no kinematic state")
        return complete[0]
