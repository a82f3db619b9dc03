"""The whole graph on a simulated arm in a LIBERO task: simulator, camera, state, inference, command.

Ends with status 1 as soon as one of its processes ends; nothing is started again.
"""

from __future__ import annotations

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, SetEnvironmentVariable
from launch.substitutions import EnvironmentVariable, LaunchConfiguration, PathJoinSubstitution
from launch_ros.substitutions import FindPackageShare

from vla_sd_ros.launching.graph import PACKAGE, common_arguments, graph_node, require_decoder, require_parameter_file

# Keyed by node, so that the same files serve nodes apart and nodes in one process.
CHOSEN = (["policy.params.yaml"], ["sim.params.yaml"], [LaunchConfiguration("mode"), ".params.yaml"])
# Where the simulator tells how an episode stands.
EPISODE = [("episode_status", "simulator_node/episode")]


def generate_launch_description() -> LaunchDescription:
    share = FindPackageShare(PACKAGE)
    # A simulated arm must not be heard by a real one. What the user has set stays.
    environment = {
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "FASTRTPS_DEFAULT_PROFILES_FILE": PathJoinSubstitution([share, "config", "fastdds_localhost.xml"]),
        "OMP_NUM_THREADS": "1",
    }
    return LaunchDescription(
        [
            DeclareLaunchArgument("suite", default_value="libero_goal", description="LIBERO suite."),
            DeclareLaunchArgument("task", default_value="8", description="Index of the task in its suite."),
            DeclareLaunchArgument(
                "policy",
                default_value=PathJoinSubstitution([share, "models", "demo_policy"]),
                description="Checkpoint directory of the policy.",
            ),
            DeclareLaunchArgument(
                "mode",
                default_value="lockstep",
                choices=["lockstep", "realtime"],
                description="Simulated time that waits for every command, or the wall clock.",
            ),
            DeclareLaunchArgument(
                "record", default_value="", description="Directory for a video of every episode; empty for none."
            ),
            *common_arguments(params="sim.yaml"),
            require_parameter_file(),
            require_decoder(),
            *(
                SetEnvironmentVariable(name, EnvironmentVariable(name, default_value=value))
                for name, value in environment.items()
            ),
            graph_node("simulator_node", chosen=CHOSEN, composed=False),
            graph_node("camera_node", chosen=CHOSEN, composed=False),
            graph_node("kinematic_state_node", chosen=CHOSEN, composed=False),
            graph_node("inference_node", chosen=CHOSEN, remappings=EPISODE, composed=False),
            graph_node("command_node", chosen=CHOSEN, composed=False),
            graph_node("composed_node", chosen=CHOSEN, remappings=EPISODE, arguments=["--simulator"], composed=True),
            # On the wall clock: simulated time does not start before the lifecycle nodes are active.
            graph_node("lifecycle_manager"),
        ]
    )
