"""Figures of a comparison are those of its episodes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_episodes import action, episode

from vla_sd_ros.bench.decoder_choice import AUTOREGRESSIVE, choose_decoder
from vla_sd_ros.bench.disturbance import Push
from vla_sd_ros.bench.gates import area_under_curve, gate_areas
from vla_sd_ros.bench.plan import BenchPlan
from vla_sd_ros.bench.played_episode import PlayedEpisode
from vla_sd_ros.bench.plots import draw_plots, skip_profile
from vla_sd_ros.bench.report import results_of, write_report
from vla_sd_ros.bench.steps import GenerateTimes, Shadow
from vla_sd_ros.bench.summary import end_effector_jerk, summarise
from vla_sd_ros.sim.action_units import CONTROL_PERIOD_S

DRAFTED = ("retrieval",) * 6 + ("policy",)


def comparison() -> list[PlayedEpisode]:
    """Two states by an autoregressive decoder at 40 ms and by ours, which takes 20 ms and skips every third action."""
    found = []
    for state in range(2):
        plain = [action(40.0) for _ in range(5)]
        found.append(episode(plain, "ar", state, generate=GenerateTimes(80.0, 60.0)))
        ours = [action(20.0, sources=DRAFTED, gate_score=0.5 + 0.1 * state, region="confident") for _ in range(4)]
        ours += [action(2.0, skipped=True, skipped_in_a_row=1) for _ in range(2)]
        shadow = Shadow(state == 0, 0.002 * state, math.radians(1.0), False)
        found.append(episode(ours, "ours", state, success=state == 0, shadow=shadow, push=Push(3, (0.05, 0.0, 0.0))))
    return found


def test_every_figure_follows_from_the_episodes() -> None:
    ours = summarise(comparison(), "ar")["ours"]
    assert (ours["successes"], ours["trials"], ours["steps"]["mean"]) == (1, 2, 6.0)
    assert ours["ms_per_action"]["mean"] == pytest.approx(14.0)
    assert (ours["ms_per_action"]["p50"], ours["ms_per_action"]["max"]) == (20.0, 20.0)
    against = ours["against_reference"]
    assert against["success"]["difference"] == -0.5
    assert against["speed_up"]["ratio"] == pytest.approx(40.0 / 14.0)
    assert against["language_speed_up"]["ratio"] == pytest.approx(20.0 / 7.0)
    assert against["generate_speed_up"]["ratio"] == pytest.approx(80.0 / 14.0)
    assert against["generate_language_speed_up"]["ratio"] == pytest.approx(60.0 / 7.0)
    assert ours["work"]["forward_passes_per_action"] == pytest.approx(8 / 6)
    assert ours["work"]["acceptance_length"] == 5.0
    assert ours["report"]["skip_share"] == pytest.approx(1 / 3)
    assert ours["report"]["regions"] == {"confident": pytest.approx(2 / 3)}
    assert (ours["shadow"]["steps"], ours["shadow"]["different_steps"]) == (12, 6)
    assert ours["shadow"]["deviation_mm"]["mean"] == pytest.approx(1.0)
    assert ours["shadow"]["deviation_deg"]["mean"] == pytest.approx(1.0)


def test_the_reaction_ends_with_the_first_action_that_saw_the_push() -> None:
    late = [action(20.0), action(2.0, skipped=True), action(2.0, skipped=True), action(20.0)]
    found = summarise([episode(late, push=Push(1, (0.05, 0.0, 0.0)))], "ours")["ours"]["disturbance"]
    assert found["reaction_periods"]["mean"] == 2.0
    assert found["reaction_ms"]["mean"] == pytest.approx(2 * 50.0 + 20.0)
    blind = summarise([episode(late[:3], success=False, push=Push(1, (0.05, 0.0, 0.0)))], "ours")["ours"]
    assert (blind["disturbance"]["never_seen"], blind["disturbance"]["reaction_ms"]["mean"]) == (1, None)


def test_naive_speculation_is_a_second_denominator() -> None:
    played = [*comparison(), episode([action(28.0)] * 5, "naive_sd", 0), episode([action(28.0)] * 5, "naive_sd", 1)]
    figures = summarise(played, "ar")
    assert figures["ours"]["against_naive"]["speed_up"]["ratio"] == pytest.approx(2.0)
    assert figures["naive_sd"]["against_naive"] == {}


def test_without_the_reference_there_is_nothing_to_compare_with() -> None:
    assert summarise([episode([action()])], "ar")["ours"]["against_reference"] == {}


@given(st.floats(-2.0, 2.0), st.floats(-2.0, 2.0), st.floats(-2.0, 2.0))
def test_the_jerk_of_a_cubic_is_its_third_derivative(a: float, b: float, jerk: float) -> None:
    times_s = np.arange(8) * CONTROL_PERIOD_S
    places_m = (a * times_s + b * times_s**2 + jerk * times_s**3 / 6).tolist()
    played = episode([action() for _ in times_s], positions_m=places_m)
    assert end_effector_jerk([played]) == pytest.approx(abs(jerk), abs=1e-6)


def test_an_episode_too_short_for_a_jerk_has_none() -> None:
    assert end_effector_jerk([episode([action()] * 3)]) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_the_area_is_the_share_of_rightly_ordered_pairs(samples: list[tuple[int, bool]]) -> None:
    high = [score for score, accepted in samples if accepted]
    low = [score for score, accepted in samples if not accepted]
    area = area_under_curve([score for score, _ in samples], [accepted for _, accepted in samples])
    if not high or not low:
        assert math.isnan(area)
    else:
        wins = sum((a > b) + 0.5 * (a == b) for a in high for b in low)
        assert area == pytest.approx(wins / (len(high) * len(low)))


def test_a_gate_that_tells_accepted_drafts_apart_has_an_area_of_one() -> None:
    good = [action(sources=DRAFTED, gate_score=0.9), action(sources=DRAFTED, gate_score=0.8)]
    bad = [action(gate_score=0.2), action(skipped=True, gate_score=1.0)]
    assert gate_areas([episode(good + bad)])["gate"] == 1.0
    assert gate_areas([episode([action()])]) == {}


def test_skips_are_placed_along_the_episode() -> None:
    played = episode([action()] * 10 + [action(skipped=True)] * 10)
    assert skip_profile([played], bins=4).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert skip_profile([episode([action(skipped=True)])], bins=4).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_the_report_is_json_a_table_and_plots(tmp_path: Path) -> None:
    choice = choose_decoder(AUTOREGRESSIVE, tmp_path, tmp_path)
    plan = BenchPlan(tmp_path, (choice,), (("libero_goal", 8),))
    played = comparison()
    results = results_of(plan, "f" * 64, played)
    text = write_report(tmp_path, {**results, "reference": "ar"})
    assert json.loads((tmp_path / "results.json").read_text())["decoders"]["ours"]["trials"] == 2
    assert "| ours | 1/2 = 50% (9% to 91%) |" in text
    written = {path.name for path in draw_plots(tmp_path, {**results, "reference": "ar"}, played)}
    assert {"stage_times.png", "acceptance_by_dof.png", "skips_along_the_way.png", "gate_along_the_way.png"} <= written
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in written)
