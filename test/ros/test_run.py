from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FAILING_NODE = Path(__file__).parents[1] / "support" / "failing_node.py"


def test_a_callback_that_raises_stops_the_node_and_ends_the_process_with_a_failure() -> None:
    done = subprocess.run([sys.executable, str(FAILING_NODE)], capture_output=True, text=True, timeout=30, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "ValueError: the camera fell down" in said
    assert "stopped in time" in said


def test_ros_arguments_that_make_no_sense_end_the_process_with_a_failure() -> None:
    command = [sys.executable, str(FAILING_NODE), "--ros-args", "--params-file", "/nowhere.yaml"]
    assert subprocess.run(command, capture_output=True, timeout=30, check=False).returncode != 0
