"""Episodes on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from vla_sd_ros.training.demonstrations import (
    Demonstration,
    demonstration_path,
    find_demonstrations,
    load_demonstration,
    save_demonstration,
)

MakeDemonstration = Callable[..., Demonstration]


def test_a_demonstration_survives_its_file(tmp_path: Path, make_demonstration: MakeDemonstration) -> None:
    written = make_demonstration()
    path = demonstration_path(tmp_path, written.suite, written.task_id, written.seed)
    save_demonstration(path, written)
    read = load_demonstration(path)
    for entry in fields(Demonstration):
        before, after = getattr(written, entry.name), getattr(read, entry.name)
        np.testing.assert_array_equal(before, after)
        assert getattr(before, "dtype", type(before)) == getattr(after, "dtype", type(after))
    assert [p.name for p in path.parent.iterdir()] == ["1.npz"]


def test_episodes_are_found_in_numerical_order(tmp_path: Path, make_demonstration: MakeDemonstration) -> None:
    for seed in (10, 9):
        save_demonstration(demonstration_path(tmp_path, "libero_goal", 8, seed), make_demonstration(seed))
    assert [path.stem for path in find_demonstrations(tmp_path)] == ["9", "10"]


def test_an_empty_folder_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gather"):
        find_demonstrations(tmp_path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.npz"
    np.savez(path, actions=np.zeros((3, 7)))
    with pytest.raises(ValueError, match="lacks .*images"):
        load_demonstration(path)


def test_arrays_of_different_lengths_are_refused(make_demonstration: MakeDemonstration) -> None:
    demonstration = make_demonstration()
    with pytest.raises(ValueError, match="same length"):
        replace(demonstration, actions=demonstration.actions[:-1])
    with pytest.raises(ValueError, match="uint8"):
        replace(demonstration, images=demonstration.images.astype(np.float32))
