"""``vla-sd demo``: episodes of a policy through the whole ROS graph, with a report, videos and a picture."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from vla_sd_ros.bench.closed_loop import ClosedLoopPlan, run_closed_loop
from vla_sd_ros.bench.closed_loop_report import report_of
from vla_sd_ros.bench.latency_plot import plot_latency
from vla_sd_ros.cli.paths import demo_policy, simulation_launch_file
from vla_sd_ros.decoding.presets import load_decoder_config
from vla_sd_ros.ros.share import DEFAULT_DECODER, decoder_presets
from vla_sd_ros.sim.client import EpisodeRecord, GraphError

REQUIRED_SUCCESS_RATE = 0.8


class Compared(str, Enum):
    """What plays beside the decoder."""

    none = "none"
    ar = "ar"


def demo(
    suite: Annotated[str, typer.Option(help="LIBERO suite.")] = "libero_goal",
    tasks: Annotated[str, typer.Option(help="Task indices, comma-separated.")] = "8,1,4",
    episodes: Annotated[int, typer.Option(min=1, max=50, help="Initial states per task.")] = 2,
    first_state: Annotated[int, typer.Option(min=0, max=49, help="Index of the first initial state.")] = 0,
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; the demo policy by default.")] = None,
    decoder: Annotated[str, typer.Option(help="Preset, or path of a YAML file.")] = DEFAULT_DECODER,
    compare: Annotated[
        Compared, typer.Option(help="Whether plain greedy decoding plays the first initial state of each task too.")
    ] = Compared.ar,
    mode: Annotated[str, typer.Option(help="lockstep or realtime.")] = "lockstep",
    composed: Annotated[bool, typer.Option(help="All nodes in one process.")] = False,
    record: Annotated[bool, typer.Option(help="Write a video per episode.")] = True,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("out/demo"),
) -> None:
    """Runs episodes through real nodes and prints tables; status 0 only where the decoder succeeds in 80 %."""
    try:
        task_ids = [int(task) for task in tasks.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--tasks {tasks!r}; legal: indices such as 8,1,4") from None
    try:
        load_decoder_config(decoder, decoder_presets())
    except ValueError as error:
        raise typer.BadParameter(f"--decoder: {error}") from error
    compared = compare is not Compared.none and decoder != compare.value
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
        reference=compare.value if compared else "",
        reference_states=[first_state] if compared else [],
    )
    console = Console()
    try:
        with tqdm(total=plan.n_episodes, unit="episode", desc=suite) as progress:
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
    console.print(_episode_table(plan, result.episodes, result.reference_episodes))
    console.print(_latency_table(report), _decoder_table(report))
    console.print(_summary(plan, report))
    if result.success_rate < REQUIRED_SUCCESS_RATE:
        raise typer.Exit(1)


def _summary(plan: ClosedLoopPlan, report: dict[str, Any]) -> str:
    text = f"graph memory {report['memory_mb']['total']:.0f} MB; report in {plan.out}"
    reference = report.get("reference")
    if reference is None or reference["speed_up"] is None:
        return text
    return (
        f"{plan.decoder} decodes [bold]{reference['speed_up']:.2f}x[/] as fast as {plan.reference}: mean decode times "
        f"of what both played, which is the first initial state of each task ({reference['shared_episodes']} of "
        f"{len(report['episodes'])} episodes); {text}"
    )


def _episode_table(
    plan: ClosedLoopPlan, episodes: list[EpisodeRecord], reference_episodes: list[EpisodeRecord]
) -> Table:
    table = Table("task", "initial state", "decoder", "result", "steps", "wall s")
    for name, played in ((plan.decoder, episodes), (plan.reference, reference_episodes)):
        for episode in played:
            verdict = "[green]success[/]" if episode.success else f"[red]{episode.reason}[/]"
            table.add_row(
                episode.instruction,
                str(episode.initial_state),
                name,
                verdict,
                str(episode.steps),
                f"{episode.wall_s:.1f}",
            )
    return table


def _decoder_table(report: dict[str, Any]) -> Table:
    """One column per decoder."""
    decoders = report["decoders"]
    table = Table("decoder", *decoders)
    columns = [_decoder_column(figures) for figures in decoders.values()]
    for title in columns[0]:
        table.add_row(title, *(column[title] for column in columns))
    return table


def _decoder_column(figures: dict[str, Any]) -> dict[str, str]:
    low, high = figures["success_rate_95_interval"]
    spent = figures["ms_per_action"]
    return {
        "success": f"{figures['success_rate']:.0%} of {figures['episodes']} ({low:.0%} to {high:.0%})",
        "steps per episode": f"{figures['steps']:.1f}",
        **{f"decode ms per action, {q}": f"{spent[q]:.2f}" for q in ("p50", "p95", "mean") if q in spent},
        "forward passes per action": f"{figures['forward_passes_per_action']:.2f}",
        "actions without a forward pass": f"{figures['skip_share']:.0%}",
    }


def _latency_table(report: dict[str, Any]) -> Table:
    table = Table(f"latency of {report['decoder']}, ms", "p50", "p95", "p99")
    latency = report["latency_ms"]
    rows = {name: latency[name] for name in ("camera_to_action", "camera_to_command", "above_decode")}
    rows.update({f"decode: {name}": figures for name, figures in latency["stages"].items()})
    for name, figures in rows.items():
        table.add_row(name, *(f"{figures[q]:.2f}" if q in figures else "-" for q in ("p50", "p95", "p99")))
    return table
