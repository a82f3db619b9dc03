"""Success rates come with an interval."""

from __future__ import annotations

from scipy.stats import binomtest


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a share.

    Raises:
        ValueError: where there are no trials, or more successes than trials.
    """
    interval = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)
