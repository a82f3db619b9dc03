"""Running a launch file: who brings whom down, what is shown, what is left behind."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from vla_sd_ros.launching import Escalation, LaunchFileError, resolve, run

WriteLaunchFile = Callable[[str], Path]

FOREVER = "'import time\\nwhile True: time.sleep(0.02)'"
AT_SIGINT = (
    "'import signal, sys, time\\n"
    'signal.signal(signal.SIGINT, lambda *_: (print("stopped"), sys.exit(0)))\\n'
    'print("ready")\\nwhile True: time.sleep(0.02)\''
)
DEAF = (
    "'import signal, time\\n"
    "signal.signal(signal.SIGINT, signal.SIG_IGN)\\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
    'print("ready")\\nwhile True: time.sleep(0.02)\''
)


@pytest.fixture(autouse=True)
def nothing_outlives_a_run() -> Iterator[None]:
    yield
    left = [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
    assert left == []


class Screen(io.StringIO):
    """Collects lines and sets an event at one that holds a word."""

    def __init__(self, word: str = "ready") -> None:
        super().__init__()
        self.word, self.seen = word, threading.Event()

    def write(self, text: str) -> int:
        if self.word in text:
            self.seen.set()
        return super().write(text)


def test_a_process_that_dies_brings_the_others_down_and_the_run_fails(write_launch_file: WriteLaunchFile) -> None:
    path = write_launch_file(f"python({AT_SIGINT}), python('raise SystemExit(3)', on_exit=Shutdown(reason='needed'))")
    result = run(path)
    assert result.return_code == 1
    assert result.reason == "needed"
    assert sorted(result.exit_codes.values())[-1] == 3
    assert len(result.exit_codes) == 2


def test_a_required_process_that_ends_with_status_0_ends_the_run_without_failure(
    write_launch_file: WriteLaunchFile,
) -> None:
    result = run(write_launch_file(f"python({FOREVER}), python('pass', on_exit=Shutdown(reason='done'))"))
    assert (result.return_code, result.reason) == (0, "done")


def test_an_on_exit_function_that_raises_fails_the_run_and_brings_it_down(write_launch_file: WriteLaunchFile) -> None:
    raises = "lambda event, context: 1 / event.returncode"
    result = run(write_launch_file(f"python({FOREVER}), python('pass', on_exit={raises})"))
    assert result.return_code == 1
    assert "division by zero" in result.reason


def test_a_run_ends_when_every_process_has_ended(write_launch_file: WriteLaunchFile) -> None:
    result = run(write_launch_file("python('pass', name='one'), python('pass', name='two')"))
    assert result.exit_codes == {"one-1": 0, "two-2": 0}
    assert result.return_code == 0


def test_a_process_that_cannot_be_started_fails_the_run(write_launch_file: WriteLaunchFile) -> None:
    result = run(write_launch_file(f"python({FOREVER}), ExecuteProcess(cmd=['/no/such/program'])"))
    assert result.return_code == 1
    assert "program-2 cannot be started" in result.reason


def test_lines_carry_the_name_of_their_process(write_launch_file: WriteLaunchFile) -> None:
    screen = Screen()
    code = '\'import sys; print("a\\\\nb"); print("last", end="")\''
    run(write_launch_file(f"python({code}, name='say', output='screen')"), screen=screen)
    assert screen.getvalue().splitlines() == ["[say-1] a", "[say-1] b", "[say-1] last"]


@pytest.mark.parametrize(("output", "shown"), [("screen", {"out", "err"}), ("both", {"out", "err"}), ("log", {"err"})])
def test_output_says_which_streams_are_shown(output: str, shown: set[str], write_launch_file: WriteLaunchFile) -> None:
    screen = Screen()
    code = '\'import sys; print("out"); print("err", file=sys.stderr)\''
    run(write_launch_file(f"python({code}, name='say', output='{output}')"), screen=screen)
    assert set(screen.getvalue().split()) - {"[say-1]"} == shown


def test_sigint_reaches_the_processes_and_they_end(write_launch_file: WriteLaunchFile) -> None:
    path = write_launch_file(f"python({AT_SIGINT}, output='screen'), python({AT_SIGINT}, output='screen')")
    command = [sys.executable, "-m", "vla_sd_ros.launching", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as launcher:
        assert launcher.stdout is not None
        assert {launcher.stdout.readline().split()[-1] for _ in range(2)} == {"ready"}
        children = psutil.Process(launcher.pid).children()
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(timeout=5) == 0
        assert launcher.stdout.read().count("stopped") == 2
    assert len(children) == 2
    assert not any(child.is_running() for child in children)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_ends_the_run_and_the_handlers_are_put_back(
    number: signal.Signals, write_launch_file: WriteLaunchFile
) -> None:
    before = signal.getsignal(number)
    screen = Screen()
    sender = threading.Thread(target=lambda: (screen.seen.wait(5), os.kill(os.getpid(), number)))
    sender.start()
    result = run(write_launch_file(f"python({AT_SIGINT}, output='screen')"), screen=screen)
    sender.join()
    assert result.reason == f"received {number.name}"
    assert result.return_code == 0
    assert signal.getsignal(number) is before


def test_a_process_deaf_to_sigint_and_sigterm_is_killed_in_the_times_given(write_launch_file: WriteLaunchFile) -> None:
    screen, stop = Screen(), threading.Event()
    asker = threading.Thread(target=lambda: (screen.seen.wait(5), stop.set()))
    asker.start()
    path = write_launch_file(f"python({DEAF}, name='deaf', output='screen')")
    result = run(path, stop=stop, screen=screen, escalation=Escalation(0.2, 0.3))
    asker.join()
    assert result.exit_codes == {"deaf-1": -signal.SIGKILL}


def test_escalation_takes_the_times_of_launch_by_default() -> None:
    assert Escalation() == Escalation(sigterm_after_s=5.0, sigkill_after_s=5.0)


def test_a_process_is_started_again_as_often_as_respawn_says(
    write_launch_file: WriteLaunchFile, tmp_path: Path
) -> None:
    code = repr(f"open({str(tmp_path / 'starts')!r}, 'a').write('x')")
    options = "respawn=True, respawn_delay=0.01, respawn_max_retries=2"
    run(write_launch_file(f"python({code}, {options}), python('pass')"))
    assert (tmp_path / "starts").read_text() == "xxx"


def test_a_process_is_not_started_again_by_default(write_launch_file: WriteLaunchFile) -> None:
    with resolve(write_launch_file("python('pass')")) as launch:
        assert not launch.processes[0].respawn


def test_a_grandchild_that_keeps_the_output_does_not_keep_the_run(write_launch_file: WriteLaunchFile) -> None:
    grandchild = '\'import subprocess, sys; print(subprocess.Popen(["sleep", "3"]).pid)\''
    screen = Screen()
    began = time.monotonic()
    result = run(write_launch_file(f"python({grandchild}, output='screen')"), screen=screen)
    os.kill(int(screen.getvalue().split()[-1]), signal.SIGKILL)
    assert result.return_code == 0
    assert time.monotonic() - began < 2.5


def test_a_variable_reaches_the_processes_after_it_and_not_the_launcher(write_launch_file: WriteLaunchFile) -> None:
    show = "'import os; print(os.environ.get(\"VLA_TEST\"))'"
    own = "SetEnvironmentVariable('VLA_TEST', 'set')"
    screen = Screen()
    before = dict(os.environ)
    for _ in range(2):
        run(
            write_launch_file(
                f"python({show}, name='before', output='screen'), {own}, python({show}, name='after', output='screen')"
            ),
            screen=screen,
        )
    assert sorted(set(screen.getvalue().splitlines())) == ["[after-2] set", "[before-1] None"]
    assert dict(os.environ) == before


def test_temporary_parameter_files_are_gone_after_a_run_and_after_a_refusal(
    prefix: Path, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    program = prefix / "lib" / "vla_sd_ros" / "camera_node"
    program.write_text('#!/bin/sh\nfor last; do :; done\ncat "$last"\n')
    path = tmp_path / "nodes.launch.py"
    node = "Node(package='vla_sd_ros', executable='{}', parameters=[{{'rate': 5}}], output='screen')"
    header = "from launch import LaunchDescription\nfrom launch_ros.actions import Node\n"
    body = "def generate_launch_description():\n    return LaunchDescription([{}, {}])\n"
    path.write_text(header + body.format(node.format("camera_node"), node.format("command_node")))
    screen = Screen()
    assert run(path, environment=environment, screen=screen).return_code == 0
    assert "rate: 5" in screen.getvalue()
    assert list(scratch.iterdir()) == []
    path.write_text(header + body.format(node.format("camera_node"), node.format("no_such_node")))
    with pytest.raises(LaunchFileError, match="'no_such_node' is not in .*'camera_node'"):
        run(path, environment=environment)
    assert list(scratch.iterdir()) == []
