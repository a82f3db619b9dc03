from __future__ import annotations

import json
from pathlib import Path

import pytest

from vla_sd_ros.kinematics.calibration import (
    BIN_WIDTH,
    Calibration,
    InvalidCalibration,
    KalmanCalibration,
    MetricCalibration,
    VariabilityReference,
    load_calibration,
    save_calibration,
)
from vla_sd_ros.kinematics.fused_metric import MetricRanges

FINGERPRINT, ANOTHER = "a" * 64, "b" * 64


def calibration() -> Calibration:
    metric = MetricCalibration(
        form="curvature",
        window=15,
        alpha=0.5,
        ranges=MetricRanges(radius_m=(0.01, 0.5), path_length_m=(0.0, 0.2)),
        quantiles={"0.5": 0.3, "0.75": 0.6},
    )
    noise = KalmanCalibration(process_noise=(1e-3,) * 6, measurement_noise=(1e-4,) * 6)
    return Calibration(
        policy_fingerprint=FINGERPRINT,
        source="two episodes",
        metrics=(metric,),
        kalman={"random_walk": noise, "constant_velocity": noise},
        variability={"hold_last": VariabilityReference(median=0.05, upper_quartile=0.09, frames=100)},
        skip={"floor": 0.9},
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    save_calibration(tmp_path / "calibration.json", calibration())
    assert load_calibration(tmp_path / "calibration.json", FINGERPRINT) == calibration()
    assert [path.name for path in tmp_path.iterdir()] == ["calibration.json"]


def test_a_calibration_of_another_checkpoint_is_refused_with_both_fingerprints(tmp_path: Path) -> None:
    save_calibration(tmp_path / "calibration.json", calibration())
    with pytest.raises(InvalidCalibration, match=f"{FINGERPRINT}.*{ANOTHER}.*vla-sd calibrate"):
        load_calibration(tmp_path / "calibration.json", ANOTHER)


def test_a_missing_calibration_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="vla-sd calibrate"):
        load_calibration(tmp_path / "calibration.json", FINGERPRINT)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "no json"])
def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "calibration.json").write_text(text)
    with pytest.raises(InvalidCalibration, match="is no calibration"):
        load_calibration(tmp_path / "calibration.json", FINGERPRINT)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("unknown",), 1),
        (("metrics", 0, "form"), "round"),
        (("metrics", 0, "ranges", "radius_m"), [0.5, 0.5]),
        (("metrics", 0, "quantiles"), {"0.5": 1.5}),
        (("kalman", "random_walk", "process_noise"), [1e-3] * 5),
        (("variability", "hold_last", "frames"), 0),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, path: tuple[str | int, ...], value: object) -> None:
    content = json.loads(calibration().model_dump_json())
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    (tmp_path / "calibration.json").write_text(json.dumps(content))
    with pytest.raises(InvalidCalibration, match=str(path[-1])):
        load_calibration(tmp_path / "calibration.json", FINGERPRINT)


def test_a_form_and_window_that_was_not_calibrated_is_refused_with_those_that_were() -> None:
    assert calibration().metric("curvature", 15).metric().window == 15
    with pytest.raises(KeyError, match="paper over 5.*curvature over 15"):
        calibration().metric("paper", 5)


def test_a_threshold_is_a_quantile_of_the_demonstrations() -> None:
    metric = calibration().metric("curvature", 15)
    assert metric.threshold() == 0.3 and metric.threshold(0.75) == 0.6
    with pytest.raises(KeyError, match=r"0.33.*0\.75"):
        metric.threshold(0.33)


def test_a_filter_has_the_calibrated_noise() -> None:
    filter_ = calibration().kalman["constant_velocity"].action_filter("constant_velocity", min_samples=2)
    assert filter_.min_samples == 2


@pytest.mark.parametrize(("upper_quartile", "reference"), [(0.09, 0.09), (0.0, BIN_WIDTH)])
def test_the_reference_is_the_upper_quartile_but_a_bin_at_least(upper_quartile: float, reference: float) -> None:
    assert VariabilityReference(median=0.0, upper_quartile=upper_quartile, frames=1).reference == reference
