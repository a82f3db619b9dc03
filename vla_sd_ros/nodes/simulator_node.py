"""simulator_node: a LIBERO task as a ROS robot with camera, joints, end-effector pose and the arm's command topics.

``~/start`` begins an episode, ``~/reset`` aborts it, ``~/episode`` tells how it stands. The world lives in a worker
thread, since its rendering context belongs to one thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_msgs.msg import String
from std_srvs.srv import Trigger

from vla_sd_ros.msg import EpisodeStatus
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.diagnostics import Diagnostics
from vla_sd_ros.ros.parameters import read_parameters
from vla_sd_ros.ros.run import run_nodes
from vla_sd_ros.ros.stamps import stamp_from
from vla_sd_ros.safety.freshness import NS_PER_S
from vla_sd_ros.sim.action_units import CONTROL_PERIOD_S
from vla_sd_ros.sim.arm_topics import ArmTopics
from vla_sd_ros.sim.episode import EpisodeOutcome, Lockstep, Pace, RealTime, run_episode
from vla_sd_ros.sim.recording import VideoRecorder
from vla_sd_ros.sim.suites import MAX_STEPS
from vla_sd_ros.sim.world import LiberoWorld, require_task
from vla_sd_ros.srv import StartEpisode

GRAPH_WAIT_S = 30.0


class SimulatorConfig(BaseModel):
    """Parameters of the simulator.

    Attributes:
        suite: LIBERO suite to begin with.
        task_id: index of its task.
        mode: lockstep (simulated time, one command per observation) or realtime (20 Hz, holds the newest command).
        camera_px: side of the camera's image.
        max_steps: step limit of an episode; 0 takes the suite's own.
        command_wait_s: in lockstep, an episode without a command for this long is aborted.
        command_timeout_s: in realtime, a command older than this is no longer held.
        record: folder for an MP4 per episode; empty records nothing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: str = "libero_goal"
    task_id: Annotated[int, Field(ge=0)] = 0
    mode: Literal["lockstep", "realtime"] = "lockstep"
    camera_px: Annotated[int, Field(ge=32, le=1024)] = 224
    max_steps: Annotated[int, Field(ge=0)] = 0
    command_wait_s: Annotated[float, Field(gt=0.0)] = 30.0
    command_timeout_s: Annotated[float, Field(gt=0.0)] = 0.5
    record: str = ""


class SimulatorNode(Node):
    """Takes requests in its executor, lives in its worker."""

    def __init__(self) -> None:
        super().__init__("simulator_node")
        self._config = read_parameters(self, SimulatorConfig)
        self._diagnostics = Diagnostics(self)
        lockstep = self._config.mode == "lockstep"
        self._topics = ArmTopics(self, self._diagnostics, simulated_time=lockstep)
        self._pace: Pace
        if lockstep:
            self._pace = Lockstep(self._topics, self._config.command_wait_s)
        else:
            self._pace = RealTime(self._topics, time.time_ns, self._config.command_timeout_s)
        self._instructions = self.create_publisher(String, "instruction", qos.latched())
        self._statuses = self.create_publisher(EpisodeStatus, "~/episode", qos.latched())
        self.create_service(StartEpisode, "~/start", self._on_start)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self._changed = threading.Condition()
        self._request: Any = None
        self._running = False
        self._ended = False
        self._failure: BaseException | None = None
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(0.1, self._raise_what_the_worker_raised, clock=steady)
        self._worker = threading.Thread(target=self._live, name="world", daemon=True)
        self._worker.start()

    def stop(self) -> None:
        """Ends the worker."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._worker.join(timeout=10.0)

    def _on_start(self, request: Any, response: Any) -> Any:
        with self._changed:
            response.accepted = not self._running and self._request is None
            if response.accepted:
                self._request = request
                self._changed.notify_all()
            else:
                response.message = "an episode is running; call ~/reset first"
        return response

    def _on_reset(self, _: Any, response: Any) -> Any:
        with self._changed:
            response.success = self._running
            response.message = "the episode ends" if self._running else "no episode is running"
            self._running = False
        return response

    def _raise_what_the_worker_raised(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _live(self) -> None:
        try:
            world = LiberoWorld(self._config.suite, self._config.task_id, camera_px=self._config.camera_px)
            try:
                self._announce(world, EpisodeStatus.IDLE)
                while not self._ended:
                    request = self._await_request()
                    if request is not None:
                        world = self._serve(world, request)
            finally:
                world.close()
        except BaseException as error:  # the executor's thread raises it: a robot without a world must not live on
            self._failure = error

    def _await_request(self) -> Any:
        while not self._ended:
            with self._changed:
                if self._changed.wait_for(lambda: self._request is not None or self._ended, CONTROL_PERIOD_S):
                    request, self._request = self._request, None
                    self._running = request is not None
                    return request
            self._topics.publish_clock(self._pace.now_ns())  # whoever joins now needs the time
        return None

    def _serve(self, world: LiberoWorld, request: Any) -> LiberoWorld:
        """Runs the requested episode; returns the world it ran in."""
        try:
            wanted = (request.suite or world.suite, request.task_id if request.suite else world.task_id)
            if wanted != (world.suite, world.task_id):
                world = self._exchange_world(world, *wanted)
            world.reset(initial_state=request.initial_state)
        except ValueError as error:
            outcome = EpisodeOutcome(reason=str(error), aborted=True)
        else:
            outcome = self._run(world, request.initial_state)
        with self._changed:
            self._running = False
        state = EpisodeStatus.SUCCEEDED if outcome.success else EpisodeStatus.FAILED
        self._announce(world, EpisodeStatus.ABORTED if outcome.aborted else state, request.initial_state, outcome)
        return world

    def _exchange_world(self, world: LiberoWorld, suite: str, task_id: int) -> LiberoWorld:
        """Another world in place of the present one; never two at once, each takes a gigabyte.

        Raises:
            ValueError: on an unknown suite or task; the present world stays.
        """
        require_task(suite, task_id)
        world.close()
        return LiberoWorld(suite, task_id, camera_px=self._config.camera_px)

    def _run(self, world: LiberoWorld, initial_state: int) -> EpisodeOutcome:
        self._topics.forget()
        self._instructions.publish(String(data=world.instruction))
        self._announce(world, EpisodeStatus.RUNNING, initial_state)
        if not self._topics.wait_for_peers(GRAPH_WAIT_S, lambda: self._ended):
            return EpisodeOutcome(reason="nobody takes camera/image_raw or sends twist_command", aborted=True)
        if isinstance(self._pace, Lockstep):
            # A second passes between episodes, so that nothing of the one before counts as recent; then the nodes get
            # a moment of wall time to hear of it.
            self._pace.advance(NS_PER_S)
            time.sleep(0.2)
        max_steps = self._config.max_steps or MAX_STEPS[world.suite]
        should_stop = lambda: self._ended or not self._running  # noqa: E731
        if not self._config.record:
            return run_episode(world, self._topics, self._pace, max_steps, should_stop)
        path = Path(self._config.record) / f"{world.suite}_{world.task_id}_{initial_state:02d}.mp4"
        with VideoRecorder(path, 1.0 / CONTROL_PERIOD_S) as video:
            return run_episode(world, self._topics, self._pace, max_steps, should_stop, video.add)

    def _announce(
        self, world: LiberoWorld, state: int, initial_state: int = -1, outcome: EpisodeOutcome | None = None
    ) -> None:
        message = EpisodeStatus(
            state=state,
            suite=world.suite,
            task_id=world.task_id,
            instruction=world.instruction,
            initial_state=initial_state,
        )
        message.header.stamp = stamp_from(self._pace.now_ns())
        if outcome is not None:
            message.steps, message.reason = outcome.steps, outcome.reason
            message.camera_to_action_ms = outcome.camera_to_action_ms
            message.camera_to_command_ms = outcome.camera_to_command_ms
        self._statuses.publish(message)


def main(args: Sequence[str] | None = None) -> int:
    """Runs the node until a signal."""
    return run_nodes([SimulatorNode], args)
