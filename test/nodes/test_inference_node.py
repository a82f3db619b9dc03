from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_policy
from node_process import NodeProcess
from probe import ACTIVATE, CONFIGURE, DEACTIVATE, Probe
from std_msgs.msg import String
from thinker import INSTRUCTION, NOISE, Thinker

from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.presets import preset_names
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.share import decoder_presets
from vla_sd_ros.ros.stamps import nanoseconds
from vla_sd_ros.types import Observation as Seen

MAX_AGE_S = 0.2


def test_nothing_is_inferred_before_every_input_has_arrived(thinker: Thinker) -> None:
    probe = thinker.probe
    thinker.holds(thinker.see)
    probe.wait_for_reason("no instruction has arrived; the arm holds", "no kinematic state", node="thinker")
    thinker.instruct()
    probe.forget_diagnostics()
    thinker.holds(thinker.see)
    assert "no kinematic state has arrived" in probe.wait_for_reason("the arm holds", node="thinker")
    assert thinker.act(instruct=False)


def test_an_action_is_what_the_policy_decodes_for_that_observation(thinker: Thinker) -> None:
    policy = load_policy(thinker.folder, statistics_key=tiny_policy.STATISTICS_KEY)
    decoder = AutoregressiveDecoder(policy, "camera")
    for rgb in (NOISE, np.zeros_like(NOISE), np.full_like(NOISE, 255)):
        action = thinker.act(rgb)
        expected = decoder.decode(Seen({"camera": rgb}, INSTRUCTION, 1), None)
        assert action.tokens.tolist() == expected.tokens.tolist()
        assert action.values[:6].tolist() == pytest.approx(expected.values[:6].tolist())
        assert action.values[6] == (1.0 if expected.values[6] > 0.5 else 0.0)
        assert np.abs(action.values[:6]).max() <= 0.02


def test_an_action_says_when_and_how_it_came_about(thinker: Thinker) -> None:
    before_ns = time.time_ns()
    action = thinker.act()
    assert before_ns < nanoseconds(action.header.stamp) < time.time_ns()
    assert action.header.frame_id == "panda_link0" and action.period_s == 0.05
    assert (action.stats.decoder, action.mode, action.stats.degraded) == ("lossless", "lossless", "")
    assert 1 <= action.stats.forward_passes <= 7 and not action.stats.skipped
    assert not action.stats.deviation_bins.any() and all(action.stats.sources)
    assert action.stats.total_ms > 0.0 and len(action.stats.stage_names) == len(action.stats.stage_ms) >= 3
    for _ in range(2):
        thinker.act()
    sequences = [each.sequence for each in thinker.actions]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


@pytest.mark.parametrize("text", ["", "   \n\t "])
def test_an_empty_instruction_holds_the_arm_and_says_so(thinker: Thinker, text: str) -> None:
    thinker.act()
    thinker.instruct(text)
    thinker.probe.wait_for_reason("instruction is refused", "empty", "the arm holds", node="thinker")
    thinker.holds(thinker.feel, thinker.see)
    assert thinker.act()


def test_the_newest_observation_wins_and_the_others_are_counted(thinker: Thinker) -> None:
    thinker.instruct()
    probe, dropped = thinker.probe, 0
    for _ in range(20):
        probe.spin_for(MAX_AGE_S)  # the state grows old, so that observations wait
        thinker.actions.clear()
        for _ in range(3):
            newest_ns = thinker.see()
            probe.spin_for(0.02)
        thinker.feel()
        probe.spin_for(0.1)
        # A slow moment of this machine may have aged all of them; then none is decoded.
        assert [nanoseconds(action.header.stamp) for action in thinker.actions] in ([], [newest_ns])
        dropped = max([dropped, *(action.stats.dropped_observations for action in thinker.actions)])
        if dropped >= 2:
            break
    assert dropped >= 2


def test_a_state_that_stops_coming_or_is_of_another_clock_holds_the_arm(thinker: Thinker) -> None:
    thinker.act()
    thinker.probe.spin_for(MAX_AGE_S + 0.1)
    thinker.holds(thinker.see)
    thinker.probe.wait_for_reason("kinematic state is more than 0.2 s old", "the arm holds", node="thinker")
    thinker.holds(thinker.see, lambda: thinker.feel(time.time_ns() + 10**10))
    assert thinker.act()


def test_a_state_in_another_frame_is_not_used(thinker: Thinker) -> None:
    thinker.instruct()
    thinker.holds(thinker.see, lambda: thinker.feel(frame="world"))
    thinker.probe.wait_for_reason("state is in frame 'world'; legal: 'panda_link0'", node="thinker")


def test_images_that_stop_coming_are_named(thinker: Thinker) -> None:
    thinker.act()
    thinker.probe.forget_diagnostics()
    thinker.probe.repeat(
        thinker.feel, until=lambda: any("no fresh observation has come" in text for text in thinker.probe.reasons())
    )
    assert thinker.act()


@pytest.mark.parametrize(
    ("see", "reason"),
    [
        (
            lambda thinker: thinker.see(views=("wrist",)),
            "views ['camera'] are missing; the observation holds ['wrist']",
        ),
        (lambda thinker: thinker.see(NOISE[:14, :14]), "no action: ValueError"),
        (lambda thinker: thinker.see(stamp_ns=time.time_ns() - 10**9), "older than the allowed age"),
        (lambda thinker: thinker.see(stamp_ns=time.time_ns() + 10**10), "from the future"),
    ],
)
def test_an_observation_that_does_not_fit_makes_no_action_and_the_next_one_does(
    thinker: Thinker, see: Callable[[Thinker], Any], reason: str
) -> None:
    thinker.instruct()
    thinker.holds(thinker.feel, lambda: see(thinker), seconds=0.2)
    thinker.probe.wait_for_reason(reason, node="thinker")
    assert thinker.act()


def test_an_inactive_node_infers_nothing(thinker: Thinker) -> None:
    thinker.act()
    assert thinker.change(DEACTIVATE)
    thinker.actions.clear()
    thinker.holds(thinker.feel, thinker.see)
    assert thinker.change(ACTIVATE)
    assert thinker.act()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (shutil.rmtree, ["policy folder", "lacks", "model.safetensors"]),
        (
            lambda folder: tiny_policy.rename_statistics(folder, ["bridge", "fractal"]),
            ["libero_goal", "bridge", "fractal"],
        ),
        (tiny_policy.damage_weights, ["not finite"]),
        (tiny_policy.blind, ["does not see"]),
    ],
)
def test_a_policy_that_cannot_be_trusted_refuses_the_configuration_with_the_reason(
    process: Thinker, spoil: Callable[[Path], Any], reason: list[str]
) -> None:
    process.begin_anew(active=False)
    spoil(process.folder)
    process.probe.forget_diagnostics()
    assert not process.change(CONFIGURE)
    process.probe.wait_for_reason("cannot configure", *reason, node="thinker")
    assert not process.change(ACTIVATE)
    process.begin_anew()
    assert process.act()


def test_a_decoder_that_is_none_refuses_the_configuration_and_names_what_is_legal(probe: Probe, tmp_path: Path) -> None:
    parameters = {"policy": str(tiny_policy.write_policy(tmp_path / "policy")), "decoder": "magic"}
    with NodeProcess("inference_node", parameters, ("-r", "__ns:=/doubter")):
        assert not probe.change_state("doubter/inference_node", CONFIGURE)
        legal = preset_names(decoder_presets())
        probe.wait_for_reason("cannot configure", "parameter decoder = 'magic'", *legal, node="doubter")


def test_an_instruction_that_is_not_latched_as_a_terminal_sends_it_is_heard(thinker: Thinker) -> None:
    node = thinker.probe.node
    volatile = node.create_publisher(String, "/thinker/instruction", qos.reliable())
    thinker.probe.repeat(
        lambda: (volatile.publish(String(data=INSTRUCTION)), thinker.feel(), thinker.see()),
        until=lambda: thinker.actions,
        period_s=0.05,
    )
    node.destroy_publisher(volatile)


def test_a_signal_ends_the_node_while_it_infers(thinker: Thinker) -> None:
    thinker.act()
    thinker.process.signal(signal.SIGINT)
    assert thinker.process.wait() == 0
    assert "Traceback" not in thinker.process.log
