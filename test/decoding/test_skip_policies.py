"""When the policy may be left out, and what acts in its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from decoder_parts import neighbour
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.actions.bins import ActionBins
from vla_sd_ros.decoding.config import SkipConfig
from vla_sd_ros.decoding.memory import EpisodeMemory
from vla_sd_ros.decoding.skip import SkipPolicy, spread_bins
from vla_sd_ros.retrieval.skip_calibration import SkipCalibration
from vla_sd_ros.verification.acceptance import GRIPPER, gripper_is_open

BINS = ActionBins(400)
OPEN, CLOSED = (int(BINS.ids_from_normalised(value)) for value in (1.0, 0.0))
CALIBRATION = SkipCalibration(
    min_similarity=0.95,
    max_distance_m=0.02,
    floor=0.9,
    key_weight=1.0,
    distance_weight_per_m=0.0,
    nearness=(0.0, 1.0),
    expected_similarity=(0.0, 1.0),
    expected_acceptance=(0.0, 1.0),
    precision=0.95,
    coverage=0.5,
)


def action(offset: int = 0, gripper: int = OPEN) -> np.ndarray:
    return np.array([BINS.first_id + 128 + offset] * 6 + [gripper], dtype=np.int64)


def remembered(*actions: np.ndarray, position: tuple[float, float, float] = (0.4, 0.0, 0.3)) -> EpisodeMemory:
    memory = EpisodeMemory(decoded=1)
    memory.positions.add(1, position)
    for tokens in actions:
        memory.finish(tokens, BINS)
    memory.anchor_tokens = actions[-1] if actions else None
    return memory


def seeing(*neighbours: Any) -> Any:
    return SimpleNamespace(neighbours=list(neighbours))


@given(st.integers(0, 6), st.integers(1, 6))
def test_the_budget_is_never_exceeded(skipped: int, budget: int) -> None:
    memory = remembered(action())
    memory.skipped_in_a_row = skipped
    proposed = SkipPolicy(SkipConfig(max_in_a_row=budget), BINS).propose(memory, seeing())
    assert (proposed is not None) == (skipped < budget)


def test_the_first_action_of_an_episode_is_never_skipped() -> None:
    assert SkipPolicy(SkipConfig(), BINS).propose(EpisodeMemory(), seeing()) is None


@pytest.mark.parametrize("kind", ["nearest", "lookahead", "lookahead_change"])
def test_no_skipped_action_changes_the_grippers_class(kind: str) -> None:
    memory, closing = remembered(action()), neighbour(action(gripper=CLOSED))
    memory.anchor = closing
    policy = SkipPolicy(SkipConfig.model_validate({"action": kind}), BINS)
    assert policy.propose(memory, seeing(closing)) is None


def test_the_look_ahead_moves_on_with_every_skipped_step() -> None:
    found = neighbour(action())
    found.next_tokens[:] = np.stack([action(i + 1) for i in range(7)])
    memory = remembered(action())
    memory.anchor = found
    policy = SkipPolicy(SkipConfig(action="lookahead", max_in_a_row=7), BINS)
    for step in range(7):
        memory.skipped_in_a_row = step
        proposed = policy.propose(memory, seeing())
        assert proposed is not None
        np.testing.assert_array_equal(proposed, action(step + 1))


@given(st.integers(-100, 100), st.integers(-100, 100), st.integers(-100, 100))
def test_a_look_ahead_change_is_the_demonstrations_own_and_stays_legal(last: int, there: int, ahead: int) -> None:
    found = neighbour(action(there))
    found.next_tokens[:] = action(ahead)
    memory = remembered(action(last))
    memory.anchor = found
    proposed = SkipPolicy(SkipConfig(action="lookahead_change"), BINS).propose(memory, seeing())
    assert proposed is not None
    expected = np.clip(action(last)[0] + ahead - there, BINS.first_id, BINS.vocab_size - 1)
    assert set(proposed[:GRIPPER]) == {expected}
    assert gripper_is_open(proposed[GRIPPER], BINS)


def test_a_large_change_is_not_taken_unverified() -> None:
    memory = remembered(action())
    for change, taken in ((10, True), (11, False)):
        policy = SkipPolicy(SkipConfig(action="nearest", max_change_bins=10), BINS)
        assert (policy.propose(memory, seeing(neighbour(action(change)))) is not None) == taken


def test_after_a_surprising_decode_nothing_is_skipped() -> None:
    memory = remembered(action())
    memory.deviation_bins = 40
    assert SkipPolicy(SkipConfig(max_deviation_bins=39), BINS).propose(memory, seeing()) is None
    assert SkipPolicy(SkipConfig(max_deviation_bins=40), BINS).propose(memory, seeing()) is not None


def similar(memory: EpisodeMemory, policy: SkipPolicy, similarity: float = 0.99) -> bool:
    return policy.propose(memory, seeing(neighbour(action(), similarity=similarity))) is not None


def test_similarity_skips_only_near_and_similar_demonstrations() -> None:
    policy = SkipPolicy(SkipConfig(kind="similarity", action="nearest"), BINS, CALIBRATION)
    assert similar(remembered(action()), policy)
    assert not similar(remembered(action()), policy, similarity=0.94)
    assert not similar(remembered(action(), position=(0.43, 0.0, 0.3)), policy)
    assert policy.propose(remembered(action()), seeing()) is None


def test_failure_narrows_the_bounds_faster_than_success_widens_them() -> None:
    policy = SkipPolicy(SkipConfig(kind="similarity", action="nearest"), BINS, CALIBRATION)
    policy.end_episode(success=True)
    policy.end_episode(success=False)
    assert policy.bounds is not None
    assert policy.bounds.max_distance_m < CALIBRATION.max_distance_m
    assert policy.bounds.min_similarity > CALIBRATION.min_similarity
    for _ in range(100):
        policy.end_episode(success=True)
    assert policy.bounds.max_distance_m == pytest.approx(2 * CALIBRATION.max_distance_m)


def test_similarity_without_a_calibration_is_refused() -> None:
    with pytest.raises(ValueError, match="vla-sd calibrate"):
        SkipPolicy(SkipConfig(kind="similarity"), BINS)


@pytest.mark.parametrize(
    ("before", "in_a_row", "taken"),
    [
        ((20.0, 20.0), 0, True),
        ((0.0, 0.0), 0, False),
        ((4.9, 4.9), 0, True),
        ((4.9, 4.9), 1, False),
        ((5.0,), 0, False),
    ],
)
def test_ambiguity_skips_while_the_demonstrations_come_to_agree(
    before: tuple[float, ...], in_a_row: int, taken: bool
) -> None:
    found = [neighbour(action(0)), neighbour(action(4))]  # 4.9 bins apart from their mean
    memory = remembered(action())
    memory.spreads, memory.skipped_in_a_row = before, in_a_row
    policy = SkipPolicy(SkipConfig(kind="ambiguity", action="nearest"), BINS)
    assert (policy.propose(memory, seeing(*found)) is not None) == taken


def test_demonstrations_that_agree_have_no_spread() -> None:
    assert spread_bins([neighbour(action(3))] * 4, BINS) == 0.0
    assert spread_bins([neighbour(action(0)), neighbour(action(4))], BINS) == pytest.approx(np.sqrt(6 * 4))


def test_whoever_changes_a_skipped_action_does_not_change_the_past_nor_the_index() -> None:
    memory, found = remembered(action()), neighbour(action(3))
    for kind in ("repeat", "nearest"):
        proposed = SkipPolicy(SkipConfig.model_validate({"action": kind}), BINS).propose(memory, seeing(found))
        assert proposed is not None
        proposed[:] = 0
    np.testing.assert_array_equal(memory.history.last(), action())
    np.testing.assert_array_equal(found.tokens, action(3))
