"""VlaAction: from what a decoder returns to the message."""

from __future__ import annotations

import numpy as np

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.decoding.interface import DecodedAction
from vla_sd_ros.decoding.stage_times import STAGES
from vla_sd_ros.msg import DecodeStats, VlaAction
from vla_sd_ros.ros.stamps import stamp_from


def message_from_action(
    decoded: DecodedAction, values: Values, stamp_ns: int, frame: str, period_s: float
) -> VlaAction:
    """The action as a message.

    Args:
        decoded: tokens, mode, times, counts and report.
        values: the action in SI units and base axes, float64 [7].
        stamp_ns: stamp of the observation it came from.
        frame: the base frame.
        period_s: the control period that the displacement is meant for.
    """
    message = VlaAction(values=values, period_s=period_s, tokens=decoded.tokens.astype("int32"), mode=decoded.mode)
    message.header.stamp = stamp_from(stamp_ns)
    message.header.frame_id = frame
    message.stats = stats_from_action(decoded)
    return message


def stats_from_action(decoded: DecodedAction) -> DecodeStats:
    """How the action was decoded; ``decoder`` and what the publisher knows are left to it."""
    times, counts, report = decoded.stage_times, decoded.counts, decoded.report
    # A stage that this decoder does not have took nothing.
    stages_ms = {name: duration for name in STAGES if (duration := getattr(times, f"{name}_ms")) > 0.0}
    return DecodeStats(
        stage_names=list(stages_ms),
        stage_ms=list(stages_ms.values()),
        total_ms=times.total_ms,
        forward_passes=counts.forward_passes,
        verified_passes=counts.verified_passes,
        accepted_tokens=counts.accepted_tokens,
        relaxed_tokens=counts.relaxed_tokens,
        acceptance_length=counts.acceptance_length,
        region=report.region,
        gate_score=float(report.gate_score),
        near_contact=bool(report.near_contact),
        skipped=bool(report.skipped),
        skipped_in_a_row=report.skipped_in_a_row,
        degraded=report.degraded,
        sources=list(report.sources),
        deviation_bins=np.array(report.deviation_bins, dtype=np.int32),
        deviation_m=float(report.deviation_m),
        deviation_rad=float(report.deviation_rad),
        threshold_bins=report.threshold_bins,
    )
