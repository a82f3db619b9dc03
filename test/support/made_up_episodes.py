"""Episodes that nobody played, with the figures a test wants."""

from __future__ import annotations

from typing import Any

import numpy as np

from vla_sd_ros.bench.disturbance import Push
from vla_sd_ros.bench.played_episode import PlayedEpisode
from vla_sd_ros.bench.steps import ActionTimes, GenerateTimes, Shadow, StepRecorder
from vla_sd_ros.decoding.interface import DecodeCounts, DecodedAction, DecodeReport
from vla_sd_ros.decoding.stage_times import StageTimes
from vla_sd_ros.types import KinematicState


def arm_at(x_m: float) -> KinematicState:
    """An arm at rest."""
    return KinematicState(
        stamp_ns=1,
        position=np.array([x_m, 0.0, 0.3]),
        orientation=np.array([0.0, 0.0, 0.0, 1.0]),
        linear_velocity=np.zeros(3),
        angular_velocity=np.zeros(3),
        gripper_opening=1.0,
    )


def action(total_ms: float = 10.0, gripper: float = 1.0, **report: Any) -> DecodedAction:
    """An action that one verified forward gave, or none where it is skipped."""
    skipped = bool(report.get("skipped", False))
    return DecodedAction(
        tokens=np.arange(7, dtype=np.int64),
        values=np.array([0.01, 0.0, 0.0, 0.0, 0.0, 0.0, gripper]),
        mode="skip" if skipped else "drafted",
        stage_times=StageTimes(prefill_ms=total_ms / 2, total_ms=total_ms),
        counts=DecodeCounts(0) if skipped else DecodeCounts(2, verified_passes=1, accepted_tokens=5),
        report=DecodeReport(**report),
    )


def episode(
    actions: list[DecodedAction],
    decoder: str = "ours",
    initial_state: int = 0,
    success: bool = True,
    task_id: int = 8,
    positions_m: list[float] | None = None,
    shadow: Shadow | None = None,
    generate: GenerateTimes | None = None,
    push: Push | None = None,
) -> PlayedEpisode:
    """An episode of these actions; the decoder's own total is what the clock around it says too."""
    recorder = StepRecorder()
    for step, decoded in enumerate(actions):
        total_ms = decoded.stage_times.total_ms
        times = ActionTimes(total_ms, total_ms, decoded.stage_times)
        recorder.add(decoded, times, arm_at(positions_m[step] if positions_m else 0.0), shadow, generate)
    return PlayedEpisode(
        key=f"{decoder}-{task_id}-{initial_state}",
        decoder=decoder,
        suite="libero_goal",
        task_id=task_id,
        instruction="put the bowl on the plate",
        initial_state=initial_state,
        success=success,
        steps=recorder.steps(),
        push=push,
    )
