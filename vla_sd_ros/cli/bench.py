"""``vla-sd bench``: measures, with ratios side by side in one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vla_sd_ros.cli.paths import demo_policy, simulation_launch_file

app = typer.Typer(no_args_is_help=True, help="Measure speed.")

Out = Annotated[Path | None, typer.Option(help="JSON file to write the figures to.")]


@app.command("decode")
def decode(
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; random weights by default.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 60,
    out: Out = None,
) -> None:
    """Our autoregressive decoder against transformers' generate on the same weights, alternating, one thread."""
    from vla_sd_ros.bench.decode import compare_autoregressive_with_generate
    from vla_sd_ros.policy.checkpoint import load_policy

    factory = None if policy is None else lambda dtype: load_policy(policy, dtype)
    result = compare_autoregressive_with_generate(factory, rounds=rounds)
    typer.echo(result["table"])
    _write(out, result)


@app.command("graph")
def graph(
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; the demo policy by default.")] = None,
    episodes: Annotated[int, typer.Option(min=1, max=50, help="Episodes of each arrangement.")] = 3,
    mode: Annotated[str, typer.Option(help="lockstep or realtime.")] = "lockstep",
    out: Out = None,
) -> None:
    """Latency from camera to action to command, nodes in processes of their own and in one process."""
    from vla_sd_ros.bench.closed_loop import ClosedLoopPlan, report_of, run_closed_loop

    reports: dict[str, Any] = {}
    for name, composed in (("separate", False), ("composed", True)):
        plan = ClosedLoopPlan(
            suite="libero_goal",
            task_ids=[8],
            initial_states=range(episodes),
            launch_file=simulation_launch_file(),
            policy=(policy or demo_policy()).resolve(),
            decoder="autoregressive",
            mode=mode,
            composed=composed,
            out=Path("out/bench") / name,
            record=False,
        )
        reports[name] = report_of(plan, run_closed_loop(plan, lambda episode: None))
    typer.echo("| processes | camera to action p50 / p95, ms | above the decode p50 / p95, ms | memory, MB |")
    typer.echo("|---|---|---|---|")
    for name, report in reports.items():
        whole, above = report["latency_ms"]["camera_to_action"], report["latency_ms"]["above_decode"]
        figures = [f"{part.get('p50', '-')} / {part.get('p95', '-')}" for part in (whole, above)]
        typer.echo(f"| {name} | {' | '.join(figures)} | {report['memory_mb']['total']} |")
    _write(out, reports)


def _write(out: Path | None, figures: dict[str, Any]) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(figures, indent=2) + "\n")
