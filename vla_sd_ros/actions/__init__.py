"""Actions: token <-> bin <-> normalised value <-> SI value, statistics and rotation representations.

Everything here is numpy; it knows no model, no ROS and no simulator.
"""
