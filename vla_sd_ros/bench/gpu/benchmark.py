"""The benchmark from the first weight to the figures."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import torch

from vla_sd_ros.bench.gpu.actions import Played, play_traces, speed_ups
from vla_sd_ros.bench.gpu.checks import StageSum, aims
from vla_sd_ros.bench.gpu.clock import MS_PER_S, Budget, Clock
from vla_sd_ros.bench.gpu.floors import Floors, floors_of
from vla_sd_ros.bench.gpu.memory import copy_bandwidth, peak_memory, use_device
from vla_sd_ros.bench.gpu.replay import Replay
from vla_sd_ros.bench.gpu.settings import BenchSettings, decode_bytes
from vla_sd_ros.bench.gpu.stages import AUTOREGRESSIVE, Row, time_row, works
from vla_sd_ros.bench.gpu.subject import Subject, make_subject
from vla_sd_ros.bench.gpu.trace import Trace
from vla_sd_ros.policy.acceleration import accelerate
from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.policy.random_policy import random_policy_on

# Shares of the time that is left when each begins.
STAGES_SHARE: Final = 0.3
ACTIONS_SHARE: Final = 0.9
DIGITS: Final = 5
_SECONDS_PER_MINUTE: Final = 60.0


def run_benchmark(settings: BenchSettings, traces: Sequence[Trace]) -> dict[str, Any]:
    """All figures, JSON-serialisable; a row that failed is there with its error.

    Args:
        settings: checked.
        traces: of the decoders; the one called ``ar`` is the reference of the speed-ups.

    Raises:
        InsufficientMemory: the policy does not fit.
        ValueError: there is no such runtime here.
    """
    budget = Budget(_SECONDS_PER_MINUTE * settings.max_minutes)
    device = torch.device(settings.device)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    use_device(device)
    clock = Clock(device)
    subject, cold_start = _start(settings, traces, clock)
    planned = works(subject)
    seconds = budget.share(STAGES_SHARE) / len(planned)
    rows = [time_row(work, clock, seconds, settings.repeats) for work in planned]
    sums = StageSum(rows)
    played = play_traces(subject, traces, clock, Budget(budget.share(ACTIONS_SHARE)), sums.step_ms)
    peaks = peak_memory(device)  # before the tensors of the copy
    floors = floors_of(device_name(device)) if settings.has_floors else None
    results: dict[str, Any] = {
        **_heading(settings, device, subject),
        "stages": [_row(row) for row in rows],
        "decoders": [_decoder(one, played, sums) for one in played],
        "memory": {**_bandwidth(settings, clock, device, budget, rows), **peaks},
        "cold_start": cold_start,
        "floors": _floors(settings, device, floors),
        "aims": [{**asdict(aim), "passed": aim.passed} for aim in aims(rows, floors)],
        "minutes": budget.spent_s / _SECONDS_PER_MINUTE,
        "max_minutes": settings.max_minutes,
    }
    rounded: dict[str, Any] = _rounded(results)
    return rounded


def failures(results: dict[str, Any]) -> list[str]:
    """Rows that failed, with their errors."""
    rows = [*results["stages"], *results["decoders"]]
    return [f"{row.get('name', row.get('decoder'))}: {row['error']}" for row in rows if row["error"]]


def device_name(device: torch.device) -> str:
    """Name of the card as its driver gives it, or of the CPU."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _start(settings: BenchSettings, traces: Sequence[Trace], clock: Clock) -> tuple[Subject, dict[str, float]]:
    """The subject, and seconds from the start of the process to its first action."""
    began = time.time()
    weights = random_policy_on(settings.device, settings.policy, settings.torch_dtype, settings.seed)
    clock.synchronise()
    drawn = time.time()
    policy = accelerate(weights, settings.options)
    clock.synchronise()
    faster = time.time()
    shapes = {trace.learned for trace in traces if trace.learned is not None}
    subject = make_subject(policy, shapes, settings.seed)
    clock.synchronise()
    ready = time.time()
    greedy = Replay(subject, autoregressive=True)
    first_ms, _ = clock.run(lambda: greedy.play(AUTOREGRESSIVE))
    second_ms, _ = clock.run(lambda: greedy.play(AUTOREGRESSIVE))
    return subject, {
        "process_to_benchmark_s": began - psutil.Process().create_time(),
        "weights_s": drawn - began,
        "acceleration_s": faster - drawn,
        "preparation_s": ready - faster,
        "first_action_s": first_ms / MS_PER_S,
        "second_action_s": second_ms / MS_PER_S,
    }


def _heading(settings: BenchSettings, device: torch.device, subject: Subject) -> dict[str, Any]:
    heading: dict[str, Any] = {
        "device": device_name(device),
        "kind": device.type,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        **settings.model_dump(include={"size", "dtype", "compile", "quantisation", "repeats", "seed"}),
        "runtime": "eager" if subject.policy.model.runtime is None else "graphs",
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        heading["multiprocessors"] = properties.multi_processor_count
        heading["memory_bytes"] = properties.total_memory
    return heading


def _row(row: Row) -> dict[str, Any]:
    timing = {"median_ms": None, "p95_ms": None, "device_ms": None, "repeats": 0}
    if row.timing is not None:
        timing = asdict(row.timing)
    return {"name": row.name, "label": row.label, **timing, "error": row.error}


def _decoder(one: Played, everyone: Sequence[Played], sums: StageSum) -> dict[str, Any]:
    trace = one.trace
    expected_ms = sums.mean_ms(trace)
    return {
        "decoder": trace.decoder,
        "ms_per_action": one.mean_ms,
        "p50_ms": one.quantile_ms(0.5),
        "p95_ms": one.quantile_ms(0.95),
        "speed_up": speed_ups(everyone).get(trace.decoder, math.nan),
        "forwards_per_action": trace.forwards / len(trace),
        "skipped": trace.skipped,
        "sum_of_stages_ms": expected_ms,
        "measured_over_sum": one.mean_ms / expected_ms,
        "steps_recorded": len(trace),
        "steps_replayed": one.replayed,
        "forwards_replayed": one.forwards,
        "recording": trace.recording.model_dump(mode="json"),
        "error": one.error,
    }


def _bandwidth(
    settings: BenchSettings, clock: Clock, device: torch.device, budget: Budget, rows: Sequence[Row]
) -> dict[str, float]:
    copied = copy_bandwidth(clock, device, min(10.0, budget.share(0.5)))
    decode = next(row.timing for row in rows if row.name == "decode")
    took_ms = math.nan if decode is None else decode.device_ms or decode.median_ms
    read = decode_bytes(settings.policy, settings.torch_dtype, settings.quantisation)
    return {
        "copy_bytes_moved": float(copied.bytes_moved),
        "copy_bytes_per_s": copied.bytes_per_s,
        "decode_bytes": read,
        "decode_bytes_per_s": read / took_ms * MS_PER_S,
        "decode_share_of_copy": read / took_ms * MS_PER_S / copied.bytes_per_s,
        "parameters_bytes": float(_parameters(settings) * settings.torch_dtype.itemsize),
    }


def _parameters(settings: BenchSettings) -> int:
    with torch.device("meta"):
        return sum(tensor.numel() for tensor in VisionLanguageActionModel(settings.policy).parameters())


def _floors(settings: BenchSettings, device: torch.device, floors: Floors | None) -> dict[str, Any]:
    if floors is not None:
        return {"known": True, **asdict(floors)}
    if not settings.has_floors:
        reason = "floors hold for the 7b size in bfloat16, not quantised"
    else:
        reason = f"no floor is known for {device_name(device)!r}"
    return {"known": False, "reason": reason}


def _rounded(value: Any) -> Any:
    """Floats to five significant digits, and what is not a number as null."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
