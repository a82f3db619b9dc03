"""Parameter ``decoder``: which decoder is in use, set while the node works.

``ros2 param set /inference_node decoder NAME`` is refused, with the legal names, unless NAME describes a decoder. What
is accepted is built beside the decoder in use; where that fails, the latter goes on and the parameter is put back.
"""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from typing import Final

import numpy as np
from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter

from vla_sd_ros.decoding.build import build_decoder
from vla_sd_ros.decoding.config import DecoderConfig
from vla_sd_ros.decoding.interface import Decoder
from vla_sd_ros.decoding.presets import load_decoder_config
from vla_sd_ros.nodes.decoder_host import DecoderHost
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.ros.lifecycle import ManagedNode
from vla_sd_ros.ros.share import decoder_presets
from vla_sd_ros.types import Observation

#: Name of the parameter.
DECODER: Final = "decoder"
TRIAL_DECODES = 3
# Words that every policy of LIBERO knows.
TRIAL_INSTRUCTION = "put the bowl on the plate"


class DecoderParameter:
    """Keeps the parameter and the decoder in agreement.

    Args:
        node: has the parameter; its diagnostics tell which decoder is in use, and why another one could not be built.
    """

    def __init__(self, node: ManagedNode) -> None:
        self._node = node
        self._host: DecoderHost | None = None
        self._outcomes: SimpleQueue[tuple[str, Exception | None]] = SimpleQueue()
        # Parameters belong to the executor's thread.
        self._told = node.create_guard_condition(self._on_outcome)
        node.add_on_set_parameters_callback(self._on_set)

    def open(self, name: str, policy: LoadedPolicy, view: str) -> DecoderHost:
        """Builds the first decoder.

        Raises:
            Exception: whatever loading, building or decoding raises.
        """
        config = load_decoder_config(name, decoder_presets())
        build = partial(build_and_try, policy=policy, view=view)
        host = DecoderHost(build, name, config, self._on_exchange)
        self._host = host
        self._node.diagnostics.value(DECODER, name)
        return host

    def close(self) -> None:
        """Lets go of the decoder; what is being built is dropped."""
        if self._host is not None:
            self._host.close()
        self._host = None
        self._node.diagnostics.clear("decoder_not_built")

    def _on_set(self, parameters: list[Parameter]) -> SetParametersResult:
        for parameter in parameters:
            # One that is only being declared is validated with the rest of the node's configuration.
            if parameter.name == DECODER and self._node.has_parameter(DECODER):
                return self._choose(parameter)
        return SetParametersResult(successful=True)

    def _choose(self, parameter: Parameter) -> SetParametersResult:
        if parameter.type_ is not Parameter.Type.STRING:
            reason = f"decoder = {parameter.value!r}; legal: a string, the name of a preset or of a YAML file"
            return SetParametersResult(successful=False, reason=reason)
        try:
            config = load_decoder_config(parameter.value, decoder_presets())
        except Exception as error:  # whatever stands in the file, the node goes on
            return SetParametersResult(successful=False, reason=str(error))
        self._node.diagnostics.clear("decoder_not_built")
        if self._host is not None:
            self._host.exchange(parameter.value, config)
        return SetParametersResult(successful=True)

    def _on_exchange(self, name: str, failure: Exception | None) -> None:
        self._outcomes.put((name, failure))
        self._told.trigger()

    def _on_outcome(self) -> None:
        while not self._outcomes.empty():
            name, failure = self._outcomes.get()
            if self._host is not None:
                self._tell(name, failure, self._host.name)

    def _tell(self, name: str, failure: Exception | None, in_use: str) -> None:
        diagnostics = self._node.diagnostics
        if failure is None:
            diagnostics.value(DECODER, in_use)
            diagnostics.report()
            return
        self._node.set_parameters([Parameter(DECODER, value=in_use)])
        reason = f"decoder {name!r} cannot be built: {type(failure).__name__}: {failure}; {in_use!r} goes on"
        diagnostics.hold("decoder_not_built", reason)


def build_and_try(config: DecoderConfig, policy: LoadedPolicy, view: str) -> Decoder:
    """A decoder that has decoded a grey image: it works, and its first action is not slower than the others.

    Raises:
        Exception: whatever building or decoding raises.
    """
    decoder = build_decoder(config, policy, view)
    side = policy.config.image_size_px
    grey = Observation({view: np.full((side, side, 3), 127, dtype=np.uint8)}, TRIAL_INSTRUCTION, stamp_ns=0)
    for _ in range(TRIAL_DECODES):
        decoder.decode(grey, None)
        decoder.reset()
    return decoder
