from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_policy
from derived_assets import write_policy_with_assets
from message_makers import kinematic_state, observation
from node_process import NodeProcess
from probe import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, PATIENCE_S, Probe
from std_msgs.msg import String

from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.presets import preset_names
from vla_sd_ros.msg import EpisodeStatus, KinematicState, Observation, VlaAction
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.share import decoder_presets
from vla_sd_ros.ros.stamps import nanoseconds
from vla_sd_ros.types import Observation as Seen

INSTRUCTION = "open the middle drawer of the cabinet"
SIZE = tiny_policy.IMAGE_SIZE_PX
NOISE = np.random.default_rng(3).integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)
MAX_AGE_S = 0.2
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


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory, probe: Probe) -> Iterator[Thinker]:
    folder = tmp_path_factory.mktemp("checkpoint") / "policy"
    parameters = {"policy": str(folder), "statistics_key": tiny_policy.STATISTICS_KEY, "dtype": "float32"}
    with NodeProcess("inference_node", parameters, ("-r", "__ns:=/thinker")) as node:
        yield Thinker(probe, folder, node)


@pytest.fixture
def thinker(process: Thinker) -> Thinker:
    process.begin_anew()
    return process


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


def test_the_decoder_may_be_chosen_while_it_works(thinker: Thinker, tmp_path: Path) -> None:
    tokens = thinker.act().tokens.tolist()
    plain = thinker.decode_by("ar")
    assert (plain.mode, plain.stats.forward_passes) == ("ar", 7)
    assert plain.tokens.tolist() == tokens
    assert thinker.probe.diagnostic_value("decoder", node="thinker") == "ar"
    own = tmp_path / "own.yaml"
    own.write_text("kind: drafted\ncautious: {drafts: [hold_last], completion: {kind: jacobi}}\n")
    assert thinker.decode_by(str(own)).tokens.tolist() == tokens
    assert thinker.probe.get_parameter(NODE, "decoder") == str(own)


def test_every_preset_answers_observations_and_says_how(thinker: Thinker, tmp_path: Path) -> None:
    made = write_policy_with_assets(tmp_path, INSTRUCTION)
    for path in made.iterdir():
        target = thinker.folder / path.name
        if not target.exists():
            shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
    for name in preset_names(decoder_presets()):
        action = thinker.decode_by(name)
        assert action.mode != ""
        assert len(action.stats.sources) == len(action.stats.deviation_bins) == 7
        assert action.stats.forward_passes > 0 or action.stats.skipped
        assert action.stats.degraded == ""


def test_a_file_that_describes_no_decoder_is_refused_with_key_and_value(thinker: Thinker, tmp_path: Path) -> None:
    illegal = tmp_path / "illegal.yaml"
    for text, named in (
        ("kind: drafted\ncautious: {drafts: [crystal_ball]}\n", ["cautious.drafts.0", "crystal_ball", "hold_last"]),
        ("kind: [", ["illegal.yaml"]),
        ("", ["illegal.yaml"]),
    ):
        illegal.write_text(text)
        reason = thinker.probe.set_parameter(NODE, "decoder", str(illegal))
        assert all(part in reason for part in named), reason
    assert thinker.act().stats.decoder == "lossless"


@pytest.mark.parametrize("value", ["magic", "/nowhere.yaml", "", 5, True])
def test_a_choice_that_is_no_decoder_is_refused_with_the_legal_ones(thinker: Thinker, value: object) -> None:
    reason = thinker.probe.set_parameter(NODE, "decoder", value)
    assert "legal" in reason
    assert not isinstance(value, str) or all(name in reason for name in preset_names(decoder_presets()))
    assert thinker.probe.get_parameter(NODE, "decoder") == "lossless"
    assert thinker.act().stats.decoder == "lossless"


@pytest.mark.parametrize(("name", "value"), [("policy", "/elsewhere"), ("period_s", 0.1), ("views", ["wrist"])])
def test_every_other_parameter_is_read_only(thinker: Thinker, name: str, value: object) -> None:
    assert "read-only" in thinker.probe.set_parameter(NODE, name, value)


def test_a_decoder_that_cannot_be_built_leaves_the_old_one_and_says_why(thinker: Thinker) -> None:
    thinker.act()
    assert thinker.probe.set_parameter(NODE, "decoder", "naive_sd") == ""  # legal, but there is no drafter here
    reason = thinker.probe.wait_for_reason("'naive_sd' cannot be built", node="thinker")
    assert "drafter" in reason and "'lossless' goes on" in reason
    assert thinker.act().stats.decoder == "lossless"
    assert thinker.probe.get_parameter(NODE, "decoder") == "lossless"
    thinker.decode_by("ar")
    thinker.probe.forget_diagnostics()
    thinker.act()
    thinker.probe.wait_until(lambda: thinker.probe.reasons("thinker"), what="a report")
    assert "cannot be built" not in thinker.probe.reasons("thinker")[-1]


@pytest.mark.parametrize(
    "end",
    [
        lambda thinker: thinker.instruct("put the bowl on the plate"),
        lambda thinker: (thinker.change(DEACTIVATE), thinker.change(ACTIVATE)),
        lambda thinker: thinker.tell(EpisodeStatus.RUNNING),
        lambda thinker: thinker.tell(EpisodeStatus.SUCCEEDED),
        lambda thinker: thinker.tell(EpisodeStatus.FAILED),
        lambda thinker: thinker.tell(EpisodeStatus.ABORTED),
        lambda thinker: thinker.probe.spin_for(1.1),
    ],
    ids=["another instruction", "activation", "start", "success", "failure", "abort", "pause"],
)
def test_a_new_episode_begins_without_the_actions_of_the_last_one(
    thinker: Thinker, end: Callable[[Thinker], Any]
) -> None:
    # This decoder repeats every action twice: after the first repetition, only a new beginning decodes.
    thinker.decode_by("repeat")
    while not thinker.actions or thinker.actions[-1].stats.skipped_in_a_row != 1:
        thinker.act_until(lambda action: action.stats.skipped_in_a_row == 1)
    end(thinker)
    assert not thinker.act(instruct=False).stats.skipped


def test_within_an_episode_the_actions_go_on(thinker: Thinker) -> None:
    thinker.decode_by("repeat")
    action = thinker.act_until(lambda action: action.stats.skipped_in_a_row == 2)
    assert action.stats.skipped and action.stats.forward_passes == 0 and action.mode == "skip"


def test_a_degraded_decode_is_a_warning_that_ends_with_it(thinker: Thinker, tmp_path: Path) -> None:
    loose = tmp_path / "loose.yaml"
    loose.write_text(
        "kind: drafted\n"
        "cautious:\n"
        "  drafts: [hold_last]\n"
        "  completion: {kind: speculative, rule: {kind: token_radius, radius_bins: 254}}\n"
        "bounds: {position_m: 0.00001, rotation_rad: 0.00001}\n"
    )
    thinker.decode_by(str(loose))
    pictures = iter([np.zeros_like(NOISE), np.full_like(NOISE, 255)] * 20)
    probe, action = thinker.probe, thinker.act()
    while not action.stats.degraded:
        action = thinker.act(next(pictures))
    assert "bounds" in action.stats.degraded
    probe.wait_for_reason("degraded", "bounds", node="thinker")
    thinker.act_until(lambda action: not action.stats.degraded, np.zeros_like(NOISE))
    probe.forget_diagnostics()
    probe.repeat(
        lambda: thinker.act(np.zeros_like(NOISE)), until=lambda: "working" in probe.reasons("thinker"), period_s=0.05
    )


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
