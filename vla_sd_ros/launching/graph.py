"""What ``sim.launch.py`` and ``robot.launch.py`` share, written for launch and launch_ros, real or stood in for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.conditions import IfCondition, UnlessCondition
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution, ThisLaunchFileDir
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterFile
from launch_ros.substitutions import FindPackageShare

PACKAGE = "vla_sd_ros"
DEFAULT_DECODER = "lossless"
LOG_LEVELS = ("debug", "info", "warn", "error", "fatal")


def end_launch(event: Any, context: Any) -> None:
    """``on_exit`` of a process that the graph cannot do without: brings the launch down with status 1.

    An exception, since launch's own Shutdown action brings the launch down with status 0.

    Raises:
        RuntimeError: unless the launch is coming down already.
    """
    if not context.is_shutdown:
        raise RuntimeError(
            f"{event.process_name} ended with exit code {event.returncode}; the whole graph ends with it"
        )


def common_arguments(params: str) -> list[DeclareLaunchArgument]:
    """Arguments of both launch files.

    Args:
        params: name of the default parameter file in the package's ``config`` folder.
    """
    default_params = PathJoinSubstitution([FindPackageShare(PACKAGE), "config", params])
    return [
        DeclareLaunchArgument(
            "decoder",
            default_value=DEFAULT_DECODER,
            description="How actions are decoded: a preset of config/decoders, or the path of a YAML file.",
        ),
        DeclareLaunchArgument(
            "composed",
            default_value="false",
            choices=["true", "false"],
            description="Whether the nodes share one process.",
        ),
        DeclareLaunchArgument("namespace", default_value="", description="Namespace of every node."),
        DeclareLaunchArgument(
            "log_level", default_value="info", choices=list(LOG_LEVELS), description="Least severity that is logged."
        ),
        DeclareLaunchArgument(
            "params", default_value=default_params, description="Parameter file, a section per node: /**/camera_node."
        ),
    ]


def require_parameter_file() -> OpaqueFunction:
    """Refuses a parameter file that does not exist; launch would only warn and start the nodes without it."""

    def check(context: Any) -> None:
        path = LaunchConfiguration("params").perform(context)
        if not Path(path).is_file():
            raise FileNotFoundError(f"argument 'params': {path!r} is not a file")

    return OpaqueFunction(function=check)


def require_decoder() -> OpaqueFunction:
    """Refuses a decoder that is neither a preset of the package nor a YAML file: ``choices`` could not name files."""
    folder = PathJoinSubstitution([FindPackageShare(PACKAGE), "config", "decoders"])

    def check(context: Any) -> None:
        decoder = LaunchConfiguration("decoder").perform(context)
        presets = sorted(path.stem for path in Path(folder.perform(context)).glob("*.yaml"))
        if decoder not in presets and not (decoder.endswith((".yaml", ".yml")) and Path(decoder).is_file()):
            raise FileNotFoundError(f"argument 'decoder': {decoder!r}; legal: {', '.join(presets)}, or a YAML file")

    return OpaqueFunction(function=check)


def graph_node(
    executable: str,
    *,
    chosen: Sequence[Any] = (),
    arguments: Iterable[str] = (),
    remappings: Iterable[tuple[str, Any]] = (),
    composed: bool | None = None,
) -> Node:
    """Returns the action that starts one process of the graph.

    Args:
        executable: of this package.
        chosen: parameter files beside the launch file, each a name or its parts, read after the one of argument
            ``params``; ``$(var name)`` in them is the value of a launch argument.
        arguments: of the executable.
        remappings: topic name in the node, and where it is found.
        composed: starts it only where argument ``composed`` has this value; None starts it always.
    """
    condition = {None: None, True: IfCondition, False: UnlessCondition}[composed]
    return Node(
        package=PACKAGE,
        executable=executable,
        namespace=LaunchConfiguration("namespace"),
        condition=condition and condition(LaunchConfiguration("composed")),
        arguments=list(arguments),
        ros_arguments=["--log-level", LaunchConfiguration("log_level")],
        parameters=[
            ParameterFile(LaunchConfiguration("params")),
            *(ParameterFile([ThisLaunchFileDir(), "/", *name], allow_substs=True) for name in chosen),
        ],
        remappings=list(remappings),
        output="screen",
        on_exit=end_launch,
    )
