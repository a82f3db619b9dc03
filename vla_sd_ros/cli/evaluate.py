"""``vla-sd evaluate``: success rates from LIBERO's own initial states, without ROS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vla_sd_ros.cli.paths import demo_policy


def evaluate(
    tasks: Annotated[list[str], typer.Argument(help="suite/index, or suite/* for every task the expert solves.")],
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; the demo policy by default.")] = None,
    decoder: Annotated[str, typer.Option(help="How tokens are decoded.")] = "autoregressive",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    episodes: Annotated[int, typer.Option(min=1, max=50, help="Initial states per task, from the first.")] = 50,
    processes: Annotated[int, typer.Option(min=1)] = 2,
    out: Annotated[Path, typer.Option(help="JSON file of the results.")] = Path("out/success_rate.json"),
) -> None:
    """Plays tasks in the simulator without ROS and prints success rates with their intervals."""
    from vla_sd_ros.bench.success_rate import EvaluatedPolicy, evaluate_policy, summary_of, table_of, write_summary
    from vla_sd_ros.sim.tasks import parse_tasks

    evaluated = EvaluatedPolicy((policy or demo_policy()).resolve(), decoder, dtype)
    chosen = [(task.suite, task.task_id) for task in parse_tasks(tasks)]
    results = evaluate_policy(evaluated, chosen, range(episodes), processes)
    typer.echo(table_of(results))
    write_summary(out, summary_of(evaluated, results))
