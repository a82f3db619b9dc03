"""``vla-sd bench gpu`` and ``vla-sd bench trace``: latency at OpenVLA's size on one card."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from vla_sd_ros.ros.share import decoder_presets, share

DECODERS = "ar,lossless,heisd,kerv,hybrid"


class Size(str, Enum):
    """Shapes of the policy."""

    openvla_7b = "7b"
    tiny = "tiny"


class Runtime(str, Enum):
    """How forwards are launched."""

    auto = "auto"
    eager = "eager"
    graphs = "graphs"


class Quantisation(str, Enum):
    """Of the language model's weights."""

    none = "none"
    int8 = "int8"
    int4 = "int4"


def gpu(
    out: Annotated[Path, typer.Option(help="Folder of gpu.json and gpu.md.")],
    device: Annotated[str, typer.Option(help="cuda, cuda:N or cpu.")] = "cuda",
    size: Annotated[Size, typer.Option(help="7b: OpenVLA-7B's exact shapes; tiny: its structure.")] = Size.openvla_7b,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")] = "bfloat16",
    runtime: Annotated[Runtime, typer.Option(help="How forwards are launched.")] = Runtime.auto,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Whether torch.compile is used.")] = False,
    quantisation: Annotated[Quantisation, typer.Option(help="Weight-only, through torchao.")] = Quantisation.none,
    decoders: Annotated[str, typer.Option(help="Traces, with commas between them.")] = DECODERS,
    traces: Annotated[Path | None, typer.Option(help="Folder of the traces; the committed ones by default.")] = None,
    max_minutes: Annotated[float, typer.Option(min=0.0, help="Where time is short there are fewer repeats.")] = 9.0,
    repeats: Annotated[int, typer.Option(min=1, help="Of every stage at most.")] = 50,
    threads: Annotated[int, typer.Option(min=0, help="Of a CPU; 0: PyTorch's choice.")] = 0,
) -> None:
    """Latency with random weights: stages, and whole actions at the acceptance that was recorded in the simulation."""
    from vla_sd_ros.bench.gpu.benchmark import failures, run_benchmark
    from vla_sd_ros.bench.gpu.report import write_report
    from vla_sd_ros.bench.gpu.settings import BenchSettings
    from vla_sd_ros.bench.gpu.trace import load_trace
    from vla_sd_ros.policy.memory import InsufficientMemory

    names = [name.strip() for name in decoders.split(",") if name.strip()]
    try:
        chosen = [load_trace(name, traces or _traces()) for name in dict.fromkeys(names)]
        settings = BenchSettings.checked(
            device=device,
            size=size.value,
            dtype=dtype,
            runtime=runtime.value,
            compile=compiled,
            quantisation=quantisation.value,
            max_minutes=max_minutes,
            repeats=repeats,
            threads=threads,
        )
        results = run_benchmark(settings, chosen)
    except (ValueError, InsufficientMemory) as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(write_report(out, results))
    for failure in failures(results):
        typer.echo(f"failed: {failure}", err=True)
    if failures(results):
        raise typer.Exit(1)


def trace(
    episodes: Annotated[Path, typer.Option(help="Folder of an episodes.jsonl that vla-sd bench run wrote.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the traces; the committed ones by default.")] = None,
    decoders: Annotated[str, typer.Option(help="Presets, with commas between them.")] = DECODERS,
    steps: Annotated[int, typer.Option(min=1, help="Steps per decoder, evenly of all that it played.")] = 400,
) -> None:
    """Acceptance traces from episodes that were played: what bench gpu replays."""
    from tqdm import tqdm

    from vla_sd_ros.bench.gpu.trace import save_trace
    from vla_sd_ros.bench.gpu.tracing import make_trace, read_journal
    from vla_sd_ros.decoding.presets import load_decoder_config

    names = [name.strip() for name in decoders.split(",") if name.strip()]
    try:
        configs = {name: load_decoder_config(name, decoder_presets()) for name in names}
        played = read_journal(episodes)
        for name, config in tqdm(configs.items(), desc="traces", unit="decoder"):
            made = make_trace(name, config, played, steps)
            path = save_trace(out or _traces(), made)
            typer.echo(
                f"{path}: {len(made)} of {made.recording.steps} steps, forwards per action "
                f"{made.forwards / len(made):.3f} ({made.recording.forwards_per_action:.3f} in all of them)"
            )
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error


def _traces() -> Path:
    return share() / "config" / "traces"


if __name__ == "__main__":  # where ROS is missing, which vla-sd needs
    typer.run(gpu)
