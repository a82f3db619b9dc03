from __future__ import annotations

import pytest
import torch

from vla_sd_ros.policy import precision
from vla_sd_ros.policy.precision import choose_dtype


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_a_named_precision_is_taken_as_it_is(name: str) -> None:
    assert choose_dtype(name, "cpu") is getattr(torch, name)


@pytest.mark.parametrize(("fast", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_takes_bfloat16_only_where_the_cpu_multiplies_in_it(
    monkeypatch: pytest.MonkeyPatch, fast: bool, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(precision, "cpu_multiplies_bfloat16", lambda: fast)
    assert choose_dtype("auto", "cpu") is dtype
    assert choose_dtype("auto", "cuda:0") is torch.bfloat16


def test_an_unknown_precision_is_refused_with_the_legal_ones() -> None:
    with pytest.raises(ValueError, match="'int3'; legal: auto, float32, bfloat16, float16"):
        choose_dtype("int3", "cpu")


def test_a_pytorch_that_cannot_tell_counts_as_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert not precision.cpu_multiplies_bfloat16()
