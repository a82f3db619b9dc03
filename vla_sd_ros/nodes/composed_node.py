"""composed_node: the four nodes, and the simulator where asked for, in one process, each in a thread of its own.

Fewer processes and less memory; but a hung decode shares the process with the command node, so real arms run apart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rclpy.node import Node

from vla_sd_ros.nodes.camera_node import CameraNode
from vla_sd_ros.nodes.command_node import CommandNode
from vla_sd_ros.nodes.inference_node import InferenceNode
from vla_sd_ros.nodes.kinematic_state_node import KinematicStateNode
from vla_sd_ros.ros.run import run_nodes


def main(args: Sequence[str] | None = None) -> int:
    """Runs the nodes until a signal; ``--simulator`` adds the simulator."""
    given = list(sys.argv[1:] if args is None else args)
    factories: list[Callable[[], Node]] = [CameraNode, KinematicStateNode, InferenceNode, CommandNode]
    if "--simulator" in given:
        from vla_sd_ros.nodes.simulator_node import SimulatorNode

        given.remove("--simulator")
        factories.append(SimulatorNode)
    return run_nodes(factories, given)
