"""Figures of a comparison, from the episodes that were played. Times in ms, shares 0 to 1, distances in mm."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from vla_sd_ros.bench.disturbance import reaction_to
from vla_sd_ros.bench.gates import gate_areas
from vla_sd_ros.bench.paired import paired_difference, ratio_of_means
from vla_sd_ros.bench.played_episode import PlayedEpisode
from vla_sd_ros.bench.steps import STAGE_COLUMNS, Column
from vla_sd_ros.sim.action_units import CONTROL_PERIOD_S
from vla_sd_ros.sim.success import wilson_interval

LANGUAGE_STAGES: Final = ("draft_ms", "prefill_ms", "decode_ms", "verify_ms", "refine_ms")
#: Label of plain speculative decoding with a learned drafter: the papers' denominator.
NAIVE: Final = "naive_sd"
QUANTILES: Final = (50, 95, 99)
MM_PER_M: Final = 1e3

Episodes = Sequence[PlayedEpisode]


def summarise(episodes: Episodes, reference: str) -> dict[str, Any]:
    """Figures of every decoder, by label, in the order of the episodes.

    Args:
        episodes: of all decoders.
        reference: label that the others are compared with; a decoder is compared on the states that both played.
    """
    by_label: dict[str, list[PlayedEpisode]] = {}
    for episode in episodes:
        by_label.setdefault(episode.decoder, []).append(episode)
    naive = by_label.get(NAIVE, ())
    return {
        label: _decoder_summary(played, by_label.get(reference, ()), naive if label != NAIVE else ())
        for label, played in by_label.items()
    }


def _decoder_summary(episodes: Episodes, reference: Episodes, naive: Episodes) -> dict[str, Any]:
    tasks: dict[str, list[PlayedEpisode]] = {}
    for episode in episodes:
        tasks.setdefault(f"{episode.suite}/{episode.task_id}", []).append(episode)
    return {
        **success_of(episodes),
        "tasks": {name: {"instruction": played[0].instruction, **success_of(played)} for name, played in tasks.items()},
        "steps": {"mean": _mean(np.array([len(episode.steps) for episode in episodes]))},
        "against_reference": against(episodes, reference),
        "against_naive": against(episodes, naive),
        "ms_per_action": _spread(_column(episodes, "action_ms")),
        "cpu_ms_per_action": _spread(_column(episodes, "cpu_ms")),
        "stages_ms": {name.removesuffix("_ms"): _mean(_column(episodes, name)) for name in STAGE_COLUMNS},
        "work": _work(episodes),
        "report": _report(episodes),
        "jerk_m_per_s3": end_effector_jerk(episodes),
        "shadow": _shadow(episodes),
        "gate_auc": gate_areas(episodes),
        "disturbance": _disturbance(episodes),
    }


def success_of(episodes: Episodes) -> dict[str, Any]:
    """Successes of trials, with the share's 95 % Wilson interval."""
    successes = sum(episode.success for episode in episodes)
    return {
        "successes": successes,
        "trials": len(episodes),
        "success_95": list(wilson_interval(successes, len(episodes))),
    }


def against(episodes: Episodes, reference: Episodes) -> dict[str, Any]:
    """Differences to the reference over the states that both played; empty where there are none.

    ``success`` is the paired difference; ``speed_up`` the ratio of mean milliseconds per action, theirs over ours, with
    a bootstrap interval over paired episodes; ``cpu_speed_up`` and ``language_speed_up`` the same of processor time and
    of the language model's stages; ``generate_speed_up`` is against transformers' ``generate``, timed on some images of
    the reference's episodes.
    """
    theirs = {episode.place: episode for episode in reference}
    pairs = [(episode, theirs[episode.place]) for episode in episodes if episode.place in theirs]
    if not pairs:
        return {}
    figures: dict[str, Any] = {}
    if episodes[0].decoder != reference[0].decoder:
        outcomes = paired_difference([ours.success for ours, _ in pairs], [other.success for _, other in pairs])
        figures["success"] = asdict(outcomes)
    for name, columns in (
        ("speed_up", ("action_ms",)),
        ("cpu_speed_up", ("cpu_ms",)),
        ("language_speed_up", LANGUAGE_STAGES),
    ):
        ratio, low, high = ratio_of_means(
            [_sum_and_steps(other, columns) for _, other in pairs], [_sum_and_steps(ours, columns) for ours, _ in pairs]
        )
        figures[name] = {"ratio": ratio, "low": low, "high": high}
    for name, timed, columns in (
        ("generate_speed_up", "generate_ms", ("action_ms",)),
        ("generate_language_speed_up", "generate_language_ms", LANGUAGE_STAGES),
    ):
        generate_ms = _mean(_column(reference, timed))
        ours_ms = sum(_mean(_column(episodes, column)) or 0.0 for column in columns)
        if generate_ms is not None and ours_ms:
            figures[name] = {"ratio": generate_ms / ours_ms, "generate_ms": generate_ms}
    return figures


def end_effector_jerk(episodes: Episodes) -> float | None:
    """Root mean square of the third difference of the end effector's positions over the period cubed, m/s^3."""
    jerks = [np.diff(episode.steps["position"], n=3, axis=0) / CONTROL_PERIOD_S**3 for episode in episodes]
    squares = np.concatenate([(jerk**2).sum(axis=1) for jerk in jerks])
    mean = _mean(squares)
    return None if mean is None else math.sqrt(mean)


def _work(episodes: Episodes) -> dict[str, Any]:
    """What an action cost, and what came of drafts."""
    verified = _column(episodes, "verified_passes")
    sources = Counter(_column(episodes, "sources").ravel().tolist())
    return {
        "forward_passes_per_action": _mean(_column(episodes, "forward_passes")),
        "acceptance_length": _ratio(_column(episodes, "accepted_tokens")[verified > 0].sum(), verified.sum()),
        "relaxed_tokens_per_action": _mean(_column(episodes, "relaxed_tokens")),
        "token_sources": {name: count / sources.total() for name, count in sources.most_common()},
    }


def _report(episodes: Episodes) -> dict[str, Any]:
    """What the decoder said about itself."""
    verified = _column(episodes, "verified_passes") > 0
    deviation = (_column(episodes, "deviation_m")[verified], _column(episodes, "deviation_rad")[verified])
    return {
        "skip_share": _mean(_column(episodes, "skipped")),
        "longest_skip": int(_column(episodes, "skipped_in_a_row").max()),
        "near_contact_share": _mean(_column(episodes, "near_contact")),
        "regions": _shares(_column(episodes, "region")),
        "modes": _shares(_column(episodes, "mode")),
        "degraded": _shares(_column(episodes, "degraded")),
        "verified_deviation_mm": _mean(deviation[0] * MM_PER_M),
        "verified_deviation_deg": _mean(np.degrees(deviation[1])),
    }


def _shadow(episodes: Episodes) -> dict[str, Any]:
    """Differences from the autoregressive action for the same image; empty where no step was shadowed."""
    same = _column(episodes, "shadow_same_tokens")
    rows = np.isfinite(same)
    if not rows.any():
        return {}
    return {
        "steps": int(rows.sum()),
        "different_steps": int((same[rows] == 0).sum()),
        "same_tokens_share": _mean(same),
        "deviation_mm": _spread(_column(episodes, "shadow_m") * MM_PER_M),
        "deviation_deg": _spread(np.degrees(_column(episodes, "shadow_rad"))),
        "gripper_errors": int(_column(episodes, "shadow_gripper_differs")[rows].sum()),
    }


def _disturbance(episodes: Episodes) -> dict[str, Any]:
    """Success of the episodes whose object was pushed, and how soon an action came from an image after the push."""
    pushed = [episode for episode in episodes if episode.push is not None]
    if not pushed:
        return {}
    reactions = [reaction_to(episode.push, episode.steps) for episode in pushed if episode.push is not None]
    seen = [reaction for reaction in reactions if reaction is not None]
    return {
        **success_of(pushed),
        "never_seen": len(reactions) - len(seen),
        "reaction_periods": _spread(np.array([reaction.periods for reaction in seen], dtype=np.float64)),
        "reaction_ms": _spread(np.array([reaction.delay_ms for reaction in seen])),
    }


def _column(episodes: Episodes, name: str) -> Column:
    return np.concatenate([episode.steps[name] for episode in episodes])


def _sum_and_steps(episode: PlayedEpisode, columns: Sequence[str]) -> tuple[float, int]:
    return float(sum(episode.steps[column].sum() for column in columns)), len(episode.steps)


def _spread(samples: Column) -> dict[str, float | None]:
    """Mean, quantiles and maximum of what is a number."""
    known = samples[np.isfinite(samples)]
    if not len(known):
        return {"mean": None, **{f"p{quantile}": None for quantile in QUANTILES}, "max": None}
    quantiles = {f"p{quantile}": float(np.percentile(known, quantile)) for quantile in QUANTILES}
    return {"mean": float(known.mean()), **quantiles, "max": float(known.max())}


def _mean(samples: Column) -> float | None:
    known = samples[np.isfinite(samples)]
    return float(known.mean()) if len(known) else None


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _shares(names: Column) -> dict[str, float]:
    return {name: count / len(names) for name, count in Counter(names.tolist()).most_common() if name}
