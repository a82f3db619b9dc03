"""A private, loopback-only ROS graph for every test process, and settings that make runs repeatable."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vla_sd_ros.policy.config import PolicyConfig
    from vla_sd_ros.policy.loaded import LoadedPolicy

HERE = Path(__file__).parent
# Before anything imports torch or rclpy: both read their environment once.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("AMENT_PREFIX_PATH", sys.prefix)
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["FASTRTPS_DEFAULT_PROFILES_FILE"] = str(HERE.parent / "config" / "fastdds_localhost.xml")
# Log files of nodes belong to nobody's home.
os.environ.setdefault("ROS_LOG_DIR", "/tmp/vla_sd_ros_test_logs")
sys.path.insert(0, str(HERE / "support"))

import domain_coordinator  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from probe import Probe  # noqa: E402

settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def tiny_config() -> PolicyConfig:
    """The demo's architecture at a size that costs nothing."""
    import tiny_policy

    return tiny_policy.tiny_config()


@pytest.fixture
def tiny_policy(tiny_config: PolicyConfig) -> LoadedPolicy:
    """A policy of that size and random weights, in memory."""
    # Here, so that tests without a policy do not wait for torch.
    import torch

    from vla_sd_ros.policy.random_policy import random_policy

    torch.set_num_threads(1)
    return random_policy(tiny_config)


@pytest.fixture(scope="session", autouse=True)
def ros_domain() -> Iterator[int]:
    """A domain that no other test process of this machine has; pytest-xdist's workers are processes too."""
    with domain_coordinator.domain_id() as domain:
        os.environ["ROS_DOMAIN_ID"] = str(domain)
        yield domain


@pytest.fixture(scope="module")
def probe(ros_domain: int) -> Iterator[Probe]:
    """A node that speaks and listens to the nodes under test."""
    with contextlib.closing(Probe()) as node:
        yield node
