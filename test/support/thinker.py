"""An inference node in a process of its own, and its ends."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tiny_policy
from message_makers import kinematic_state, observation
from node_process import NodeProcess
from probe import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, PATIENCE_S, Probe
from std_msgs.msg import String

from vla_sd_ros.msg import EpisodeStatus, KinematicState, Observation, VlaAction
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.stamps import nanoseconds

INSTRUCTION = "open the middle drawer of the cabinet"
SIZE = tiny_policy.IMAGE_SIZE_PX
NOISE = np.random.default_rng(3).integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)
NODE = "thinker/inference_node"


class Thinker:
    """An inference node on a tiny random policy, and its ends."""

    def __init__(self, probe: Probe, folder: Path, process: NodeProcess) -> None:
        self.probe, self.folder, self.process = probe, folder, process
        self.actions: list[Any] = probe.listen(VlaAction, "/thinker/vla_action")

    def change(self, transition: int) -> bool:
        return self.probe.change_state(NODE, transition)

    def begin_anew(self, active: bool = True) -> None:
        """Unconfigured at first, and then, where wanted, active; without any input."""
        self.change(DEACTIVATE)
        self.change(CLEANUP)
        for topic in ("instruction", "kinematic_state", "observation", "episode_status"):
            self.probe.disconnect(f"/thinker/{topic}")
        shutil.rmtree(self.folder, ignore_errors=True)
        tiny_policy.write_policy(self.folder)
        self.probe.set_parameter(NODE, "decoder", "lossless")
        if active:
            assert self.change(CONFIGURE) and self.change(ACTIVATE)
        self.actions.clear()
        self.probe.forget_diagnostics()

    def instruct(self, text: str = INSTRUCTION) -> None:
        self.probe.connect(String, "/thinker/instruction", qos.latched()).publish(String(data=text))

    def feel(self, stamp_ns: int | None = None, **other: Any) -> None:
        message = kinematic_state(time.time_ns() if stamp_ns is None else stamp_ns, **other)
        self.probe.connect(KinematicState, "/thinker/kinematic_state").publish(message)

    def see(self, rgb: np.ndarray = NOISE, views: Sequence[str] = ("camera",), stamp_ns: int | None = None) -> int:
        stamp_ns = time.time_ns() if stamp_ns is None else stamp_ns
        self.probe.connect(Observation, "/thinker/observation").publish(observation(stamp_ns, rgb, views))
        return stamp_ns

    def act(self, rgb: np.ndarray = NOISE, instruct: bool = True) -> Any:
        """An action for this picture, with all that it needs."""
        begin_ns = time.time_ns()
        if instruct:
            self.instruct()
        return self.probe.repeat(
            lambda: (self.feel(), self.see(rgb)),
            until=lambda: next((a for a in self.actions if nanoseconds(a.header.stamp) >= begin_ns), None),
            period_s=0.05,
        )

    def tell(self, state: int) -> None:
        """How an episode stands."""
        self.probe.connect(EpisodeStatus, "/thinker/episode_status").publish(EpisodeStatus(state=state))
        self.probe.spin_for(0.1)

    def decode_by(self, name: str) -> Any:
        """Chooses a decoder; its first action, which arrives while others decode."""
        assert self.probe.set_parameter(NODE, "decoder", name) == ""
        return self.act_until(lambda action: action.stats.decoder == name)

    def act_until(self, wanted: Callable[[Any], bool], rgb: np.ndarray = NOISE) -> Any:
        """The first action that is as wanted; what came meanwhile is drained."""
        deadline = time.monotonic() + PATIENCE_S
        while not wanted(action := self.act(rgb)):
            assert time.monotonic() < deadline, f"no such action; the last one: {action}"
        self.probe.spin_for(0.1)
        return action

    def holds(self, *inputs: Callable[[], Any], seconds: float = 0.4) -> None:
        """Gives the inputs for a while, and no action may come of them."""
        before = len(self.actions)
        for _ in range(round(seconds / 0.05)):
            for give in inputs:
                give()
            self.probe.spin_for(0.05)
        assert len(self.actions) == before
