"""Parameters of the inference node."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from vla_sd_ros.actions.convention import ActionConvention
from vla_sd_ros.decoding.presets import load_decoder_config
from vla_sd_ros.policy.acceleration import Runtime, RuntimeOptions
from vla_sd_ros.policy.precision import Precision
from vla_sd_ros.policy.quantisation import Quantisation
from vla_sd_ros.ros.share import DEFAULT_DECODER, decoder_presets


class InferenceConfig(BaseModel):
    """Parameters of the inference node; all but ``decoder`` are read once, when it is configured.

    Attributes:
        policy: checkpoint directory.
        statistics_key: which statistics un-normalise; empty takes the only ones there are.
        decoder: how the tokens are decoded: a preset of ``config/decoders``, or the path of a YAML file.
        device: torch device.
        dtype: of the weights; auto takes bfloat16 where the device is fast in it, else float32.
        runtime: graphs replays forwards of fixed shapes that are captured at configuration; eager calls layer by
            layer; auto takes graphs on CUDA and eager elsewhere.
        compile: let torch.compile make kernels, with graphs only; configuration takes minutes longer.
        quantisation: of the language model's linear layers; int8 and int4 need the extra ``quantisation``.
        threads: CPU threads of torch; more than one slows a small policy down.
        views: camera names that the policy expects, in its order.
        base_frame: frame of the actions that are published.
        period_s: control period that the policy's displacements are meant for.
        max_image_age_s: an older observation is not decoded.
        max_state_age_s: nothing is decoded without a state younger than this.
        convention: what the policy's values mean.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    policy: Annotated[str, Field(min_length=1)]
    statistics_key: str = ""
    decoder: str = DEFAULT_DECODER
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    dtype: Precision = "auto"
    runtime: Runtime = "auto"
    compile: bool = False
    quantisation: Quantisation = "none"
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    views: Annotated[list[str], Field(min_length=1, max_length=1)] = ["camera"]
    base_frame: Annotated[str, Field(min_length=1)]
    period_s: Annotated[float, Field(gt=0.0)]
    max_image_age_s: Annotated[float, Field(gt=0.0)] = 0.2
    max_state_age_s: Annotated[float, Field(gt=0.0)] = 0.2
    convention: ActionConvention

    @property
    def runtime_options(self) -> RuntimeOptions:
        """How the policy is to run on its device."""
        return RuntimeOptions(runtime=self.runtime, compile=self.compile, quantisation=self.quantisation)

    @field_validator("decoder")
    @classmethod
    def _describes_a_decoder(cls, name: str) -> str:
        load_decoder_config(name, decoder_presets())
        return name
