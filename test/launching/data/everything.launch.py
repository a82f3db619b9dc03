"""Uses every class that the stand-in for launch knows."""

from __future__ import annotations

import sys

from launch import LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    LogInfo,
    OpaqueFunction,
    SetEnvironmentVariable,
    Shutdown,
)
from launch.conditions import IfCondition, UnlessCondition
from launch.substitutions import (
    EnvironmentVariable,
    LaunchConfiguration,
    PathJoinSubstitution,
    TextSubstitution,
    ThisLaunchFileDir,
)
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterFile, ParameterValue
from launch_ros.substitutions import FindPackageShare


def more(context, executable):
    rate = LaunchConfiguration("rate").perform(context)
    return [Node(package="vla_sd_ros", executable=executable, arguments=["--rate", rate])]


def generate_launch_description():
    rate = LaunchConfiguration("rate")
    return LaunchDescription(
        [
            DeclareLaunchArgument("rate", default_value="5.0", description="Hz"),
            DeclareLaunchArgument("fast", default_value="False"),
            DeclareLaunchArgument("kind", default_value="a", choices=["a", "b"]),
            DeclareLaunchArgument("copy", default_value=["<", rate, ">"]),
            LogInfo(msg=["rate is ", rate]),
            SetEnvironmentVariable("FIRST", rate),
            Node(
                package="vla_sd_ros",
                executable="camera_node",
                name="camera",
                namespace="arm/",
                exec_name="eye",
                parameters=[
                    {
                        "rate": rate,
                        "text": "true",
                        "stated": ParameterValue(rate, value_type=str),
                        "number": ParameterValue(rate, value_type=float),
                        "flag": ParameterValue(LaunchConfiguration("fast"), value_type=bool),
                        "guessed": LaunchConfiguration("fast"),
                        "joined": [LaunchConfiguration("kind"), "_", rate],
                        "empty": LaunchConfiguration("missing", default=""),
                        "list_text": LaunchConfiguration("missing", default="[1, 2]"),
                        "nested": {"deep": {"x": 1}, "y": False},
                    },
                    PathJoinSubstitution([FindPackageShare("vla_sd_ros"), "config", "sim.yaml"]),
                    {"second": 1},
                ],
                remappings=[("a", "b"), ("c", [rate, "/d"])],
                arguments=["--one", [TextSubstitution(text="t"), rate]],
                ros_arguments=["--log-level", "warn"],
                additional_env={"OWN": [EnvironmentVariable("FIRST"), "!"]},
                output="both",
                respawn=True,
                respawn_delay=1.5,
            ),
            Node(package="vla_sd_ros", executable="inference_node", namespace="/abs", parameters=[{"a": 1}]),
            Node(package="vla_sd_ros", executable="inference_node", name="n", parameters=[{"a": "x: y"}]),
            Node(package="vla_sd_ros", executable="command_node", condition=IfCondition(LaunchConfiguration("fast"))),
            Node(
                package="vla_sd_ros",
                executable="simulator_node",
                condition=UnlessCondition(LaunchConfiguration("fast")),
                parameters=[ParameterFile([ThisLaunchFileDir(), "/with_", "substitutions.yaml"], allow_substs=True)],
            ),
            SetEnvironmentVariable("FIRST", "changed", condition=IfCondition(LaunchConfiguration("fast"))),
            OpaqueFunction(function=more, args=["kinematic_state_node"]),
            ExecuteProcess(
                cmd=[sys.executable, "-c", ["print(", rate, ")"]],
                name="say",
                cwd=ThisLaunchFileDir(),
                output="screen",
                on_exit=Shutdown(reason="said"),
            ),
            LogInfo(msg=EnvironmentVariable("NOT_SET_ANYWHERE", default_value="none")),
        ]
    )
