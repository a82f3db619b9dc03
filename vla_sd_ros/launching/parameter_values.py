"""Parameters of a node as launch_ros takes them: files, files with substitutions, and dictionaries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import yaml

from vla_sd_ros.launching.context import LaunchContext
from vla_sd_ros.launching.strict import LaunchFileError, StrictCall, UnsupportedLaunchFeature
from vla_sd_ros.launching.substitutions import LaunchConfiguration, SomeText, Substitution, normalised, perform

Scalar: TypeAlias = "bool | int | float | str"
Value: TypeAlias = "Scalar | list[bool] | list[int] | list[float] | list[str]"

_SCALARS = (bool, int, float, str)
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")


class ParameterFile(StrictCall):
    """A parameter file; with ``allow_substs`` every ``$(var name)`` in it becomes the value of a launch argument."""

    def __init__(self, param_file: SomeText | Path, *, allow_substs: bool = False) -> None:
        self._file = normalised(str(param_file) if isinstance(param_file, Path) else param_file)
        self._allow_substs = allow_substs

    def path(self, context: LaunchContext) -> Path:
        """Returns the file to pass to the node; a temporary one where something was substituted.

        Raises:
            LaunchFileError: where the file does not exist, or is no YAML after substitution. (launch itself drops a
                missing file with a warning, and the node runs with its defaults.)
        """
        path = Path(perform(context, self._file))
        if not path.is_file():
            raise LaunchFileError(f"parameter file {str(path)!r} does not exist")
        if not self._allow_substs:
            return path
        text = path.read_text()
        if "\\" in text:
            raise UnsupportedLaunchFeature(f"{path}: the stand-in for launch does not know escapes with a backslash")
        text = _SUBSTITUTION.sub(lambda match: self._substitute(match[1], path, context), text)
        try:
            yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise LaunchFileError(f"{path}: no YAML after substitution: {error}") from error
        return context.write_parameter_file(text)

    def _substitute(self, inner: str, path: Path, context: LaunchContext) -> str:
        kind, _, name = inner.partition(" ")
        if kind != "var" or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise UnsupportedLaunchFeature(f"{path}: $({inner}): the stand-in for launch knows: $(var name)")
        return LaunchConfiguration(name).perform(context)


class ParameterValue(StrictCall):
    """A value whose type is stated instead of guessed from its text."""

    def __init__(self, value: SomeText | Scalar, *, value_type: type[Scalar] | None = None) -> None:
        if value_type not in (None, *_SCALARS):
            known = ", ".join(scalar.__name__ for scalar in _SCALARS)
            raise UnsupportedLaunchFeature(f"value_type {value_type!r}: the stand-in for launch knows: {known}")
        self._value, self._type = value, value_type

    def evaluate(self, context: LaunchContext) -> Value:
        """Returns the value in its type."""
        if isinstance(self._value, (bool, int, float)):
            if self._type not in (None, type(self._value)):
                raise TypeError(f"{self._value!r} is not of type {self._type}")
            return self._value
        text = perform(context, normalised(self._value))
        if self._type is str:
            return text
        if self._type in (int, float):
            return int(text) if self._type is int else float(text)
        if self._type is bool:
            text = {"1": "true", "0": "false"}.get(text, text)
        value = value_from_text(text)
        if self._type is bool and not isinstance(value, bool):
            raise ValueError(f"{text!r} is no bool; legal: true, false, 1, 0")
        return value


SomeValue: TypeAlias = (
    "Scalar | Substitution | ParameterValue | Sequence[Scalar | Substitution] | Mapping[SomeText, SomeValue]"
)
SomeParameters: TypeAlias = "SomeText | Path | ParameterFile | Mapping[SomeText, SomeValue]"


def value_from_text(text: str) -> Value:
    """Reads a value by YAML's rules, as launch_ros does where no type is stated.

    Raises:
        TypeError: where the text is none of the types that a parameter may have.
    """
    value = yaml.safe_load(text) if text else ""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, list) and value and type(value[0]) in _SCALARS and len({type(item) for item in value}) == 1:
        return value
    raise TypeError(f"{text!r} is no bool, int, float, str or uniform list of these; ParameterValue can state a type")


def evaluate(context: LaunchContext, parameters: Mapping[SomeText, SomeValue]) -> dict[str, Value]:
    """Returns the values by name; names of nested dictionaries are joined with dots."""
    return dict(_flattened(context, parameters, ""))


def _flattened(
    context: LaunchContext, parameters: Mapping[SomeText, SomeValue], prefix: str
) -> Iterator[tuple[str, Value]]:
    for key, value in parameters.items():
        name = prefix + perform(context, normalised(key))
        if isinstance(value, Mapping):
            yield from _flattened(context, value, f"{name}.")
        else:
            yield name, _evaluated(context, name, value)


def _evaluated(context: LaunchContext, name: str, value: object) -> Value:
    if isinstance(value, ParameterValue):
        return value.evaluate(context)
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, Substitution):
        return value_from_text(value.perform(context))
    if isinstance(value, Sequence) and value:
        types = {Substitution if isinstance(item, Substitution) else type(item) for item in value}
        if Substitution in types and types <= {str, Substitution}:
            return value_from_text(perform(context, normalised(value)))
        if types == {int, float}:
            return [float(item) for item in value]
        if len(types) == 1 and types <= set(_SCALARS):
            return list(value)
    raise TypeError(f"parameter {name!r}: {value!r}: legal: bool, int, float, str, uniform list of these, substitution")
