from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.kinematics.estimator import GripperCalibration, KinematicEstimator
from vla_sd_ros.kinematics.fused_metric import FusedMetric, MetricRanges
from vla_sd_ros.kinematics.joints import InvalidJointState
from vla_sd_ros.kinematics.path import InvalidPose

NAMES = ["left", "b", "right", "a"]
LEVEL = [0.0, 0.0, 0.0, 1.0]
PERIOD_NS = 50_000_000
SKEW_NS = 20_000_000


@pytest.fixture
def estimator() -> KinematicEstimator:
    return KinematicEstimator(["a", "b"], ["left", "right"], GripperCalibration(closed=0.0, open=0.08))


def joints(estimator: KinematicEstimator, stamp_ns: int) -> object:
    return estimator.add_joints(NAMES, [0.02, -1.0, 0.02, 1.0], [], stamp_ns)


def test_joints_and_pose_of_one_instant_make_a_state(estimator: KinematicEstimator) -> None:
    assert joints(estimator, PERIOD_NS) is None
    complete = estimator.add_pose([0.4, 0.0, 0.3], LEVEL, PERIOD_NS)
    assert complete is not None
    state, sample = complete
    assert state.stamp_ns == PERIOD_NS and state.position.tolist() == [0.4, 0.0, 0.3]
    assert list(state.joint_positions.items()) == [("a", 1.0), ("b", -1.0)]
    assert state.gripper_opening == pytest.approx(0.5)
    assert sample.positions[:2].tolist() == [1.0, -1.0]


def test_either_may_come_first(estimator: KinematicEstimator) -> None:
    assert estimator.add_pose([0.4, 0.0, 0.3], LEVEL, PERIOD_NS) is None
    assert joints(estimator, PERIOD_NS) is not None


def test_one_pose_makes_one_state(estimator: KinematicEstimator) -> None:
    estimator.add_pose([0.4, 0.0, 0.3], LEVEL, PERIOD_NS)
    assert joints(estimator, PERIOD_NS) is not None
    assert joints(estimator, PERIOD_NS + 1_000_000) is None


@given(st.integers(-100_000_000, 100_000_000))
def test_only_joints_and_poses_close_in_time_belong_together(skew_ns: int) -> None:
    estimator = KinematicEstimator(["a", "b"], ["left", "right"], GripperCalibration(0.0, 0.08))
    joints(estimator, 10**9 + skew_ns)
    complete = estimator.add_pose([0.4, 0.0, 0.3], LEVEL, 10**9)
    assert (complete is not None) == (abs(skew_ns) <= SKEW_NS)


def test_after_a_reset_time_may_begin_anew(estimator: KinematicEstimator) -> None:
    for step in (10, 11):
        estimator.add_pose([0.1 * step, 0.0, 0.3], LEVEL, step * PERIOD_NS)
        joints(estimator, step * PERIOD_NS)
    estimator.reset()
    assert joints(estimator, PERIOD_NS) is None
    complete = estimator.add_pose([0.4, 0.0, 0.3], LEVEL, PERIOD_NS)
    assert complete is not None
    state, sample = complete
    assert not state.linear_velocity.any() and state.path_length_m == 0.0 and not sample.velocities.any()


def test_a_rejected_input_leaves_the_one_before(estimator: KinematicEstimator) -> None:
    joints(estimator, PERIOD_NS)
    with pytest.raises(InvalidJointState):
        estimator.add_joints(NAMES, [np.nan] * 4, [], PERIOD_NS + 1)
    with pytest.raises(InvalidPose):
        estimator.add_pose([np.nan] * 3, LEVEL, PERIOD_NS)
    assert estimator.add_pose([0.4, 0.0, 0.3], LEVEL, PERIOD_NS + 1) is not None


@given(st.floats(-1.0, 1.0), st.floats(0.01, 0.2), st.booleans())
def test_the_opening_is_a_share_whatever_the_sign_of_the_joint(position: float, span: float, reverse: bool) -> None:
    calibration = GripperCalibration(closed=span, open=0.0) if reverse else GripperCalibration(closed=0.0, open=span)
    assert 0.0 <= calibration.opening(position) <= 1.0
    assert calibration.opening(calibration.open) == 1.0 and calibration.opening(calibration.closed) == 0.0


@pytest.mark.parametrize(("closed", "opened"), [(0.04, 0.04), (float("nan"), 0.04), (0.0, float("inf"))])
def test_a_gripper_without_travel_is_refused(closed: float, opened: float) -> None:
    with pytest.raises(ValueError, match="gripper"):
        GripperCalibration(closed=closed, open=opened)


METRIC = FusedMetric("curvature", ranges=MetricRanges(radius_m=(0.0, 1.0), path_length_m=(0.0, 0.14)))


def metrics_of(rate_hz: int, seconds: float, speed: float = 0.1) -> list[float]:
    """The fused metric at every state of a straight way."""
    estimator = KinematicEstimator(["a", "b"], ["left", "right"], GripperCalibration(0.0, 0.08), metric=METRIC)
    found = []
    for step in range(int(seconds * rate_hz)):
        stamp_ns = 10**9 + step * 10**9 // rate_hz
        # At high rates the joints before are of the same instant, and the pose completes the state.
        complete = estimator.add_pose([speed * step / rate_hz, 0.0, 0.3], LEVEL, stamp_ns)
        complete = joints(estimator, stamp_ns) or complete  # type: ignore[assignment]
        assert isinstance(complete, tuple)
        found.append(complete[0].fused_metric)
    return found


def test_the_metric_is_not_a_number_until_its_window_is_full() -> None:
    found = metrics_of(rate_hz=20, seconds=1.0)
    assert np.isnan(found[:14]).all() and not np.isnan(found[14:]).any()


@pytest.mark.parametrize("rate_hz", [20, 30, 100, 1000])
def test_the_metric_does_not_depend_on_the_rate_of_the_poses(rate_hz: int) -> None:
    # Half of the longest path, and straight.
    assert metrics_of(rate_hz, seconds=1.0)[-1] == pytest.approx(0.75, abs=0.01)


def test_without_a_metric_there_is_none(estimator: KinematicEstimator) -> None:
    for step in range(1, 20):
        estimator.add_pose([0.01 * step, 0.0, 0.3], LEVEL, step * PERIOD_NS)
        complete = joints(estimator, step * PERIOD_NS)
        assert isinstance(complete, tuple) and np.isnan(complete[0].fused_metric)


def test_a_window_too_short_for_the_metric_is_refused() -> None:
    with pytest.raises(ValueError, match=r"window_s: 0\.5; legal: at least 0\.7"):
        KinematicEstimator(["a"], ["left"], GripperCalibration(0.0, 0.08), window_s=0.5, metric=METRIC)
