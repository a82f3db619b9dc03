"""Weight-only quantisation of the language model's linear layers, by torchao.

Vision towers, projector, embeddings and the rows that score the actions keep their precision. int8 halves the weights;
time it saves only where the layers are compiled, since torchao's plain path widens them for every product. int4 is read
by a kernel of its own: a decoded token is fast, a prefill of some hundred positions is slower than in bfloat16.
"""

from __future__ import annotations

import importlib.util
from typing import Final, Literal

import torch
from torch import nn

from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.policy.packed_linear import unpack_linears

Quantisation = Literal["none", "int8", "int4"]

#: Weights that share a scale in int4.
GROUP: Final = 128
#: Output rows of the int4 kernel's tiles.
TILE_ROWS: Final = 8
#: Least compute capability of the int4 kernel.
CAPABILITY: Final = 8


class QuantisationUnavailable(ValueError):
    """The quantisation cannot be had here; the message says why and what can."""


def quantise(model: VisionLanguageActionModel, quantisation: Quantisation) -> None:
    """Quantises the linear layers of the decoder layers in place.

    On a CPU they are unpacked first, and what they multiply is float32.

    Args:
        model: at inference, on its device.
        quantisation: int8 (a scale per output row) or int4 (a scale and a zero per 128 weights); none: nothing is done.

    Raises:
        QuantisationUnavailable: torchao is missing, or device, precision or sizes do not allow it.
    """
    if quantisation == "none":
        return
    layers = model.language_model.layers
    weight = model.language_model.embed_tokens.weight
    if quantisation == "int4":
        _require_int4(layers, weight.device, weight.dtype)
    if importlib.util.find_spec("torchao") is None:
        raise QuantisationUnavailable(
            f"quantisation: {quantisation!r} needs torchao, which is not installed; "
            "install it with: pip install vla_sd_ros[quantisation]"
        )
    # Here: it takes seconds, and few want it.
    from torchao.quantization import (  # type: ignore[import-untyped, import-not-found]
        Int4WeightOnlyConfig,
        Int8WeightOnlyConfig,
        quantize_,
    )

    if weight.device.type == "cpu":
        unpack_linears(layers)
        layers.float()
    if quantisation == "int8":
        settings = Int8WeightOnlyConfig(set_inductor_config=False)
    else:
        settings = Int4WeightOnlyConfig(
            group_size=GROUP,
            set_inductor_config=False,
            int4_packing_format="tile_packed_to_4d",
            int4_choose_qparams_algorithm="hqq",
        )
    with torch.inference_mode(False), torch.no_grad():
        quantize_(layers, settings)
    if weight.device.type == "cuda":
        torch.cuda.empty_cache()


def _require_int4(layers: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    reason = ""
    if device.type != "cuda":
        reason = f"needs a CUDA device; the policy is on {device}"
    elif torch.cuda.get_device_capability(device)[0] < CAPABILITY:
        reason = f"needs compute capability {CAPABILITY}.0; {torch.cuda.get_device_name(device)} has less"
    elif dtype != torch.bfloat16:
        reason = f"needs bfloat16; the policy is in {dtype}"
    else:
        reason = misfit_of_int4(layers)
    if reason:
        raise QuantisationUnavailable(f"quantisation: 'int4' {reason}; legal here: none, int8")


def misfit_of_int4(layers: nn.Module) -> str:
    """Why the sizes of the linear layers do not allow int4; empty where they do."""
    for name, layer in layers.named_modules():
        if isinstance(layer, nn.Linear) and (layer.in_features % GROUP or layer.out_features % TILE_ROWS):
            return (
                f"needs input widths that are multiples of {GROUP} and output widths of {TILE_ROWS}; "
                f"{name} has {layer.in_features} and {layer.out_features}"
            )
    return ""
