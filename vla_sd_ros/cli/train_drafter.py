"""``vla-sd train drafter``: trains the learned drafter of a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vla_sd_ros.cli.overrides import Overrides, parse_overrides
from vla_sd_ros.cli.paths import share


def drafter(
    config: Annotated[Path | None, typer.Option(help="YAML; config/training/drafter.yaml by default.")] = None,
    set_: Overrides = None,
) -> None:
    """Trains a one-block drafter on a policy's own answers and writes it to the policy's folder drafter/."""
    from vla_sd_ros.training.config import load_config
    from vla_sd_ros.training.drafter_config import DrafterTrainingConfig
    from vla_sd_ros.training.drafter_training import train_drafter

    path = config or share() / "config" / "training" / "drafter.yaml"
    chosen = load_config(DrafterTrainingConfig, path, parse_overrides(set_))
    result = train_drafter(chosen)
    if not result.finished:
        typer.echo("interrupted; nothing was written")
        raise typer.Exit(1)
    typer.echo(f"drafter in {result.folder}; held out:")
    for name, value in result.held_out.items():
        typer.echo(f"  {name}: {value}")
