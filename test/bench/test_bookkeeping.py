"""Time outside the model's forwards, on a policy that costs next to nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from decoder_parts import INSTRUCTION
from derived_assets import write_policy_with_assets

from vla_sd_ros.bench.bookkeeping import format_bookkeeping, measure_bookkeeping
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.llama import Llama

PRESETS = Path(__file__).parents[2] / "config" / "decoders"


def test_a_slow_model_is_not_counted_and_nothing_stays_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_policy_with_assets(tmp_path)
    policy = load_policy(folder)
    forward = Llama.forward

    def slow(self: Llama, *args: object, **kwargs: object) -> object:
        time.sleep(0.02)
        return forward(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Llama, "forward", slow)
    rows = measure_bookkeeping(policy, folder, ["ar", "lossless"], PRESETS, INSTRUCTION, frames=6, warm_up=1)
    for row in rows:
        assert 0.0 < row["outside_model_ms"] < 20.0 < row["total_ms"]
    assert "| lossless |" in format_bookkeeping(rows)
    assert "action_logits" not in vars(policy.model)
    assert not policy.model.language_model._forward_hooks
