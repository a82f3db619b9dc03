"""The benchmark on a CPU at a size that costs nothing: the path that a GPU takes, but for the device."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from made_up_traces import AR, OURS, SEARCHED, STAGES
from typer.testing import CliRunner

from vla_sd_ros.bench.gpu import benchmark
from vla_sd_ros.bench.gpu.checks import StageSum, aims
from vla_sd_ros.bench.gpu.clock import Clock, Timing
from vla_sd_ros.bench.gpu.floors import FLOORS, floors_of
from vla_sd_ros.bench.gpu.settings import BenchSettings, InvalidSetting, decode_bytes
from vla_sd_ros.bench.gpu.stages import AUTOREGRESSIVE, SKIPPED, Row, Work, time_row
from vla_sd_ros.bench.gpu.trace import save_trace
from vla_sd_ros.cli.bench import app
from vla_sd_ros.policy.config import PolicyConfig


def row(name: str, median_ms: float) -> Row:
    return Row(name, name, Timing(median_ms, median_ms, None, 1))


def test_a_decode_step_reads_as_many_bytes_as_the_floor_assumes() -> None:
    read = decode_bytes(PolicyConfig.openvla_7b(), torch.bfloat16)
    h200 = next(floors for floors in FLOORS if floors.card == "H200")
    assert read / 4.8e12 * 1e3 == pytest.approx(h200.decode_ms, rel=0.02)
    assert decode_bytes(PolicyConfig.openvla_7b(), torch.bfloat16, "int8") == pytest.approx(read / 2, rel=0.01)


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_a_card_is_known_by_its_drivers_name(name: str, card: str) -> None:
    floors = floors_of(name)
    assert floors is not None
    assert floors.card == card


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GH200 480GB",
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA A100-SXM4-40GB",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H100 80GB HBM3",
        "AMD EPYC 9654",
    ],
)
def test_a_card_that_is_not_known_has_no_floor(name: str) -> None:
    assert floors_of(name) is None


def test_a_missing_gpu_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InvalidSetting, match="no CUDA device; legal: cpu"):
        BenchSettings.checked(device="cuda")
    with pytest.raises(InvalidSetting, match="device = 'tpu'"):
        BenchSettings.checked(device="tpu")
    with pytest.raises(InvalidSetting, match="float16"):
        BenchSettings.checked(device="cpu", dtype="float16")
    result = CliRunner().invoke(app, ["gpu", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "CUDA" in result.output
    assert not (tmp_path / "out").exists()


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InvalidSetting, match="cuda:0 to cuda:1"):
        BenchSettings.checked(device="cuda:2")
    assert BenchSettings.checked(device="cuda:1").device == "cuda:1"


def test_stages_add_up_to_actions() -> None:
    names = {name: float(2**place) for place, name in enumerate(STAGES)}
    sums = StageSum([row(name, value) for name, value in names.items()])
    seen = names["preprocess"] + names["vision"]
    greedy = seen + names["projector"] + names["prefill"] + 6 * names["decode"]
    assert sums.step_ms(AR, AUTOREGRESSIVE) == greedy == sums.mean_ms(AR)
    assert sums.step_ms(OURS, SKIPPED) == names["skipped"]
    between = names["verify_1"] + 3 / 5 * (names["verify_6"] - names["verify_1"])
    expected = seen + names["search"] + names["projector"] + names["prefill_draft_24"] + names["draft_1x5"] + between
    assert sums.step_ms(OURS, SEARCHED) == pytest.approx(expected)


def test_a_device_is_at_rest_before_and_after_what_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class FakeEvent:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            order.append("event")

        def elapsed_time(self, other: FakeEvent) -> float:
            order.append("read")
            return 2.5

    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: order.append("rest"))
    clock = Clock(torch.device("cuda"))
    host_ms, device_ms = clock.run(lambda: order.append("work"))
    assert order == ["rest", "event", "work", "event", "rest", "read"]
    assert (device_ms, host_ms > 0.0) == (2.5, True)
    timing = clock.measure(lambda: None, 1.0, repeats=3)
    assert (timing.device_ms, timing.repeats, timing.divided_by(5).device_ms) == (2.5, 3, 0.5)


def test_aims_are_passed_or_failed_by_what_was_measured() -> None:
    rows = [row("vision", 3.0), row("prefill", 5.0), row("action_accepted", 12.1), row("action_ar", 31.0)]
    greedy, accepted = aims(rows, floors_of("NVIDIA H200"))
    assert (greedy.limit_ms, greedy.passed) == (31.5, True)
    assert (accepted.limit_ms, accepted.passed) == (12.0, False)
    assert len(aims(rows, None)) == 1


def test_a_stage_that_fails_costs_no_other() -> None:
    def fail() -> None:
        raise RuntimeError("out of memory\nand much more")

    clock = Clock(torch.device("cpu"))
    failed = time_row(Work("broken", "broken", fail), clock, 1.0, 5)
    assert (failed.timing, failed.error) == (None, "RuntimeError: out of memory")
    assert math.isnan(
        StageSum([*(row(name, 1.0) for name in STAGES if name != "vision"), Row("vision", "", None)]).mean_ms(AR)
    )
    calls: list[int] = []
    timed = time_row(Work("fine", "fine", lambda: calls.append(1), parts=2), clock, 1.0, 5)
    assert timed.timing is not None
    assert (timed.timing.repeats, len(calls)) == (5, 8)  # three of them before the clock counts


@pytest.mark.parametrize("runtime", ["eager", "graphs"])
def test_the_command_writes_every_row(runtime: str, tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    for one in (AR, OURS):
        save_trace(traces, one)
    arguments = f"gpu --device cpu --size tiny --runtime {runtime} --decoders ar,ours --repeats 2 --threads 1".split()
    result = CliRunner().invoke(app, [*arguments, "--traces", str(traces), "--out", str(out)])
    assert result.exit_code == 0, result.output
    figures = json.loads((out / "gpu.json").read_text())
    assert [row["name"] for row in figures["stages"]] == STAGES
    assert all(row["repeats"] == 2 and row["median_ms"] > 0 and not row["error"] for row in figures["stages"])
    rows = {row["decoder"]: row for row in figures["decoders"]}
    assert list(rows) == ["ar", "ours"]
    assert rows["ours"]["speed_up"] == pytest.approx(
        rows["ar"]["ms_per_action"] / rows["ours"]["ms_per_action"], rel=1e-3
    )
    assert rows["ours"]["forwards_replayed"] == OURS.forwards
    assert figures["memory"]["decode_share_of_copy"] > 0.0
    assert figures["memory"]["resident_bytes"] > 0
    assert figures["runtime"] == runtime
    assert not figures["floors"]["known"]
    assert set(figures["cold_start"]) > {"weights_s", "first_action_s"}
    table = (out / "gpu.md").read_text()
    assert table.startswith(f"**{figures['device']}**, torch {torch.__version__}")
    assert all(row["label"] in table for row in figures["stages"])
    assert "No floor" in table


def test_a_row_that_failed_fails_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"stages": [{"name": "vision", "error": "RuntimeError: no"}], "decoders": []}
    monkeypatch.setattr(benchmark, "run_benchmark", lambda settings, traces: broken)
    monkeypatch.setattr("vla_sd_ros.bench.gpu.report.write_report", lambda out, results: "")
    result = CliRunner().invoke(app, ["gpu", "--device", "cpu", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "vision: RuntimeError: no" in result.output


def test_unknown_decoders_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["gpu", "--device", "cpu", "--out", str(tmp_path), "--decoders", "nothing_like_it"]
    )
    assert result.exit_code == 2
    assert "nothing_like_it" in result.output


def test_the_benchmark_needs_neither_ros_nor_a_simulator() -> None:
    code = (
        "import sys, vla_sd_ros.cli.bench_gpu, vla_sd_ros.bench.gpu.benchmark, vla_sd_ros.bench.gpu.report\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'rclpy', 'mujoco', 'libero', 'robosuite'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
