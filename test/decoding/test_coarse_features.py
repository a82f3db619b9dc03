from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.decoding.perception import coarse_features
from vla_sd_ros.retrieval.keys import key_from_features


@given(st.integers(1, 8), st.integers(0, 2**20))
def test_coarse_features_give_the_key_of_the_fine_ones(half_side: int, seed: int) -> None:
    widths = (5, 7)
    features = np.random.default_rng(seed).standard_normal((4 * half_side**2, 12)).astype(np.float32)
    coarse = coarse_features(torch.from_numpy(features)).numpy()
    assert coarse.shape == (4, 12)
    key = key_from_features(features, widths)
    np.testing.assert_allclose(key_from_features(coarse, widths), key, atol=1e-5)


@pytest.mark.parametrize("patches", [9, 10])
def test_features_that_the_grid_does_not_divide_stay_as_they_are(patches: int) -> None:
    features = torch.randn(patches, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(coarse_features(features), features)
