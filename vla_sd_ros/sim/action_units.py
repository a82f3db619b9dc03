"""Actions in SI units and the ones that LIBERO's controller takes.

robosuite's OSC_POSE controller takes displacements as a share of ``POSITION_SCALE_M`` and ``ROTATION_SCALE_RAD`` per
control period; its gripper closes at +1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vla_sd_ros.kinematics.clock import NS_PER_S

Float64Array = npt.NDArray[np.float64]

CONTROL_PERIOD_S = 0.05
CONTROL_PERIOD_NS = int(CONTROL_PERIOD_S * NS_PER_S)
POSITION_SCALE_M = 0.05
ROTATION_SCALE_RAD = 0.5
ENV_ACTION_DECIMALS = 9


def env_action_from_si(action: npt.ArrayLike) -> Float64Array:
    """Turn an action in SI units into the one LIBERO's controller takes.

    Args:
        action: [7] or [..., 7]; displacement in metres (3) and axis-angle in radians (3) per control period, in base
            axes; gripper 1 = open, 0 = closed.

    Returns:
        float64 of the same shape, clipped to [-1, 1]; gripper -1 = open, +1 = close.
    """
    si = np.asarray(action, dtype=np.float64)
    _require_seven(si)
    env = np.concatenate([si[..., :3] / POSITION_SCALE_M, si[..., 3:6] / ROTATION_SCALE_RAD, 1 - 2 * si[..., 6:]], -1)
    # A displacement that travelled as a velocity differs in its last bit; contact dynamics would amplify it.
    return np.clip(np.round(env, ENV_ACTION_DECIMALS), -1.0, 1.0)


def si_action_from_env(action: npt.ArrayLike) -> Float64Array:
    """Invert :func:`env_action_from_si` (for values within [-1, 1])."""
    env = np.asarray(action, dtype=np.float64)
    _require_seven(env)
    return np.concatenate(
        [env[..., :3] * POSITION_SCALE_M, env[..., 3:6] * ROTATION_SCALE_RAD, (1 - env[..., 6:]) / 2], -1
    )


def _require_seven(action: Float64Array) -> None:
    if action.ndim < 1 or action.shape[-1] != 7:
        raise ValueError(f"an action has 7 values, got shape {action.shape}")
