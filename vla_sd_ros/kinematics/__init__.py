"""Kinematics: what joint states and poses say about the arm's motion. No ROS in here."""
