"""The clock of an action excludes the drawing of its image, and nothing else."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_sd_ros.bench.rendering import ViewsOnDemand, without_drawing
from vla_sd_ros.decoding.stage_times import StageTimes
from vla_sd_ros.types import Rgb

IMAGE = np.zeros((4, 4, 3), np.uint8)


def slowly() -> Rgb:
    time.sleep(0.02)
    return IMAGE


def test_an_image_is_drawn_once_and_only_for_whoever_looks() -> None:
    views = ViewsOnDemand("camera", slowly)
    assert "camera" in views and list(views) == ["camera"] and len(views) == 1
    assert views.drawing_ms == 0.0
    assert views["camera"] is views["camera"] is IMAGE
    assert 20.0 <= views.drawing_ms < 200.0
    assert views.drawing_cpu_ms < 15.0
    with pytest.raises(KeyError):
        views["wrist"]


@given(st.floats(0.0, 50.0), st.floats(0.0, 50.0), st.floats(0.0, 50.0))
def test_only_the_drawing_is_taken_off(preparation_ms: float, drawing_ms: float, rest_ms: float) -> None:
    looked = preparation_ms + drawing_ms
    times = StageTimes(preprocess_ms=looked, vision_ms=rest_ms, total_ms=looked + rest_ms)
    without = without_drawing(times, drawing_ms)
    assert without.preprocess_ms == pytest.approx(preparation_ms, abs=1e-9)
    assert without.total_ms == pytest.approx(preparation_ms + rest_ms, abs=1e-9)
    assert without.vision_ms == rest_ms


def test_an_image_looked_at_outside_its_stage_is_an_error() -> None:
    with pytest.raises(ValueError, match="preprocess"):
        without_drawing(StageTimes(preprocess_ms=1.0, vision_ms=30.0, total_ms=31.0), 20.0)
