"""The last positions of the end effector, one per control period: what the fused metric looks at."""

from __future__ import annotations

from collections import deque
from typing import NewType

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.kinematics.path import InvalidPose

#: float64 [n, 3], metres, base frame, oldest first. A type of its own, so that displacements, which have the same
#: shape, are not taken for positions: only a window of measured positions, or a deliberate conversion, makes one.
EndEffectorPositions = NewType("EndEffectorPositions", npt.NDArray[np.float64])


class PositionWindow:
    """Keeps the newest ``window`` positions.

    What it holds was measured, whatever becomes of a decode; adding the same measurement again changes nothing, so a
    decode that fails and is tried again leaves no trace.

    Args:
        window: number of positions, at least 1.
    """

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"window: {window}; legal: at least 1")
        self._positions: deque[tuple[int, Values]] = deque(maxlen=window)

    def __len__(self) -> int:
        """Positions that are kept."""
        return len(self._positions)

    def add(self, stamp_ns: int, position: npt.ArrayLike) -> None:
        """Appends where the end effector was; where time went back, everything before is forgotten first.

        Args:
            stamp_ns: time of the measurement; one that is there already is ignored.
            position: of ``KinematicState``, float [3], m, base frame; never an action's displacement.

        Raises:
            InvalidPose: where the position is not three finite numbers; nothing changes then.
        """
        place = np.array(position, dtype=np.float64)
        if place.shape != (3,) or not np.isfinite(place).all():
            raise InvalidPose(f"position must be three finite numbers: {place.tolist()}")
        if self._positions:
            newest_ns = self._positions[-1][0]
            if stamp_ns == newest_ns:
                return
            if stamp_ns < newest_ns:
                self._positions.clear()
        self._positions.append((stamp_ns, place))

    def positions(self) -> EndEffectorPositions:
        """What is kept, float64 [n, 3], m, oldest first."""
        return EndEffectorPositions(np.array([place for _, place in self._positions]).reshape(-1, 3))

    def reset(self) -> None:
        """Forgets everything: a new episode, a jump in time."""
        self._positions.clear()
