from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from vla_sd_ros.actions.bins import N_BINS, ActionBins

OPENVLA = 32000
HALF_BIN = 1.0 / (N_BINS - 1)
vocabularies = st.integers(N_BINS, 200_000)
unit = st.floats(-1.0, 1.0)


@given(vocabularies, npst.arrays(np.float64, npst.array_shapes(max_dims=2), elements=st.floats(-1e9, 1e9)))
def test_every_value_becomes_an_action_id(vocabulary: int, values: np.ndarray) -> None:
    ids = ActionBins(vocabulary).ids_from_normalised(values)
    assert ids.dtype == np.int64 and ids.shape == values.shape
    assert ((ids >= vocabulary - N_BINS) & (ids < vocabulary)).all()


@given(unit, unit)
def test_a_larger_value_never_has_a_larger_id(one: float, other: float) -> None:
    bins = ActionBins(OPENVLA)
    low, high = bins.ids_from_normalised([min(one, other), max(one, other)])
    assert low >= high


def test_values_fall_strictly_with_the_id_but_for_the_first_two() -> None:
    bins = ActionBins(OPENVLA)
    values = bins.normalised_from_ids(np.arange(bins.first_id, OPENVLA))
    assert (np.diff(values[1:]) < 0.0).all()


@given(unit)
def test_decoding_an_encoded_value_is_within_half_a_bin(value: float) -> None:
    bins = ActionBins(OPENVLA)
    assert abs(bins.normalised_from_ids(bins.ids_from_normalised(value)) - value) <= HALF_BIN + 1e-12


@given(st.integers(OPENVLA - N_BINS + 1, OPENVLA - 1))
def test_encoding_a_decoded_id_gives_it_back(token_id: int) -> None:
    bins = ActionBins(OPENVLA)
    assert bins.ids_from_normalised(bins.normalised_from_ids(token_id)) == token_id


def test_the_first_two_ids_share_a_centre() -> None:
    bins = ActionBins(OPENVLA)
    first, second = bins.normalised_from_ids([bins.first_id, bins.first_id + 1])
    assert first == second == pytest.approx(1.0 - HALF_BIN)
    assert bins.bin_of([bins.first_id, bins.first_id + 1, OPENVLA - 1]).tolist() == [254, 254, 0]


def test_an_open_and_a_closed_gripper_have_the_ids_of_openvla() -> None:
    assert ActionBins(OPENVLA).ids_from_normalised([1.0, 0.0, -1.0]).tolist() == [31744, 31872, 31999]


@pytest.mark.parametrize("token_id", [0, 31743, 32000, -1])
def test_an_id_that_is_no_action_is_refused_with_the_legal_range(token_id: int) -> None:
    with pytest.raises(ValueError, match="31744 to 31999"):
        ActionBins(OPENVLA).normalised_from_ids([31800, token_id])


@pytest.mark.parametrize("ids", [[31800.0], [float("nan")], [True]])
def test_ids_that_are_not_integers_are_refused(ids: list[float]) -> None:
    with pytest.raises(ValueError, match="integers"):
        ActionBins(OPENVLA).bin_of(ids)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        ActionBins(OPENVLA).ids_from_normalised([0.0, value])


def test_a_vocabulary_that_cannot_hold_the_action_ids_is_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size: 255"):
        ActionBins(N_BINS - 1)
