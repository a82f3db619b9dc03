"""The comparison of search libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from demonstration_frames import METADATA, MILK, PROJECTION, random_frames, two_tasks

from vla_sd_ros.bench.vector_search import compare_vector_searches, libraries
from vla_sd_ros.retrieval.index import save_index


def test_every_library_finds_the_nearest_frames(tmp_path: Path) -> None:
    save_index(tmp_path, METADATA, PROJECTION, two_tasks())
    result = compare_vector_searches(tmp_path, k=3)
    assert [row["library"] for row in result["rows"]] == list(libraries())
    assert "faiss, flat (exact)" in libraries()
    for row in result["rows"]:
        assert row["frames"] == 50 + 20
        assert row["recall"] > 0.95
        assert 0 < row["median_ms"] <= row["p95_ms"]
        assert row["library"] in result["table"]


def test_what_is_exact_misses_nothing() -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    for query in vectors[:5] + np.float32(0.01):
        order = np.argsort(np.linalg.norm(vectors - query, axis=1))[:7]
        for name in ("numpy, exact", "faiss, flat (exact)"):
            np.testing.assert_array_equal(libraries()[name](vectors)(query, 7), order)


def test_an_index_of_single_episodes_cannot_be_measured(tmp_path: Path) -> None:
    save_index(tmp_path, METADATA, PROJECTION, {MILK: random_frames(10, 1)})
    with pytest.raises(ValueError, match="two episodes"):
        compare_vector_searches(tmp_path)
