"""Deviations from the verifier's choice, from bins to metres and radians."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vla_sd_ros.actions.statistics import ActionStatistics
from vla_sd_ros.verification.acceptance import bin_size_si


def deviation_si(deviation_bins: Sequence[int], statistics: ActionStatistics) -> tuple[float, float]:
    """Lengths of the position part, m, and of the rotation part, rad, of a deviation of seven tokens in bins."""
    deviation = np.asarray(deviation_bins, dtype=np.float64) * bin_size_si(statistics)
    return float(np.linalg.norm(deviation[:3])), float(np.linalg.norm(deviation[3:6]))
