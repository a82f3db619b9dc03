"""``vla-sd bench``: measures, with ratios side by side in one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vla_sd_ros.cli import bench_gpu
from vla_sd_ros.cli.paths import demo_policy, simulation_launch_file
from vla_sd_ros.ros.share import decoder_presets

app = typer.Typer(no_args_is_help=True, help="Measure speed and success.")
app.command("gpu")(bench_gpu.gpu)
app.command("trace")(bench_gpu.trace)

Out = Annotated[Path | None, typer.Option(help="JSON file to write the figures to.")]


@app.command("run")
def run(
    out: Annotated[Path, typer.Option(help="Folder of episodes.jsonl, results.json, results.md and the plots.")],
    decoders: Annotated[str, typer.Option(help="Presets or YAML files, with commas between them.")] = "",
    ablation: Annotated[str, typer.Option(help="A named list of presets: heisd or kerv.")] = "",
    suite: Annotated[str, typer.Option(help="LIBERO suite.")] = "libero_goal",
    tasks: Annotated[str, typer.Option(help="Tasks of the suite, with commas between them.")] = "8,1,4",
    episodes: Annotated[int, typer.Option(min=1, max=50, help="Initial states per task.")] = 50,
    first_state: Annotated[int, typer.Option(min=0, max=49, help="The first of them.")] = 0,
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; the demo policy by default.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes, one thread each.")] = 2,
    shadow: Annotated[int, typer.Option(min=0, help="States per task that AR decodes too, off the clock.")] = 0,
    disturb: Annotated[bool, typer.Option(help="Push the object once when the hand comes near.")] = False,
    generate: Annotated[bool, typer.Option(help="Time transformers' generate on some of the images too.")] = False,
    max_steps: Annotated[int, typer.Option(min=0, help="Step limit; 0: the suite's own.")] = 0,
) -> None:
    """Closed-loop episodes of several decoders from the same states; goes on where an earlier run stopped."""
    from vla_sd_ros.bench.decoder_choice import choose_decoder
    from vla_sd_ros.bench.plan import ABLATIONS, BenchPlan, EpisodeSetting
    from vla_sd_ros.bench.played_episode import EpisodeJournal
    from vla_sd_ros.bench.plots import draw_plots
    from vla_sd_ros.bench.report import results_of, write_report
    from vla_sd_ros.bench.run import GENERATE_EVERY, run_plan, weights_fingerprint

    if ablation and ablation not in ABLATIONS:
        raise typer.BadParameter(f"--ablation {ablation!r}; legal: {', '.join(ABLATIONS)}")
    names = list(dict.fromkeys([*_listed(decoders), *ABLATIONS.get(ablation, ())]))
    if not names:
        raise typer.BadParameter("name decoders with --decoders, or an --ablation")
    folder = (policy or demo_policy()).resolve()
    try:
        plan = BenchPlan(
            policy=folder,
            decoders=tuple(choose_decoder(name, decoder_presets(), folder) for name in names),
            tasks=tuple((suite, int(task)) for task in _listed(tasks)),
            initial_states=tuple(range(first_state, min(50, first_state + episodes))),
            shadow=shadow,
            setting=EpisodeSetting(
                dtype=dtype, max_steps=max_steps, disturb=disturb, generate_every=GENERATE_EVERY if generate else 0
            ),
        )
        fingerprint = weights_fingerprint(folder)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    played = run_plan(plan, fingerprint, jobs, EpisodeJournal(out / "episodes.jsonl"))
    results = results_of(plan, fingerprint, played)
    typer.echo(write_report(out, results))
    draw_plots(out, results, played)


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


@app.command("bookkeeping")
def bookkeeping(
    decoders: Annotated[str, typer.Option(help="Presets or YAML files, with commas between them.")] = (
        "ar,lossless,hybrid,heisd,kerv,spec_vla"
    ),
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; the demo policy by default.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    instruction: Annotated[str, typer.Option(help="One that the index knows.")] = "put the bowl on the plate",
    out: Out = None,
) -> None:
    """Milliseconds per action that decoders take beside the model's forwards, one thread."""
    import torch

    from vla_sd_ros.bench.bookkeeping import format_bookkeeping, measure_bookkeeping
    from vla_sd_ros.policy.checkpoint import load_policy
    from vla_sd_ros.policy.precision import choose_dtype

    torch.set_num_threads(1)
    folder = (policy or demo_policy()).resolve()
    loaded = load_policy(folder, choose_dtype(dtype, "cpu"))
    rows = measure_bookkeeping(loaded, folder, _listed(decoders), decoder_presets(), instruction)
    typer.echo(format_bookkeeping(rows))
    _write(out, {"rows": rows})


@app.command("vectors")
def vectors(
    index: Annotated[Path | None, typer.Option(help="Index folder; the demo policy's by default.")] = None,
    out: Out = None,
) -> None:
    """Vector searches on the keys of an index: latency at equal recall."""
    from vla_sd_ros.bench.vector_search import compare_vector_searches
    from vla_sd_ros.retrieval.index import INDEX_FOLDER

    result = compare_vector_searches(index or demo_policy() / INDEX_FOLDER)
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
    from vla_sd_ros.bench.closed_loop import ClosedLoopPlan, run_closed_loop
    from vla_sd_ros.bench.closed_loop_report import report_of

    reports: dict[str, Any] = {}
    for name, composed in (("separate", False), ("composed", True)):
        plan = ClosedLoopPlan(
            suite="libero_goal",
            task_ids=[8],
            initial_states=range(episodes),
            launch_file=simulation_launch_file(),
            policy=(policy or demo_policy()).resolve(),
            decoder="ar",
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


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _write(out: Path | None, figures: dict[str, Any]) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(figures, indent=2) + "\n")
