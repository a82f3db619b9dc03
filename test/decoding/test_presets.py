"""Every preset is legal, every illegal one is refused by key, value and what is legal."""

from __future__ import annotations

from pathlib import Path

import pytest

from vla_sd_ros.decoding.config import DecoderConfig
from vla_sd_ros.decoding.presets import InvalidDecoderConfig, UnknownDecoder, load_decoder_config, preset_names

PRESETS = Path(__file__).parents[2] / "config" / "decoders"
NAMED = {
    "ar", "repeat", "naive_sd", "spec_vla", "kerv", "kerv_authors", "heisd", "heisd_authors", "lossless", "hybrid"
}  # fmt: skip


def test_the_presets_that_the_documents_name_are_there() -> None:
    assert set(preset_names(PRESETS)) >= NAMED


@pytest.mark.parametrize("name", preset_names(PRESETS))
def test_every_preset_is_legal(name: str) -> None:
    assert isinstance(load_decoder_config(name, PRESETS), DecoderConfig)


def test_no_preset_accepts_a_relaxed_draft_that_the_arms_own_past_made_without_a_verifier_between() -> None:
    """Token-wise or sequence-wise acceptance of the last action repeats its own error."""
    for name in preset_names(PRESETS):
        for step in load_decoder_config(name, PRESETS).steps:
            if step.completion.kind == "speculative" and step.completion.rule.kind != "strict":
                assert not {"hold_last", "constant_velocity"} & set(step.drafts), name


def test_a_preset_may_be_a_file_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("kind: drafted\ncautious: {drafts: [hold_last]}\n")
    assert load_decoder_config(str(file), PRESETS).cautious.drafts == ("hold_last",)


def test_an_unknown_preset_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(UnknownDecoder, match=r"'fastest'.*'heisd'.*'lossless'"):
        load_decoder_config("fastest", PRESETS)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("kind: drafted\nguards: {}", "guards"),
        ("kind: magic", "kind = 'magic'"),
        ("", "the file"),
        ("kind: drafted\ncautious: {drafts: [crystal_ball]}", "crystal_ball"),
        ("kind: drafted\ncautious: {neighbours: 0}", "neighbours = 0"),
        ("kind: drafted\ngate: {kind: always}", "gate and confident"),
        ("kind: drafted\nbounds: {position_m: .nan}", "position_m"),
        (
            "kind: drafted\ncautious: {completion: {kind: speculative, rule: {kind: token_radius, radius_bins: 300}}}",
            "radius_bins = 300",
        ),
        (
            "kind: drafted\ncautious: {completion: {kind: speculative, rule: {kind: variability, min_bins: 9, "
            "max_bins: 5}}}",
            "min_bins = 9 is above max_bins = 5",
        ),
        ("kind: drafted\ngate: {kind: fused_metric, alpha: 1.5}\nconfident: {}", "alpha = 1.5"),
        ("kind: drafted\ncautious: {skip: {max_in_a_row: 0}}", "max_in_a_row = 0"),
    ],
)
def test_an_illegal_preset_is_refused_by_key_and_value(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    with pytest.raises(InvalidDecoderConfig, match=complaint):
        load_decoder_config(str(file), PRESETS)
