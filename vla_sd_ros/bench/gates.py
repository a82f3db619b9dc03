"""How well a gate tells beforehand whether a draft will be accepted: areas under the curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from vla_sd_ros.bench.played_episode import PlayedEpisode
from vla_sd_ros.bench.steps import Steps

#: A draft counts as accepted where at least so many of its seven tokens were (HeiSD calls that an overlap).
ACCEPTED_TOKENS: Final = 5
#: What is held against acceptance: the decoder's own gate, and the two statistics of the path behind HeiSD's metric.
SIGNALS: Final = {"gate": "gate_score", "path length": "path_length_m", "curvature": "curvature_per_m"}


def area_under_curve(scores: npt.ArrayLike, accepted: npt.ArrayLike) -> float:
    """Probability that an accepted step has a higher score than a rejected one, ties counted half.

    Args:
        scores: float [n].
        accepted: bool [n].

    Returns:
        0 to 1; 0.5 tells nothing, below it the order is reversed; not a number where all or none are accepted.
    """
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(accepted, dtype=bool)
    positive, negative = int(labels.sum()), int((~labels).sum())
    if not positive or not negative:
        return float("nan")
    return float((rankdata(values)[labels].sum() - positive * (positive + 1) / 2) / (positive * negative))


def draft_accepted(steps: Steps) -> npt.NDArray[np.bool_]:
    """Whether a draft supplied at least :data:`ACCEPTED_TOKENS` of the seven tokens, bool [n]."""
    return np.asarray((steps["sources"] != "policy").sum(axis=1) >= ACCEPTED_TOKENS)


def gate_areas(episodes: Sequence[PlayedEpisode]) -> dict[str, float]:
    """Area of each of :data:`SIGNALS` over the steps whose draft was verified and whose gate had something to judge.

    Empty where there are no such steps: the decoder has no gate.
    """
    chosen = [
        (
            episode.steps,
            np.flatnonzero(np.isfinite(episode.steps["gate_score"]) & (episode.steps["verified_passes"] > 0)),
        )
        for episode in episodes
    ]
    accepted = [draft_accepted(steps)[rows] for steps, rows in chosen]
    if not sum(len(rows) for _, rows in chosen):
        return {}
    labels = np.concatenate(accepted)
    return {
        name: area_under_curve(np.concatenate([steps[column][rows] for steps, rows in chosen]), labels)
        for name, column in SIGNALS.items()
    }


def _judged_rows(steps: Steps) -> npt.NDArray[np.intp]:
    return np.flatnonzero(np.isfinite(steps["gate_score"]) & (steps["verified_passes"] > 0))
