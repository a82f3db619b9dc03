"""Carries a launch file out with launch_ros itself, without starting its processes, and prints them as JSON.

``python resolve_with_launch.py FILE name:=value ...``; for each process: name, argv, the environment variables that
differ from this script's own, and the contents of its parameter files by path.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import launch
import yaml
from launch.actions import ExecuteLocal, IncludeLaunchDescription, execute_local
from launch.launch_description_sources import PythonLaunchDescriptionSource


def main() -> int:
    own = dict(os.environ)
    prepare = ExecuteLocal.prepare
    found: list[dict[str, Any]] = []

    def prepare_and_note(self: ExecuteLocal, context: Any) -> None:
        prepare(self, context)
        details = self.process_details
        argv, environment = list(details["cmd"]), details["env"]
        files = [argv[i + 1] for i, part in enumerate(argv) if part == "--params-file"]
        found.append(
            {
                "name": details["name"],
                "argv": argv,
                "environment": {key: value for key, value in environment.items() if own.get(key) != value},
                "files": {file: yaml.load(Path(file).read_text(), yaml.Loader) for file in files},
            }
        )

    async def start_nothing(*_: Any, **__: Any) -> Any:
        raise RuntimeError("not started: only the command line is wanted")

    ExecuteLocal.prepare = prepare_and_note
    execute_local.async_execute_process = start_nothing
    source = PythonLaunchDescriptionSource(sys.argv[1])
    arguments = [tuple(text.split(":=", 1)) for text in sys.argv[2:]]
    service = launch.LaunchService(argv=sys.argv[2:], noninteractive=True)
    service.include_launch_description(
        launch.LaunchDescription([IncludeLaunchDescription(source, launch_arguments=arguments)])
    )
    status = service.run()
    print("RESOLVED", json.dumps(found), flush=True)  # noqa: T201
    return status


if __name__ == "__main__":
    sys.exit(main())
