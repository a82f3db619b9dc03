"""``vla-sd train``: gathers scripted demonstrations and clones them into a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vla_sd_ros.cli.paths import share

app = typer.Typer(no_args_is_help=True, help="Train what the package ships.")


@app.command("gather")
def gather(
    tasks: Annotated[list[str], typer.Argument(help="suite/index, or suite/* for every task the expert solves.")],
    episodes: Annotated[int, typer.Option(min=1, help="Demonstrations per task.")] = 60,
    out: Annotated[Path, typer.Option(help="Folder of the demonstrations.")] = Path("out/demonstrations"),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    noise: Annotated[float, typer.Option(min=0.0, help="Disturbance of every other episode; labels stay clean.")] = 0.3,
    processes: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Gathers scripted demonstrations in LIBERO; what is there already is kept."""
    from vla_sd_ros.sim.tasks import parse_tasks
    from vla_sd_ros.training.gather import gather_demonstrations

    result = gather_demonstrations(parse_tasks(tasks), episodes, out, seed=seed, noise=noise, processes=processes)
    typer.echo(f"{result.written} written, {result.existing} were there, {result.failed} failed and were left out")


@app.command("policy")
def policy(
    config: Annotated[Path | None, typer.Option(help="YAML; the demo policy's by default.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, overrides the YAML.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint in the out folder.")] = False,
) -> None:
    """Gathers what the configuration's tasks lack, then clones the demonstrations into a policy."""
    import yaml

    from vla_sd_ros.training.behaviour_cloning import train_policy
    from vla_sd_ros.training.config import load_training_config

    overrides = {}
    for item in set_ or []:
        key, separator, value = item.partition("=")
        if not separator:
            raise typer.BadParameter(f"--set {item!r}; legal: key=value")
        overrides[key] = yaml.safe_load(value)
    chosen = config or share() / "config" / "training" / "demo_policy.yaml"
    result = train_policy(load_training_config(chosen, overrides), resume=resume)
    typer.echo(str(result))
