"""The report of a closed-loop run: what it holds, and that its figures are the samples' own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.bench.closed_loop import ClosedLoopPlan, ClosedLoopResult, commit_of
from vla_sd_ros.bench.closed_loop_report import above_decode_ms, comparison, quantiles_ms, report_of
from vla_sd_ros.bench.latency_plot import plot_latency
from vla_sd_ros.sim.client import EpisodeRecord
from vla_sd_ros.sim.success import wilson_interval

PLAN = ClosedLoopPlan(
    suite="libero_goal",
    task_ids=[8],
    initial_states=[0, 1],
    launch_file=Path("sim.launch.py"),
    policy=Path("models/demo_policy"),
    decoder="lossless",
    mode="lockstep",
    composed=False,
    out=Path("out"),
    record=False,
)


def episode(
    success: bool,
    whole_ms: list[float],
    decode_ms: list[float],
    passes: Sequence[int] = (),
    initial_state: int = 0,
) -> EpisodeRecord:
    return EpisodeRecord(
        suite="libero_goal",
        task_id=8,
        instruction="put the bowl on the plate",
        initial_state=initial_state,
        success=success,
        steps=len(whole_ms),
        reason="",
        camera_to_action_ms=whole_ms,
        camera_to_command_ms=[value + 1.0 for value in whole_ms],
        stage_ms={"vision": [value / 2 for value in decode_ms], "total": decode_ms},
        forward_passes=list(passes),
        skipped=[number == 0 for number in passes],
    )


def test_the_report_has_every_promised_key_and_is_json() -> None:
    result = ClosedLoopResult(
        [episode(True, [10.0, 12.0], [8.0, 9.0]), episode(False, [11.0], [9.0])], {"total": 900.0}
    )
    report = json.loads(json.dumps(report_of(PLAN, result)))
    assert report["suite"] == "libero_goal"
    assert report["policy"] == "demo_policy"
    assert report["decoder"] == "lossless"
    assert report["success_rate"] == 0.5
    assert report["episodes"][0] == {
        "task": "put the bowl on the plate",
        "task_id": 8,
        "initial_state": 0,
        "success": True,
        "steps": 2,
    }
    for figures in (report["latency_ms"]["camera_to_action"], report["latency_ms"]["camera_to_command"]):
        assert set(figures) == {"p50", "p95", "p99"}
    assert report["latency_ms"]["camera_to_action"]["p50"] == 11.0
    assert report["latency_ms"]["stages"]["vision"]["p50"] == 4.5
    assert report["latency_ms"]["above_decode"]["p50"] == 2.0
    assert report["commit"]


def test_the_report_holds_both_decoders_and_the_ratio_over_the_episodes_that_both_played() -> None:
    ours = [
        episode(True, [3.0, 21.0], [0.5, 19.5], passes=[0, 1]),
        episode(True, [90.0], [80.0], passes=[2], initial_state=1),
    ]
    theirs = [episode(False, [41.0, 43.0], [39.0, 41.0], passes=[7, 7])]
    plan = dataclasses.replace(PLAN, reference="ar", reference_states=[0])
    assert plan.n_episodes == 3
    report = json.loads(json.dumps(report_of(plan, ClosedLoopResult(ours, {"total": 900.0}, theirs))))
    assert list(report["decoders"]) == ["lossless", "ar"]
    assert report["decoders"]["lossless"]["forward_passes_per_action"] == 1.0
    assert report["decoders"]["lossless"]["skip_share"] == pytest.approx(1 / 3, abs=1e-4)
    assert report["decoders"]["ar"]["ms_per_action"]["p50"] == 40.0
    assert (report["success_rate"], report["decoders"]["ar"]["success_rate"]) == (1.0, 0.0)
    assert [each["initial_state"] for each in report["reference"]["episodes"]] == [0]
    assert (report["reference"]["shared_episodes"], report["reference"]["speed_up"]) == (1, 4.0)


def test_decoders_that_share_no_episode_have_no_speed_up() -> None:
    assert comparison([episode(True, [10.0], [8.0])], [episode(True, [10.0], [8.0], initial_state=1)]) == {
        "shared_episodes": 0,
        "speed_up": None,
    }


def test_what_ros_adds_is_left_out_where_an_observation_went_unanswered() -> None:
    assert above_decode_ms([episode(True, [10.0, 12.0], [8.0])]) == []


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    result = ClosedLoopResult([episode(True, [10.0, 12.0], [8.0, 9.0])], {"total": 900.0})
    plot_latency(report_of(PLAN, result), tmp_path / "latency.png")
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=50))
def test_quantiles_lie_within_the_samples_and_rise(samples: list[float]) -> None:
    figures = list(quantiles_ms(samples).values())
    assert figures == sorted(figures)
    assert min(samples) - 1e-3 <= figures[0] and figures[-1] <= max(samples) + 1e-3


@given(st.integers(1, 500).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_interval_holds_the_observed_share(counts: tuple[int, int]) -> None:
    successes, trials = counts
    low, high = wilson_interval(successes, trials)
    assert 0.0 <= low <= successes / trials <= high <= 1.0


def test_the_interval_matches_a_published_example() -> None:
    # 58 of 60, the 95 % Wilson interval: 0.886 to 0.991.
    assert wilson_interval(58, 60) == pytest.approx((0.886, 0.991), abs=1e-3)


def test_more_successes_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match=r".+"):
        wilson_interval(3, 2)


def test_outside_a_checkout_the_commit_is_unknown(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == "unknown"
