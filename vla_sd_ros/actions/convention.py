"""Action convention: what a policy's seven un-normalised values mean, made explicit, and turned into SI values.

Every policy was trained on somebody's robot: its rotation may be Euler angles, its frame the tool's, its unit a share
of a controller's range, its gripper's "1" closed. None of this is guessed; all of it is configuration.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from vla_sd_ros.actions.bins import N_DOF, Values
from vla_sd_ros.actions.rotation import ActionFrame, RotationRepresentation, rotation_vector, to_base_frame


class ActionConvention(BaseModel):
    """How a policy's action is to be read.

    Attributes:
        rotation_representation: of values 3 to 5; no default, a wrong guess turns the wrist.
        action_frame: axes of translation and rotation; no default, a wrong guess moves the arm the wrong way.
        translation_scale_m: metres per unit of values 0 to 2 (1 where the policy speaks SI).
        rotation_scale_rad: radians per unit of values 3 to 5.
        gripper_threshold: a gripper value above it is one class, at or below it the other (methods: open iff g > 0.5).
        gripper_open_is_high: whether values above the threshold mean open.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rotation_representation: RotationRepresentation
    action_frame: ActionFrame
    translation_scale_m: Annotated[float, Field(gt=0.0)] = 1.0
    rotation_scale_rad: Annotated[float, Field(gt=0.0)] = 1.0
    gripper_threshold: float = 0.5
    gripper_open_is_high: bool = True

    def to_base_si(self, values: npt.ArrayLike, orientation: npt.ArrayLike) -> Values:
        """Un-normalised values, float [7], as metres, rotation vector in rad (base axes) and gripper 1 open, 0 closed.

        Args:
            values: as the policy's statistics un-normalise them.
            orientation: the tool's quaternion (x, y, z, w) in the base frame, float [4].

        Raises:
            ValueError: on a wrong shape or values that are not finite.
        """
        array = np.asarray(values, dtype=np.float64)
        if array.shape != (N_DOF,) or not np.isfinite(array).all():
            raise ValueError(f"action must be {N_DOF} finite values: {array.tolist()}")
        translation = array[:3] * self.translation_scale_m
        rotation = rotation_vector(array[3:6] * self.rotation_scale_rad, self.rotation_representation)
        high = array[6] > self.gripper_threshold
        return np.concatenate(
            [
                to_base_frame(translation, orientation, self.action_frame),
                to_base_frame(rotation, orientation, self.action_frame),
                [1.0 if high == self.gripper_open_is_high else 0.0],
            ]
        )
