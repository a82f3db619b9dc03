"""Training of the small demo policy: demonstrations, data set, behaviour cloning, evaluation (no ROS)."""
