"""What the host of a decoder promises to the decoder, and to those who exchange it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vla_sd_ros.decoding.config import DecoderConfig
from vla_sd_ros.decoding.interface import DecodeCounts, DecodedAction
from vla_sd_ros.decoding.stage_times import StageTimes
from vla_sd_ros.nodes.decoder_host import DecoderHost
from vla_sd_ros.types import KinematicState, Observation

PATIENCE_S = 5.0
PLAIN = DecoderConfig(kind="autoregressive")
S = 1_000_000_000


class Diary:
    """A decoder that writes down what it is told."""

    def __init__(self, config: DecoderConfig) -> None:
        self.told: list[Any] = []
        self.on_decode: Callable[[], None] = lambda: None

    def decode(self, observation: Observation, state: KinematicState | None) -> DecodedAction:
        self.told.append("decode")
        self.on_decode()
        return DecodedAction(np.zeros(7, dtype=np.int64), np.zeros(7), "diary", StageTimes(1.0), DecodeCounts(1))

    def reset(self) -> None:
        self.told.append("reset")

    def end_episode(self, success: bool) -> None:
        self.told.append(success)


class Hosted:
    """A host, the decoders that it built, and what came of the exchanges."""

    def __init__(self) -> None:
        self.built: list[Diary] = []
        self.outcomes: list[tuple[str, Exception | None]] = []
        self.happened = threading.Condition()
        self.before_build: Callable[[], None] = lambda: None
        self.host = DecoderHost(self.build, "first", PLAIN, self.on_exchange)

    def build(self, config: DecoderConfig) -> Diary:
        self.before_build()
        self.built.append(Diary(config))
        return self.built[-1]

    def on_exchange(self, name: str, failure: Exception | None) -> None:
        with self.happened:
            self.outcomes.append((name, failure))
            self.happened.notify_all()

    def hold_builds(self) -> tuple[threading.Event, threading.Event]:
        """From now on a build says that it has begun by the first event, and waits for the second."""
        building, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            building.set()
            assert go_on.wait(PATIENCE_S)

        self.before_build = wait
        return building, go_on

    @staticmethod
    def join_builders() -> None:
        """Waits until nothing is being built."""
        for thread in threading.enumerate():
            if thread.name == "build":
                thread.join(PATIENCE_S)

    def wait_for_outcome(self) -> tuple[str, Exception | None]:
        with self.happened:
            assert self.happened.wait_for(lambda: self.outcomes, PATIENCE_S)
            return self.outcomes[-1]

    def decode(self, stamp_s: float, instruction: str = "put", state_s: float | None = None) -> str:
        observation = Observation({"camera": np.zeros((2, 2, 3), np.uint8)}, instruction, int(stamp_s * S))
        moment = int((stamp_s if state_s is None else state_s) * S)
        at_rest = KinematicState(moment, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(3), np.zeros(3), 1.0)
        return self.host.decode(observation, at_rest)[0]

    @property
    def told(self) -> list[Any]:
        return self.built[-1].told


@pytest.fixture
def hosted() -> Hosted:
    return Hosted()


def test_successive_observations_of_one_task_are_one_episode(hosted: Hosted) -> None:
    for step in range(4):
        assert hosted.decode(100.0 + 0.05 * step) == "first"
    assert hosted.told == ["decode"] * 4


@pytest.mark.parametrize(
    "second",
    [
        {"stamp_s": 100.05, "instruction": "open"},
        {"stamp_s": 90.0},
        {"stamp_s": 99.99},
        {"stamp_s": 100.05, "state_s": 90.0},
        {"stamp_s": 102.0},
    ],
    ids=["another instruction", "time jumps back", "an older image", "the state's time jumps back", "a pause"],
)
def test_what_does_not_follow_begins_anew(hosted: Hosted, second: dict[str, Any]) -> None:
    hosted.decode(100.0)
    hosted.decode(**second)
    assert hosted.told == ["decode", "reset", "decode"]


def test_a_state_that_comes_a_little_late_ends_nothing(hosted: Hosted) -> None:
    hosted.decode(100.0, state_s=99.99)
    hosted.decode(100.05, state_s=99.97)
    assert hosted.told == ["decode", "decode"]


def test_a_decode_that_fails_counts_as_the_one_before(hosted: Hosted) -> None:
    def fail() -> None:
        raise ArithmeticError

    hosted.built[0].on_decode = fail
    with pytest.raises(ArithmeticError):
        hosted.decode(100.0)
    hosted.built[0].on_decode = lambda: None
    hosted.decode(100.05)
    hosted.decode(100.1, instruction="open")
    assert hosted.told == ["decode", "decode", "reset", "decode"]


@pytest.mark.parametrize("success", [True, False])
def test_how_an_episode_ended_is_told_before_the_next_decode(hosted: Hosted, success: bool) -> None:
    hosted.decode(100.0)
    hosted.host.end_episode(success)
    assert hosted.told == ["decode"]
    hosted.decode(100.05)
    assert hosted.told == ["decode", success, "decode"]


def test_an_episode_without_a_decode_teaches_nothing(hosted: Hosted) -> None:
    hosted.host.end_episode(True)
    hosted.decode(100.0)
    hosted.host.end_episode(False)
    hosted.host.end_episode(True)
    hosted.host.reset()
    hosted.decode(100.05)
    assert hosted.told == ["decode", False, "reset", "decode"]


def test_a_decode_in_the_making_is_not_disturbed(hosted: Hosted) -> None:
    decoding, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        decoding.set()
        assert go_on.wait(PATIENCE_S)

    first = hosted.built[0]
    first.on_decode = hang
    worker = threading.Thread(target=hosted.decode, args=(100.0,))
    worker.start()
    assert decoding.wait(PATIENCE_S)
    hosted.host.reset()
    hosted.host.exchange("second", PLAIN)
    assert first.told == ["decode"] and hosted.host.name == "first"
    go_on.set()
    worker.join()
    assert hosted.wait_for_outcome() == ("second", None)
    assert hosted.decode(100.05) == "second"
    assert (first.told, hosted.told) == (["decode"], ["decode"])


def test_while_another_decoder_is_built_the_first_one_decodes(hosted: Hosted) -> None:
    building, go_on = hosted.hold_builds()
    hosted.host.exchange("second", PLAIN)
    assert building.wait(PATIENCE_S)
    assert hosted.decode(100.0) == "first"
    go_on.set()
    assert hosted.wait_for_outcome() == ("second", None)
    assert hosted.decode(100.05) == "second"


def test_a_decoder_that_cannot_be_built_leaves_the_first_one_as_it_was(hosted: Hosted) -> None:
    def fail() -> None:
        raise FileNotFoundError("no index")

    hosted.decode(100.0)
    hosted.before_build = fail
    hosted.host.exchange("second", PLAIN)
    name, failure = hosted.wait_for_outcome()
    assert name == "second" and isinstance(failure, FileNotFoundError)
    assert hosted.decode(100.05) == "first"
    assert hosted.told == ["decode", "decode"]


@pytest.mark.parametrize("last", ["third", "first"])
def test_of_several_wishes_the_newest_is_fulfilled(hosted: Hosted, last: str) -> None:
    building, go_on = hosted.hold_builds()
    hosted.host.exchange("second", PLAIN)
    assert building.wait(PATIENCE_S)
    hosted.host.exchange(last, PLAIN)
    go_on.set()
    if last == "third":
        assert hosted.wait_for_outcome() == ("third", None)
    else:
        hosted.join_builders()
    assert hosted.decode(100.0) == last
    assert "second" not in [name for name, _ in hosted.outcomes]


def test_what_is_built_for_a_host_that_was_closed_is_dropped(hosted: Hosted) -> None:
    building, go_on = hosted.hold_builds()
    hosted.host.exchange("second", PLAIN)
    assert building.wait(PATIENCE_S)
    hosted.host.close()
    go_on.set()
    hosted.join_builders()
    assert hosted.host.name == "first" and not hosted.outcomes
