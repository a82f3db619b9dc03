"""``vla-sd bench``: measures, with ratios side by side in one run."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Measure speed.")
