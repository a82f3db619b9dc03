"""The plain autoregressive answer to the same image, computed beside the clock: how far a decoder departs from it."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.actions.convention import ActionConvention
from vla_sd_ros.bench.steps import Shadow
from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.interface import DecodedAction
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.types import KinematicState, Observation


class ShadowDecoder:
    """Decodes autoregressively what another decoder has just decoded; nothing it does reaches the arm.

    Args:
        policy: the one that the other decoder uses.
        view: camera whose image the policy sees.
        convention: what the policy's values mean.
    """

    def __init__(self, policy: LoadedPolicy, view: str | None, convention: ActionConvention) -> None:
        self._decoder = AutoregressiveDecoder(policy, view)
        self._convention = convention

    def compare(self, decoded: DecodedAction, observation: Observation, state: KinematicState) -> Shadow:
        """How ``decoded`` differs from the autoregressive action for the same observation."""
        plain = self._decoder.decode(observation)
        ours, theirs = (self._convention.to_base_si(each.values, state.orientation) for each in (decoded, plain))
        return difference_of(ours, theirs, bool(np.array_equal(decoded.tokens, plain.tokens)))


def difference_of(action: Values, reference: Values, same_tokens: bool) -> Shadow:
    """Compares two actions, float64 [7]: m, rotation vector in rad, gripper 1 open or 0 closed."""
    turn = Rotation.from_rotvec(action[3:6]) * Rotation.from_rotvec(reference[3:6]).inv()
    return Shadow(
        same_tokens=same_tokens,
        distance_m=float(np.linalg.norm(action[:3] - reference[:3])),
        angle_rad=float(turn.magnitude()),
        gripper_differs=bool(action[6] != reference[6]),
    )
