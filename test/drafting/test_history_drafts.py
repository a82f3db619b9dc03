from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from vla_sd_ros.actions.bins import ActionBins
from vla_sd_ros.drafting.constant_velocity import ConstantVelocityDrafter
from vla_sd_ros.drafting.context import DraftContext, Drafter
from vla_sd_ros.drafting.history import ActionHistory
from vla_sd_ros.drafting.hold_last import HoldLastDrafter
from vla_sd_ros.drafting.kalman_draft import AuthorsKalmanDrafter, KalmanDrafter
from vla_sd_ros.kinematics.kalman import ActionKalmanFilter

BINS = ActionBins(32000)
OPEN, CLOSED = BINS.ids_from_normalised([1.0, 0.0])
histories = npst.arrays(
    np.int64, st.tuples(st.integers(0, 14), st.just(7)), elements=st.integers(BINS.first_id, BINS.vocab_size - 1)
)


def kalman() -> ActionKalmanFilter:
    return ActionKalmanFilter("constant_velocity", [1e-3] * 6, [1e-5] * 6)


DRAFTERS: list[tuple[Drafter, int, str]] = [
    (HoldLastDrafter(), 1, "hold_last"),
    (ConstantVelocityDrafter(), 2, "constant_velocity"),
    (KalmanDrafter(kalman()), 3, "kalman"),
    (AuthorsKalmanDrafter(), 1, "kalman_authors"),
]


def context(actions: np.ndarray) -> DraftContext:
    history = ActionHistory()
    for tokens in actions:
        history.add(tokens)
    return DraftContext(BINS, history)


def ramp(steps: int, bins_per_step: int) -> np.ndarray:
    """Tokens whose bins grow evenly in all degrees of freedom but the gripper, which is open."""
    grown = 100 + bins_per_step * np.arange(steps)[:, None] * np.ones(6, dtype=np.int64)
    return np.hstack([BINS.vocab_size - 1 - grown, np.full((steps, 1), OPEN)])


@pytest.mark.parametrize(("drafter", "needed", "source"), DRAFTERS)
@given(actions=histories)
def test_a_draft_is_a_chain_of_seven_legal_tokens_or_nothing(
    drafter: Drafter, needed: int, source: str, actions: np.ndarray
) -> None:
    draft = drafter.draft(context(actions))
    if len(actions) < needed:
        assert draft is None
        return
    assert draft is not None and draft.depths.tolist() == list(range(7))
    assert set(draft.sources) == {source}
    BINS.bin_of(draft.tokens)


@pytest.mark.parametrize("drafter", [drafter for drafter, _, source in DRAFTERS if source != "kalman_authors"])
@given(actions=histories.filter(lambda actions: len(actions) >= 3))
def test_the_gripper_is_held(drafter: Drafter, actions: np.ndarray) -> None:
    draft = drafter.draft(context(actions))
    assert draft is not None and draft.tokens[6] == actions[-1, 6]


@pytest.mark.parametrize(("drafter", "needed", "source"), DRAFTERS)
@given(actions=histories)
def test_drafting_leaves_no_trace(drafter: Drafter, needed: int, source: str, actions: np.ndarray) -> None:
    alone, after_another = drafter.draft(context(ramp(9, 3))), None
    for given_actions in (actions, ramp(9, 3)):
        after_another = drafter.draft(context(given_actions))
    assert alone is not None and after_another is not None
    assert alone.tokens.tolist() == after_another.tokens.tolist()


def test_the_last_action_is_held() -> None:
    draft = HoldLastDrafter().draft(context(ramp(5, 2)))
    assert draft is not None and draft.tokens.tolist() == ramp(5, 2)[-1].tolist()


@pytest.mark.parametrize("drafter", [ConstantVelocityDrafter(), KalmanDrafter(kalman())])
def test_an_even_drift_goes_on(drafter: Drafter) -> None:
    draft = drafter.draft(context(ramp(10, 3)))
    assert draft is not None
    assert BINS.bin_of(draft.tokens[:6]).tolist() == [130] * 6


@pytest.mark.parametrize("drafter", [ConstantVelocityDrafter(), KalmanDrafter(kalman())])
@pytest.mark.parametrize(("step", "end"), [(15, 254), (-10, 0)])
def test_a_drift_ends_at_the_range(drafter: Drafter, step: int, end: int) -> None:
    draft = drafter.draft(context(ramp(11, step)))
    assert draft is not None
    assert np.abs(BINS.bin_of(draft.tokens[:6]) - end).max() <= 6


def test_the_gripper_is_held_whatever_the_rest_does() -> None:
    actions = ramp(6, 4)
    actions[4:, 6] = CLOSED
    for drafter, _, _ in DRAFTERS[:3]:
        draft = drafter.draft(context(actions))
        assert draft is not None and draft.tokens[6] == CLOSED
