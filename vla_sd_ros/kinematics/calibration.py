"""What demonstrations say about how a policy's arm moves: a JSON file beside its checkpoint.

``vla-sd calibrate`` makes it (``training/calibration.py``). It belongs to one checkpoint and is refused with another.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vla_sd_ros.actions.bins import N_BINS
from vla_sd_ros.kinematics.fused_metric import FusedMetric, MetricForm, MetricRanges
from vla_sd_ros.kinematics.kalman import N_FILTERED, ActionKalmanFilter, KalmanModel

CALIBRATION_FILE = "calibration.json"
#: Width of an action bin, normalised units.
BIN_WIDTH = 2.0 / (N_BINS - 1)

#: Which drafts the variability was measured on.
VariabilitySource = Literal["hold_last", "kalman"]
_PerDof = Annotated[tuple[Annotated[float, Field(ge=0.0)], ...], Field(min_length=N_FILTERED, max_length=N_FILTERED)]


class InvalidCalibration(ValueError):
    """A calibration that cannot be read, or that belongs to another checkpoint."""


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MetricCalibration(_Checked):
    """The fused metric in one form and over one window.

    Attributes:
        form: which radius.
        window: positions.
        alpha: weight of the radius that the quantiles hold for.
        ranges: of radius and path length.
        quantiles: of F over the demonstrations, share of frames below ("0.5" the median) to F; 0 to 1.
    """

    form: MetricForm
    window: Annotated[int, Field(ge=3)]
    alpha: Annotated[float, Field(ge=0.0, le=1.0)]
    ranges: MetricRanges
    quantiles: dict[str, Annotated[float, Field(ge=0.0, le=1.0)]]

    def metric(self) -> FusedMetric:
        """The metric itself."""
        return FusedMetric(self.form, self.window, self.alpha, ranges=self.ranges)

    def threshold(self, quantile: float = 0.5) -> float:
        """F below which this share of the demonstrated frames lies.

        Raises:
            KeyError: where that quantile is not stored; the message lists those that are.
        """
        name = f"{quantile:g}"
        if name not in self.quantiles:
            raise KeyError(f"quantile: {name}; legal: {sorted(self.quantiles)}")
        return self.quantiles[name]


class KalmanCalibration(_Checked):
    """Noise of the Kalman filters.

    Attributes:
        process_noise: variance per period, 6 of them, (normalised units)^2.
        measurement_noise: variance of the actions, 6 of them, (normalised units)^2.
    """

    process_noise: _PerDof
    measurement_noise: _PerDof

    def action_filter(self, model: KalmanModel, min_samples: int = 3) -> ActionKalmanFilter:
        """A filter with this noise."""
        return ActionKalmanFilter(model, self.process_noise, self.measurement_noise, min_samples)


class VariabilityReference(_Checked):
    """Kinematic variability of drafts over demonstrated frames, summed over accepted tokens, normalised units.

    Attributes:
        median: half of the frames lie below.
        upper_quartile: three quarters do.
        frames: how many were looked at.
    """

    median: Annotated[float, Field(ge=0.0)]
    upper_quartile: Annotated[float, Field(ge=0.0)]
    frames: Annotated[int, Field(ge=1)]

    @property
    def reference(self) -> float:
        """K that the radius of acceptance is scaled by: the upper quartile, and one bin at least.

        The median is 0 where drafts are exact in half of the frames, which a slow arm's last action is.
        """
        return max(self.upper_quartile, BIN_WIDTH)


class Calibration(_Checked):
    """All of it.

    Attributes:
        policy_fingerprint: SHA-256 of the checkpoint's weights.
        source: what it was made of, in words.
        metrics: of the fused metric, one per form and window.
        kalman: noise per model.
        variability: reference K per source of drafts.
        skip: what verify-skip needs; None where it was not calibrated.
        acceptance: what the acceptance gate needs; None where it was not calibrated.
    """

    policy_fingerprint: Annotated[str, Field(min_length=1)]
    source: str
    metrics: tuple[MetricCalibration, ...]
    kalman: dict[KalmanModel, KalmanCalibration]
    variability: dict[VariabilitySource, VariabilityReference]
    skip: dict[str, Any] | None = None
    acceptance: dict[str, Any] | None = None

    def metric(self, form: MetricForm, window: int) -> MetricCalibration:
        """The calibration of a form and window.

        Raises:
            KeyError: where it was not made; the message lists what was.
        """
        for found in self.metrics:
            if (found.form, found.window) == (form, window):
                return found
        known = [f"{each.form} over {each.window}" for each in self.metrics]
        raise KeyError(f"fused metric {form} over {window} positions is not calibrated; legal: {known}")


def save_calibration(path: Path, calibration: Calibration) -> None:
    """Writes it; a reader never sees half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(calibration.model_dump_json(indent=2) + "\n")
    partial.replace(path)


def load_calibration(path: Path, policy_fingerprint: str) -> Calibration:
    """Reads it.

    Args:
        path: the file.
        policy_fingerprint: of the checkpoint that it shall belong to.

    Raises:
        FileNotFoundError: there is none; the message says how to make one.
        InvalidCalibration: it is malformed or belongs to another checkpoint.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no calibration at {path}; make one with: vla-sd calibrate")
    try:
        calibration = Calibration.model_validate_json(path.read_text())
    except ValidationError as error:
        raise InvalidCalibration(f"{path} is no calibration: {error}") from error
    if calibration.policy_fingerprint != policy_fingerprint:
        raise InvalidCalibration(
            f"{path} belongs to the checkpoint {calibration.policy_fingerprint}, not to {policy_fingerprint}; "
            "make it anew with: vla-sd calibrate"
        )
    return calibration
