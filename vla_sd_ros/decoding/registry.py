"""Decoders by name: one line here makes a decoder available to parameters, launch arguments and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.interface import Decoder
from vla_sd_ros.policy.loaded import LoadedPolicy

#: How each decoder is made from a policy and the view it looks at (None: the only one).
DECODERS: Final[Mapping[str, Callable[[LoadedPolicy, str | None], Decoder]]] = {
    "autoregressive": AutoregressiveDecoder,
}


def make_decoder(name: str, policy: LoadedPolicy, view: str | None = None) -> Decoder:
    """A decoder by name.

    Raises:
        ValueError: on an unknown name; the message lists the legal ones.
    """
    if name not in DECODERS:
        raise ValueError(f"decoder: {name!r} is unknown; legal: {sorted(DECODERS)}")
    return DECODERS[name](policy, view)
