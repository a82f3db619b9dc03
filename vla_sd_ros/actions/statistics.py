"""Action statistics: the quantiles that turn normalised actions into SI values and back (OpenVLA's bounds_q99)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_DOF, Values


class UnknownStatisticsKey(ValueError):
    """The statistics of a checkpoint do not hold the requested key, or hold several and none was named."""


@dataclass(frozen=True)
class ActionStatistics:
    """Quantiles per degree of freedom.

    Attributes:
        q01: lower bounds, float64 [7], in the action's own units.
        q99: upper bounds, float64 [7].
        mask: bool [7]; where false the value is not normalised (the gripper).

    Raises:
        ValueError: on wrong lengths, values that are not finite, or q99 <= q01 where the mask is true.
    """

    q01: Values
    q99: Values
    mask: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        for name, array in (("q01", self.q01), ("q99", self.q99), ("mask", self.mask)):
            if array.shape != (N_DOF,):
                raise ValueError(f"statistics.{name}: shape {array.shape}; legal: ({N_DOF},)")
            if not np.isfinite(array.astype(np.float64)).all():
                raise ValueError(f"statistics.{name}: not finite: {array.tolist()}")
        empty = self.mask & (self.q99 <= self.q01)
        if empty.any():
            raise ValueError(f"statistics: q99 must exceed q01 at degrees of freedom {np.flatnonzero(empty).tolist()}")

    def normalise(self, action: npt.ArrayLike) -> Values:
        """Action in its own units, [..., 7], to the normalised range; clipped to [-1, 1] where the mask is true."""
        values = _seven(action)
        scaled = 2.0 * (values - self.q01) / np.where(self.mask, self.q99 - self.q01, 1.0) - 1.0
        return np.where(self.mask, np.clip(scaled, -1.0, 1.0), values)

    def unnormalise(self, normalised: npt.ArrayLike) -> Values:
        """Normalised action [..., 7] to the action's own units: ``0.5 (x + 1)(q99 - q01) + q01`` where mask is true."""
        values = _seven(normalised)
        return np.where(self.mask, 0.5 * (values + 1.0) * (self.q99 - self.q01) + self.q01, values)


def _seven(action: npt.ArrayLike) -> Values:
    values = np.asarray(action, dtype=np.float64)
    if values.shape[-1:] != (N_DOF,):
        raise ValueError(f"action: shape {values.shape}; legal: (..., {N_DOF})")
    if not np.isfinite(values).all():
        raise ValueError(f"action is not finite: {values.tolist()}")
    return values


def load_statistics(source: Path | Mapping[str, Any], key: str | None) -> ActionStatistics:
    """Reads one entry of OpenVLA's ``dataset_statistics.json`` layout: ``{key: {"action": {"q01", "q99", "mask"}}}``.

    Args:
        source: the file, or its content.
        key: which data set; None takes the only one there is.

    Raises:
        UnknownStatisticsKey: where the key is not there, or None is ambiguous; the message lists the keys.
        ValueError: where the entry is malformed.
    """
    table: Mapping[str, Any] = json.loads(source.read_text()) if isinstance(source, Path) else source
    keys = sorted(table)
    if key is None:
        if len(keys) != 1:
            held = "several" if keys else "none"
            raise UnknownStatisticsKey(f"statistics_key: not set, and the checkpoint holds {held}; legal: {keys}")
        key = keys[0]
    if key not in table:
        raise UnknownStatisticsKey(f"statistics_key: {key!r} is not in the checkpoint; legal: {keys}")
    try:
        action = table[key]["action"]
        # Without a mask every value is normalised, the gripper too (as OpenVLA reads its own older checkpoints).
        mask = np.asarray(action.get("mask", [True] * N_DOF))
        if mask.dtype != np.bool_:
            raise ValueError(f"mask must be of true and false: {mask.tolist()}")
        return ActionStatistics(
            q01=np.asarray(action["q01"], dtype=np.float64), q99=np.asarray(action["q99"], dtype=np.float64), mask=mask
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"statistics {key!r} are malformed: need action.q01, action.q99 and action.mask") from error
    except ValueError as error:
        raise ValueError(f"statistics {key!r} are malformed: {error}") from error
