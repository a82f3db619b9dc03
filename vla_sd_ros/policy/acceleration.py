"""How a loaded policy is to run on its device: quantised or not, by graphs or call by call, compiled or not."""

from __future__ import annotations

import logging
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict

from vla_sd_ros.policy.graphs.backend import backend_for
from vla_sd_ros.policy.graphs.compiled import compiled_forward
from vla_sd_ros.policy.graphs.language_model import forward_of_fixed_shape
from vla_sd_ros.policy.graphs.runtime import GraphRuntime, install
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.packed_linear import unpack_linears
from vla_sd_ros.policy.quantisation import Quantisation, quantise

Runtime = Literal["auto", "eager", "graphs"]

logger = logging.getLogger(__name__)


class RuntimeOptions(BaseModel):
    """What to do with a policy after it is loaded.

    Attributes:
        runtime: ``eager`` calls layer by layer; ``graphs`` pads every forward to one of a few shapes, which CUDA
            replays as graphs that were captured before (a CPU calls the same steps, for tests); ``auto`` takes graphs
            on CUDA and eager elsewhere.
        compile: let ``torch.compile`` make the kernels of the short passes; with graphs only. It takes minutes.
        quantisation: of the language model's linear layers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    runtime: Runtime = "auto"
    compile: bool = False
    quantisation: Quantisation = "none"


def accelerate(policy: LoadedPolicy, options: RuntimeOptions) -> LoadedPolicy:
    """Prepares a policy to run; what depends on a decoder's cache is prepared with the decoder.

    Args:
        policy: as loaded; it is changed in place. What was derived from its checkpoint goes on to serve.
        options: how it shall run.

    Returns:
        The same policy.

    Raises:
        QuantisationUnavailable: the quantisation cannot be had; nothing is changed then.
        CompilerUnavailable: there is no compiler; nothing is changed then.
        ValueError: options that contradict each other.
    """
    model, device = policy.model, policy.device
    graphs = options.runtime == "graphs" or (options.runtime == "auto" and device.type == "cuda")
    if options.compile and not graphs:
        raise ValueError("compile: true needs graphs; legal with it: runtime graphs, or auto on a CUDA device")
    forward = compiled_forward(device) if options.compile else forward_of_fixed_shape
    quantise(model, options.quantisation)
    if options.quantisation == "int8" and device.type == "cuda" and not options.compile:
        logger.warning("int8 without compile saves memory but is slower than bfloat16; set compile to true")
    if options.compile and device.type == "cpu":
        # Packed weights are no tensors that a compiler can look into.
        unpack_linears(model.language_model.layers)
        model.language_model.layers.float()
    if graphs:
        with torch.no_grad():
            install(model, GraphRuntime(model, backend_for(device), forward))
    return policy
