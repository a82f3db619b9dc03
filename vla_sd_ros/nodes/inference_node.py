"""inference_node (lifecycle): observations, state and instruction in, one VlaAction per decoded observation out.

Decoding runs in a worker thread of its own; callbacks only store. The newest observation wins, and one that grew old
while it waited is not decoded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from std_msgs.msg import String

from vla_sd_ros.msg import EpisodeStatus, VlaAction
from vla_sd_ros.msg import KinematicState as KinematicStateMessage
from vla_sd_ros.msg import Observation as ObservationMessage
from vla_sd_ros.nodes.decoder_host import DecoderHost
from vla_sd_ros.nodes.decoder_parameter import DECODER, DecoderParameter
from vla_sd_ros.nodes.inference_config import InferenceConfig
from vla_sd_ros.policy.acceleration import accelerate
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.precision import choose_dtype
from vla_sd_ros.policy.prompt import clean_instruction
from vla_sd_ros.policy.self_test import self_test
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.action_messages import message_from_action
from vla_sd_ros.ros.arrays import views_from_observation
from vla_sd_ros.ros.diagnostics import ERROR
from vla_sd_ros.ros.kinematic_messages import state_from_message
from vla_sd_ros.ros.latest import LatestSlot
from vla_sd_ros.ros.lifecycle import ManagedNode
from vla_sd_ros.ros.parameters import read_parameters
from vla_sd_ros.ros.run import run_nodes
from vla_sd_ros.ros.stamps import nanoseconds, now_ns
from vla_sd_ros.ros.subscriptions import subscribe
from vla_sd_ros.safety.freshness import NS_PER_S, FreshnessLimits, StampGuard, StampVerdict
from vla_sd_ros.types import KinematicState, Observation

WARM_UP_DECODES = 3
WAIT_S = 0.5
HALT_S = 2.0
# A state ahead of the clock by more comes from another clock.
MAX_FUTURE_S = 0.1


class InferenceNode(ManagedNode):
    """Stores the newest inputs and lets a worker decode them."""

    def __init__(self) -> None:
        super().__init__("inference_node")
        self._subscriptions_made: list[Any] = []
        self._worker: threading.Thread | None = None
        self._host: DecoderHost | None = None
        self._decoder = DecoderParameter(self)

    def set_up(self) -> None:
        """Loads the policy, tests that it sees as it is going to run, warms it up and connects."""
        config = read_parameters(self, InferenceConfig, settable=[DECODER])
        torch.set_num_threads(config.threads)
        policy = load_policy(
            Path(config.policy),
            dtype=choose_dtype(config.dtype, config.device),
            device=config.device,
            statistics_key=config.statistics_key or None,
        )
        accelerate(policy, config.runtime_options)
        self_test(policy)
        policy.warm_up(WARM_UP_DECODES)
        self._config = config
        self._host = self._decoder.open(config.decoder, policy, config.views[0])
        self._slot: LatestSlot[Observation] = LatestSlot()
        self._guard = StampGuard(FreshnessLimits(config.max_image_age_s))
        self._instruction: str | None = None
        self._state: KinematicState | None = None
        self._sequence = 0
        self._actions = self.create_publisher(VlaAction, "vla_action", qos.reliable(depth=1))
        self._subscriptions_made = [
            subscribe(self, message_type, topic, callback, profile, self.diagnostics)
            for message_type, topic, callback, profile in (
                (ObservationMessage, "observation", self._on_observation, qos.reliable(depth=1)),
                (KinematicStateMessage, "kinematic_state", self._on_state, qos.reliable()),
                # Latched, for an instruction given before this node was there; and volatile, as a terminal sends it.
                (String, "instruction", self._on_instruction, qos.latched()),
                (String, "instruction", self._on_instruction, qos.reliable()),
                # Volatile: how an episode ended before this node was there is no experience of its decoder.
                (EpisodeStatus, "episode_status", self._on_episode, qos.reliable()),
            )
        ]
        self.diagnostics.value("policy", policy.fingerprint)
        self.diagnostics.value("dtype", policy.dtype)
        self.diagnostics.hold("no_instruction", "no instruction has arrived; the arm holds")
        self.diagnostics.hold("no_state", "no kinematic state has arrived; the arm holds")

    def start(self) -> None:
        """Starts the worker; no observation that arrived before counts."""
        if self._host is None:
            raise RuntimeError("the node is not configured")
        self._slot = LatestSlot()
        self._guard.reset()
        self._host.reset()
        self._worker = threading.Thread(target=self._work, args=(self._slot, self._host), name="decode", daemon=True)
        self._worker.start()

    def halt(self) -> None:
        """Ends the worker; an action in the making is not published."""
        if self._worker is not None:
            self._slot.close()
            # A decode that hangs must not keep the process from ending; what it gives is not published any more.
            self._worker.join(timeout=HALT_S)
            self._worker = None
        self.diagnostics.clear("idle")

    def tear_down(self) -> None:
        """Frees the policy and disconnects."""
        for subscription in self._subscriptions_made:
            self.destroy_subscription(subscription)
        if self._subscriptions_made:
            self.destroy_publisher(self._actions)
        self._subscriptions_made = []
        self._decoder.close()
        self._host = None

    def _on_episode(self, message: Any) -> None:
        if self._host is None:
            return
        if message.state in (EpisodeStatus.SUCCEEDED, EpisodeStatus.FAILED):
            self._host.end_episode(message.state == EpisodeStatus.SUCCEEDED)
        elif message.state in (EpisodeStatus.RUNNING, EpisodeStatus.ABORTED):
            self._host.reset()

    def _on_instruction(self, message: Any) -> None:
        try:
            instruction = clean_instruction(message.data)
        except ValueError as error:
            self._instruction = None
            self.diagnostics.hold("no_instruction", f"the instruction is refused: {error}; the arm holds")
            return
        if instruction != self._instruction:
            self._slot.clear()  # an observation that waits was meant for the instruction before
        self._instruction = instruction
        self.diagnostics.clear("no_instruction")
        self._slot.wake()

    def _on_state(self, message: Any) -> None:
        frame = message.header.frame_id
        if frame != self._config.base_frame:
            self.diagnostics.fault("state_rejected", f"state is in frame {frame!r}; legal: {self._config.base_frame!r}")
            return
        try:
            self._state = state_from_message(message)
        except ValueError as error:
            self.diagnostics.fault("state_rejected", str(error))
            return
        self.diagnostics.clear("no_state")
        self._slot.wake()

    def _on_observation(self, message: Any) -> None:
        if self._worker is None:
            return
        stamp_ns = nanoseconds(message.header.stamp)
        verdict = self._guard.judge(stamp_ns, now_ns(self))
        if verdict is StampVerdict.TIME_JUMP:
            # A state from before the jump is ahead of the clock now, and not used for that; the decoder forgets.
            self.diagnostics.fault("time_jump", "stamps of the observations jumped back")
        elif verdict is not StampVerdict.FRESH:
            self.diagnostics.fault("observation_rejected", f"observation: stamp is {verdict.value}")
            return
        try:
            views = views_from_observation(message)
            missing = [view for view in self._config.views if view not in views]
            if missing:
                raise ValueError(f"views {missing} are missing; the observation holds {sorted(views)}")
        except ValueError as error:
            self.diagnostics.fault("observation_rejected", str(error))
            return
        chosen = {view: views[view] for view in self._config.views}
        # The instruction is read when decoding starts, not here.
        self._slot.put(Observation(views=chosen, instruction="", stamp_ns=stamp_ns))

    def _work(self, slot: LatestSlot[Observation], host: DecoderHost) -> None:
        while not slot.closed:
            seen = slot.take(self._every_input_is_there, WAIT_S)
            state, instruction = self._state, self._instruction
            if seen is None:
                self._say_why_idle(slot)
            if seen is None or state is None or instruction is None:
                continue
            age_s = (now_ns(self) - seen.stamp_ns) / NS_PER_S
            if age_s > self._config.max_image_age_s:
                self.diagnostics.fault("observation_rejected", f"observation waited until it was {age_s:.3f} s old")
                continue
            try:
                message = self._decode(host, Observation(seen.views, instruction, seen.stamp_ns), state)
            except Exception as error:  # whatever it is, it must be told, and the next observation be tried
                self.diagnostics.fault("decode_failed", f"no action: {type(error).__name__}: {error}", ERROR)
                continue
            if not slot.closed and instruction == self._instruction:
                self._publish(message, slot.dropped)

    def _decode(self, host: DecoderHost, observation: Observation, state: KinematicState) -> VlaAction:
        name, decoded = host.decode(observation, state)
        config = self._config
        values = config.convention.to_base_si(decoded.values, state.orientation)
        message = message_from_action(decoded, values, observation.stamp_ns, config.base_frame, config.period_s)
        message.stats.decoder = name
        if decoded.report.degraded:
            self.diagnostics.fault("degraded", f"decoder {name!r} degraded: {decoded.report.degraded}")
        return message

    def _every_input_is_there(self) -> bool:
        return self._instruction is not None and self._state_is_fresh()

    def _state_is_fresh(self) -> bool:
        state, now = self._state, now_ns(self)
        if state is None or now <= 0:
            return False
        return -MAX_FUTURE_S <= (now - state.stamp_ns) / NS_PER_S <= self._config.max_state_age_s

    def _say_why_idle(self, slot: LatestSlot[Observation]) -> None:
        if slot.closed or self._instruction is None or self._state is None:
            return  # what is missing is said already
        if self._state_is_fresh():
            reason = f"no fresh observation has come for {WAIT_S} s"
        else:
            reason = f"the kinematic state is more than {self._config.max_state_age_s} s old, or of another clock"
        self.diagnostics.hold("idle", f"{reason}; the arm holds")

    def _publish(self, message: VlaAction, dropped: int) -> None:
        self._sequence += 1
        message.sequence = self._sequence
        message.stats.dropped_observations = dropped
        message.stats.published_steady_ns = time.monotonic_ns()
        self._actions.publish(message)
        self.diagnostics.clear("idle")


def main(args: Sequence[str] | None = None) -> int:
    """Runs the node until a signal."""
    return run_nodes([InferenceNode], args)
