"""The stand-in as modules: what ``from launch... import ...`` finds where launch_ros is not installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

from vla_sd_ros.launching import actions, arguments, context, parameter_values, process, substitutions

_CONTENTS: dict[str, tuple[type, ...]] = {
    "launch": (actions.LaunchDescription, context.LaunchContext),
    "launch.actions": (
        actions.LogInfo,
        actions.OpaqueFunction,
        actions.SetEnvironmentVariable,
        actions.Shutdown,
        arguments.DeclareLaunchArgument,
        process.ExecuteProcess,
    ),
    "launch.conditions": (actions.IfCondition, actions.UnlessCondition),
    "launch.events": (),
    "launch.events.process": (process.ProcessExited,),
    "launch.substitutions": (
        substitutions.EnvironmentVariable,
        substitutions.LaunchConfiguration,
        substitutions.PathJoinSubstitution,
        substitutions.TextSubstitution,
        substitutions.ThisLaunchFileDir,
    ),
    "launch_ros": (),
    "launch_ros.actions": (process.Node,),
    "launch_ros.parameter_descriptions": (parameter_values.ParameterFile, parameter_values.ParameterValue),
    "launch_ros.substitutions": (substitutions.FindPackageShare,),
}


class StandInModule(ModuleType):
    """A module that says what it knows when asked for anything else."""

    def __init__(self, name: str, contents: tuple[type, ...]) -> None:
        super().__init__(name, "Stand-in of vla_sd_ros.launching for machines without launch_ros.")
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec(name, loader=None, is_package=True)
        self.__all__ = [known.__name__ for known in contents]
        for known in contents:
            setattr(self, known.__name__, known)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        message = f"{self.__name__}.{name} is not in the stand-in for launch, which knows: {', '.join(self.__all__)}"
        # "from launch.actions import X" would turn an AttributeError into a message without the known names.
        raise ImportError(message, name=self.__name__)


def _make_modules() -> dict[str, StandInModule]:
    modules = {name: StandInModule(name, contents) for name, contents in _CONTENTS.items()}
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    return modules


_MODULES = _make_modules()
# Our own module that imports launch: it must not keep the one of an earlier import.
_BOUND_TO_LAUNCH = "vla_sd_ros.launching.graph"


def real_launch_is_there() -> bool:
    """Returns whether launch_ros itself can be imported."""
    found = sys.modules.get("launch_ros")
    if found is not None:
        return not isinstance(found, StandInModule)
    return importlib.util.find_spec("launch_ros") is not None


def install() -> bool:
    """Makes ``import launch`` and ``import launch_ros`` find the stand-in, only where launch_ros is missing.

    Returns:
        Whether the stand-in serves now.
    """
    if real_launch_is_there():
        return False
    sys.modules.update(_MODULES)
    return True


@contextmanager
def stand_in_modules() -> Iterator[None]:
    """Serves the stand-in for the length of a ``with``, whatever is installed."""
    hidden = {name: module for name, module in sys.modules.items() if _belongs_to_launch(name)}
    for name in hidden:
        del sys.modules[name]
    sys.modules.update(_MODULES)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _belongs_to_launch(name)]:
            del sys.modules[name]
        sys.modules.update(hidden)


def _belongs_to_launch(name: str) -> bool:
    return name == _BOUND_TO_LAUNCH or name.partition(".")[0] in ("launch", "launch_ros")
