"""``python -m vla_sd_ros.launching FILE name:=value ...``: runs a launch file; ``--show-args`` lists its arguments."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from vla_sd_ros.launching.arguments import parse_arguments
from vla_sd_ros.launching.context import LaunchContext
from vla_sd_ros.launching.resolve import declared_arguments
from vla_sd_ros.launching.run import run
from vla_sd_ros.launching.strict import LaunchFileError

PACKAGE = "vla_sd_ros"
USAGE_ERROR = 2


def find_launch_file(name: str) -> Path:
    """Returns a launch file: ``name`` as a path, or the installed one of that name.

    Raises:
        FileNotFoundError: where neither exists; the message lists those that are installed.
    """
    if Path(name).is_file():
        return Path(name)
    try:
        folder = LaunchContext(".").prefix_of(PACKAGE) / "share" / PACKAGE / "launch"
    except LaunchFileError as error:
        raise FileNotFoundError(f"launch file {name!r} does not exist, and {error}") from error
    if (folder / name).is_file():
        return folder / name
    installed = ", ".join(sorted(path.name for path in folder.glob("*.launch.py")))
    raise FileNotFoundError(f"launch file {name!r} does not exist; installed: {installed or 'none'}")


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        Exit status: 0, 1 where a process failed, 2 where the launch file or its arguments are refused.
    """
    parser = argparse.ArgumentParser(prog="python -m vla_sd_ros.launching", description=__doc__)
    parser.add_argument("file", help="a launch file, or the name of an installed one: sim.launch.py")
    parser.add_argument("arguments", nargs="*", metavar="name:=value", help="launch arguments")
    parser.add_argument("-s", "--show-args", action="store_true", help="list the launch arguments and end")
    given = parser.parse_args(args)
    logging.basicConfig(level=logging.INFO, format="[%(levelname)s] [%(name)s] %(message)s", stream=sys.stderr)
    try:
        path = find_launch_file(given.file)
        if given.show_args:
            explained = "\n".join(argument.explain() for argument in declared_arguments(path))
            sys.stdout.write(f"Arguments (pass as name:=value):\n{explained or '    none'}\n")
            return 0
        return run(path, parse_arguments(given.arguments)).return_code
    except (OSError, ValueError, TypeError, ImportError, LaunchFileError) as error:
        sys.stderr.write(f"{given.file}: {error}\n")
        return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
