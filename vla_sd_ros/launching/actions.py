"""Actions that start no process, and the conditions on which actions depend."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from vla_sd_ros.launching.context import LaunchContext
from vla_sd_ros.launching.strict import LaunchFileError, StrictCall
from vla_sd_ros.launching.substitutions import SomeText, normalised, perform

logger = logging.getLogger("launch.user")

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class IfCondition(StrictCall):
    """Holds where the text reads true or 1, whatever the case."""

    def __init__(self, predicate_expression: SomeText) -> None:
        self._expression = normalised(predicate_expression)

    def evaluate(self, context: LaunchContext) -> bool:
        """Returns whether it holds."""
        text = perform(context, self._expression)
        try:
            return _TRUTH[text.strip().lower()]
        except KeyError:
            raise LaunchFileError(f"condition reads {text!r}; legal: {sorted(_TRUTH)}") from None


class UnlessCondition(IfCondition):
    """Holds where the text reads false or 0."""

    def evaluate(self, context: LaunchContext) -> bool:
        """Returns whether it holds."""
        return not super().evaluate(context)


class Action(StrictCall):
    """Base class: one step of a launch file, carried out where its condition holds."""

    def __init__(self, *, condition: IfCondition | None = None) -> None:
        self._condition = condition

    def visit(self, context: LaunchContext) -> None:
        """Carries the action out, and then the actions that it yields."""
        if self._condition is None or self._condition.evaluate(context):
            for action in self.execute(context) or ():
                action.visit(context)

    def execute(self, context: LaunchContext) -> Iterable[Action] | None:
        """Does the work; returns actions to carry out next."""
        raise NotImplementedError


SomeActions: TypeAlias = "Action | Iterable[Action] | None"


class LaunchDescription(StrictCall):
    """What a launch file returns."""

    def __init__(self, initial_entities: Iterable[Action] | None = None) -> None:
        self.entities = list(initial_entities or ())

    def add_action(self, action: Action) -> None:
        """Appends an action."""
        self.entities.append(action)

    def visit(self, context: LaunchContext) -> None:
        """Carries out the actions in order."""
        for entity in self.entities:
            entity.visit(context)


class SetEnvironmentVariable(Action):
    """Sets a variable for the processes that follow; the environment of the launching process stays as it is."""

    def __init__(self, name: SomeText, value: SomeText, *, condition: IfCondition | None = None) -> None:
        super().__init__(condition=condition)
        self._name, self._value = normalised(name), normalised(value)

    def execute(self, context: LaunchContext) -> None:
        """Sets it."""
        context.environment[perform(context, self._name)] = perform(context, self._value)


class LogInfo(Action):
    """Tells the user something."""

    def __init__(self, *, msg: SomeText, condition: IfCondition | None = None) -> None:
        super().__init__(condition=condition)
        self._message = normalised(msg)

    def execute(self, context: LaunchContext) -> None:
        """Logs it."""
        logger.info("%s", perform(context, self._message))


class OpaqueFunction(Action):
    """Calls ``function(context, *args, **kwargs)``, which may return actions to carry out."""

    def __init__(
        self,
        *,
        function: Callable[..., Iterable[Action] | None],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        condition: IfCondition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self._function, self._args, self._kwargs = function, tuple(args), dict(kwargs or {})

    def execute(self, context: LaunchContext) -> Iterable[Action] | None:
        """Calls it."""
        return self._function(context, *self._args, **self._kwargs)


class Shutdown(Action):
    """Brings the launch down."""

    def __init__(self, *, reason: str = "reason not given", condition: IfCondition | None = None) -> None:
        super().__init__(condition=condition)
        self._reason = reason

    def execute(self, context: LaunchContext) -> None:
        """Asks for it; the processes are ended by whoever runs them."""
        context.shutdown_reason = context.shutdown_reason or self._reason
