"""Presets: decoders by name, one YAML file each."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from vla_sd_ros.decoding.config import DecoderConfig


class UnknownDecoder(ValueError):
    """No preset, and no file, of that name."""


class InvalidDecoderConfig(ValueError):
    """The file does not describe a decoder; the message names each key, its value and what is legal."""


def preset_names(folder: Path) -> list[str]:
    """Names of the presets in a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_decoder_config(name: str, folder: Path) -> DecoderConfig:
    """A decoder's configuration.

    Args:
        name: of a preset, or the path of a YAML file.
        folder: where the presets lie.

    Raises:
        UnknownDecoder: there is none; the message lists the presets.
        InvalidDecoderConfig: it is not legal.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file():
        raise UnknownDecoder(f"decoder: {name!r} is unknown; legal: {preset_names(folder)}, or a YAML file")
    try:
        return DecoderConfig.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise InvalidDecoderConfig(f"{path.name}: {error}") from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'the file'} = {fault['input']!r}: {fault['msg']}"
            for fault in error.errors()
        )
        raise InvalidDecoderConfig(f"{path.name}: {faults}") from error
