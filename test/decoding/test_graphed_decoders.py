"""Every decoder on the runtime of fixed shapes: same tokens, nothing prepared while the arm moves, few waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from counting_backend import Counting
from decoder_parts import observation, state_at
from derived_assets import write_policy_with_assets
from torch.utils._python_dispatch import TorchDispatchMode

from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.build import build_decoder
from vla_sd_ros.decoding.interface import DecodedAction, Decoder
from vla_sd_ros.decoding.presets import load_decoder_config, preset_names
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.graphs.runtime import GraphRuntime, install
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.verification import tree_forward
from vla_sd_ros.verification.tree_forward import NonFiniteState

PRESETS = Path(__file__).parents[2] / "config" / "decoders"
STEPS = 12


class HostReads(TorchDispatchMode):
    """Counts what a device would make the host wait for: numbers read one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.numbers += func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write_policy_with_assets(tmp_path_factory.mktemp("assets"))


@pytest.fixture(scope="module")
def plain(folder: Path) -> LoadedPolicy:
    return load_policy(folder)


@pytest.fixture(scope="module")
def backend() -> Counting:
    return Counting()


@pytest.fixture(scope="module")
def graphed(folder: Path, backend: Counting) -> LoadedPolicy:
    policy = load_policy(folder)
    install(policy.model, GraphRuntime(policy.model, backend))
    return policy


def drive(decoder: Decoder) -> list[DecodedAction]:
    return [decoder.decode(observation(step), state_at(step, (0.3, 0.01 * step, 0.2))) for step in range(STEPS)]


@pytest.mark.parametrize("name", preset_names(PRESETS))
def test_a_preset_decodes_the_same_tokens_and_prepares_nothing_after_it_was_built(
    name: str, plain: LoadedPolicy, graphed: LoadedPolicy, backend: Counting
) -> None:
    config = load_decoder_config(name, PRESETS)
    decoder = build_decoder(config, graphed)
    prepared = backend.prepared
    for found, wanted in zip(drive(decoder), drive(build_decoder(config, plain)), strict=True):
        np.testing.assert_array_equal(found.tokens, wanted.tokens)
        assert found.counts == wanted.counts
    assert backend.prepared == prepared


@contextmanager
def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes of what was brought to the host on purpose."""
    sizes: list[int] = []
    read = tree_forward.to_host

    def counting(tensor: torch.Tensor) -> Any:
        sizes.append(tensor.numel())
        return read(tensor)

    with monkeypatch.context() as patch:
        patch.setattr(tree_forward, "to_host", counting)
        yield sizes


@pytest.mark.parametrize("kind", ["plain", "graphed"])
def test_greedy_decoding_reads_once_seven_tokens_and_whether_they_mean_something(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = AutoregressiveDecoder(request.getfixturevalue(kind))
    decoder.decode(observation(0))
    with counted_reads(monkeypatch) as sizes, HostReads() as reads:
        decoder.decode(observation(1))
    assert reads.numbers == 0
    assert sizes == [8]


@pytest.mark.parametrize("name", ["lossless", "hybrid", "repeat"])
@pytest.mark.parametrize("kind", ["plain", "graphed"])
def test_a_drafted_action_reads_once_per_forward(
    name: str, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = build_decoder(load_decoder_config(name, PRESETS), request.getfixturevalue(kind))
    drive(decoder)
    for step in range(4):
        with counted_reads(monkeypatch) as sizes, HostReads() as reads:
            action = decoder.decode(observation(step), state_at(STEPS + step, (0.3, 0.2, 0.2)))
        assert reads.numbers == 0
        assert len(sizes) == action.counts.forward_passes


@pytest.mark.parametrize("kind", ["plain", "graphed"])
def test_the_learned_drafter_reads_on_purpose_only(kind: str, request: pytest.FixtureRequest) -> None:
    decoder = build_decoder(load_decoder_config("naive_sd", PRESETS), request.getfixturevalue(kind))
    drive(decoder)
    with HostReads() as reads:
        action = decoder.decode(observation(0), state_at(STEPS, (0.3, 0.2, 0.2)))
    assert action.counts.forward_passes > 1
    assert reads.numbers == 0


def test_greedy_decoding_refuses_scores_that_are_not_finite(
    plain: LoadedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = AutoregressiveDecoder(plain)
    features = torch.full((1, plain.config.n_patches, plain.config.feature_width), float("nan"))
    with monkeypatch.context() as patch:
        patch.setattr(plain.model, "patch_features", lambda pixels: features)
        with pytest.raises(NonFiniteState):
            decoder.decode(observation(0))
    assert torch.isfinite(decoder._cache.keys).all()
    assert decoder.decode(observation(0)).tokens.shape == (7,)
