"""Comparing two decoders that played the same initial states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from vla_sd_ros.sim.success import wilson_interval


@dataclass(frozen=True)
class PairedDifference:
    """How much more often one decoder succeeds than another from the same states.

    Attributes:
        difference: of the shares of success, -1 to 1.
        low: lower end of the 95 % interval (Newcombe's for paired proportions).
        high: its upper end.
        p_value: McNemar's exact test of no difference, two-sided.
        pairs: how many states.
    """

    difference: float
    low: float
    high: float
    p_value: float
    pairs: int


def paired_difference(ours: Sequence[bool], theirs: Sequence[bool]) -> PairedDifference:
    """Newcombe's score interval for the difference of paired proportions, and McNemar's exact test.

    Newcombe, "Improved confidence intervals for the difference between binomial proportions based on paired data",
    Statistics in Medicine 17, 1998, method 10.

    Args:
        ours: outcomes, one for each state.
        theirs: outcomes of the same states.

    Raises:
        ValueError: where the numbers differ, or there are none.
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"pairs: {len(ours)} outcomes against {len(theirs)}; legal: the same number, at least 1")
    both = sum(a and b for a, b in zip(ours, theirs, strict=True))
    only_ours = sum(a and not b for a, b in zip(ours, theirs, strict=True))
    only_theirs = sum(b and not a for a, b in zip(ours, theirs, strict=True))
    n = len(ours)
    neither = n - both - only_ours - only_theirs
    low, high = newcombe_interval(both, only_ours, only_theirs, neither)
    discordant = only_ours + only_theirs
    p_value = float(binomtest(only_ours, discordant, 0.5).pvalue) if discordant else 1.0
    return PairedDifference((only_ours - only_theirs) / n, low, high, p_value, n)


def newcombe_interval(both: int, only_ours: int, only_theirs: int, neither: int) -> tuple[float, float]:
    """95 % interval of the difference of two paired proportions, from the four counts."""
    n = both + only_ours + only_theirs + neither
    ours, theirs = (both + only_ours) / n, (both + only_theirs) / n
    (ours_low, ours_high), (theirs_low, theirs_high) = (
        wilson_interval(both + only_ours, n),
        wilson_interval(both + only_theirs, n),
    )
    difference = ours - theirs
    phi = _correlation(both, only_ours, only_theirs, neither)
    down, up = _reach(ours - ours_low, theirs_high - theirs, phi), _reach(theirs - theirs_low, ours_high - ours, phi)
    return max(-1.0, difference - down), min(1.0, difference + up)


def _reach(first: float, second: float, phi: float) -> float:
    return math.sqrt(max(0.0, first**2 - 2 * phi * first * second + second**2))


def _correlation(both: int, only_ours: int, only_theirs: int, neither: int) -> float:
    """Newcombe's corrected correlation of the outcomes; 0 where one decoder always or never succeeds."""
    n = both + only_ours + only_theirs + neither
    margins = (both + only_ours) * (only_theirs + neither) * (both + only_theirs) * (only_ours + neither)
    if margins == 0:
        return 0.0
    product = float(both * neither - only_ours * only_theirs)
    if product > 0:
        product = max(product - n / 2, 0.0)
    return product / math.sqrt(margins)


def ratio_of_means(
    theirs: npt.ArrayLike, ours: npt.ArrayLike, resamples: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Ratio of two means per step with a 95 % interval, by a bootstrap over paired episodes.

    Args:
        theirs: float [episodes, 2], sum over the steps and number of steps of each episode: the numerator.
        ours: the same of the paired episodes: the denominator.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        The ratio, and the lower and upper end of its interval.
    """
    sums = np.concatenate([np.asarray(theirs, dtype=np.float64), np.asarray(ours, dtype=np.float64)], axis=1)
    weights = np.random.default_rng(seed).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), resamples)
    # Columns: their sum, their steps, our sum, our steps.
    resampled = weights @ sums
    ratios = (resampled[:, 0] / resampled[:, 1]) / (resampled[:, 2] / resampled[:, 3])
    whole = sums.sum(axis=0)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float((whole[0] / whole[1]) / (whole[2] / whole[3])), float(low), float(high)
