"""``--set key=value``: single fields of a YAML configuration, given on the command line."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Overrides = Annotated[list[str] | None, typer.Option("--set", help="key=value, overrides the YAML.")]


def parse_overrides(items: list[str] | None) -> dict[str, Any]:
    """Values by dotted key; a value is YAML.

    Raises:
        typer.BadParameter: an item has no ``=``.
    """
    import yaml

    overrides = {}
    for item in items or []:
        key, separator, value = item.partition("=")
        if not separator:
            raise typer.BadParameter(f"--set {item!r}; legal: key=value")
        overrides[key] = yaml.safe_load(value)
    return overrides
