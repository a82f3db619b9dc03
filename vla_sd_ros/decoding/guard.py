"""Near contact no decoder may be confident: where the gripper has just acted, or is about to."""

from __future__ import annotations

from vla_sd_ros.decoding.config import GuardConfig
from vla_sd_ros.decoding.memory import EpisodeMemory


def is_near_contact(config: GuardConfig, memory: EpisodeMemory) -> bool:
    """Whether the gripper's command changed a few steps ago, or will in the demonstration that is followed.

    The demonstration of the last decode counts, moved on by the steps since, so that the guard costs no look at the
    image. Travel is counted from the place of the change: an arm that lifts an object slowly stays guarded for longer.
    """
    if memory.steps_since_gripper_change < config.contact_steps:
        return True
    if memory.travelled_since_gripper_change_m() < config.contact_travel_m:
        return True
    anchor = memory.anchor
    if anchor is None or config.contact_steps == 0:
        return False
    return anchor.steps_to_gripper_change - memory.skipped_in_a_row <= config.contact_steps
