"""Traces come out of a journal right, and what is no trace is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_episodes import episode
from pydantic import ValidationError
from typer.testing import CliRunner

from vla_sd_ros.bench.gpu.trace import Forward, Step, Trace, UnknownTrace, load_trace, save_trace, thin, trace_names
from vla_sd_ros.bench.gpu.tracing import TraceMismatch, make_trace, read_journal, steps_of
from vla_sd_ros.cli.bench import app
from vla_sd_ros.decoding.config import DecoderConfig
from vla_sd_ros.decoding.interface import DecodeCounts, DecodedAction, DecodeReport
from vla_sd_ros.decoding.presets import load_decoder_config
from vla_sd_ros.decoding.stage_times import StageTimes

CONFIG = Path(__file__).parents[2] / "config"
DECODERS = ("ar", "lossless", "heisd", "kerv", "hybrid")


def preset(name: str) -> DecoderConfig:
    return load_decoder_config(name, CONFIG / "decoders")


def decoded(sources: str, passes: int, verified: int, accepted: int, search_ms: float = 0.0, **report: Any) -> Any:
    """An action whose tokens come from these drafters, named by words."""
    return DecodedAction(
        tokens=np.arange(7, dtype=np.int64),
        values=np.zeros(7),
        mode="made up",
        stage_times=StageTimes(vision_ms=4.0, search_ms=search_ms, total_ms=20.0),
        counts=DecodeCounts(passes, verified, accepted),
        report=DecodeReport(sources=tuple(sources.split()), **report),
    )


def skipped() -> DecodedAction:
    return DecodedAction(
        np.arange(7, dtype=np.int64),
        np.zeros(7),
        "skip",
        StageTimes(total_ms=0.1),
        DecodeCounts(0),
        DecodeReport(sources=("skip",) * 7, skipped=True),
    )


def forwards(name: str, action: DecodedAction) -> list[tuple[int, int]]:
    """(nodes, committed) of every forward of the one step."""
    (step,) = steps_of(episode([action], decoder=name), preset(name))
    return [(forward.nodes, forward.committed) for forward in step.forwards]


def test_greedy_decoding_is_a_prefill_and_six_single_tokens() -> None:
    assert forwards("ar", decoded("policy " * 7, 7, 0, 0)) == [(0, 1)] * 7


@pytest.mark.parametrize(
    ("sources", "passes", "expected"),
    [
        ("hold_last " * 6 + "policy", 1, [(6, 7)]),
        ("hold_last hold_last policy jacobi jacobi jacobi policy", 2, [(6, 3), (3, 4)]),
        ("policy jacobi policy jacobi jacobi jacobi policy", 3, [(6, 1), (5, 2), (3, 4)]),
        ("rest rest rest rest rest policy policy", 2, [(6, 6), (0, 1)]),
    ],
)
def test_a_refinement_verifies_what_is_missing(sources: str, passes: int, expected: list[tuple[int, int]]) -> None:
    single = expected[-1][0] == 0  # the gripper alone has no draft
    action = decoded(sources, passes, passes - single, 7 - single)
    assert forwards("lossless", action) == expected


def test_rows_that_hardly_moved_belong_to_the_last_forward() -> None:
    action = decoded("policy policy policy policy policy policy policy", 2, 2, 7, region="confident")
    assert forwards("hybrid", action) == [(6, 1), (5, 6)]


def test_the_first_step_of_a_filter_has_no_draft() -> None:
    assert forwards("kerv", decoded("policy " + "learned " * 5 + "policy", 2, 1, 6)) == [(0, 1), (10, 6)]


def test_a_filters_tail_needs_no_forward() -> None:
    action = decoded("kalman policy " + "kalman_tail " * 4 + "policy", 1, 1, 2)
    assert forwards("kerv", action) == [(6, 7)]


def test_a_learned_chain_is_no_longer_than_what_is_missing() -> None:
    action = decoded(
        "retrieval retrieval policy learned learned learned policy", 2, 2, 7, search_ms=1.0, region="confident"
    )
    (step,) = steps_of(episode([action], decoder="heisd"), preset("heisd"))
    assert step.searched
    assert [(one.nodes, one.learned) for one in step.forwards] == [(24, False), (3, True)]


def test_a_draft_outside_the_prefill_has_a_forward_of_its_own() -> None:
    assert forwards("kerv_authors", decoded("kalman " * 6 + "policy", 2, 1, 7)) == [(0, 0), (6, 7)]


def test_a_broken_bound_costs_what_was_spent_and_six_tokens_more() -> None:
    action = decoded("policy " * 7, 8, 2, 0, region="confident", degraded="bounds: decoded exactly")
    assert forwards("hybrid", action) == [(6, 1), (5, 0), *[(0, 1)] * 6]


def test_an_episode_of_another_preset_is_refused() -> None:
    action = decoded("learned " * 6 + "policy", 1, 1, 5)
    with pytest.raises(TraceMismatch, match="step 0"):
        steps_of(episode([action], decoder="lossless"), preset("lossless"))


def test_of_several_plays_of_a_state_the_last_counts() -> None:
    once = [decoded("hold_last " * 6 + "policy", 1, 1, 7)]
    again = [decoded("policy jacobi jacobi jacobi jacobi jacobi policy", 2, 2, 7)]
    played = [episode(once, decoder="lossless"), episode(again, decoder="lossless")]
    assert make_trace("lossless", preset("lossless"), played, 10).forwards == 2
    with pytest.raises(TraceMismatch, match="'ar'"):
        make_trace("ar", preset("ar"), played, 10)


def test_a_trace_keeps_the_share_of_every_kind_of_step(tmp_path: Path) -> None:
    accepted = decoded("hold_last " * 6 + "policy", 1, 1, 7, region="confident")
    played = [
        episode([accepted, skipped(), skipped(), skipped()] * 25, decoder="hybrid", initial_state=n) for n in (0, 1)
    ]
    trace = make_trace("hybrid", preset("hybrid"), played, 40)
    assert len(trace) == 40
    assert trace.skipped == trace.recording.skipped == 0.75
    assert (trace.recording.steps, trace.recording.episodes, trace.looks_at_image) == (200, 2, True)
    save_trace(tmp_path, trace)
    assert load_trace("hybrid", tmp_path) == trace


def test_the_command_makes_traces_of_a_journal(tmp_path: Path) -> None:
    played = episode([decoded("hold_last " * 6 + "policy", 1, 1, 7)] * 3, decoder="lossless")
    (tmp_path / "episodes.jsonl").write_text(played.to_line() + "\n" + played.to_line()[:40])
    assert len(read_journal(tmp_path)) == 1
    out = tmp_path / "traces"
    arguments = ["trace", "--episodes", str(tmp_path), "--out", str(out), "--decoders", "lossless"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert trace_names(out) == ["lossless"]
    refused = CliRunner().invoke(app, [*arguments[:2], str(out), *arguments[3:]])
    assert refused.exit_code == 2
    assert "episodes.jsonl" in refused.output


@pytest.mark.parametrize("name", DECODERS)
def test_a_committed_trace_is_a_fair_choice_of_its_journal(name: str) -> None:
    trace = load_trace(name, CONFIG / "traces")
    assert 300 <= len(trace) <= 1000
    assert trace.forwards / len(trace) == pytest.approx(trace.recording.forwards_per_action, rel=0.02)
    assert trace.skipped == pytest.approx(trace.recording.skipped, abs=0.02)
    assert trace.autoregressive == (name == "ar")


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownTrace, match="legal: ar, heisd"):
        load_trace("nothing_like_it", CONFIG / "traces")
    (tmp_path / "broken.json").write_text('{"decoder": "broken"}')
    with pytest.raises(UnknownTrace, match="recording"):
        load_trace("broken", tmp_path)
    with pytest.raises(ValidationError, match="7 tokens"):
        Step(forwards=(Forward(nodes=6, committed=3),))
    with pytest.raises(ValidationError, match="vision"):
        Step(vision=False, forwards=(Forward(nodes=6, committed=7),))
    legal = load_trace("ar", CONFIG / "traces").model_dump()
    with pytest.raises(ValidationError, match="order"):
        Trace.model_validate({**legal, "order": [1]})


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.floats(0.0, 1.0))
def test_thinning_keeps_order_and_shares(items: list[int], share: float) -> None:
    kept, one_of_each = thin(items, share), thin(items, share, at_least=1)
    rest = iter(items)
    assert all(item in rest for item in kept)
    for kind in set(items):
        assert abs(kept.count(kind) - share * items.count(kind)) <= 0.5 + 1e-9
        assert one_of_each.count(kind) >= 1
    assert thin(items, 1.0) == items
