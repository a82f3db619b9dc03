from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from vla_sd_ros.kinematics.joints import InvalidJointState, JointReader

WANTED = ("shoulder", "elbow", "wrist", "finger")
positions = npst.arrays(np.float64, (4,), elements=st.floats(-3.0, 3.0))
SECOND_NS = 10**9


@given(st.permutations([*WANTED, "camera_tilt", "door"]), st.data())
def test_joints_are_picked_by_name_whatever_the_order(names: list[str], data: st.DataObject) -> None:
    values = data.draw(npst.arrays(np.float64, (6,), elements=st.floats(-3.0, 3.0)))
    sample = JointReader(WANTED).read(names, values, -values, SECOND_NS)
    by_name = dict(zip(names, values.tolist(), strict=True))
    assert sample.positions.tolist() == [by_name[name] for name in WANTED]
    assert sample.velocities.tolist() == [-by_name[name] for name in WANTED]


@given(positions, positions, st.integers(1_000_000, SECOND_NS))
def test_without_velocities_positions_are_differentiated_by_stamp(
    earlier: np.ndarray, later: np.ndarray, elapsed_ns: int
) -> None:
    reader = JointReader(WANTED)
    assert not reader.read(WANTED, earlier, [], SECOND_NS).velocities.any()
    found = reader.read(WANTED, later, [], SECOND_NS + elapsed_ns)
    assert found.velocities * elapsed_ns / SECOND_NS == pytest.approx(later - earlier, abs=1e-9)


def test_nothing_is_differentiated_across_a_reset() -> None:
    reader = JointReader(WANTED)
    reader.read(WANTED, np.zeros(4), [], SECOND_NS)
    reader.reset()
    assert not reader.read(WANTED, np.ones(4), [], 2 * SECOND_NS).velocities.any()


def test_an_equal_stamp_gives_no_infinite_speed() -> None:
    reader = JointReader(WANTED)
    reader.read(WANTED, np.zeros(4), [], SECOND_NS)
    assert np.isfinite(reader.read(WANTED, np.ones(4), [], SECOND_NS).velocities).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", ["positions", "velocities"])
def test_a_value_that_is_not_finite_is_refused(which: str, value: float) -> None:
    given_ = {"positions": np.zeros(4), "velocities": np.zeros(4)}
    given_[which] = np.array([0.0, value, 0.0, 0.0])
    with pytest.raises(InvalidJointState, match=f"{which} are not finite.*elbow"):
        JointReader(WANTED).read(WANTED, given_["positions"], given_["velocities"], SECOND_NS)


def test_a_rejected_state_is_not_differentiated_from() -> None:
    reader = JointReader(WANTED)
    reader.read(WANTED, np.zeros(4), [], SECOND_NS)
    with pytest.raises(InvalidJointState):
        reader.read(WANTED, [1.0, np.nan, 1.0, 1.0], [], 2 * SECOND_NS)
    assert reader.read(WANTED, np.full(4, 2.0), [], 3 * SECOND_NS).velocities == pytest.approx(np.ones(4))


def test_a_joint_that_nobody_asked_for_may_say_anything() -> None:
    sample = JointReader(["elbow"]).read(["door", "elbow"], [float("nan"), 1.0], [float("nan"), 0.5], SECOND_NS)
    assert sample.positions.tolist() == [1.0] and sample.velocities.tolist() == [0.5]


@pytest.mark.parametrize(
    ("names", "position", "velocity", "message"),
    [
        (["shoulder", "elbow", "wrist"], np.zeros(3), [], r"\['finger'\] are not in the message"),
        ([], [], [], "are not in the message"),
        (WANTED, np.zeros(3), [], "4 joint names but 3 positions"),
        (WANTED, np.zeros(4), np.zeros(3), "4 joint names but 3 velocities"),
        ((*WANTED, "elbow"), np.zeros(5), [], "repeat"),
    ],
)
def test_a_malformed_state_is_refused(names: list[str], position: list, velocity: list, message: str) -> None:
    with pytest.raises(InvalidJointState, match=message):
        JointReader(WANTED).read(names, position, velocity, SECOND_NS)


@pytest.mark.parametrize("names", [[], ["elbow", "elbow"]])
def test_wanted_joints_must_be_given_and_differ(names: list[str]) -> None:
    with pytest.raises(ValueError, match="given and differ"):
        JointReader(names)
