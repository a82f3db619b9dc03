"""``vla-sd evaluate``: success rates from LIBERO's own initial states, without ROS."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Measure success rates.")
