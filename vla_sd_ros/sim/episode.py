"""One episode of the simulated robot over its ROS topics, in lockstep or in real time.

``lockstep``: simulated time stands still until the command for the published observation has come. The outcome then
depends on the policy alone: for success rates. ``realtime``: the world moves at its control rate on the wall clock and
holds the newest command, so that latency costs success.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from vla_sd_ros.safety.freshness import NS_PER_S
from vla_sd_ros.sim.action_units import CONTROL_PERIOD_NS, CONTROL_PERIOD_S, env_action_from_si
from vla_sd_ros.sim.arm_topics import SAME_CAUSE_S, ArmTopics, ReceivedCommand
from vla_sd_ros.sim.world import LiberoWorld
from vla_sd_ros.types import Rgb

# A lost message must not end an episode: after this the same scene is published again under a later stamp.
REPEAT_AFTER_S = 3.0
MS_PER_S = 1e3


@dataclass
class EpisodeOutcome:
    """What happened.

    Attributes:
        success: whether the task's predicate held.
        steps: control periods taken.
        reason: why it ended.
        aborted: whether it ended for a reason outside the task.
        left_s: observation's stamp in nanoseconds to the monotonic time at which its image left.
        camera_to_action_ms: per observation, from the image leaving to its action being published.
        camera_to_command_ms: per observation, from the image leaving to its command arriving here.
    """

    success: bool = False
    steps: int = 0
    reason: str = ""
    aborted: bool = False
    left_s: dict[int, float] = field(default_factory=dict)
    camera_to_action_ms: list[float] = field(default_factory=list)
    camera_to_command_ms: list[float] = field(default_factory=list)


class Pace(Protocol):
    """Gives each control period its command, and keeps the time."""

    def now_ns(self) -> int:
        """The time to stamp with."""

    def begin(self, world: LiberoWorld) -> None:
        """Begins a control period: publishes how the arm stands, while the image is still to be drawn."""

    def exchange(
        self, world: LiberoWorld, image: Rgb, outcome: EpisodeOutcome, should_stop: Callable[[], bool]
    ) -> ReceivedCommand | None:
        """Publishes what the robot sees; returns the command to carry out, or None to give up."""


class Lockstep:
    """Simulated time; one command per observation.

    Args:
        topics: the robot's topics.
        command_wait_s: gives up where no command comes for this long.
    """

    def __init__(self, topics: ArmTopics, command_wait_s: float) -> None:
        self._topics = topics
        self._command_wait_s = command_wait_s
        self._time_ns = NS_PER_S  # not 0: that means that the clock has not started

    def now_ns(self) -> int:
        """Simulated time, nanoseconds."""
        return self._time_ns

    def advance(self, duration_ns: int) -> None:
        """Lets simulated time pass."""
        self._time_ns += duration_ns
        self._topics.publish_clock(self._time_ns)

    def begin(self, world: LiberoWorld) -> None:
        """Lets a control period pass and publishes the state of its end."""
        self.advance(CONTROL_PERIOD_NS)
        self._topics.publish_state(world, self._time_ns)

    def exchange(
        self, world: LiberoWorld, image: Rgb, outcome: EpisodeOutcome, should_stop: Callable[[], bool]
    ) -> ReceivedCommand | None:
        """Publishes and waits for the answer to just this observation."""
        give_up_s = time.monotonic() + self._command_wait_s
        while time.monotonic() < give_up_s:
            outcome.left_s[self._time_ns] = self._topics.publish_image(image, self._time_ns)
            command = self._topics.wait_for_command(self._time_ns, min(REPEAT_AFTER_S, self._command_wait_s))
            if command is not None:
                return command
            if should_stop():
                return None
            self.begin(world)
        outcome.reason = f"no command came for {self._command_wait_s} s"
        return None


class RealTime:
    """The wall clock; the newest command is held until it is older than a servo would allow.

    Args:
        topics: the robot's topics.
        clock_ns: the wall clock.
        command_timeout_s: a held command older than this is replaced by rest.
    """

    def __init__(self, topics: ArmTopics, clock_ns: Callable[[], int], command_timeout_s: float) -> None:
        self._topics = topics
        self._clock_ns = clock_ns
        self._command_timeout_s = command_timeout_s
        self._next_tick_s = 0.0

    def now_ns(self) -> int:
        """Wall clock, nanoseconds."""
        return self._clock_ns()

    def begin(self, world: LiberoWorld) -> None:
        """Publishes the state of now."""
        self._topics.publish_state(world, self._clock_ns())

    def exchange(
        self, world: LiberoWorld, image: Rgb, outcome: EpisodeOutcome, should_stop: Callable[[], bool]
    ) -> ReceivedCommand | None:
        """Publishes, sleeps until the period is over, returns whatever command is newest then."""
        stamp_ns = self._clock_ns()
        outcome.left_s[stamp_ns] = self._topics.publish_image(image, stamp_ns)
        now_s = time.monotonic()
        # A period that was missed is not caught up: the world would run faster than the clock.
        self._next_tick_s = max(self._next_tick_s + CONTROL_PERIOD_S, now_s)
        time.sleep(self._next_tick_s - now_s)
        command = self._topics.newest_command()
        if command is None or time.monotonic() - command.arrived_s > self._command_timeout_s:
            return ReceivedCommand(stamp_ns, np.zeros(6), time.monotonic())
        return command


def run_episode(
    world: LiberoWorld,
    topics: ArmTopics,
    pace: Pace,
    max_steps: int,
    should_stop: Callable[[], bool],
    on_frame: Callable[[Rgb], None] | None = None,
) -> EpisodeOutcome:
    """Runs an episode from the world's present state to success, the step limit, or a reason to stop.

    Args:
        world: already reset.
        topics: the robot's topics.
        pace: lockstep or real time.
        max_steps: step limit.
        should_stop: asked once a period; true aborts.
        on_frame: gets every camera image.
    """
    outcome = EpisodeOutcome()
    _carry_out(outcome, world, topics, pace, max_steps, should_stop, on_frame)
    time.sleep(SAME_CAUSE_S)  # the last action may still be on its way here
    for stamp_ns, left_s in outcome.left_s.items():
        action_s = topics.action_published_s(stamp_ns)
        command_s = topics.command_arrival_s(stamp_ns)
        if action_s is not None:
            outcome.camera_to_action_ms.append((action_s - left_s) * MS_PER_S)
        if command_s is not None:
            outcome.camera_to_command_ms.append((command_s - left_s) * MS_PER_S)
    return outcome


def _carry_out(
    outcome: EpisodeOutcome,
    world: LiberoWorld,
    topics: ArmTopics,
    pace: Pace,
    max_steps: int,
    should_stop: Callable[[], bool],
    on_frame: Callable[[Rgb], None] | None,
) -> None:
    while outcome.steps < max_steps:
        pace.begin(world)
        image = world.render()
        command = pace.exchange(world, image, outcome, should_stop)
        if on_frame is not None:  # after the exchange, whose latency counts
            on_frame(image)
        if command is None or should_stop():
            outcome.aborted = True
            outcome.reason = outcome.reason or "the episode was reset"
            return
        gripper = 1.0 if topics.gripper_is_open() else 0.0
        outcome.success = world.step(env_action_from_si([*(command.twist * CONTROL_PERIOD_S), gripper]))
        outcome.steps += 1
        if outcome.success:
            outcome.reason = "the task's predicate holds"
            return
    outcome.reason = f"no success within {max_steps} steps"
