"""KERV's dynamic radius of acceptance: the calmer the arm's own deviations, the looser (KERV, section 4.2).

``r = r_min + (r_max - r_min) * exp(-(K / K_reference)^phi)``. K is the kinematic variability: the sum of the absolute
differences between accepted drafts and the verifier's choice, in action units. The paper's update only ever adds to r;
this form is bounded and falls as K grows, is loosest where nothing deviates, and is the authors' released schedule
where K is replaced by time (they use no K at all).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

# exp(-(t / tau)^3) at the end of the authors' horizon.
_AUTHORS_END: Final = 1e-30


@dataclass(frozen=True)
class RadiusState:
    """What a radius depends on.

    Attributes:
        radius: bins, before it is rounded.
        variability: smoothed K, normalised action units; 0 where a schedule has none.
        steps: updates since the last reset.
    """

    radius: float
    variability: float = 0.0
    steps: int = 0


def decay(value: float, scale: float, phi: float) -> float:
    """``exp(-(value / scale)^phi)``: 1 at 0, falling to 0, by 63 % at ``scale``."""
    ratio = value / scale
    # The power overflows where the exponential has long been 0.
    return math.exp(-(ratio**phi)) if ratio <= 0.0 or phi * math.log(ratio) < 700.0 else 0.0


class VariabilityThreshold:
    """Radius by kinematic variability.

    Between updates the radius is kept unrounded, so that with a small ``kappa`` it still arrives at its target.

    Args:
        r_min: bins, at large variability.
        r_max: bins, without any; where an episode begins.
        reference: K at which the radius has come down by 63 %, normalised action units, above 0 (demonstrations').
        phi: steepness, above 0.
        beta: share of the old K in the new, from 0 (the last action alone) to below 1.
        kappa: share of the way to its target that the radius goes per update, above 0 to 1.
    """

    def __init__(
        self,
        r_min: int = 5,
        r_max: int = 15,
        *,
        reference: float,
        phi: float = 3.0,
        beta: float = 0.0,
        kappa: float = 1.0,
    ) -> None:
        for name, value, legal, good in (
            ("r_min", r_min, f"0 to r_max = {r_max}", 0 <= r_min <= r_max),
            ("reference", reference, "finite, above 0", math.isfinite(reference) and reference > 0.0),
            ("phi", phi, "finite, above 0", math.isfinite(phi) and phi > 0.0),
            ("beta", beta, "0 to below 1", 0.0 <= beta < 1.0),
            ("kappa", kappa, "above 0 to 1", 0.0 < kappa <= 1.0),
        ):
            if not good:
                raise ValueError(f"{name}: {value}; legal: {legal}")
        self._r_min, self._r_max = r_min, r_max
        self._reference, self._phi, self._beta, self._kappa = reference, phi, beta, kappa
        self._state = RadiusState(float(r_max))

    @property
    def radius_bins(self) -> int:
        """The radius that is in force, ``r_min`` to ``r_max``."""
        return round(self._state.radius)

    @property
    def variability(self) -> float:
        """Smoothed K, normalised action units."""
        return self._state.variability

    def target(self, variability: float) -> float:
        """Bins that a variability leads to, before rounding."""
        return self._r_min + (self._r_max - self._r_min) * decay(variability, self._reference, self._phi)

    def update(self, deviations: npt.ArrayLike) -> None:
        """Takes the deviations of an action's accepted tokens.

        Args:
            deviations: draft minus the verifier's choice, float, any shape, normalised action units (a bin is
                0.00784); weighted by the caller where degrees of freedom are to count differently.

        Raises:
            ValueError: where one is not finite; nothing changes then.
        """
        offs = np.abs(np.asarray(deviations, dtype=np.float64))
        if not np.isfinite(offs).all():
            raise ValueError(f"deviations are not finite: {offs.tolist()}")
        old = self._state
        variability = self._beta * old.variability + (1.0 - self._beta) * float(offs.sum())
        radius = old.radius + self._kappa * (self.target(variability) - old.radius)
        self._state = RadiusState(min(max(radius, self._r_min), self._r_max), variability, old.steps + 1)

    def reset(self) -> None:
        """Begins an episode: ``r_max``, no variability."""
        self._state = RadiusState(float(self._r_max))

    def state(self) -> RadiusState:
        """What to come back to where a decode fails."""
        return self._state

    def restore(self, state: RadiusState) -> None:
        """Comes back to it."""
        self._state = state


class AuthorsSchedule:
    """Radius by time, as KERV's released code has it: the same curve with steps for K and tau for its reference.

    Args:
        r_start: bins at the start of an episode.
        r_min: bins at its end.
        horizon: steps of an episode, at least 1.
    """

    _PHI: Final = 3.0

    def __init__(self, r_start: int = 15, r_min: int = 3, horizon: int = 300) -> None:
        if not 0 <= r_min <= r_start:
            raise ValueError(f"r_min: {r_min}; legal: 0 to r_start = {r_start}")
        if horizon < 1:
            raise ValueError(f"horizon: {horizon}; legal: at least 1")
        self._r_start, self._r_min = r_start, r_min
        self.tau = horizon / (-math.log(_AUTHORS_END)) ** (1.0 / self._PHI)
        self._state = RadiusState(float(r_start))

    @property
    def radius_bins(self) -> int:
        """The radius that is in force."""
        return round(self._state.radius)

    def update(self, deviations: npt.ArrayLike = ()) -> None:
        """Counts a step; the deviations are not looked at."""
        steps = self._state.steps + 1
        radius = self._r_min + (self._r_start - self._r_min) * decay(steps, self.tau, self._PHI)
        self._state = RadiusState(radius, steps=steps)

    def reset(self) -> None:
        """Begins an episode."""
        self._state = RadiusState(float(self._r_start))

    def state(self) -> RadiusState:
        """What to come back to where a decode fails."""
        return self._state

    def restore(self, state: RadiusState) -> None:
        """Comes back to it."""
        self._state = state
