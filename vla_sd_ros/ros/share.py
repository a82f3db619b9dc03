"""Where the installed package keeps what it shares; the checkout, where it is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: Preset of the nodes and commands where none is named.
DEFAULT_DECODER: Final = "lossless"


def share() -> Path:
    """``share/vla_sd_ros`` of the installation, or the root of the checkout."""
    try:
        from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
    except ImportError:
        return Path(__file__).parents[2]
    try:
        return Path(get_package_share_directory("vla_sd_ros"))
    except (PackageNotFoundError, OSError):  # the latter: no AMENT_PREFIX_PATH
        return Path(__file__).parents[2]


def decoder_presets() -> Path:
    """Folder of the decoders' presets, one YAML file each."""
    return share() / "config" / "decoders"
