"""A comparison's figures as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Figures = Mapping[str, Any]
Cell = Callable[[Figures], str]

MISSING: Final = "-"


def number(value: float | None, decimals: int = 2, unit: str = "") -> str:
    """A figure with its unit; a dash where there is none."""
    return MISSING if value is None else f"{value:.{decimals}f}{unit}"


def share(value: float | None, decimals: int = 0) -> str:
    """A share in per cent; a dash where there is none."""
    return MISSING if value is None else f"{value:.{decimals}%}"


def _success(figures: Figures) -> str:
    low, high = figures["success_95"]
    rate = figures["successes"] / figures["trials"]
    return f"{figures['successes']}/{figures['trials']} = {rate:.0%} ({low:.0%} to {high:.0%})"


def _difference(figures: Figures) -> str:
    outcome = figures["against_reference"].get("success")
    if outcome is None:
        return MISSING
    return f"{outcome['difference'] * 100:+.1f} ({outcome['low'] * 100:+.1f} to {outcome['high'] * 100:+.1f})"


def _speed_up(name: str, denominator: str = "against_reference") -> Cell:
    def cell(figures: Figures) -> str:
        found = figures[denominator].get(name)
        if found is None:
            return MISSING
        interval = f" ({found['low']:.2f} to {found['high']:.2f})" if "low" in found else ""
        return f"{found['ratio']:.2f}x{interval}"

    return cell


def _milliseconds(figures: Figures) -> str:
    spread = figures["ms_per_action"]
    return f"{spread['mean']:.1f} / {spread['p50']:.1f} / {spread['p95']:.1f} / {spread['p99']:.1f}"


def _shadow(figures: Figures) -> str:
    found = figures["shadow"]
    if not found:
        return MISSING
    same = f"{found['steps'] - found['different_steps']}/{found['steps']}"
    millimetres, degrees = found["deviation_mm"]["mean"], found["deviation_deg"]["mean"]
    return f"{same}; {millimetres:.2f} mm, {degrees:.2f} deg; {found['gripper_errors']} gripper errors"


def _areas(figures: Figures) -> str:
    found = figures["gate_auc"]
    return ", ".join(f"{name} {number(value)}" for name, value in found.items()) if found else MISSING


def _reaction(figures: Figures) -> str:
    found = figures["disturbance"]
    if not found:
        return MISSING
    return (
        f"{found['successes']}/{found['trials']}; {number(found['reaction_periods']['mean'])} periods, "
        f"{number(found['reaction_ms']['mean'], 0)} ms (p95 {number(found['reaction_ms']['p95'], 0)} ms)"
    )


#: The two tables of ``results.md``: heading of each column, and what stands in it.
OUTCOME_COLUMNS: Final[Mapping[str, Cell]] = {
    "success (95 % interval)": _success,
    "points against the reference": _difference,
    "ms per action, mean / p50 / p95 / p99": _milliseconds,
    "speed-up": _speed_up("speed_up"),
    "speed-up, processor time": _speed_up("cpu_speed_up"),
    "speed-up, language model": _speed_up("language_speed_up"),
    "speed-up on naive_sd": _speed_up("speed_up", "against_naive"),
    "speed-up on generate": _speed_up("generate_speed_up"),
    "steps": lambda figures: number(figures["steps"]["mean"], 0),
}
COURSE_COLUMNS: Final[Mapping[str, Cell]] = {
    "forward passes per action": lambda figures: number(figures["work"]["forward_passes_per_action"]),
    "acceptance length": lambda figures: number(figures["work"]["acceptance_length"]),
    "skipped": lambda figures: share(figures["report"]["skip_share"]),
    "near contact": lambda figures: share(figures["report"]["near_contact_share"]),
    "degraded": lambda figures: share(sum(figures["report"]["degraded"].values()), 1),
    "jerk, m/s^3": lambda figures: number(figures["jerk_m_per_s3"], 1),
    "same tokens as AR; deviation": _shadow,
    "area under the curve": _areas,
    "under disturbance; reaction": _reaction,
}


def markdown_of(results: Figures) -> str:
    """``results.md``: outcomes, course, tasks and stages of every decoder.

    Args:
        results: as ``report.results_of`` makes them.
    """
    decoders = results["decoders"]
    tasks = list(dict.fromkeys(task for figures in decoders.values() for task in figures["tasks"]))
    stages = [
        stage
        for stage in next(iter(decoders.values()))["stages_ms"]
        if any(figures["stages_ms"][stage] for figures in decoders.values())
    ]
    per_task = {task: _task_cell(task) for task in tasks}
    per_stage = {stage: _stage_cell(stage) for stage in stages}
    parts = [
        _table(decoders, OUTCOME_COLUMNS),
        _table(decoders, COURSE_COLUMNS),
        _table(decoders, per_task),
        "Mean milliseconds per action by stage:\n\n" + _table(decoders, per_stage),
        f"The reference is `{results['reference']}`. Points: difference of success from the same initial states, with "
        "Newcombe's 95 % interval for paired proportions. Speed-up: ratio of mean milliseconds per action, with a "
        "bootstrap interval over paired episodes. The clock runs from the image to the action.",
    ]
    return "\n\n".join(parts) + "\n"


def _task_cell(task: str) -> Cell:
    return lambda figures: _success(figures["tasks"][task]) if task in figures["tasks"] else MISSING


def _stage_cell(stage: str) -> Cell:
    return lambda figures: number(figures["stages_ms"][stage])


def _table(decoders: Figures, columns: Mapping[str, Cell]) -> str:
    lines = [f"| decoder | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {label} | {' | '.join(cell(figures) for cell in columns.values())} |" for label, figures in decoders.items()
    ]
    return "\n".join(lines)
