"""What the benchmark is told, and the policies it can measure."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vla_sd_ros.policy.acceleration import Runtime, RuntimeOptions
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.quantisation import Quantisation
from vla_sd_ros.policy.random_policy import tiny_openvla

Size = Literal["7b", "tiny"]

DTYPES: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
#: Bytes of a weight that a decode step reads, where it is quantised; scales not counted.
QUANTISED_BYTES: Final = {"int8": 1.0, "int4": 0.5}


class InvalidSetting(ValueError):
    """A setting is not legal, or the machine cannot do it; the message names it."""


class BenchSettings(BaseModel):
    """How the benchmark runs.

    Attributes:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        size: ``7b``: the exact shapes of OpenVLA-7B; ``tiny``: its structure at small widths.
        dtype: of the weights.
        runtime: of the policy: ``graphs`` replays CUDA graphs, ``eager`` launches every kernel.
        compile: whether the short passes are compiled, which takes minutes.
        quantisation: of the language model's linear layers.
        repeats: of every stage at most.
        max_minutes: after which nothing new begins: there are fewer repeats then, and every row still has one.
        threads: of a CPU; 0: torch's own choice.
        seed: of weights and image.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cuda"
    size: Size = "7b"
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    runtime: Runtime = "auto"
    compile: bool = False
    quantisation: Quantisation = "none"
    repeats: Annotated[int, Field(ge=1)] = 50
    max_minutes: Annotated[float, Field(gt=0.0)] = 9.0
    threads: Annotated[int, Field(ge=0)] = 0
    seed: int = 0

    @classmethod
    def checked(cls, **fields: Any) -> BenchSettings:
        """Settings that the machine can run.

        Raises:
            InvalidSetting: a value is not legal, or there is no such device.
        """
        try:
            settings = cls(**fields)
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, f['loc']))} = {f['input']!r}: {f['msg']}" for f in error.errors())
            raise InvalidSetting("; ".join(faults)) from error
        settings.require_device()
        return settings

    def require_device(self) -> None:
        """Checks that the device is there and computes in the precision.

        Raises:
            InvalidSetting: it is not, or does not; the message says what is legal.
        """
        if self.device == "cpu":
            if self.dtype == "float16":
                raise InvalidSetting("dtype = 'float16': few CPUs multiply in it; legal here: bfloat16, float32")
            return
        if not torch.cuda.is_available():
            built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA: install a build that has it"
            raise InvalidSetting(
                f"device = {self.device!r}: PyTorch {torch.__version__} (built with {built}) finds no CUDA device; "
                "legal: cpu, or a machine with an NVIDIA GPU and its driver"
            )
        index = torch.device(self.device).index or 0
        if index >= torch.cuda.device_count():
            raise InvalidSetting(f"device = {self.device!r}; legal: cuda:0 to cuda:{torch.cuda.device_count() - 1}")

    @property
    def policy(self) -> PolicyConfig:
        """Shapes of the policy."""
        return PolicyConfig.openvla_7b() if self.size == "7b" else tiny_openvla()

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of the weights."""
        return DTYPES[self.dtype]

    @property
    def options(self) -> RuntimeOptions:
        """How the policy is to run."""
        return RuntimeOptions(runtime=self.runtime, compile=self.compile, quantisation=self.quantisation)

    @property
    def has_floors(self) -> bool:
        """Whether floors are known for such weights."""
        return self.size == "7b" and self.dtype == "bfloat16" and self.quantisation == "none"


def decode_bytes(config: PolicyConfig, dtype: torch.dtype, quantisation: Quantisation = "none") -> float:
    """Bytes of weights that one decode step reads: all layers, the final norm, the action ids' rows of the output.

    The cache, one row of the embedding and the activations are left out: below 2 % at the size of OpenVLA-7B.
    """
    llama = config.llama
    matrices = llama.depth * (4 * llama.width**2 + 3 * llama.width * llama.mlp_width)
    rest = (2 * llama.depth + 1) * llama.width + (config.vocabulary_size - config.first_action_id) * llama.width
    return matrices * QUANTISED_BYTES.get(quantisation, dtype.itemsize) + rest * dtype.itemsize
