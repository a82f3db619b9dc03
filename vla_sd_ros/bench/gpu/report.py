"""``gpu.json`` and ``gpu.md``: the figures, and the same for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

JSON_FILE = "gpu.json"
TABLE_FILE = "gpu.md"


def write_report(out: Path, results: Mapping[str, Any]) -> str:
    """Writes both files; returns the table's text."""
    out.mkdir(parents=True, exist_ok=True)
    (out / JSON_FILE).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    text = markdown_of(results)
    (out / TABLE_FILE).write_text(text, encoding="utf-8")
    return text


def markdown_of(results: Mapping[str, Any]) -> str:
    """All figures as Markdown."""
    parts = (_heading(results), _aims(results), _decoders(results), _stages(results), _memory(results), _cold(results))
    return "\n".join("\n".join(part) + "\n" for part in parts)


def _heading(results: Mapping[str, Any]) -> list[str]:
    runtime = [str(results["runtime"]), *(["compiled"] if results["compile"] else [])]
    if results["quantisation"] != "none":
        runtime.append(results["quantisation"])
    cuda = f" (CUDA {results['cuda']})" if results["cuda"] else f", {results['threads']} threads"
    lines = [
        f"**{results['device']}**, torch {results['torch']}{cuda}, {results['dtype']}, "
        f"runtime {' + '.join(runtime)}, size {results['size']}; random weights; "
        f"{_number(results['minutes'])} of {_number(results['max_minutes'])} minutes.",
    ]
    if results["size"] != "7b":
        lines += ["", "Sizes other than 7b show that the path runs; their times say nothing of OpenVLA-7B."]
    return lines


def _aims(results: Mapping[str, Any]) -> list[str]:
    floors = results["floors"]
    if floors["known"]:
        accepted = f", fully accepted action {_number(floors['accepted_ms'])}" if floors["accepted_ms"] else ""
        lines = [
            f"Floors of the {floors['card']}, ms: decode step {_number(floors['decode_ms'])}, prefill "
            f"{_number(floors['prefill_ms'])}, AR {_number(floors['autoregressive_ms'])}{accepted}."
        ]
    else:
        lines = [f"No floor: {floors['reason']}."]
    rows = (
        (aim["name"], _number(aim["measured_ms"]), _number(aim["limit_ms"]), aim["basis"], _verdict(aim["passed"]))
        for aim in results["aims"]
    )
    return [*lines, "", *_table(("aim", "measured, ms", "limit, ms", "limit is", "reached"), rows)]


def _decoders(results: Mapping[str, Any]) -> list[str]:
    head = (
        "decoder",
        "ms per action, mean / p50 / p95",
        "speed-up",
        "forwards per action",
        "skipped",
        "sum of stages, ms",
        "measured / sum",
        "steps replayed",
    )
    rows = (
        (
            row["decoder"],
            row["error"] or f"{_number(row['ms_per_action'])} / {_number(row['p50_ms'])} / {_number(row['p95_ms'])}",
            "-" if row["speed_up"] is None else f"{row['speed_up']:.2f}x",
            f"{row['forwards_per_action']:.2f}",
            f"{row['skipped']:.0%}",
            _number(row["sum_of_stages_ms"]),
            "-" if row["measured_over_sum"] is None else f"{row['measured_over_sum']:.2f}",
            f"{row['steps_replayed']} of {row['steps_recorded']}",
        )
        for row in results["decoders"]
    )
    return ["Whole actions at recorded acceptance:", "", *_table(head, rows)]


def _stages(results: Mapping[str, Any]) -> list[str]:
    on_device = results["kind"] != "cpu"
    head = ("stage", "median, ms", "p95, ms", *(["on the device, ms"] if on_device else []), "repeats")
    rows = (
        (
            row["label"],
            row["error"] or _number(row["median_ms"]),
            _number(row["p95_ms"]),
            *([_number(row["device_ms"])] if on_device else []),
            str(row["repeats"]),
        )
        for row in results["stages"]
    )
    return ["Stages, each by itself:", "", *_table(head, rows)]


def _memory(results: Mapping[str, Any]) -> list[str]:
    memory = results["memory"]
    rows = [
        ("copy on the device, read and written", f"{_scaled(memory['copy_bytes_per_s'], 1e9)} GB/s"),
        (
            "weights read by a decode step",
            f"{_scaled(memory['decode_bytes'], 1e9)} GB, {_scaled(memory['decode_bytes_per_s'], 1e9)} GB/s, "
            f"{_share(memory['decode_share_of_copy'])} of the copy",
        ),
        ("all weights in this precision", f"{_scaled(memory['parameters_bytes'], 1e9)} GB"),
    ]
    names = {
        "allocated_bytes": "peak allocated on the device",
        "reserved_bytes": "peak reserved on the device",
        "resident_bytes": "peak resident of the process",
    }
    rows += [(label, f"{_scaled(memory[name], 1e9)} GB") for name, label in names.items() if name in memory]
    return ["Memory:", "", *_table(("what", "figure"), rows)]


def _cold(results: Mapping[str, Any]) -> list[str]:
    names = {
        "process_to_benchmark_s": "interpreter and imports",
        "weights_s": "drawing the weights",
        "acceleration_s": "quantising; graphs of the towers",
        "preparation_s": "cache and its graphs, demonstrations, learned drafters",
        "first_action_s": "first action",
        "second_action_s": "second action",
    }
    rows = ((label, _number(results["cold_start"][name])) for name, label in names.items())
    return ["Cold start, apart from all of the above:", "", *_table(("what", "s"), rows)]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    cells = list(head)
    return [f"| {' | '.join(cells)} |", "|---" * len(cells) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) >= 10.0 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.4f}"


def _scaled(value: float | None, unit: float) -> str:
    return "-" if value is None else _number(value / unit)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _verdict(passed: bool) -> str:
    return "yes" if passed else "no"
