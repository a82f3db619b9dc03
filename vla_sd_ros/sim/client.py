"""A client of the running graph: starts episodes, chooses decoders, and collects outcomes and the decoder's figures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import SetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from std_msgs.msg import Bool

from vla_sd_ros.msg import EpisodeStatus, VlaAction
from vla_sd_ros.ros import qos
from vla_sd_ros.srv import StartEpisode

ENDED = (EpisodeStatus.SUCCEEDED, EpisodeStatus.FAILED, EpisodeStatus.ABORTED)


class GraphError(RuntimeError):
    """The graph did not come up, refused an episode, or died."""


@dataclass(frozen=True)
class EpisodeRecord:
    """One episode, as the graph reported it.

    Attributes:
        suite: LIBERO suite.
        task_id: index of its task.
        instruction: what the policy was told.
        initial_state: index of the initial state.
        success: whether the task's predicate held.
        steps: control periods taken.
        reason: why it ended.
        camera_to_action_ms: image left to action published, per observation, on the monotonic clock.
        camera_to_command_ms: image left to arm command arrived.
        stage_ms: stage name to durations, per action; ``total`` is the whole decode.
        tokens: the action token ids, per action.
        decoders: name of the decoder, per action.
        forward_passes: of the language model, per action.
        skipped: whether it was left out, per action.
        wall_s: duration of the episode on the wall clock.
    """

    suite: str
    task_id: int
    instruction: str
    initial_state: int
    success: bool
    steps: int
    reason: str
    camera_to_action_ms: list[float]
    camera_to_command_ms: list[float]
    stage_ms: dict[str, list[float]] = field(default_factory=dict)
    tokens: list[tuple[int, ...]] = field(default_factory=list)
    decoders: list[str] = field(default_factory=list)
    forward_passes: list[int] = field(default_factory=list)
    skipped: list[bool] = field(default_factory=list)
    wall_s: float = 0.0


class SimulatorClient:
    """Speaks with the simulator; its own executor spins in a thread.

    Args:
        is_alive: whether the launch is still up; asked while waiting.
    """

    def __init__(self, is_alive: Callable[[], bool]) -> None:
        self._is_alive = is_alive
        self._node = Node("simulator_client")
        self._changed = threading.Condition()
        self._active = False
        self._status: Any = None
        self._actions: list[Any] = []
        self._inference: Any = None
        self._node.create_subscription(Bool, "lifecycle_manager/active", self._on_active, qos.latched())
        self._node.create_subscription(EpisodeStatus, "simulator_node/episode", self._on_status, qos.latched())
        self._node.create_subscription(VlaAction, "vla_action", self._on_action, qos.reliable(depth=50))
        self._node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, qos.reliable(depth=50))
        self._decoder = self._node.create_client(SetParameters, "inference_node/set_parameters")
        self._start = self._node.create_client(StartEpisode, "simulator_node/start")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._executor.spin, name="client", daemon=True)
        self._thread.start()

    def wait_until_ready(self, timeout_s: float) -> None:
        """Waits for active nodes and a world.

        Raises:
            GraphError: where the graph dies or does not come up in time.
        """
        self._wait(lambda: self._active and self._status is not None, timeout_s, "the graph to become active")

    def run_episode(self, suite: str, task_id: int, initial_state: int, timeout_s: float) -> EpisodeRecord:
        """Runs one episode to its end.

        Raises:
            GraphError: where the episode is refused or aborted, or the graph dies.
        """
        started_s = time.monotonic()
        with self._changed:
            self._actions = []
            self._status = None
        if not self._start.wait_for_service(timeout_sec=timeout_s):
            raise GraphError("the simulator's start service is not there")
        future = self._start.call_async(StartEpisode.Request(suite=suite, task_id=task_id, initial_state=initial_state))
        self._wait(future.done, timeout_s, "the simulator to answer")
        if not future.result().accepted:
            raise GraphError(f"the simulator refused: {future.result().message}")
        self._wait(lambda: self._status is not None and self._status.state in ENDED, timeout_s, "the episode to end")
        status = self._status
        if status.state == EpisodeStatus.ABORTED:
            raise GraphError(f"the episode was aborted: {status.reason}")
        return EpisodeRecord(
            suite=status.suite,
            task_id=status.task_id,
            instruction=status.instruction,
            initial_state=status.initial_state,
            success=status.state == EpisodeStatus.SUCCEEDED,
            steps=status.steps,
            reason=status.reason,
            camera_to_action_ms=list(status.camera_to_action_ms),
            camera_to_command_ms=list(status.camera_to_command_ms),
            stage_ms=_stages_ms(self._actions),
            tokens=[tuple(action.tokens.tolist()) for action in self._actions],
            decoders=[action.stats.decoder for action in self._actions],
            forward_passes=[action.stats.forward_passes for action in self._actions],
            skipped=[action.stats.skipped for action in self._actions],
            wall_s=time.monotonic() - started_s,
        )

    def choose_decoder(self, name: str, timeout_s: float) -> None:
        """Sets the inference node's parameter and waits until that decoder is in use.

        Raises:
            GraphError: where it is refused or cannot be built, or the graph dies.
        """
        if not self._decoder.wait_for_service(timeout_sec=timeout_s):
            raise GraphError("the inference node's parameter service is not there")
        wish = Parameter("decoder", value=name).to_parameter_msg()
        future = self._decoder.call_async(SetParameters.Request(parameters=[wish]))
        self._wait(future.done, timeout_s, "the inference node to answer")
        (result,) = future.result().results
        if not result.successful:
            raise GraphError(f"the inference node refused: {result.reason}")
        failure = f"decoder {name!r} cannot be built"

        def decided() -> bool:
            status = self._inference
            return status is not None and (failure in status.message or _value(status, "decoder") == name)

        self._wait(decided, timeout_s, f"decoder {name!r}")
        if failure in self._inference.message:
            raise GraphError(self._inference.message)

    def close(self) -> None:
        """Frees the node."""
        self._executor.shutdown(timeout_sec=1.0)
        self._thread.join(timeout=2.0)
        self._node.destroy_node()

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        give_up_s = time.monotonic() + timeout_s
        while True:
            with self._changed:
                if self._changed.wait_for(condition, 0.2):
                    return
            if not self._is_alive():
                raise GraphError(f"the launch ended while waiting for {what}; its output says why")
            if time.monotonic() > give_up_s:
                raise GraphError(f"waited {timeout_s:.0f} s in vain for {what}")

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _on_active(self, message: Any) -> None:
        self._active = bool(message.data)
        self._notify()

    def _on_status(self, message: Any) -> None:
        self._status = message
        self._notify()

    def _on_action(self, message: Any) -> None:
        self._actions.append(message)

    def _on_diagnostics(self, message: Any) -> None:
        for status in message.status:
            if status.name.endswith("/inference_node"):
                self._inference = status
                self._notify()


def _stages_ms(actions: Iterable[Any]) -> dict[str, list[float]]:
    stages: dict[str, list[float]] = {}
    for action in actions:
        stats = action.stats
        for name, duration_ms in [*zip(stats.stage_names, stats.stage_ms, strict=True), ("total", stats.total_ms)]:
            stages.setdefault(name, []).append(float(duration_ms))
    return stages


def _value(status: Any, key: str) -> str | None:
    return next((pair.value for pair in status.values if pair.key == key), None)
