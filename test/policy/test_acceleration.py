from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from vla_sd_ros.policy import acceleration
from vla_sd_ros.policy.acceleration import RuntimeOptions, accelerate
from vla_sd_ros.policy.config import LlamaConfig, PolicyConfig
from vla_sd_ros.policy.graphs.compiled import CompilerUnavailable
from vla_sd_ros.policy.graphs.language_model import forward_of_fixed_shape
from vla_sd_ros.policy.graphs.runtime import GraphRuntime
from vla_sd_ros.policy.llama import Llama
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.memory import weights_bytes
from vla_sd_ros.policy.packed_linear import PackedLinear, pack_linears, unpack_linears
from vla_sd_ros.policy.quantisation import QuantisationUnavailable, misfit_of_int4
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.policy.runtime import prefill
from vla_sd_ros.policy.self_test import self_test


@torch.inference_mode()
def logits_of(policy: LoadedPolicy, seed: int = 0) -> torch.Tensor:
    size = policy.config.image_size_px
    image = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    ids = policy.prepare_prompt("put the bowl on the plate")
    prefix = policy.model.embed_prefix(policy.prepare_pixels(image), ids)
    return prefill(policy.model, policy.model.new_cache(), prefix).float()


def test_auto_is_eager_on_a_cpu(tiny_policy: LoadedPolicy) -> None:
    assert accelerate(tiny_policy, RuntimeOptions()) is tiny_policy
    assert tiny_policy.model.runtime is None and tiny_policy.model.language_model.cached_forward is None


def test_graphs_on_a_cpu_give_the_same_logits(tiny_policy: LoadedPolicy) -> None:
    before = logits_of(tiny_policy)
    accelerate(tiny_policy, RuntimeOptions(runtime="graphs"))
    assert isinstance(tiny_policy.model.runtime, GraphRuntime)
    torch.testing.assert_close(logits_of(tiny_policy), before, rtol=0, atol=1e-5)
    self_test(tiny_policy)


def test_an_unknown_runtime_is_refused() -> None:
    with pytest.raises(ValidationError, match="'auto', 'eager' or 'graphs'"):
        RuntimeOptions.model_validate({"runtime": "fast"})


def test_compiling_without_graphs_is_refused(tiny_policy: LoadedPolicy) -> None:
    with pytest.raises(ValueError, match="compile: true needs graphs; legal with it: runtime graphs"):
        accelerate(tiny_policy, RuntimeOptions(compile=True))


def test_where_nothing_can_be_compiled_the_reason_is_given(
    tiny_policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> object:
        raise RuntimeError("No working C++ compiler found\nand a long story")

    monkeypatch.setattr(torch, "compile", failing)
    with pytest.raises(CompilerUnavailable, match=r"a C\+\+ compiler for cpu, .* No working .* legal here: false$"):
        accelerate(tiny_policy, RuntimeOptions(runtime="graphs", compile=True))
    assert tiny_policy.model.runtime is None


def test_compiled_passes_compute_what_they_did(tiny_policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a compiler that only traces: what it is given is a function of tensors, without a break."""
    before, compile_fully = logits_of(tiny_policy), torch.compile

    def tracing(function: object, *, dynamic: bool, fullgraph: bool = True, mode: str = "") -> object:
        assert not dynamic and fullgraph
        return compile_fully(function, backend="eager", dynamic=False, fullgraph=True)

    monkeypatch.setattr(torch, "compile", tracing)
    accelerate(tiny_policy, RuntimeOptions(runtime="graphs", compile=True))
    torch.testing.assert_close(logits_of(tiny_policy), before, rtol=0, atol=1e-4)


def test_the_options_reach_the_compiler_only_where_they_ask_for_it(
    tiny_policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.device] = []

    def noting(device: torch.device) -> object:
        asked.append(device)
        return forward_of_fixed_shape

    monkeypatch.setattr(acceleration, "compiled_forward", noting)
    accelerate(tiny_policy, RuntimeOptions(runtime="graphs"))
    assert not asked
    accelerate(tiny_policy, RuntimeOptions(runtime="graphs", compile=True))
    assert asked == [torch.device("cpu")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_unpacking_gives_the_packed_weights_back(dtype: torch.dtype, bias: bool) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(24, 40, bias=bias)).to(dtype).requires_grad_(False)
    weight, offset = layer[0].weight.clone(), layer[0].bias
    pack_linears(layer)
    assert isinstance(layer[0], PackedLinear)
    unpack_linears(layer)
    assert isinstance(layer[0], torch.nn.Linear) and (layer[0].bias is None) == (offset is None)
    torch.testing.assert_close(layer[0].weight.to_dense(), weight, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("runtime", ["eager", "graphs"])
def test_int8_changes_the_logits_little(dtype: torch.dtype, runtime: str, tiny_config: PolicyConfig) -> None:
    exact = logits_of(random_policy(tiny_config, dtype))
    options = RuntimeOptions.model_validate({"quantisation": "int8", "runtime": runtime})
    policy = accelerate(random_policy(tiny_config, dtype), options)
    change = (logits_of(policy) - exact).std() / exact.std()
    assert 0.0 < change < 0.1
    self_test(policy)


def test_int8_leaves_vision_projector_embeddings_and_scores_alone(tiny_policy: LoadedPolicy) -> None:
    def others() -> list[torch.Tensor]:
        model = tiny_policy.model
        language = [model.language_model.embed_tokens.weight, model.language_model.lm_head.weight]
        return [*model.vision.state_dict().values(), *model.projector.state_dict().values(), *language]

    before = [tensor.clone() for tensor in others()]
    accelerate(tiny_policy, RuntimeOptions(quantisation="int8"))
    for now, then in zip(others(), before, strict=True):
        torch.testing.assert_close(now, then, rtol=0, atol=0)


def test_the_memory_of_int8_weights_is_foretold(tiny_policy: LoadedPolicy) -> None:
    llama = tiny_policy.config.llama
    parameters = sum(tensor.numel() for tensor in tiny_policy.model.state_dict().values())
    accelerate(tiny_policy, RuntimeOptions(quantisation="int8"))
    layers = sum(
        layer.weight.qdata.numel() + 4 * layer.weight.scale.numel()
        for layer in tiny_policy.model.language_model.layers.modules()
        if isinstance(layer, torch.nn.Linear)
    )
    linear = llama.depth * (4 * llama.width**2 + 3 * llama.width * llama.mlp_width)
    assert weights_bytes(parameters, llama, torch.float32, "int8") == 4 * (parameters - linear) + layers


def test_openvla_takes_half_and_a_quarter_of_its_language_model() -> None:
    llama, parameters = PolicyConfig.openvla_7b().llama, 7_541_237_184
    figures = [weights_bytes(parameters, llama, torch.bfloat16, name) / 1e9 for name in ("none", "int8", "int4")]
    assert figures == pytest.approx([15.1, 8.6, 5.6], abs=0.1)


def test_int4_is_refused_on_a_cpu_with_what_is_legal(tiny_policy: LoadedPolicy) -> None:
    with pytest.raises(QuantisationUnavailable, match="'int4' needs a CUDA device; .* cpu; legal here: none, int8"):
        accelerate(tiny_policy, RuntimeOptions(quantisation="int4"))


def test_int4_wants_widths_that_its_groups_divide() -> None:
    def layers(**sizes: int) -> torch.nn.Module:
        config = LlamaConfig(**{"width": 128, "depth": 1, "heads": 2, "mlp_width": 256, "embedding_rows": 4, **sizes})
        return Llama(config).layers

    assert misfit_of_int4(layers()) == ""
    assert "0.mlp.down has 200 and 128" in misfit_of_int4(layers(mlp_width=200))


def test_a_missing_torchao_is_named_with_what_installs_it(
    tiny_policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "torchao" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(QuantisationUnavailable, match=r"pip install vla_sd_ros\[quantisation\]"):
        accelerate(tiny_policy, RuntimeOptions(quantisation="int8"))
    layers = tiny_policy.model.language_model.layers
    assert isinstance(layers[0].mlp.down, PackedLinear), "nothing is changed"
