"""Actions that start a process, and what the runner needs to know about it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from vla_sd_ros.launching.actions import Action, IfCondition, SomeActions
from vla_sd_ros.launching.context import LaunchContext
from vla_sd_ros.launching.parameter_values import ParameterFile, SomeParameters, evaluate
from vla_sd_ros.launching.strict import LaunchFileError
from vla_sd_ros.launching.substitutions import SomeText, normalised, perform

OUTPUTS = ("screen", "log", "both")

OnExit: TypeAlias = "SomeActions | Callable[[ProcessExited, LaunchContext], SomeActions]"

_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Process:
    """A process to start.

    Attributes:
        name: executable and a running number.
        argv: executable and arguments.
        environment: all of it.
        working_directory: None keeps the launcher's.
        output: screen shows stdout and stderr; log shows stderr only; both is screen. (No log file is kept.)
        on_exit: what to do when it ends.
        respawn: whether to start it again.
        respawn_delay_s: how long to wait before.
        respawn_max_retries: how often; negative is without limit.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str | None = None
    output: str = "log"
    on_exit: OnExit = None
    respawn: bool = False
    respawn_delay_s: float = 0.0
    respawn_max_retries: int = -1


@dataclass(frozen=True)
class ProcessExited:
    """What an ``on_exit`` function learns; names as in launch."""

    process_name: str
    cmd: list[str]
    pid: int
    returncode: int


class ExecuteProcess(Action):
    """Starts a process."""

    def __init__(
        self,
        *,
        cmd: Iterable[SomeText],
        name: SomeText | None = None,
        cwd: SomeText | None = None,
        additional_env: Mapping[SomeText, SomeText] | None = None,
        output: SomeText = "log",
        on_exit: OnExit = None,
        respawn: bool | SomeText = False,
        respawn_delay: float | None = None,
        respawn_max_retries: int = -1,
        condition: IfCondition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self._command = [normalised(part) for part in cmd]
        self._name = None if name is None else normalised(name)
        self._directory = None if cwd is None else normalised(cwd)
        self._environment = [(normalised(key), normalised(value)) for key, value in (additional_env or {}).items()]
        self._output = normalised(output)
        self._on_exit = on_exit
        self._respawn = normalised(str(respawn)) if isinstance(respawn, bool) else normalised(respawn)
        self._respawn_delay_s = respawn_delay or 0.0
        self._respawn_max_retries = respawn_max_retries

    def execute(self, context: LaunchContext) -> None:
        """Adds the process to those of the launch."""
        argv = self.argv(context)
        output = perform(context, self._output)
        if output not in OUTPUTS:
            raise LaunchFileError(f"output {output!r} is illegal; the stand-in for launch knows: {', '.join(OUTPUTS)}")
        name = Path(argv[0]).name if self._name is None else perform(context, self._name)
        environment = dict(context.environment)
        environment.update((perform(context, key), perform(context, value)) for key, value in self._environment)
        context.processes.append(
            Process(
                name=f"{name}-{len(context.processes) + 1}",
                argv=argv,
                environment=environment,
                working_directory=None if self._directory is None else perform(context, self._directory),
                output=output,
                on_exit=self._on_exit,
                respawn=IfCondition(self._respawn).evaluate(context),
                respawn_delay_s=self._respawn_delay_s,
                respawn_max_retries=self._respawn_max_retries,
            )
        )

    def argv(self, context: LaunchContext) -> tuple[str, ...]:
        """Returns executable and arguments."""
        return tuple(perform(context, part) for part in self._command)


class Node(ExecuteProcess):
    """Starts a ROS node: an executable of a package, with ROS arguments in the order in which launch_ros gives them."""

    def __init__(
        self,
        *,
        package: SomeText,
        executable: SomeText,
        name: SomeText | None = None,
        namespace: SomeText | None = None,
        exec_name: SomeText | None = None,
        parameters: Sequence[SomeParameters] | None = None,
        remappings: Sequence[tuple[SomeText, SomeText]] | None = None,
        ros_arguments: Sequence[SomeText] | None = None,
        arguments: Sequence[SomeText] | None = None,
        cwd: SomeText | None = None,
        additional_env: Mapping[SomeText, SomeText] | None = None,
        output: SomeText = "log",
        on_exit: OnExit = None,
        respawn: bool | SomeText = False,
        respawn_delay: float | None = None,
        respawn_max_retries: int = -1,
        condition: IfCondition | None = None,
    ) -> None:
        super().__init__(
            cmd=list(arguments or ()),
            name=exec_name,
            cwd=cwd,
            additional_env=additional_env,
            output=output,
            on_exit=on_exit,
            respawn=respawn,
            respawn_delay=respawn_delay,
            respawn_max_retries=respawn_max_retries,
            condition=condition,
        )
        self._package, self._executable = normalised(package), normalised(executable)
        self._node_name = None if name is None else normalised(name)
        self._namespace = None if namespace is None else normalised(namespace)
        self._parameters = [
            entry if isinstance(entry, (Mapping, ParameterFile)) else ParameterFile(entry) for entry in parameters or ()
        ]
        self._remappings = [(normalised(source), normalised(target)) for source, target in remappings or ()]
        self._ros_arguments = None if ros_arguments is None else [normalised(part) for part in ros_arguments]

    def argv(self, context: LaunchContext) -> tuple[str, ...]:
        """Returns executable and arguments; writes the parameter files that they name."""
        argv = [self._find_executable(context), *super().argv(context)]
        if self._ros_arguments is not None:
            argv += ["--ros-args", *(perform(context, part) for part in self._ros_arguments)]
        argv.append("--ros-args")
        name = None if self._node_name is None else perform(context, self._node_name)
        namespace = None if self._namespace is None else absolute_namespace(perform(context, self._namespace))
        if name is not None:
            if not _TOKEN.fullmatch(name):
                raise LaunchFileError(f"node name {name!r} is illegal; legal: letters, digits and _, no digit first")
            argv += ["-r", f"__node:={name}"]
        if namespace is not None:
            argv += ["-r", f"__ns:={namespace}"]
        full_name = "/**" if name is None or namespace is None else f"{namespace.rstrip('/')}/{name}"
        for entry in self._parameters:
            argv += ["--params-file", str(self._parameter_file(entry, full_name, context))]
        for source, target in self._remappings:
            argv += ["-r", f"{perform(context, source)}:={perform(context, target)}"]
        return tuple(argv)

    def _find_executable(self, context: LaunchContext) -> str:
        package = perform(context, self._package)
        folder = context.prefix_of(package) / "lib" / package
        path = folder / perform(context, self._executable)
        if not (path.is_file() and os.access(path, os.X_OK)):
            there = sorted(file.name for file in folder.glob("*")) if folder.is_dir() else []
            raise LaunchFileError(f"executable {path.name!r} is not in {str(folder)!r}, which holds: {there}")
        return str(path)

    def _parameter_file(self, entry: Mapping[Any, Any] | ParameterFile, full_name: str, context: LaunchContext) -> Path:
        if isinstance(entry, ParameterFile):
            return entry.path(context)
        values = evaluate(context, entry)
        return context.write_parameter_file(yaml.safe_dump({full_name: {"ros__parameters": values}}))


def absolute_namespace(namespace: str) -> str:
    """Makes a namespace absolute and strips slashes from its end.

    Raises:
        LaunchFileError: where it is not legal in ROS.
    """
    absolute = "/" + namespace.strip("/") if not namespace.startswith("/") else namespace.rstrip("/") or "/"
    if absolute != "/" and not all(_TOKEN.fullmatch(token) for token in absolute[1:].split("/")):
        raise LaunchFileError(
            f"namespace {namespace!r} is illegal; legal: names of letters, digits and _, no digit first, joined by /"
        )
    return absolute
