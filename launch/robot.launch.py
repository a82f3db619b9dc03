"""The graph on a real arm: camera, state, inference, command; drivers and controllers run elsewhere.

Ends with status 1 as soon as one of its processes ends; nothing is started again. Where the command node ends, its last
message stops the arm; where it is killed, the arm's controller must stop on silence.
"""

from __future__ import annotations

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration

from vla_sd_ros.launching.graph import common_arguments, graph_node, require_decoder, require_parameter_file

# Launch argument, topic in the nodes and default of the argument, description.
TOPICS = (
    ("camera_topic", "camera/image_raw", "Image of the camera; compressed images: this name with /compressed."),
    ("wrist_camera_topic", "wrist_camera/image_raw", "The same of a second camera, named wrist_camera in the views."),
    ("joint_state_topic", "joint_states", "sensor_msgs/JointState of arm and gripper."),
    ("pose_topic", "end_effector_pose", "geometry_msgs/PoseStamped of the end effector in the base frame."),
    ("twist_topic", "twist_command", "geometry_msgs/TwistStamped to the arm's servo or controller."),
    ("gripper_topic", "gripper_command", "trajectory_msgs/JointTrajectory to the gripper's controller."),
)
CAMERAS = ("camera_topic", "wrist_camera_topic")
CHOSEN = (["policy.params.yaml"],)


def remap(*arguments: str) -> list[tuple[str, object]]:
    names = {argument: topic for argument, topic, _ in TOPICS}
    plain = [(names[argument], LaunchConfiguration(argument)) for argument in arguments]
    compressed = [
        (f"{names[argument]}/compressed", [LaunchConfiguration(argument), "/compressed"])
        for argument in arguments
        if argument in CAMERAS
    ]
    return plain + compressed


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription(
        [
            # No default: which policy moves a real arm is never guessed.
            DeclareLaunchArgument("policy", description="Checkpoint directory of the policy."),
            *(
                DeclareLaunchArgument(argument, default_value=topic, description=description)
                for argument, topic, description in TOPICS
            ),
            *common_arguments(params="robot.yaml"),
            require_parameter_file(),
            require_decoder(),
            graph_node("camera_node", remappings=remap(*CAMERAS), composed=False),
            graph_node("kinematic_state_node", remappings=remap("joint_state_topic", "pose_topic"), composed=False),
            graph_node("inference_node", chosen=CHOSEN, composed=False),
            graph_node("command_node", remappings=remap("twist_topic", "gripper_topic"), composed=False),
            graph_node(
                "composed_node",
                chosen=CHOSEN,
                remappings=remap(*(argument for argument, _, _ in TOPICS)),
                composed=True,
            ),
            graph_node("lifecycle_manager"),
        ]
    )
