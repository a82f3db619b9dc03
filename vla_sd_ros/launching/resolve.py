"""From a launch file and its arguments to the processes that it would start."""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from vla_sd_ros.launching.actions import LaunchDescription
from vla_sd_ros.launching.arguments import DeclareLaunchArgument
from vla_sd_ros.launching.context import LaunchContext, default_environment
from vla_sd_ros.launching.modules import stand_in_modules
from vla_sd_ros.launching.process import Process
from vla_sd_ros.launching.strict import LaunchFileError, UnknownLaunchArgument


class ResolvedLaunch:
    """Processes of a launch file; their temporary parameter files live as long as the ``with`` block.

    Attributes:
        processes: in the order of the launch file.
        arguments: declared arguments, by name.
        context: state after the launch file was carried out.
    """

    def __init__(self, context: LaunchContext) -> None:
        self.context = context

    @property
    def processes(self) -> list[Process]:
        """The processes to start."""
        return self.context.processes

    @property
    def arguments(self) -> dict[str, DeclareLaunchArgument]:
        """The declared arguments."""
        return self.context.declared

    def close(self) -> None:
        """Removes the temporary files."""
        self.context.close()

    def __enter__(self) -> ResolvedLaunch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(path: Path) -> LaunchDescription:
    """Imports a launch file with the stand-in in place of launch and calls its ``generate_launch_description``."""
    if not path.is_file():
        raise FileNotFoundError(f"launch file {str(path)!r} does not exist")
    if path.suffix != ".py":
        raise LaunchFileError(f"launch file {str(path)!r} is no Python file; legal: *.launch.py")
    module = types.ModuleType("_launch_file")
    module.__file__ = str(path)
    # Not through an import: its cache takes a file of the same size and second for unchanged.
    code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    with stand_in_modules():
        exec(code, module.__dict__)
        description = module.generate_launch_description()
    if not isinstance(description, LaunchDescription):
        raise LaunchFileError(f"{path}: generate_launch_description returned {type(description).__name__}")
    return description


def declared_arguments(path: str | Path) -> list[DeclareLaunchArgument]:
    """Returns the arguments that a launch file declares, without carrying it out."""
    return [entity for entity in load(Path(path).absolute()).entities if isinstance(entity, DeclareLaunchArgument)]


def resolve(
    path: str | Path, arguments: Mapping[str, str] | None = None, *, environment: Mapping[str, str] | None = None
) -> ResolvedLaunch:
    """Carries a launch file out, without starting anything.

    Args:
        path: the launch file.
        arguments: values of launch arguments, by name.
        environment: what the processes inherit; default: this process's environment.

    Raises:
        UnknownLaunchArgument: for an argument that the file does not declare. (launch itself ignores it.)
        LaunchFileError: for a missing or illegal value, a package, executable or parameter file that is not there.
        UnsupportedLaunchFeature: for what the stand-in does not know; ImportError for a class that it does not know.
    """
    file = Path(path).absolute()
    description = load(file)
    given = dict(arguments or {})
    context = LaunchContext(str(file.parent), dict(given), default_environment(environment))
    try:
        with stand_in_modules():  # functions of the launch file may import when they are called
            description.visit(context)
        unknown = sorted(set(given) - set(context.declared))
        if unknown:
            legal = ", ".join(sorted(context.declared)) or "none"
            raise UnknownLaunchArgument(f"{file.name} does not declare the arguments {unknown}; legal: {legal}")
    except BaseException:
        context.close()
        raise
    return ResolvedLaunch(context)
