"""Limits that a command must keep, validated when they are read."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from vla_sd_ros.actions.bins import Values

Triple = tuple[float, float, float]
PositiveFloat = Annotated[float, Field(gt=0.0)]


class CommandLimits(BaseModel):
    """What the command node lets through. Positions are of the end effector in the robot's base frame.

    Attributes:
        max_linear_speed: m/s.
        max_angular_speed: rad/s.
        workspace_min_m: lower corner of the workspace box, m.
        workspace_max_m: upper corner of the workspace box, m.
        max_action_age_s: an action whose observation is older than this is stale. It spans the capture, the decode
            and the way of both, so it is the decode budget plus 0.1 s.
        max_state_age_s: without a kinematic state younger than this nothing is sent but a stop.
        action_hold_s: how long after its acceptance one action moves the arm; then the arm decelerates.
        stop_time_s: time to decelerate linearly from any speed to rest.
        max_future_s: tolerance for stamps ahead of the clock.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    max_linear_speed: PositiveFloat = 1.2
    max_angular_speed: PositiveFloat = 2.5
    workspace_min_m: Triple
    workspace_max_m: Triple
    max_action_age_s: PositiveFloat = 0.35
    max_state_age_s: PositiveFloat = 0.15
    action_hold_s: PositiveFloat = 0.1
    stop_time_s: PositiveFloat = 0.15
    max_future_s: Annotated[float, Field(ge=0.0)] = 0.1

    @model_validator(mode="after")
    def _the_box_is_not_empty(self) -> CommandLimits:
        if not (self.lower < self.upper).all():
            raise ValueError(
                f"workspace_min_m {self.workspace_min_m} must lie below workspace_max_m {self.workspace_max_m}"
            )
        return self

    @property
    def lower(self) -> Values:
        """Lower corner of the workspace, float64 [3], m."""
        return np.asarray(self.workspace_min_m, dtype=np.float64)

    @property
    def upper(self) -> Values:
        """Upper corner of the workspace, float64 [3], m."""
        return np.asarray(self.workspace_max_m, dtype=np.float64)
