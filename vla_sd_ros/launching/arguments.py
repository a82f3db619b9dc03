"""Launch arguments: declaring them, reading them from a command line, showing them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vla_sd_ros.launching.actions import Action, IfCondition
from vla_sd_ros.launching.context import LaunchContext
from vla_sd_ros.launching.strict import LaunchFileError
from vla_sd_ros.launching.substitutions import SomeText, describe, normalised, perform


class DeclareLaunchArgument(Action):
    """Declares an argument.

    Raises:
        LaunchFileError: when carried out, where a value is missing or is none of the choices.
    """

    def __init__(
        self,
        name: str,
        *,
        default_value: SomeText | None = None,
        description: str | None = None,
        choices: Sequence[str] | None = None,
        condition: IfCondition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self.name = name
        self.description = description or "no description given"
        self.choices = None if choices is None else tuple(choices)
        self.default = None if default_value is None else normalised(default_value)
        if self.choices is not None and isinstance(default_value, str) and default_value not in self.choices:
            raise LaunchFileError(f"argument {name!r}: default {default_value!r} is illegal; legal: {self.choices}")

    def execute(self, context: LaunchContext) -> None:
        """Sets the default where no value was given, and checks the value."""
        context.declared[self.name] = self
        if self.name not in context.launch_configurations:
            if self.default is None:
                raise LaunchFileError(f"required argument {self.name!r} was not given ({self.description})")
            context.launch_configurations[self.name] = perform(context, self.default)
        value = context.launch_configurations[self.name]
        if self.choices is not None and value not in self.choices:
            raise LaunchFileError(f"argument {self.name!r}: {value!r} is illegal; legal: {', '.join(self.choices)}")

    def explain(self) -> str:
        """Returns name, description, choices and default, for people."""
        lines = [f"    {self.name}:", f"        {self.description}"]
        if self.choices is not None:
            lines.append(f"        legal: {', '.join(self.choices)}")
        lines.append("        required" if self.default is None else f"        default: {describe(self.default)}")
        return "\n".join(lines)


def parse_arguments(given: Iterable[str]) -> dict[str, str]:
    """Reads ``name:=value`` texts; the last of a name wins.

    Raises:
        ValueError: where one has another form. As in launch, ``name:=`` is none: an empty value is not written so.
    """
    values: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition(":=")
        if not (name and separator and value):
            raise ValueError(
                f"launch argument {text!r} is malformed; legal: name:=value (leave it out for its default)"
            )
        values[name] = value
    return values
