"""The command gate: turns actions into end-effector twists, and refuses or stops where it must.

An action is accepted whole or rejected whole. An accepted one moves the arm for a bounded time; then, and on every
other reason to stop, the twist decays linearly to zero: a velocity-controlled arm then holds its measured pose. The
last displacement is never repeated and nothing is ever filled in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_DOF, Values
from vla_sd_ros.safety.freshness import NS_PER_S, FreshnessLimits, StampGuard, StampVerdict
from vla_sd_ros.safety.limits import CommandLimits
from vla_sd_ros.types import KinematicState

# Slack for speeds that come from displacements at exactly the limit.
_SPEED_SLACK = 1.0 + 1e-6
#: Less than this is a clock being disciplined, not a jump.
CLOCK_SLACK_NS = 20_000_000


@dataclass(frozen=True)
class ArmCommand:
    """What is sent to the arm.

    Attributes:
        linear: float64 [3], m/s, base axes.
        angular: float64 [3], rad/s, base axes.
        gripper_opening: 0 closed to 1 open; None leaves the gripper as it is.
    """

    linear: Values
    angular: Values
    gripper_opening: float | None = None

    @property
    def at_rest(self) -> bool:
        """Whether the command asks for no motion."""
        return not (self.linear.any() or self.angular.any())


@dataclass(frozen=True)
class Rejection:
    """Why an action was refused; the arm holds."""

    reason: str


def at_rest() -> ArmCommand:
    """The command that holds the measured pose on a velocity interface."""
    return ArmCommand(np.zeros(3), np.zeros(3))


class CommandGate:
    """Judges actions and yields the twist to send at any time. Not thread-safe: one caller.

    Args:
        limits: what may pass.
    """

    def __init__(self, limits: CommandLimits) -> None:
        self._limits = limits
        self._stamps = StampGuard(FreshnessLimits(limits.max_action_age_s, limits.max_future_s))
        self._state: KinematicState | None = None
        self._moving = at_rest()
        self._moving_until_ns = 0
        self._newest_ns = 0

    def observe(self, state: KinematicState) -> None:
        """Takes the newest kinematic state; it limits motion by its age and the workspace."""
        self._state = state

    def submit(self, values: npt.ArrayLike, period_s: float, stamp_ns: int, now_ns: int) -> ArmCommand | Rejection:
        """Judges one action and, where it passes, makes it the motion from now on.

        Args:
            values: displacement per period: float [7], m, rad (rotation vector), base axes; gripper 1 open, 0 closed.
            period_s: the control period that the displacement is meant for, s.
            stamp_ns: stamp of the observation that the action came from.
            now_ns: the clock, nanoseconds.

        Returns:
            The command to send, or why there is none. A rejected action leaves the motion before it to run out.
        """
        now_ns = self._follow_clock(now_ns)
        checked = self._checked_command(values, period_s)
        if isinstance(checked, Rejection):
            return checked
        verdict = self._stamps.judge(stamp_ns, now_ns)
        if verdict is StampVerdict.TIME_JUMP:
            self.stop(now_ns)
        if verdict is not StampVerdict.FRESH:
            return Rejection(f"stamp of the action: {verdict.value}")
        refusal = self._refusal_by_state(checked, period_s, now_ns)
        if refusal is not None:
            return refusal
        self._moving = checked
        self._moving_until_ns = now_ns + int(self._limits.action_hold_s * NS_PER_S)
        return checked

    def command_at(self, now_ns: int) -> ArmCommand:
        """The twist to send at ``now_ns``: the accepted action's while it lasts, then decelerating, then rest."""
        now_ns = self._follow_clock(now_ns)
        if self._moving.at_rest:
            return at_rest()
        if self._why_not_to_move(now_ns) is not None or self._would_stop_outside(now_ns):
            self.stop(now_ns)
        overdue_s = (now_ns - self._moving_until_ns) / NS_PER_S
        if overdue_s <= 0.0:
            return ArmCommand(self._moving.linear, self._moving.angular)
        remaining = 1.0 - overdue_s / self._limits.stop_time_s
        if remaining <= 0.0:
            self._moving = at_rest()
            return self._moving
        return ArmCommand(self._moving.linear * remaining, self._moving.angular * remaining)

    def stop(self, now_ns: int) -> None:
        """Starts the deceleration now, unless it has started already."""
        self._moving_until_ns = min(self._moving_until_ns, now_ns)

    def reset(self) -> None:
        """Forgets motion, state and stamps: for deactivation, and after time jumped."""
        self._moving = at_rest()
        self._state = None
        self._newest_ns = 0
        self._stamps.reset()

    def _follow_clock(self, now_ns: int) -> int:
        """The clock, kept from running backwards; where it jumped back, the end of the motion has no meaning: rest."""
        if now_ns < self._newest_ns - CLOCK_SLACK_NS:
            self._moving = at_rest()
            self._newest_ns = now_ns
        self._newest_ns = max(self._newest_ns, now_ns)
        return self._newest_ns

    def _checked_command(self, values: npt.ArrayLike, period_s: float) -> ArmCommand | Rejection:
        try:
            action = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            return Rejection("the action is not numeric")
        if action.shape != (N_DOF,):
            return Rejection(f"the action has shape {action.shape}, not ({N_DOF},)")
        if not np.isfinite(action).all():
            return Rejection(f"the action is not finite: {action.tolist()}")
        if not (np.isfinite(period_s) and period_s > 0.0):
            return Rejection(f"the control period is {period_s} s; it must be positive")
        if not 0.0 <= action[6] <= 1.0:
            return Rejection(f"the gripper value {action[6]:.3f} is outside 0 (closed) to 1 (open)")
        with np.errstate(over="ignore"):  # an infinite speed is too fast as well
            command = ArmCommand(action[:3] / period_s, action[3:6] / period_s, float(action[6]))
            linear, angular = np.linalg.norm(command.linear), np.linalg.norm(command.angular)
        for name, speed, limit, unit in (
            ("linear", linear, self._limits.max_linear_speed, "m/s"),
            ("angular", angular, self._limits.max_angular_speed, "rad/s"),
        ):
            if speed > limit * _SPEED_SLACK:
                return Rejection(f"{name} speed {speed:.3f} {unit} exceeds {limit} {unit}")
        return command

    def _refusal_by_state(self, command: ArmCommand, period_s: float, now_ns: int) -> Rejection | None:
        reason = self._why_not_to_move(now_ns)
        if reason is not None:
            return Rejection(reason)
        assert self._state is not None
        # Where one period leads, or a stop from this speed where that is further.
        displacement = command.linear * max(period_s, self._limits.stop_time_s / 2.0)
        if self._would_leave_workspace(displacement):
            there = np.round(self._state.position + displacement, 3).tolist()
            return Rejection(f"the action would leave the workspace: to {there} m")
        return None

    def _would_stop_outside(self, now_ns: int) -> bool:
        """Whether the arm, were it stopped now, would come to rest outside the workspace."""
        assert self._state is not None
        since_state_s = max(0.0, (now_ns - self._state.stamp_ns) / NS_PER_S)
        return self._would_leave_workspace(self._moving.linear * (since_state_s + self._limits.stop_time_s / 2.0))

    def _would_leave_workspace(self, displacement: Values) -> bool:
        assert self._state is not None
        here, there = self._state.position, self._state.position + displacement
        # Outside the box only motion back towards it passes, so that the arm can be recovered.
        overshoot_here = np.maximum(self._limits.lower - here, here - self._limits.upper).clip(min=0.0)
        overshoot_there = np.maximum(self._limits.lower - there, there - self._limits.upper).clip(min=0.0)
        return bool(((overshoot_there > 0.0) & (overshoot_there >= overshoot_here)).any())

    def _why_not_to_move(self, now_ns: int) -> str | None:
        if self._state is None:
            return "no kinematic state has arrived"
        if not np.isfinite(self._state.position).all():
            return "the kinematic state is not finite"
        age_s = (now_ns - self._state.stamp_ns) / NS_PER_S
        if age_s > self._limits.max_state_age_s:
            return f"the kinematic state is {age_s:.3f} s old, more than {self._limits.max_state_age_s} s"
        if age_s < -self._limits.max_future_s:
            return f"the kinematic state is {-age_s:.3f} s ahead of the clock"
        return None
