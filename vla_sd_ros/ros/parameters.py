"""Typed parameters: a pydantic model is the declaration, the validation and the documentation in one.

Nested models become dotted names (``limits.max_linear_speed``). A key that no model knows, a missing value and an
illegal one are refused with a message that names the key, the value and what is legal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter

Config = TypeVar("Config", bound=BaseModel)

# Parameters that rclpy itself declares.
_ROS_OWN = ("use_sim_time", "start_type_description_service", "qos_overrides")


class InvalidParameters(ValueError):
    """The node's parameters are not legal; the message names each key, its value and the legal values."""


def read_parameters(node: Node, model: type[Config], settable: Collection[str] = ()) -> Config:
    """Declares the fields of ``model`` as parameters of ``node``, reads and validates them.

    Args:
        node: gets the parameters.
        model: what they are.
        settable: those that may be set while the node runs; all others are read-only.

    Raises:
        InvalidParameters: where a key is unknown, a value missing or illegal.
    """
    names = set(_leaves(model))
    given = {name for name in node._parameter_overrides if name.split(".")[0] not in _ROS_OWN}
    unknown = sorted(given - names)
    if unknown:
        raise InvalidParameters(f"{node.get_name()}: unknown parameters {unknown}; legal: {sorted(names)}")
    values: dict[str, Any] = {}
    for name in sorted(names):
        if not node.has_parameter(name):
            descriptor = ParameterDescriptor(dynamic_typing=True, read_only=name not in settable)
            node.declare_parameter(name, None, descriptor)
        parameter = node.get_parameter(name)
        # A group exists though nothing in it is set: the refusal then names the parameters that are missing.
        group, leaf = _group(values, name)
        if parameter.type_ is not Parameter.Type.NOT_SET:
            group[leaf] = _plain(parameter.value)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InvalidParameters(f"{node.get_name()}: {describe(error, model)}") from error


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """One line per fault: key, value, and what is legal."""
    lines = []
    for fault in error.errors():
        key = ".".join(str(part) for part in fault["loc"]) or model.__name__
        value = "is not set" if fault["type"] == "missing" else f"= {fault['input']!r}"
        lines.append(f"parameter {key} {value}: {fault['msg']}")
    return "; ".join(lines)


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _leaves(annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def _group(values: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    *path, leaf = name.split(".")
    for part in path:
        values = values.setdefault(part, {})
    return values, leaf


def _plain(value: Any) -> Any:
    return list(value) if hasattr(value, "tolist") or isinstance(value, tuple) else value
