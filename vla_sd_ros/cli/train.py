"""``vla-sd train``: gathers scripted demonstrations and clones them into a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vla_sd_ros.cli.overrides import Overrides, parse_overrides
from vla_sd_ros.cli.paths import share

app = typer.Typer(no_args_is_help=True, help="Train what the package ships.")


@app.command("policy")
def policy(
    config: Annotated[Path | None, typer.Option(help="YAML; the demo policy's by default.")] = None,
    set_: Overrides = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint in the out folder.")] = False,
    gather_only: Annotated[bool, typer.Option(help="Stop once the demonstrations are there.")] = False,
) -> None:
    """Gathers the scripted demonstrations that are missing in LIBERO, then clones them into a policy."""
    from vla_sd_ros.sim.tasks import parse_tasks
    from vla_sd_ros.training.behaviour_cloning import train_policy
    from vla_sd_ros.training.config import load_training_config
    from vla_sd_ros.training.gather import gather_demonstrations

    chosen = load_training_config(config or share() / "config" / "training" / "demo_policy.yaml", parse_overrides(set_))
    wanted = chosen.gathering
    episodes = {task: count for name, count in wanted.episodes.items() for task in parse_tasks([name])}
    gathered = gather_demonstrations(
        episodes, chosen.demonstrations, seed=wanted.seed, noise=wanted.noise, processes=wanted.processes
    )
    typer.echo(
        f"demonstrations: {gathered.written} written, {gathered.existing} were there, "
        f"{gathered.failed} failed by the expert and left out"
    )
    if gather_only:
        return
    result = train_policy(chosen, resume=resume)
    if not result.finished:
        typer.echo("interrupted; go on with --resume")
        raise typer.Exit(1)
    typer.echo(f"policy in {result.checkpoint}; held out: {result.held_out}")
