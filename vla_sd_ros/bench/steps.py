"""What a closed-loop episode recorded at every control period, as columns that fit into one line of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vla_sd_ros.decoding.interface import DecodedAction
from vla_sd_ros.decoding.stage_times import StageTimes
from vla_sd_ros.types import KinematicState

Column = npt.NDArray[Any]

STAGE_COLUMNS: Final = tuple(field.name for field in fields(StageTimes))
NAME_COLUMNS: Final = ("mode", "region", "degraded", "sources")
#: Decimals that are kept; what is not listed is an integer or a name.
DECIMALS: Final[Mapping[str, int]] = {
    "action_ms": 3,
    "cpu_ms": 3,
    **dict.fromkeys(STAGE_COLUMNS, 3),
    "gate_score": 6,
    "deviation_m": 6,
    "deviation_rad": 6,
    "path_length_m": 6,
    "curvature_per_m": 4,
    # The third difference of positions is divided by 1.25e-4 s^3: coarser ones would add jerk.
    "position": 8,
    "values": 7,
    "generate_ms": 3,
    "generate_language_ms": 3,
    "shadow_same_tokens": 0,
    "shadow_m": 7,
    "shadow_rad": 7,
    "shadow_gripper_differs": 0,
}


@dataclass(frozen=True)
class ActionTimes:
    """What an action took, the drawing of its image excluded.

    Attributes:
        action_ms: from the image to the action, by a clock around ``decode``.
        cpu_ms: processor time of that, which other programs on the machine lengthen less.
        stages: the decoder's own.
    """

    action_ms: float
    cpu_ms: float
    stages: StageTimes


@dataclass(frozen=True)
class Shadow:
    """How an action differs from the plain autoregressive one for the same image.

    Attributes:
        same_tokens: whether all seven tokens are the same.
        distance_m: between the position parts.
        angle_rad: between the rotation parts.
        gripper_differs: whether one opens and the other closes.
    """

    same_tokens: bool
    distance_m: float
    angle_rad: float
    gripper_differs: bool


@dataclass(frozen=True)
class GenerateTimes:
    """What transformers' ``generate`` took for the same image: the whole, and its language model, ms."""

    total_ms: float
    language_ms: float


@dataclass(frozen=True)
class Steps:
    """Columns of an episode of n control periods.

    Times are those of :class:`ActionTimes`, stages under their names in ``StageTimes``. ``position`` is float64 [n, 3],
    m, base frame, when the image was taken; ``values`` float64 [n, 7] and ``tokens`` int64 [n, 7] are the action;
    ``sources`` and ``deviation_bins`` [n, 7] are those of the report. Columns of the shadow and of ``generate`` are not
    numbers where neither ran.
    """

    columns: Mapping[str, Column]

    def __len__(self) -> int:
        """Number of control periods."""
        return len(self.columns["action_ms"])

    def __getitem__(self, name: str) -> Column:
        """A column by name.

        Raises:
            KeyError: where there is none of that name.
        """
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        """Names of the columns."""
        return iter(self.columns)

    def to_json(self) -> dict[str, Any]:
        """JSON-serialisable; a column that never changes is stored once, and what is not a number as null."""
        return {"length": len(self), **{name: _packed(name, column) for name, column in self.columns.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Steps:
        """Inverse of :meth:`to_json`, up to the decimals kept."""
        length = int(content["length"])
        return cls(
            {name: _unpacked(name, packed, length) for name, packed in content.items() if name not in ("length",)}
        )


class StepRecorder:
    """Collects steps."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Any]] = {}

    def add(
        self,
        decoded: DecodedAction,
        times: ActionTimes,
        state: KinematicState,
        shadow: Shadow | None = None,
        generate: GenerateTimes | None = None,
    ) -> None:
        """Appends one control period."""
        counts, report, missing = decoded.counts, decoded.report, float("nan")
        row: dict[str, Any] = {
            "action_ms": times.action_ms,
            "cpu_ms": times.cpu_ms,
            **{name: getattr(times.stages, name) for name in STAGE_COLUMNS},
            "forward_passes": counts.forward_passes,
            "verified_passes": counts.verified_passes,
            "accepted_tokens": counts.accepted_tokens,
            "relaxed_tokens": counts.relaxed_tokens,
            "mode": decoded.mode,
            "region": report.region,
            "gate_score": report.gate_score,
            "near_contact": int(report.near_contact),
            "skipped": int(report.skipped),
            "skipped_in_a_row": report.skipped_in_a_row,
            "degraded": report.degraded,
            "sources": report.sources,
            "deviation_bins": report.deviation_bins,
            "deviation_m": report.deviation_m,
            "deviation_rad": report.deviation_rad,
            "threshold_bins": report.threshold_bins,
            "path_length_m": state.path_length_m,
            "curvature_per_m": state.curvature_per_m,
            "position": state.position.tolist(),
            "tokens": decoded.tokens.tolist(),
            "values": decoded.values.tolist(),
            "generate_ms": generate.total_ms if generate else missing,
            "generate_language_ms": generate.language_ms if generate else missing,
            "shadow_same_tokens": float(shadow.same_tokens) if shadow else missing,
            "shadow_m": shadow.distance_m if shadow else missing,
            "shadow_rad": shadow.angle_rad if shadow else missing,
            "shadow_gripper_differs": float(shadow.gripper_differs) if shadow else missing,
        }
        for name, value in row.items():
            self._rows.setdefault(name, []).append(value)

    def steps(self) -> Steps:
        """What was collected.

        Raises:
            ValueError: where nothing was.
        """
        if not self._rows:
            raise ValueError("an episode has at least one control period")
        return Steps({name: _column(name, rows) for name, rows in self._rows.items()})


def _column(name: str, rows: list[Any]) -> Column:
    if name in NAME_COLUMNS:
        return np.array(rows, dtype=str)
    return np.array(rows, dtype=np.float64 if name in DECIMALS else np.int64)


def _packed(name: str, column: Column) -> Any:
    if name in NAME_COLUMNS:
        legend = sorted(set(column.ravel().tolist()))
        return {"legend": legend, "codes": _packed_rows(np.searchsorted(legend, column).tolist())}
    if name not in DECIMALS:
        return _packed_rows(column.tolist())
    rounded = np.round(column, DECIMALS[name]).astype(object)
    rounded[~np.isfinite(column)] = None
    return _packed_rows(rounded.tolist())


def _packed_rows(rows: list[Any]) -> Any:
    return {"every": rows[0]} if all(row == rows[0] for row in rows) else rows


def _unpacked(name: str, packed: Any, length: int) -> Column:
    if name in NAME_COLUMNS:
        codes = np.array(_unpacked_rows(packed["codes"], length), dtype=np.int64)
        return np.array(packed["legend"], dtype=str)[codes]
    return _column(name, _unpacked_rows(packed, length))


def _unpacked_rows(packed: Any, length: int) -> list[Any]:
    return [packed["every"]] * length if isinstance(packed, dict) else list(packed)
