"""Every preset decodes with what is derived from a checkpoint, and is refused where that is missing or another's."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from decoder_parts import observation, state_at
from derived_assets import write_policy_with_assets

from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.build import build_decoder
from vla_sd_ros.decoding.config import DecoderConfig
from vla_sd_ros.decoding.presets import load_decoder_config, preset_names
from vla_sd_ros.drafting.learned_checkpoint import DRAFTER_FOLDER
from vla_sd_ros.kinematics.calibration import CALIBRATION_FILE
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.retrieval.index import INDEX_FOLDER
from vla_sd_ros.types import Observation

PRESETS = Path(__file__).parents[2] / "config" / "decoders"
STEPS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write_policy_with_assets(tmp_path_factory.mktemp("assets"))


@pytest.fixture(scope="module")
def policy(folder: Path) -> LoadedPolicy:
    return load_policy(folder)


def moving(step: int) -> tuple[float, float, float]:
    return 0.3 * np.sin(step / 20), 0.3 * np.cos(step / 20), 0.2


@pytest.mark.parametrize("name", preset_names(PRESETS))
def test_a_preset_drives_an_episode_and_tells_what_it_did(name: str, policy: LoadedPolicy) -> None:
    config = load_decoder_config(name, PRESETS)
    decoder = build_decoder(config, policy)
    for success in (True, False):
        decoded = [decoder.decode(observation(step), state_at(step, moving(step))) for step in range(STEPS)]
        decoder.end_episode(success)
        for action in decoded:
            report = action.report
            assert report.degraded == ""
            assert report.skipped == (action.counts.forward_passes == 0)
            assert action.counts.forward_passes <= 8
            assert report.deviation_m <= config.bounds.position_m
            assert report.deviation_rad <= config.bounds.rotation_rad
        assert not decoded[0].report.skipped


@pytest.mark.parametrize("name", ["lossless", "naive_sd"])
def test_the_lossless_presets_give_the_greedy_tokens(name: str, policy: LoadedPolicy) -> None:
    decoder, greedy = build_decoder(load_decoder_config(name, PRESETS), policy), AutoregressiveDecoder(policy)
    for step in range(STEPS):
        np.testing.assert_array_equal(
            decoder.decode(observation(step), state_at(step)).tokens, greedy.decode(observation(step)).tokens
        )


def test_an_unknown_task_degrades_retrieval_to_what_is_left_and_says_so(policy: LoadedPolicy) -> None:
    skip = {"kind": "fixed", "action": "nearest"}
    step = {"drafts": ["retrieval", "hold_last"], "skip": skip}
    decoder = build_decoder(DecoderConfig.model_validate({"kind": "drafted", "cautious": step}), policy)
    for number in range(4):
        seen = Observation(observation(number).views, "turn on the stove", number)
        action = decoder.decode(seen, state_at(number))
        np.testing.assert_array_equal(action.tokens, AutoregressiveDecoder(policy).decode(seen).tokens)
        assert "turn on the stove" in action.report.degraded
        assert "put the bowl on the plate" in action.report.degraded, "the tasks that there are"


def test_more_neighbours_than_the_index_holds_are_as_many_as_there_are(policy: LoadedPolicy) -> None:
    config = DecoderConfig.model_validate(
        {"kind": "drafted", "cautious": {"drafts": ["retrieval"], "neighbours": 64, "max_nodes": 128}}
    )
    action = build_decoder(config, policy).decode(observation(0), state_at(0))
    np.testing.assert_array_equal(action.tokens, AutoregressiveDecoder(policy).decode(observation(0)).tokens)


@pytest.mark.parametrize(
    ("name", "asset"),
    [("heisd", INDEX_FOLDER), ("spec_vla", DRAFTER_FOLDER), ("kerv", CALIBRATION_FILE), ("heisd", CALIBRATION_FILE)],
)
def test_what_is_missing_is_named_with_the_command_that_makes_it(
    name: str, asset: str, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "policy")
    shutil.rmtree(copy / asset) if (copy / asset).is_dir() else (copy / asset).unlink()
    with pytest.raises((ValueError, OSError), match="vla-sd"):
        build_decoder(load_decoder_config(name, PRESETS), load_policy(copy))


@pytest.mark.parametrize("name", ["heisd", "spec_vla", "kerv"])
def test_what_belongs_to_another_checkpoint_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "policy")
    other = random_policy(load_policy(folder).config, seed=5)
    other._weights_path = copy / "model.safetensors"
    assert other.folder == copy
    other.__dict__["fingerprint"] = "0" * 64
    with pytest.raises((ValueError, OSError), match="0" * 64):
        build_decoder(load_decoder_config(name, PRESETS), other)


def test_a_policy_in_memory_has_nothing_beside_it(policy: LoadedPolicy) -> None:
    with pytest.raises(ValueError, match="a policy loaded from a folder"):
        build_decoder(load_decoder_config("spec_vla", PRESETS), random_policy(policy.config))


def test_a_weight_without_a_calibrated_threshold_is_refused(policy: LoadedPolicy) -> None:
    config = DecoderConfig.model_validate(
        {"kind": "drafted", "gate": {"kind": "fused_metric", "alpha": 0.3}, "confident": {}}
    )
    with pytest.raises(ValueError, match=r"alpha: 0\.3"):
        build_decoder(config, policy)


def test_the_calibrated_gate_is_confident_where_it_thinks_the_draft_acceptable(policy: LoadedPolicy) -> None:
    for threshold, region in ((0.0, "confident"), (1.0, "cautious")):
        config = DecoderConfig.model_validate(
            {"kind": "drafted", "gate": {"kind": "acceptance", "threshold": threshold}, "confident": {}}
        )
        report = build_decoder(config, policy).decode(observation(0), state_at(0)).report
        assert (report.region, 0.0 < report.gate_score < 1.0) == (region, True)
