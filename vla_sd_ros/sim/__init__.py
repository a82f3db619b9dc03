"""LIBERO worlds and the scripted expert that solves some of their tasks (nothing here imports ROS)."""
