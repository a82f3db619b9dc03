"""``vla-sd demo``, as a user runs it: processes, report, video, picture and exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

DEMO_S = 240


def demo(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "vla-sd"), "demo", "--out", str(out), *arguments]
    wide = {**os.environ, "COLUMNS": "160"}  # so that no cell of a table is wrapped
    return subprocess.run(command, capture_output=True, text=True, timeout=DEMO_S, env=wide, check=False)


def test_the_committed_policy_solves_an_episode_through_the_graph_and_the_report_says_how(tmp_path: Path) -> None:
    done = demo(tmp_path, "--tasks", "8", "--episodes", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    (episode,) = report["episodes"]
    assert episode["task"] == "put the bowl on the plate"
    assert episode["initial_state"] == 0 and episode["success"] and 20 < episode["steps"] < 300
    assert (report["suite"], report["policy"], report["success_rate"]) == ("libero_goal", "demo_policy", 1.0)
    latency = report["latency_ms"]
    assert 0.0 < latency["camera_to_action"]["p50"] <= latency["camera_to_command"]["p50"]
    assert latency["stages"]["prefill"]["p50"] > 0.0
    assert 0.0 < report["memory_mb"]["total"] < 3000.0
    assert (report["decoder"], report["reference"]["decoder"]) == ("lossless", "ar")
    ours, plain = report["decoders"]["lossless"], report["decoders"]["ar"]
    assert (ours["episodes"], plain["episodes"], report["reference"]["shared_episodes"]) == (1, 1, 1)
    assert plain["forward_passes_per_action"] == 7.0 > ours["forward_passes_per_action"] >= 1.0
    assert report["reference"]["speed_up"] > 1.0
    assert "forward passes per action" in done.stdout and "as fast as ar" in done.stdout.replace("\n", " ")
    assert "put the bowl on the plate" in done.stdout and "camera_to_action" in done.stdout
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")
    (video,) = (tmp_path / "videos").glob("*.mp4")
    assert video.stat().st_size > 10_000


def test_a_graph_that_cannot_come_up_is_told_with_the_log_and_status_2(tmp_path: Path) -> None:
    done = demo(tmp_path, "--policy", str(tmp_path / "nowhere"), "--tasks", "8", "--episodes", "1")
    assert done.returncode == 2
    assert "launch.log" in done.stdout.replace("\n", "")
    assert "lacks" in (tmp_path / "launch.log").read_text()


def test_a_decoder_that_is_none_is_told_with_the_legal_ones(tmp_path: Path) -> None:
    done = demo(tmp_path, "--decoder", "magic")
    assert done.returncode == 2
    assert "lossless" in done.stderr and "legal" in done.stderr


def test_tasks_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    done = demo(tmp_path, "--tasks", "eight")
    assert done.returncode == 2
    assert "legal" in done.stderr
