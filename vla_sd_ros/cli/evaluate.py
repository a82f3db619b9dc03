"""``vla-sd evaluate``: success rates from LIBERO's own initial states, without ROS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vla_sd_ros.cli.paths import demo_policy
from vla_sd_ros.ros.share import decoder_presets


def evaluate(
    tasks: Annotated[list[str], typer.Argument(help="suite/index, or suite/* for every task the expert solves.")],
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; the demo policy by default.")] = None,
    decoder: Annotated[str, typer.Option(help="Preset, or path of a YAML file.")] = "autoregressive",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    episodes: Annotated[int, typer.Option(min=1, max=50, help="Initial states per task, from the first.")] = 50,
    processes: Annotated[int, typer.Option(min=1)] = 2,
    out: Annotated[Path, typer.Option(help="JSON file of the results.")] = Path("out/success_rate.json"),
) -> None:
    """Plays tasks in the simulator without ROS and prints success rates with their intervals."""
    from vla_sd_ros.bench.decoder_choice import choose_decoder
    from vla_sd_ros.bench.plan import BenchPlan, EpisodeSetting
    from vla_sd_ros.bench.run import run_plan, weights_fingerprint
    from vla_sd_ros.bench.success_rate import summary_of, table_of, task_results, write_summary
    from vla_sd_ros.sim.tasks import parse_tasks

    folder = (policy or demo_policy()).resolve()
    plan = BenchPlan(
        policy=folder,
        decoders=(choose_decoder(decoder, decoder_presets(), folder),),
        tasks=tuple((task.suite, task.task_id) for task in parse_tasks(tasks)),
        initial_states=tuple(range(episodes)),
        setting=EpisodeSetting(dtype=dtype),
    )
    results = task_results(run_plan(plan, weights_fingerprint(folder), processes))
    typer.echo(table_of(results))
    write_summary(out, summary_of(plan, results))
