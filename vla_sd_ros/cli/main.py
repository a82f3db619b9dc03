"""``vla-sd``: check the machine, run the demonstration, evaluate, train, index, calibrate, measure."""

from __future__ import annotations

import logging
import os
import sys

import typer

from vla_sd_ros.cli import bench, calibrate, demo, doctor, evaluate, index, model, train, train_drafter

app = typer.Typer(
    name="vla-sd",
    help="Drives a robot arm with a vision-language-action model through ROS 2.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("evaluate")(evaluate.evaluate)
app.command("calibrate")(calibrate.calibrate)
train.app.command("drafter")(train_drafter.drafter)
app.add_typer(train.app, name="train")
app.add_typer(index.app, name="index")
app.add_typer(model.app, name="model")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Runs the command line."""
    # Where ROS came from pip its index lies in the environment, and no setup file has said so.
    os.environ.setdefault("AMENT_PREFIX_PATH", sys.prefix)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    app()
