from __future__ import annotations

import pytest
import torch

from vla_sd_ros.bench.decode import compare_autoregressive_with_generate
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.random_policy import random_policy


def test_the_comparison_reports_every_dtype_and_equal_tokens_in_single_precision(tiny_config: PolicyConfig) -> None:
    threads = torch.get_num_threads()
    result = compare_autoregressive_with_generate(lambda dtype: random_policy(tiny_config, dtype), rounds=4)
    assert [row["dtype"] for row in result["rows"]] == ["float32", "bfloat16"]
    assert result["rows"][0]["same_tokens"] == 1.0
    assert all(row["generate_ms"] > 0 and row["autoregressive_ms"] > 0 for row in result["rows"])
    assert result["table"].count("\n") == 3 and "bfloat16" in result["table"]
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("arguments", [{"dtypes": ["int8"]}, {"rounds": 0}])
def test_what_cannot_be_measured_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="legal"):
        compare_autoregressive_with_generate(**arguments)  # type: ignore[arg-type]
