"""inference_node (lifecycle): observations, state and instruction in, one VlaAction per decoded observation out.

Decoding runs in a worker thread of its own; callbacks only store. The newest observation wins, and one that grew old
while it waited is not decoded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator
from std_msgs.msg import String

from vla_sd_ros.actions.convention import ActionConvention
from vla_sd_ros.decoding.interface import DecodedAction, Decoder
from vla_sd_ros.decoding.registry import DECODERS, make_decoder
from vla_sd_ros.msg import KinematicState as KinematicStateMessage
from vla_sd_ros.msg import Observation as ObservationMessage
from vla_sd_ros.msg import VlaAction
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.precision import Precision, choose_dtype
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


class InferenceConfig(BaseModel):
    """Parameters of the inference node.

    Attributes:
        policy: checkpoint directory.
        statistics_key: which statistics un-normalise; empty takes the only ones there are.
        decoder: how the tokens are decoded.
        device: torch device.
        dtype: of the weights; auto takes bfloat16 where the device is fast in it, else float32.
        threads: CPU threads of torch; more than one slows a small policy down.
        views: camera names that the policy expects, in its order.
        base_frame: frame of the actions that are published.
        period_s: control period that the policy's displacements are meant for.
        max_image_age_s: an older observation is not decoded.
        max_state_age_s: nothing is decoded without a state younger than this.
        convention: what the policy's values mean.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    policy: Annotated[str, Field(min_length=1)]
    statistics_key: str = ""
    decoder: str = "autoregressive"
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    dtype: Precision = "auto"
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    views: Annotated[list[str], Field(min_length=1, max_length=1)] = ["camera"]
    base_frame: Annotated[str, Field(min_length=1)]
    period_s: Annotated[float, Field(gt=0.0)]
    max_image_age_s: Annotated[float, Field(gt=0.0)] = 0.2
    max_state_age_s: Annotated[float, Field(gt=0.0)] = 0.2
    convention: ActionConvention

    @field_validator("decoder")
    @classmethod
    def _known_decoder(cls, name: str) -> str:
        if name not in DECODERS:
            raise ValueError(f"unknown decoder; legal: {sorted(DECODERS)}")
        return name


class InferenceNode(ManagedNode):
    """Stores the newest inputs and lets a worker decode them."""

    def __init__(self) -> None:
        super().__init__("inference_node")
        self._subscriptions_made: list[Any] = []
        self._worker: threading.Thread | None = None
        self._decoder: Decoder | None = None

    def set_up(self) -> None:
        """Loads the policy, tests that it sees, warms it up and connects."""
        config = read_parameters(self, InferenceConfig)
        torch.set_num_threads(config.threads)
        policy = load_policy(
            Path(config.policy),
            dtype=choose_dtype(config.dtype, config.device),
            device=config.device,
            statistics_key=config.statistics_key or None,
        )
        self_test(policy)
        policy.warm_up(WARM_UP_DECODES)
        decoder = make_decoder(config.decoder, policy, config.views[0])
        self._config, self._decoder = config, decoder
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
            )
        ]
        self.diagnostics.value("policy", policy.fingerprint)
        self.diagnostics.value("decoder", config.decoder)
        self.diagnostics.value("dtype", policy.dtype)
        self.diagnostics.hold("no_instruction", "no instruction has arrived; the arm holds")
        self.diagnostics.hold("no_state", "no kinematic state has arrived; the arm holds")

    def start(self) -> None:
        """Starts the worker; no observation that arrived before counts."""
        if self._decoder is None:
            raise RuntimeError("the node is not configured")
        self._slot = LatestSlot()
        self._guard.reset()
        self._worker = threading.Thread(target=self._work, args=(self._slot, self._decoder), name="decode", daemon=True)
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
        self._decoder = None

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
            # A state from before the jump is ahead of the clock now, and not used for that.
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

    def _work(self, slot: LatestSlot[Observation], decoder: Decoder) -> None:
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
            observation = Observation(seen.views, instruction, seen.stamp_ns)
            try:
                decoded = decoder.decode(observation, state)
                values = self._config.convention.to_base_si(decoded.values, state.orientation)
            except Exception as error:  # whatever it is, it must be told, and the next observation be tried
                self.diagnostics.fault("decode_failed", f"no action: {type(error).__name__}: {error}", ERROR)
                continue
            if not slot.closed and instruction == self._instruction:
                self._publish(decoded, values, seen.stamp_ns, slot.dropped)

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

    def _publish(self, decoded: DecodedAction, values: Any, stamp_ns: int, dropped: int) -> None:
        self._sequence += 1
        message = message_from_action(decoded, values, stamp_ns, self._config.base_frame, self._config.period_s)
        message.sequence = self._sequence
        message.stats.decoder = self._config.decoder
        message.stats.dropped_observations = dropped
        message.stats.published_steady_ns = time.monotonic_ns()
        self._actions.publish(message)
        self.diagnostics.clear("idle")


def main(args: Sequence[str] | None = None) -> int:
    """Runs the node until a signal."""
    return run_nodes([InferenceNode], args)
