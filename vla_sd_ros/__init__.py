"""vla_sd_ros: a vision-language-action policy that drives a robot arm through ROS 2, decoded speculatively."""

from __future__ import annotations

from pkgutil import extend_path

# The generated vla_sd_ros.msg lies in the install space; join it to a source tree that comes first on sys.path.
__path__ = extend_path(__path__, __name__)
__version__ = "0.1.0"
