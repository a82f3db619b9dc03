"""A process that sends actions of now at 20 Hz until it is killed: ``action_source.py TOPIC``."""

from __future__ import annotations

import sys
import time

import rclpy
from message_makers import vla_action

from vla_sd_ros.msg import VlaAction
from vla_sd_ros.ros import qos

rclpy.init()
node = rclpy.create_node("action_source")
publisher = node.create_publisher(VlaAction, sys.argv[1], qos.reliable(depth=1))
while True:
    publisher.publish(vla_action(time.time_ns()))
    time.sleep(0.05)
