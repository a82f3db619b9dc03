from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_makers import ARM_JOINTS, colour_card, kinematic_state, observation

from vla_sd_ros.decoding.interface import DecodeCounts, DecodedAction, DecodeReport
from vla_sd_ros.decoding.stage_times import StageTimes
from vla_sd_ros.ros.action_messages import message_from_action
from vla_sd_ros.ros.arrays import as_byte_array, views_from_observation
from vla_sd_ros.ros.kinematic_messages import message_from_state, state_from_message
from vla_sd_ros.ros.stamps import nanoseconds, stamp_from
from vla_sd_ros.types import KinematicState


@given(st.integers(0, (2**31 - 1) * 10**9 + 999_999_999))
def test_a_stamp_keeps_every_nanosecond(time_ns: int) -> None:
    assert nanoseconds(stamp_from(time_ns)) == time_ns


@pytest.mark.parametrize("step", [1, 2])
def test_bytes_keep_their_order_whatever_the_memory_layout(step: int) -> None:
    values = colour_card(8, 8)[:, ::step].swapaxes(0, 1)
    assert np.frombuffer(as_byte_array(values), dtype=np.uint8).tolist() == values.ravel().tolist()


def test_an_image_is_put_into_a_message_quickly() -> None:
    from sensor_msgs.msg import Image

    message, picture = Image(), colour_card(480, 640)
    best_s = min(_duration_s(lambda: setattr(message, "data", as_byte_array(picture))) for _ in range(5))
    assert best_s < 0.01


def _duration_s(act: Any) -> float:
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s


def test_the_views_of_an_observation_come_back_by_name() -> None:
    views = views_from_observation(observation(1, colour_card(14, 14), ("left", "right")))
    assert list(views) == ["left", "right"]
    assert (views["right"] == colour_card(14, 14)).all()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rgb": [0] * 10}, "10 bytes"),
        ({"rgb": []}, "0 bytes"),
        ({"view_names": []}, "0 views"),
        ({"view_names": ["a", "b"]}, "2 views"),
        ({"height_px": 0, "rgb": []}, "14 x 0 px"),
        ({"height_px": 2**32 - 1, "width_px": 2**32 - 1}, "4294967295"),
    ],
)
def test_an_observation_whose_sizes_do_not_fit_is_refused(changes: dict[str, Any], named: str) -> None:
    message = observation(1, colour_card(14, 14))
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(ValueError, match=named):
        views_from_observation(message)


def test_views_of_the_same_name_are_refused() -> None:
    with pytest.raises(ValueError, match="repeats"):
        views_from_observation(observation(1, colour_card(14, 14), ("camera", "camera")))


def test_a_state_survives_the_message() -> None:
    state = KinematicState(
        stamp_ns=1_700_000_000_123_456_789,
        position=np.array([0.4, -0.1, 0.3]),
        orientation=np.array([0.5, -0.5, 0.5, 0.5]),
        linear_velocity=np.array([0.1, 0.2, 0.3]),
        angular_velocity=np.array([-0.1, 0.0, 0.4]),
        gripper_opening=0.25,
        joint_positions=dict(zip(ARM_JOINTS, np.linspace(-1.0, 1.0, 7).tolist(), strict=True)),
        path_length_m=0.12,
        curvature_per_m=3.4,
        fused_metric=0.6,
    )
    message = message_from_state(state, np.arange(7.0), "panda_link0", 0.75)
    assert message.header.frame_id == "panda_link0" and message.joint_velocities.tolist() == list(range(7))
    found = state_from_message(message)
    for name in ("position", "orientation", "linear_velocity", "angular_velocity"):
        assert getattr(found, name).tolist() == getattr(state, name).tolist()
    for name in ("stamp_ns", "gripper_opening", "joint_positions", "path_length_m", "curvature_per_m", "fused_metric"):
        assert getattr(found, name) == getattr(state, name)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "field", ["end_effector_pose.position.x", "end_effector_pose.orientation.w", "end_effector_twist.linear.z"]
)
def test_a_state_that_is_not_finite_is_refused(field: str, value: float) -> None:
    message = kinematic_state(1)
    *path, last = field.split(".")
    part = message
    for name in path:
        part = getattr(part, name)
    setattr(part, last, value)
    with pytest.raises(ValueError, match="not finite"):
        state_from_message(message)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_joint_or_a_gripper_that_is_not_finite_is_refused(value: float) -> None:
    bent, gripping = kinematic_state(1), kinematic_state(1)
    bent.joint_positions[2] = value
    gripping.gripper_opening = value
    for message in (bent, gripping):
        with pytest.raises(ValueError, match="not finite"):
            state_from_message(message)


def test_a_metric_that_is_not_known_stays_so() -> None:
    message = kinematic_state(1)
    message.fused_metric = float("nan")
    assert np.isnan(state_from_message(message).fused_metric)


@pytest.mark.parametrize("value", [float("inf"), -0.1, 1.1])
def test_a_metric_out_of_range_is_refused(value: float) -> None:
    message = kinematic_state(1)
    message.fused_metric = value
    with pytest.raises(ValueError, match="fused_metric"):
        state_from_message(message)


def test_a_state_whose_quaternion_is_no_rotation_is_refused() -> None:
    message = kinematic_state(1)
    message.end_effector_pose.orientation.w = 0.0
    with pytest.raises(ValueError, match="unit quaternion"):
        state_from_message(message)


def test_a_state_with_more_names_than_joints_is_refused() -> None:
    message = kinematic_state(1)
    message.joint_positions = message.joint_positions[:3]
    with pytest.raises(ValueError, match="7 joint names but 3 positions"):
        state_from_message(message)


def test_an_action_says_all_that_its_decoder_reports() -> None:
    report = DecodeReport(
        region="confident",
        gate_score=0.75,
        near_contact=True,
        skipped=True,
        skipped_in_a_row=2,
        degraded="bounds: decoded exactly",
        sources=("retrieval",) * 3 + ("kalman",) * 3 + ("policy",),
        deviation_bins=(4, -3, 0, 0, 1, 0, 0),
        deviation_m=0.002,
        deviation_rad=0.01,
        threshold_bins=9,
    )
    counts = DecodeCounts(forward_passes=3, verified_passes=2, accepted_tokens=5, relaxed_tokens=1)
    times = StageTimes(total_ms=12.5, prefill_ms=11.0)
    action = DecodedAction(np.arange(7), np.linspace(-1.0, 1.0, 7), "speculative", times, counts, report)
    message = message_from_action(action, action.values, 1_500_000_000, "panda_link0", 0.05)
    stats = message.stats
    for name in DecodeReport.__dataclass_fields__:
        found = getattr(stats, name)
        assert (tuple(found) if name in ("sources", "deviation_bins") else found) == getattr(report, name), name
    for name in DecodeCounts.__dataclass_fields__:
        assert getattr(stats, name) == getattr(counts, name), name
    assert stats.acceptance_length == 2.5 and stats.total_ms == 12.5
    assert (stats.stage_names, list(stats.stage_ms)) == (["prefill"], [11.0])
    assert message.mode == "speculative" and message.tokens.tolist() == list(range(7))


def test_every_field_of_a_report_is_in_the_message() -> None:
    from vla_sd_ros.msg import DecodeStats

    reported = {*DecodeReport.__dataclass_fields__, *DecodeCounts.__dataclass_fields__}
    assert reported <= set(DecodeStats.get_fields_and_field_types())
