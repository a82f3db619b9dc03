"""OpenVLA's published checkpoints: their files, their names, their configuration, adapters; without remote code."""
