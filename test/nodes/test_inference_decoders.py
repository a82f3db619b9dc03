"""The decoder of the inference node: chosen while it works, begun anew with every episode."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from derived_assets import write_policy_with_assets
from probe import ACTIVATE, DEACTIVATE
from thinker import INSTRUCTION, NODE, NOISE, Thinker

from vla_sd_ros.decoding.presets import preset_names
from vla_sd_ros.msg import EpisodeStatus
from vla_sd_ros.ros.share import decoder_presets


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
