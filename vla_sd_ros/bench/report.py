"""The files of a comparison: ``results.json``, ``results.md`` and the plots, made from its episodes."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vla_sd_ros.bench.closed_loop import commit_of
from vla_sd_ros.bench.plan import BenchPlan
from vla_sd_ros.bench.played_episode import PlayedEpisode
from vla_sd_ros.bench.summary import summarise
from vla_sd_ros.bench.tables import markdown_of

DIGITS = 6


def results_of(plan: BenchPlan, fingerprint: str, episodes: Sequence[PlayedEpisode]) -> dict[str, Any]:
    """Everything about a comparison but its episodes, JSON-serialisable.

    Args:
        plan: what was played.
        fingerprint: SHA-256 of the policy's weights.
        episodes: all of them.
    """
    results: dict[str, Any] = {
        "policy": {"name": plan.policy.name, "fingerprint": fingerprint},
        "dtype": plan.setting.dtype_in_use,
        "setting": asdict(plan.setting),
        "tasks": [f"{suite}/{task_id}" for suite, task_id in plan.tasks],
        "initial_states": list(plan.initial_states),
        "shadowed_states_per_task": plan.shadow,
        "reference": plan.reference,
        "configurations": {
            decoder.label: {"digest": decoder.digest, **decoder.config.model_dump(mode="json")}
            for decoder in plan.decoders
        },
        "machine": machine(),
        "commit": commit_of(Path(__file__).parent),
        "decoders": summarise(episodes, plan.reference),
    }
    rounded: dict[str, Any] = _rounded(results)
    return rounded


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write_report(out: Path, results: dict[str, Any]) -> str:
    """Writes ``results.json`` and ``results.md``; returns the latter's text."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    text = markdown_of(results)
    (out / "results.md").write_text(text)
    return text


def _rounded(value: Any) -> Any:
    """Floats to six digits behind the point, and what is not a number as null."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return round(value, DIGITS) if value == value else None
    return value
