"""Which decoders are compared: presets by name, or YAML files; the only place of this room that makes one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vla_sd_ros.decoding.build import build_decoder
from vla_sd_ros.decoding.config import DecoderConfig
from vla_sd_ros.decoding.interface import Decoder
from vla_sd_ros.decoding.presets import load_decoder_config
from vla_sd_ros.drafting.learned_checkpoint import DRAFTER_FOLDER
from vla_sd_ros.kinematics.calibration import CALIBRATION_FILE
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.retrieval.index import INDEX_FOLDER

#: The plain decoder has this name too, and needs no preset.
AUTOREGRESSIVE: Final = "autoregressive"
# What a decoder finds beside the checkpoint, and its outcomes hang on.
ASSETS: Final = (INDEX_FOLDER, DRAFTER_FOLDER, CALIBRATION_FILE)


@dataclass(frozen=True)
class DecoderChoice:
    """A decoder of a comparison.

    Attributes:
        label: its name in tables and plots.
        config: what it is.
        digest: SHA-256 of the configuration and of what the decoder finds beside the checkpoint.
    """

    label: str
    config: DecoderConfig
    digest: str


def choose_decoder(source: str, presets: Path, policy: Path) -> DecoderChoice:
    """A decoder by preset name, or by the path of a YAML file, whose stem becomes its label.

    Args:
        source: name or path.
        presets: folder of the presets.
        policy: checkpoint directory.

    Raises:
        UnknownDecoder: there is none; the message lists the presets.
        InvalidDecoderConfig: the file is not legal.
    """
    plain = source == AUTOREGRESSIVE
    config = DecoderConfig(kind="autoregressive") if plain else load_decoder_config(source, presets)
    digest = hashlib.sha256(config.model_dump_json().encode())
    if config.kind != "autoregressive":
        for path in _assets(policy):
            digest.update(str(path.relative_to(policy)).encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    label = Path(source).stem if source.endswith((".yaml", ".yml")) else source
    return DecoderChoice(label, config, digest.hexdigest())


def decoder_for(choice: DecoderChoice, policy: LoadedPolicy, view: str | None = None) -> Decoder:
    """Makes the decoder.

    Raises:
        ValueError, FileNotFoundError: what it needs beside the checkpoint is missing, or of another checkpoint.
    """
    return build_decoder(choice.config, policy, view)


def _assets(policy: Path) -> list[Path]:
    places = [policy / name for name in ASSETS]
    files = [path for place in places for path in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    return [path for path in files if path.is_file()]
