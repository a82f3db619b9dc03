"""Substitutions: text that is known only when the launch file is carried out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from vla_sd_ros.launching.context import LaunchContext
from vla_sd_ros.launching.strict import LaunchFileError, StrictCall


class Substitution(StrictCall):
    """Base class."""

    def perform(self, context: LaunchContext) -> str:
        """Returns the text."""
        raise NotImplementedError

    def describe(self) -> str:
        """Returns a form to show to people, without a context."""
        return type(self).__name__


SomeText: TypeAlias = "str | Substitution | Iterable[str | Substitution]"


class TextSubstitution(Substitution):
    """Plain text."""

    def __init__(self, *, text: str) -> None:
        self.text = text

    def perform(self, context: LaunchContext) -> str:
        """Returns the text."""
        return self.text

    def describe(self) -> str:
        """Returns the text in quotes."""
        return repr(self.text)


def normalised(value: SomeText) -> tuple[Substitution, ...]:
    """Turns text, a substitution, or several of both into substitutions.

    Raises:
        TypeError: for anything else, as launch does: numbers are not converted silently.
    """
    if isinstance(value, (str, Substitution)):
        value = (value,)
    parts = tuple(value)
    for part in parts:
        if not isinstance(part, (str, Substitution)):
            raise TypeError(f"{part!r} is {type(part).__name__}; legal: str or Substitution")
    return tuple(TextSubstitution(text=part) if isinstance(part, str) else part for part in parts)


def perform(context: LaunchContext, parts: Iterable[Substitution]) -> str:
    """Performs each and joins them."""
    return "".join(part.perform(context) for part in parts)


def describe(parts: Iterable[Substitution]) -> str:
    """Describes each and joins them."""
    return " + ".join(part.describe() for part in parts)


class LaunchConfiguration(Substitution):
    """Value of a launch argument."""

    def __init__(self, variable_name: SomeText, *, default: SomeText | None = None) -> None:
        self._name = normalised(variable_name)
        self._default = None if default is None else normalised(default)

    def perform(self, context: LaunchContext) -> str:
        """Returns the value, or the default where there is none."""
        name = perform(context, self._name)
        if name in context.launch_configurations:
            return context.launch_configurations[name]
        if self._default is None:
            raise LaunchFileError(f"launch configuration {name!r} is not set")
        return perform(context, self._default)

    def describe(self) -> str:
        """Returns the argument's name."""
        return f"LaunchConfig({describe(self._name)})"


class EnvironmentVariable(Substitution):
    """Value of an environment variable, as earlier actions of the launch file left it."""

    def __init__(self, name: SomeText, *, default_value: SomeText | None = None) -> None:
        self._name = normalised(name)
        self._default = None if default_value is None else normalised(default_value)

    def perform(self, context: LaunchContext) -> str:
        """Returns the value, or the default where there is none."""
        name = perform(context, self._name)
        if name in context.environment:
            return context.environment[name]
        if self._default is None:
            raise LaunchFileError(f"environment variable {name!r} does not exist")
        return perform(context, self._default)

    def describe(self) -> str:
        """Returns the variable's name."""
        return f"EnvVar({describe(self._name)})"


class PathJoinSubstitution(Substitution):
    """Path joined from parts."""

    def __init__(self, substitutions: Iterable[str | Substitution]) -> None:
        self._parts = normalised(substitutions)

    def perform(self, context: LaunchContext) -> str:
        """Returns the path."""
        # Not Path: launch keeps '..' and trailing separators, and so must this.
        return os.path.join(*(part.perform(context) for part in self._parts))  # noqa: PTH118

    def describe(self) -> str:
        """Returns the parts."""
        return f"PathJoin({describe(self._parts)})"


class ThisLaunchFileDir(Substitution):
    """Folder of the launch file."""

    def __init__(self) -> None:
        pass

    def perform(self, context: LaunchContext) -> str:
        """Returns the folder's absolute path."""
        return context.launch_file_directory


class FindPackageShare(Substitution):
    """Share folder of an installed package."""

    def __init__(self, package: SomeText) -> None:
        self._package = normalised(package)

    def perform(self, context: LaunchContext) -> str:
        """Returns the folder."""
        package = perform(context, self._package)
        return str(Path(context.prefix_of(package), "share", package))

    def describe(self) -> str:
        """Returns the package's name."""
        return f"FindPackageShare({describe(self._package)})"
