"""``vla-sd train drafter``: trains the learned drafter of a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vla_sd_ros.cli.paths import share


def drafter(
    config: Annotated[Path | None, typer.Option(help="YAML; config/training/drafter.yaml by default.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, overrides the YAML.")] = None,
) -> None:
    """Trains a one-block drafter on a policy's own answers and writes it to the policy's folder drafter/."""
    import yaml

    from vla_sd_ros.training.drafter_config import load_drafter_training_config
    from vla_sd_ros.training.drafter_training import train_drafter

    overrides = {}
    for item in set_ or []:
        key, separator, value = item.partition("=")
        if not separator:
            raise typer.BadParameter(f"--set {item!r}; legal: key=value")
        overrides[key] = yaml.safe_load(value)
    chosen = load_drafter_training_config(config or share() / "config" / "training" / "drafter.yaml", overrides)
    result = train_drafter(chosen)
    if not result.finished:
        typer.echo("interrupted; nothing was written")
        raise typer.Exit(1)
    typer.echo(f"drafter in {result.folder}; held out:")
    for name, value in result.held_out.items():
        typer.echo(f"  {name}: {value}")
