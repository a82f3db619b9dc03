"""Latency of a policy of OpenVLA's size on one card: stages, and whole actions at recorded acceptance."""
