"""The ROS environment of a graph that nobody else should hear: loopback only, own domain, room for images."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path

# Domains whose ports lie below Linux's ephemeral range.
_PRIVATE_DOMAINS = range(1, 100)


def private_graph(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment variables for a private graph on this machine; what is set already stays.

    Fast DDS's default shared-memory segment is smaller than one camera image and its discovery may stall for seconds;
    the profile in ``config/fastdds_localhost.xml`` mends both.
    """
    private = dict(os.environ if environment is None else environment)
    private.setdefault("AMENT_PREFIX_PATH", sys.prefix)
    private.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    private.setdefault("ROS_DOMAIN_ID", str(random.choice(_PRIVATE_DOMAINS)))
    profile = fast_dds_profile()
    if profile is not None:
        private.setdefault("FASTRTPS_DEFAULT_PROFILES_FILE", str(profile))
    # A spinning OpenMP thread costs more than it computes at the size of the demo policy.
    private.setdefault("OMP_NUM_THREADS", "1")
    return private


def fast_dds_profile() -> Path | None:
    """The installed Fast DDS profile; None where the package is not installed."""
    from ament_index_python.packages import PackageNotFoundError, get_package_share_directory

    try:
        profile = Path(get_package_share_directory("vla_sd_ros"), "config", "fastdds_localhost.xml")
    except PackageNotFoundError:
        return None
    return profile if profile.is_file() else None
