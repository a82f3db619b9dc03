"""Rotations: unit quaternions (x, y, z, w), rotation vectors, and differences that do not wrap.

scipy does the algebra; what stands here is the convention. The representation of an action's three rotation values
is never guessed: it is configuration (``axis_angle`` or ``euler_xyz``), and so is the frame they are expressed in.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from vla_sd_ros.actions.bins import Values

RotationRepresentation = Literal["axis_angle", "euler_xyz"]
ActionFrame = Literal["base", "tool"]


def rotation_vector(values: npt.ArrayLike, representation: RotationRepresentation) -> Values:
    """Three rotation values, float [3], in radians, as a rotation vector (axis times angle), float64 [3].

    ``euler_xyz`` are extrinsic roll, pitch, yaw about the fixed axes (REP-103).

    Raises:
        ValueError: on an unknown representation.
    """
    array = np.asarray(values, dtype=np.float64)
    if representation == "axis_angle":
        return array
    if representation == "euler_xyz":
        return np.asarray(Rotation.from_euler("xyz", array).as_rotvec(), dtype=np.float64)
    raise ValueError(f"rotation_representation: {representation!r}; legal: 'axis_angle', 'euler_xyz'")


def to_base_frame(vector: npt.ArrayLike, orientation: npt.ArrayLike, frame: ActionFrame) -> Values:
    """Expresses a free vector [3] given in ``frame`` in base axes; ``orientation`` is the tool's (x, y, z, w).

    Raises:
        ValueError: on an unknown frame.
    """
    array = np.asarray(vector, dtype=np.float64)
    if frame == "base":
        return array
    if frame == "tool":
        return np.asarray(Rotation.from_quat(np.asarray(orientation, dtype=np.float64)).apply(array), dtype=np.float64)
    raise ValueError(f"action_frame: {frame!r}; legal: 'base', 'tool'")


def angular_difference(later: npt.ArrayLike, earlier: npt.ArrayLike) -> Values:
    """Rotation vector [3] in base axes that turns quaternion ``earlier`` into ``later``, angle in [0, pi].

    q and -q are the same rotation, so antipodal quaternions differ by nothing.
    """
    turn = (
        Rotation.from_quat(np.asarray(later, dtype=np.float64))
        * Rotation.from_quat(np.asarray(earlier, dtype=np.float64)).inv()
    )
    return np.asarray(turn.as_rotvec(), dtype=np.float64)
