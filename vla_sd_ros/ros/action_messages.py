"""VlaAction: from what a decoder returns to the message."""

from __future__ import annotations

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.decoding.interface import DecodedAction
from vla_sd_ros.decoding.stage_times import STAGES
from vla_sd_ros.msg import VlaAction
from vla_sd_ros.ros.stamps import stamp_from


def message_from_action(
    decoded: DecodedAction, values: Values, stamp_ns: int, frame: str, period_s: float
) -> VlaAction:
    """The action as a message.

    Args:
        decoded: tokens, mode and times.
        values: the action in SI units and base axes, float64 [7].
        stamp_ns: stamp of the observation it came from.
        frame: the base frame.
        period_s: the control period that the displacement is meant for.
    """
    message = VlaAction(values=values, period_s=period_s, tokens=decoded.tokens.astype("int32"), mode=decoded.mode)
    message.header.stamp = stamp_from(stamp_ns)
    message.header.frame_id = frame
    stats, times = message.stats, decoded.stage_times
    stats.total_ms = times.total_ms
    # A stage that this decoder does not have took nothing.
    durations_ms = {name: getattr(times, f"{name}_ms") for name in STAGES}
    stats.stage_names = [name for name, duration_ms in durations_ms.items() if duration_ms > 0.0]
    stats.stage_ms = [durations_ms[name] for name in stats.stage_names]
    stats.forward_passes = decoded.counts.forward_passes
    stats.acceptance_length = decoded.counts.acceptance_length
    return message
