"""Plots of a comparison, one small PNG file each. What has no data is not drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.bench.played_episode import PlayedEpisode
from vla_sd_ros.verification.acceptance import GRIPPER_OPEN_ABOVE

DOF_NAMES: Final = ("x", "y", "z", "rot x", "rot y", "rot z", "gripper")
TRAJECTORY_BINS: Final = 20
STYLE: Final = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "font.size": 9,
    "legend.frameon": False,
    "legend.fontsize": 8,
}

Results = Mapping[str, Any]
Episodes = Sequence[PlayedEpisode]


def draw_plots(out: Path, results: Results, episodes: Episodes) -> list[Path]:
    """Draws all plots for which there is data.

    Args:
        out: folder of the pictures.
        results: as ``report.results_of`` makes them.
        episodes: of all decoders.

    Returns:
        The files that were written.
    """
    by_label: dict[str, list[PlayedEpisode]] = {}
    for episode in episodes:
        by_label.setdefault(episode.decoder, []).append(episode)
    out.mkdir(parents=True, exist_ok=True)
    drawings: dict[str, Callable[[Any], bool]] = {
        "speed_and_success": lambda axes: speed_and_success(axes, results),
        "stage_times": lambda axes: stage_times(axes, results),
        "acceptance_by_dof": lambda axes: acceptance_by_dof(axes, by_label),
        "skips_along_the_way": lambda axes: skips_along_the_way(axes, by_label),
        "gate_along_the_way": lambda axes: gate_along_the_way(axes, by_label),
        "gate_auc": lambda axes: gate_areas_as_bars(axes, results),
    }
    written = []
    for name, draw in drawings.items():
        with _figure() as (figure, axes):
            if draw(axes):
                figure.savefig(out / f"{name}.png", dpi=110)
                written.append(out / f"{name}.png")
    return written


@contextmanager
def _figure() -> Iterator[tuple[Any, Any]]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.0, 4.0), layout="constrained")
        try:
            yield figure, axes
        finally:
            plt.close(figure)


def speed_and_success(axes: Any, results: Results) -> bool:
    """Speed-up against success rate, with 95 % intervals of both."""
    drawn = False
    for label, figures in results["decoders"].items():
        speed = figures["against_reference"].get("speed_up")
        if speed is None:
            continue
        rate, (low, high) = figures["successes"] / figures["trials"], figures["success_95"]
        axes.errorbar(
            speed["ratio"],
            rate * 100,
            xerr=[[max(0.0, speed["ratio"] - speed["low"])], [max(0.0, speed["high"] - speed["ratio"])]],
            yerr=[[max(0.0, rate - low) * 100], [max(0.0, high - rate) * 100]],
            fmt="o",
            capsize=3,
            linewidth=1,
        )
        axes.annotate(label, (speed["ratio"], rate * 100), xytext=(5, 5), textcoords="offset points")
        drawn = True
    axes.set_xlabel(f"speed-up of an action against {results['reference']} (mean ms, image to action)")
    axes.set_ylabel("success, %")
    axes.set_title("Speed and success, 95 % intervals")
    return drawn


def stage_times(axes: Any, results: Results) -> bool:
    """Mean milliseconds of each stage, on top of each other, with p95 of the whole action."""
    decoders = results["decoders"]
    labels = list(decoders)
    left = np.zeros(len(labels))
    for stage in next(iter(decoders.values()))["stages_ms"]:
        widths = np.array([decoders[label]["stages_ms"][stage] or 0.0 for label in labels])
        if stage == "total" or not widths.any():
            continue
        axes.barh(labels, widths, left=left, label=stage)
        left += widths
    rest = np.array([decoders[label]["ms_per_action"]["mean"] for label in labels]) - left
    axes.barh(labels, np.maximum(rest, 0.0), left=left, label="other", color="lightgrey")
    tails = [decoders[label]["ms_per_action"]["p95"] for label in labels]
    axes.plot(tails, labels, "k|", markersize=14, label="p95 of an action")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("ms per action, means")
    axes.set_title("Where the time of an action goes")
    axes.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return True


def acceptance_by_dof(axes: Any, by_label: Mapping[str, Episodes]) -> bool:
    """Share of verified actions whose token at each place came from a draft."""
    drawn = False
    for label, episodes in by_label.items():
        sources = np.concatenate([episode.steps["sources"] for episode in episodes])
        verified = np.concatenate([episode.steps["verified_passes"] for episode in episodes]) > 0
        if verified.any():
            axes.plot(range(N_DOF), (sources[verified] != "policy").mean(axis=0) * 100, "o-", label=label)
            drawn = True
    axes.set_xticks(range(N_DOF), DOF_NAMES)
    axes.set_ylim(0, 103)
    axes.set_ylabel("accepted from a draft, % of verified actions")
    axes.set_title("Acceptance along the action")
    _legend(axes, drawn)
    return drawn


def skips_along_the_way(axes: Any, by_label: Mapping[str, Episodes]) -> bool:
    """Share of skipped actions against the share of the episode that has passed."""
    drawn = False
    for label, episodes in by_label.items():
        shares = skip_profile(episodes)
        if shares.any():
            axes.stairs(shares * 100, np.linspace(0, 100, len(shares) + 1), label=label, linewidth=1.5)
            drawn = True
    axes.set_xlabel("part of the episode that has passed, %")
    axes.set_ylabel("skipped actions, %")
    axes.set_title("Where the language model is left out")
    _legend(axes, drawn)
    return drawn


def skip_profile(episodes: Episodes, bins: int = TRAJECTORY_BINS) -> npt.NDArray[np.float64]:
    """Share of skipped actions in each part of the episodes, float64 [bins]; every action counts the same."""
    skipped, total = np.zeros(bins), np.zeros(bins)
    for episode in episodes:
        place = np.arange(len(episode.steps)) * bins // len(episode.steps)
        np.add.at(total, place, 1)
        np.add.at(skipped, place, episode.steps["skipped"])
    return np.divide(skipped, total, out=np.zeros(bins), where=total > 0)


def gate_along_the_way(axes: Any, by_label: Mapping[str, Episodes]) -> bool:
    """The gate's score in one episode of each decoder that has a gate, with the gripper's closing and opening."""
    drawn = False
    for label, episodes in by_label.items():
        gated = [episode for episode in episodes if np.isfinite(episode.steps["gate_score"]).any()]
        if not gated:
            continue
        episode = next((one for one in gated if one.success), gated[0])
        (line,) = axes.plot(episode.steps["gate_score"], label=f"{label}, state {episode.initial_state}", linewidth=1.2)
        is_open = episode.steps["values"][:, N_DOF - 1] > GRIPPER_OPEN_ABOVE
        for step in np.flatnonzero(np.diff(is_open.astype(int))) + 1:
            axes.axvline(step, color=line.get_color(), linestyle=":" if is_open[step] else "--", linewidth=1)
        drawn = True
    axes.set_xlabel("control period (dashed: the gripper closes, dotted: it opens)")
    axes.set_ylabel("score of the gate")
    axes.set_title("The gate along an episode")
    _legend(axes, drawn)
    return drawn


def gate_areas_as_bars(axes: Any, results: Results) -> bool:
    """Area under the curve of each gate, and of the path's statistics, against acceptance of the draft."""
    bars = {
        f"{label}: {name}": area
        for label, figures in results["decoders"].items()
        for name, area in figures["gate_auc"].items()
        if area is not None
    }
    axes.barh(list(bars), list(bars.values()), color=["C0" if "gate" in name else "C7" for name in bars])
    axes.axvline(0.5, color="black", linewidth=1)
    axes.set_xlim(0, 1)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("area under the curve (0.5: says nothing; below: the reverse order)")
    axes.set_title("How well a score foretells that the draft is accepted")
    return bool(bars)


def _legend(axes: Any, drawn: bool) -> None:
    if drawn:
        axes.legend()
