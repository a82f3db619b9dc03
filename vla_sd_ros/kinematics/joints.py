"""Joint states: picked by name, never by position, and differentiated by stamp where no velocity is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import Values
from vla_sd_ros.kinematics.clock import NS_PER_S


class InvalidJointState(ValueError):
    """A joint state that cannot be used; it is rejected whole."""


@dataclass(frozen=True)
class JointSample:
    """Joints in the configured order.

    Attributes:
        stamp_ns: time of the measurement.
        positions: float64 [joints], rad (m for prismatic ones).
        velocities: float64 [joints], rad/s (m/s for prismatic ones).
    """

    stamp_ns: int
    positions: Values
    velocities: Values


class JointReader:
    """Maps a driver's joint states, in whatever order, to the configured joints.

    Args:
        names: the joints wanted, in the order wanted; the message may hold others, which are ignored.
    """

    def __init__(self, names: Sequence[str]) -> None:
        if not names or len(set(names)) != len(names):
            raise ValueError(f"joint names must be given and differ: {list(names)}")
        self._names = tuple(names)
        self._last: JointSample | None = None

    def read(
        self, names: Sequence[str], positions: npt.ArrayLike, velocities: npt.ArrayLike, stamp_ns: int
    ) -> JointSample:
        """One joint state in the configured order.

        Args:
            names: as in the message.
            positions: float [len(names)], rad.
            velocities: float [len(names)], rad/s, or empty: then differentiated from the sample before.
            stamp_ns: newer than that of the sample before.

        Raises:
            InvalidJointState: on missing or repeated names, wrong lengths, or values that are not finite.
        """
        position_values = np.asarray(positions, dtype=np.float64)
        velocity_values = np.asarray(velocities, dtype=np.float64)
        if position_values.shape != (len(names),):
            raise InvalidJointState(f"{len(names)} joint names but {position_values.size} positions")
        if velocity_values.size and velocity_values.shape != (len(names),):
            raise InvalidJointState(f"{len(names)} joint names but {velocity_values.size} velocities")
        index = {name: i for i, name in enumerate(names)}
        if len(index) != len(names):
            raise InvalidJointState(f"joint names repeat: {list(names)}")
        missing = [name for name in self._names if name not in index]
        if missing:
            raise InvalidJointState(f"joints {missing} are not in the message; it holds {list(names)}")
        order = [index[name] for name in self._names]
        picked = position_values[order]
        if not np.isfinite(picked).all():
            raise InvalidJointState(f"joint positions are not finite: {dict(zip(self._names, picked, strict=True))}")
        if velocity_values.size:
            speeds = velocity_values[order]
            if not np.isfinite(speeds).all():
                raise InvalidJointState(
                    f"joint velocities are not finite: {dict(zip(self._names, speeds, strict=True))}"
                )
        else:
            speeds = self._differentiate(picked, stamp_ns)
        self._last = JointSample(stamp_ns, picked, speeds)
        return self._last

    def _differentiate(self, positions: Values, stamp_ns: int) -> Values:
        if self._last is None or stamp_ns <= self._last.stamp_ns:
            return np.zeros_like(positions)
        return (positions - self._last.positions) / ((stamp_ns - self._last.stamp_ns) / NS_PER_S)

    def reset(self) -> None:
        """Forgets the sample before, so that nothing is differentiated across a time jump."""
        self._last = None
