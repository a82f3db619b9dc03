"""What the stand-in refuses: whatever of launch it does not know, by name, before a process starts."""

from __future__ import annotations

import inspect
from typing import Any

from typing_extensions import Self


class UnsupportedLaunchFeature(TypeError):
    """The launch file uses something that launch may know and its stand-in does not."""


class UnknownLaunchArgument(ValueError):
    """An argument was given that the launch file does not declare."""


class LaunchFileError(RuntimeError):
    """The launch file cannot be carried out as written: a value is missing or illegal."""


class StrictCall:
    """Base of every stand-in class: an argument that the constructor does not know is an error that says what it knows.

    Raises:
        UnsupportedLaunchFeature: on construction.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Checks the arguments against the constructor's."""
        signature = inspect.signature(cls.__init__)
        try:
            signature.bind(None, *args, **kwargs)
        except TypeError as error:
            known = ", ".join(name for name in signature.parameters if name != "self")
            raise UnsupportedLaunchFeature(
                f"{cls.__name__}: {error}; the stand-in for launch knows: {known or 'no arguments'}"
            ) from None
        return super().__new__(cls)
