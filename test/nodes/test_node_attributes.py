from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import rclpy
from rclpy.lifecycle import LifecycleNode

PACKAGE = Path(__file__).parents[2] / "vla_sd_ros"
NODE_BASES = {"Node", "LifecycleNode", "ManagedNode"}


def node_classes() -> list[ast.ClassDef]:
    return [
        node
        for folder in ("nodes", "ros")
        for path in sorted((PACKAGE / folder).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and NODE_BASES & {base.id for base in node.bases if isinstance(base, ast.Name)}
    ]


def attributes_set_by(node: ast.ClassDef) -> set[str]:
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    }


@pytest.fixture(scope="module")
def attributes_of_rclpy() -> Iterator[set[str]]:
    context = rclpy.Context()
    rclpy.init(context=context, args=[])
    node = LifecycleNode("bare", context=context)
    yield set(dir(node))
    node.destroy_node()
    rclpy.shutdown(context=context)


@pytest.mark.parametrize("node", node_classes(), ids=lambda node: node.name)
def test_a_node_does_not_overwrite_what_rclpy_keeps_in_it(node: ast.ClassDef, attributes_of_rclpy: set[str]) -> None:
    assert not attributes_set_by(node) & attributes_of_rclpy
