"""The seam to ROS 2: messages to arrays and back, QoS, typed parameters, diagnostics, node life. Thin by intent."""
