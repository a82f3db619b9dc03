"""``vla-sd demo``: episodes of a policy through the whole ROS graph, with a report, videos and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from vla_sd_ros.bench.closed_loop import ClosedLoopPlan, report_of, run_closed_loop
from vla_sd_ros.bench.latency_plot import plot_latency
from vla_sd_ros.cli.paths import demo_policy, simulation_launch_file
from vla_sd_ros.sim.client import EpisodeRecord, GraphError

REQUIRED_SUCCESS_RATE = 0.8


def demo(
    suite: Annotated[str, typer.Option(help="LIBERO suite.")] = "libero_goal",
    tasks: Annotated[str, typer.Option(help="Task indices, comma-separated.")] = "8,1,4",
    episodes: Annotated[int, typer.Option(min=1, max=50, help="Initial states per task.")] = 2,
    first_state: Annotated[int, typer.Option(min=0, max=49, help="Index of the first initial state.")] = 0,
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; the demo policy by default.")] = None,
    decoder: Annotated[str, typer.Option(help="How tokens are decoded.")] = "autoregressive",
    mode: Annotated[str, typer.Option(help="lockstep or realtime.")] = "lockstep",
    composed: Annotated[bool, typer.Option(help="All nodes in one process.")] = False,
    record: Annotated[bool, typer.Option(help="Write a video per episode.")] = True,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("out/demo"),
) -> None:
    """Runs episodes through real nodes and prints a table; status 0 only where at least 80 % succeed."""
    try:
        task_ids = [int(task) for task in tasks.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--tasks {tasks!r}; legal: indices such as 8,1,4") from None
    plan = ClosedLoopPlan(
        suite=suite,
        task_ids=task_ids,
        initial_states=range(first_state, min(first_state + episodes, 50)),
        launch_file=simulation_launch_file(),
        policy=(policy or demo_policy()).resolve(),
        decoder=decoder,
        mode=mode,
        composed=composed,
        out=out.resolve(),
        record=record,
    )
    console = Console()
    try:
        with tqdm(total=len(task_ids) * len(plan.initial_states), unit="episode", desc=suite) as progress:
            succeeded = 0

            def on_episode(episode: EpisodeRecord) -> None:
                nonlocal succeeded
                succeeded += episode.success
                progress.update()
                progress.set_postfix(succeeded=f"{succeeded}/{progress.n}", task=episode.instruction)

            result = run_closed_loop(plan, on_episode)
    except GraphError as error:
        console.print(f"[red]{error}[/] (log: {plan.out / 'launch.log'})")
        raise typer.Exit(2) from error
    report = report_of(plan, result)
    (plan.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    plot_latency(report, plan.out / "latency.png")
    console.print(_episode_table(result.episodes), _latency_table(report))
    low, high = report["success_rate_95_interval"]
    console.print(
        f"success rate {report['success_rate']:.0%} of {len(result.episodes)} episodes (95 % interval {low:.0%} to "
        f"{high:.0%}); graph memory {report['memory_mb']['total']:.0f} MB; report in {plan.out}"
    )
    if result.success_rate < REQUIRED_SUCCESS_RATE:
        raise typer.Exit(1)


def _episode_table(episodes: list[EpisodeRecord]) -> Table:
    table = Table("task", "initial state", "result", "steps", "wall s")
    for episode in episodes:
        verdict = "[green]success[/]" if episode.success else f"[red]{episode.reason}[/]"
        table.add_row(
            episode.instruction, str(episode.initial_state), verdict, str(episode.steps), f"{episode.wall_s:.1f}"
        )
    return table


def _latency_table(report: dict[str, Any]) -> Table:
    table = Table("latency, ms", "p50", "p95", "p99")
    latency = report["latency_ms"]
    rows = {name: latency[name] for name in ("camera_to_action", "camera_to_command", "above_decode")}
    rows.update({f"decode: {name}": figures for name, figures in latency["stages"].items()})
    for name, figures in rows.items():
        table.add_row(name, *(f"{figures[q]:.2f}" if q in figures else "-" for q in ("p50", "p95", "p99")))
    return table
