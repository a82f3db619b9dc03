from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.kinematics.variability import AuthorsSchedule, VariabilityThreshold

REFERENCE = 0.08
deviations = st.lists(st.floats(-2.0, 2.0), max_size=7)
shares = st.floats(0.0, 0.99)


def threshold(**settings: float) -> VariabilityThreshold:
    return VariabilityThreshold(**{"reference": REFERENCE, **settings})  # type: ignore[arg-type]


@given(st.lists(deviations, max_size=20), shares, st.floats(0.01, 1.0), st.floats(0.1, 8.0))
def test_the_radius_is_bounded(updates: list[list[float]], beta: float, kappa: float, phi: float) -> None:
    radius = threshold(beta=beta, kappa=kappa, phi=phi)
    for update in updates:
        radius.update(update)
        assert 5 <= radius.radius_bins <= 15


@given(st.floats(0.0, 5.0), st.floats(0.0, 5.0), shares, st.floats(0.01, 1.0))
def test_the_radius_does_not_grow_with_the_variability(one: float, other: float, beta: float, kappa: float) -> None:
    found = []
    for deviation in sorted((one, other)):
        radius = threshold(beta=beta, kappa=kappa)
        radius.update([deviation])
        found.append(radius.radius_bins)
    assert found[0] >= found[1]


@given(st.lists(deviations, max_size=5), st.floats(0.0, 0.9))
def test_without_variability_the_radius_is_the_largest(updates: list[list[float]], beta: float) -> None:
    radius = threshold(beta=beta)
    assert radius.radius_bins == 15
    for update in updates:
        radius.update(update)
    for _ in range(100):
        radius.update(np.zeros(7))
    assert radius.radius_bins == 15


@given(st.integers(1, 400))
def test_with_time_for_variability_it_is_the_authors_schedule(step: int) -> None:
    schedule = AuthorsSchedule()
    for _ in range(step):
        schedule.update()
    by_time = VariabilityThreshold(3, 15, reference=schedule.tau, phi=3.0)
    by_time.update([float(step)])
    assert by_time.radius_bins == schedule.radius_bins


@pytest.mark.parametrize(("step", "bins"), [(0, 15), (50, 12), (73, 7), (100, 4), (151, 3), (300, 3), (5000, 3)])
def test_the_authors_schedule_falls_as_their_code_has_it(step: int, bins: int) -> None:
    schedule = AuthorsSchedule()
    for _ in range(step):
        schedule.update([0.3, 0.1])
    assert schedule.radius_bins == bins


def test_the_variability_is_the_sum_of_absolute_deviations() -> None:
    radius = threshold()
    radius.update([0.03, -0.05, 0.0])
    assert radius.variability == pytest.approx(0.08)
    assert radius.target(REFERENCE) == pytest.approx(5 + 10 / np.e)
    assert radius.radius_bins == round(5 + 10 / np.e)


def test_without_smoothing_only_the_last_action_counts() -> None:
    radius = threshold()
    radius.update([1.0])
    assert radius.radius_bins == 5
    radius.update([0.0])
    assert radius.radius_bins == 15


def test_smoothing_remembers() -> None:
    radius = threshold(beta=0.5)
    radius.update([0.4])
    radius.update([0.0])
    assert radius.variability == pytest.approx(0.1)


@given(st.floats(0.05, 1.0))
def test_the_radius_arrives_at_its_target_however_slowly_it_goes(kappa: float) -> None:
    radius = threshold(kappa=kappa)
    for _ in range(500):
        radius.update([10.0])
    assert radius.radius_bins == 5


@pytest.mark.parametrize("radius", [threshold(beta=0.3, kappa=0.4), AuthorsSchedule(horizon=20)])
def test_a_restored_radius_goes_on_as_if_nothing_had_happened(radius: VariabilityThreshold | AuthorsSchedule) -> None:
    radius.reset()
    radius.update([0.05])
    before, bins = radius.state(), radius.radius_bins
    radius.update([0.1])
    expected = radius.state()
    for _ in range(5):
        radius.update([0.7])
    radius.restore(before)
    assert radius.radius_bins == bins
    radius.update([0.1])
    assert radius.state() == expected


@pytest.mark.parametrize("radius", [threshold(beta=0.9), AuthorsSchedule()])
def test_a_reset_begins_the_episode_anew(radius: VariabilityThreshold | AuthorsSchedule) -> None:
    radius.reset()
    first = radius.state()
    for _ in range(200):
        radius.update([1.0])
    assert radius.radius_bins < 15
    radius.reset()
    assert radius.state() == first and radius.radius_bins == 15


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_deviation_that_is_not_finite_is_refused_and_changes_nothing(value: float) -> None:
    radius = threshold()
    radius.update([0.05])
    before = radius.state()
    with pytest.raises(ValueError, match="not finite"):
        radius.update([0.0, value])
    assert radius.state() == before


@pytest.mark.parametrize(
    "settings",
    [
        {"r_min": 16},
        {"r_min": -1},
        {"reference": 0.0},
        {"reference": float("nan")},
        {"phi": 0.0},
        {"beta": 1.0},
        {"kappa": 0.0},
        {"kappa": 1.5},
    ],
)
def test_settings_that_are_not_legal_are_refused_by_name(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))}: .*legal"):
        threshold(**settings)


def test_a_schedule_that_rises_or_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="r_min: 16"):
        AuthorsSchedule(r_min=16)
    with pytest.raises(ValueError, match="horizon: 0"):
        AuthorsSchedule(horizon=0)
