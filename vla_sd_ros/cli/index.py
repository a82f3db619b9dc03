"""``vla-sd index``: builds the demonstration index of a policy, and says what one holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vla_sd_ros.cli.paths import demo_policy

app = typer.Typer(no_args_is_help=True, help="Demonstrations that drafts are retrieved from.")

Location = Annotated[
    str | None,
    typer.Option(help="Folder, URL of Milvus, or a path ending in .db; <policy>/index by default."),
]


@app.command("build")
def build(
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; the demo policy by default.")] = None,
    demonstrations: Annotated[Path, typer.Option(help="As `vla-sd train policy` gathers them.")] = Path(
        "out/demonstrations"
    ),
    out: Location = None,
    episodes: Annotated[int, typer.Option(min=1, help="Of each task, at most.")] = 16,
    disturbed: Annotated[bool, typer.Option(help="Take episodes gathered with disturbed actions too.")] = False,
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16: as the policy will run.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Runs the policy over demonstrations and stores what it saw and what it would have done."""
    import torch

    from vla_sd_ros.policy.checkpoint import load_policy
    from vla_sd_ros.policy.precision import choose_dtype
    from vla_sd_ros.retrieval.index import INDEX_FOLDER
    from vla_sd_ros.training.demonstrations import find_demonstrations
    from vla_sd_ros.training.index_building import build_index

    torch.set_num_threads(threads)
    folder = policy or demo_policy()
    location = out or str(folder / INDEX_FOLDER)
    loaded = load_policy(folder, choose_dtype(dtype, device), device=device)
    index = build_index(
        loaded, find_demonstrations(demonstrations), episodes, clean_only=not disturbed, location=location
    )
    frames = sum(index.size(instruction) for instruction in index.instructions)
    typer.echo(f"{frames} frames of {len(index.instructions)} tasks in {location}")


@app.command("info")
def info(
    location: Annotated[
        str | None, typer.Argument(help="Folder, URL of Milvus, or a path ending in .db; the demo policy's by default.")
    ] = None,
) -> None:
    """Says what an index holds and which checkpoint it belongs to."""
    from vla_sd_ros.retrieval.index import INDEX_FOLDER, open_index

    index = open_index(location or demo_policy() / INDEX_FOLDER)
    metadata = index.metadata
    typer.echo(f"checkpoint  {metadata.policy_fingerprint}")
    typer.echo(f"source      {metadata.source}")
    typer.echo(f"keys        {metadata.key_width} wide, of towers {list(metadata.block_widths)}")
    typer.echo(f"look-ahead  {metadata.look_ahead} control periods")
    for instruction in index.instructions:
        typer.echo(f"{index.size(instruction):8d} frames  {instruction}")
    index.close()
