"""What the stand-in does not know it refuses by name, and says what it knows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vla_sd_ros.launching import (
    LaunchFileError,
    UnknownLaunchArgument,
    UnsupportedLaunchFeature,
    declared_arguments,
    install,
    modules,
    resolve,
)
from vla_sd_ros.launching.__main__ import main
from vla_sd_ros.launching.context import default_environment
from vla_sd_ros.launching.process import absolute_namespace

WriteLaunchFile = Callable[[str], Path]
LAUNCH = Path(__file__).parent.parent.parent / "launch"


def test_a_class_that_it_does_not_know_is_refused_at_import(tmp_path: Path) -> None:
    path = tmp_path / "timer.launch.py"
    path.write_text("from launch.actions import TimerAction\n")
    with pytest.raises(ImportError, match=r"launch.actions.TimerAction is not .* knows: .*DeclareLaunchArgument"):
        resolve(path)


def test_a_module_that_it_does_not_know_is_refused_at_import(tmp_path: Path) -> None:
    path = tmp_path / "handlers.launch.py"
    path.write_text("from launch.event_handlers import OnProcessExit\n")
    with pytest.raises(ImportError, match="event_handlers"):
        resolve(path)


@pytest.mark.parametrize(
    "action",
    [
        "ExecuteProcess(cmd=['x'], prefix='gdb')",
        "Shutdown('positional')",
        "SetEnvironmentVariable(name='A')",
        "DeclareLaunchArgument('a', default='b')",
    ],
)
def test_an_argument_of_a_class_that_it_does_not_know_is_refused(
    action: str, write_launch_file: WriteLaunchFile
) -> None:
    with pytest.raises(UnsupportedLaunchFeature, match="the stand-in for launch knows"):
        resolve(write_launch_file(action))


def test_a_number_in_the_place_of_text_is_refused(write_launch_file: WriteLaunchFile) -> None:
    with pytest.raises(TypeError, match="5 is int"):
        resolve(write_launch_file("ExecuteProcess(cmd=['sleep', [5]])"))


def test_an_argument_that_is_not_declared_is_refused_with_the_declared_ones(
    write_launch_file: WriteLaunchFile,
) -> None:
    path = write_launch_file("DeclareLaunchArgument('suite', default_value='x')")
    with pytest.raises(UnknownLaunchArgument, match=r"\['siute'\]; legal: suite"):
        resolve(path, {"siute": "y"})


def test_an_illegal_choice_is_refused_with_the_legal_ones(environment: dict[str, str]) -> None:
    with pytest.raises(LaunchFileError, match="'mode': 'slow' is illegal; legal: lockstep, realtime"):
        resolve(LAUNCH / "sim.launch.py", {"mode": "slow"}, environment=environment)


def test_a_policy_for_a_real_arm_is_never_guessed(environment: dict[str, str]) -> None:
    with pytest.raises(LaunchFileError, match="required argument 'policy'"):
        resolve(LAUNCH / "robot.launch.py", environment=environment)


@pytest.mark.parametrize("text", ["a: $(env HOME)", "a: $(var two words)", "a: \\$"])
def test_a_substitution_in_a_parameter_file_that_it_does_not_know_is_refused(
    text: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "p.yaml").write_text(text)
    path = tmp_path / "file.launch.py"
    path.write_text(
        "from launch import LaunchDescription\nfrom launch_ros.actions import Node\n"
        "from launch_ros.parameter_descriptions import ParameterFile\n"
        "def generate_launch_description():\n"
        "    return LaunchDescription([Node(package='vla_sd_ros', executable='camera_node',\n"
        f"        parameters=[ParameterFile({str(tmp_path / 'p.yaml')!r}, allow_substs=True)])])\n"
    )
    with pytest.raises(UnsupportedLaunchFeature, match="the stand-in for launch"):
        resolve(path, environment=environment)


def test_a_package_that_is_not_installed_is_refused_with_the_prefixes_searched(tmp_path: Path) -> None:
    with pytest.raises(LaunchFileError, match=f"'vla_sd_ros' is not installed; searched .*{tmp_path}"):
        resolve(LAUNCH / "sim.launch.py", environment={"AMENT_PREFIX_PATH": str(tmp_path)})


def test_packages_are_searched_under_the_interpreter_where_no_setup_script_ran() -> None:
    assert default_environment({})["AMENT_PREFIX_PATH"] == sys.prefix
    assert default_environment({"AMENT_PREFIX_PATH": "/opt/ros"})["AMENT_PREFIX_PATH"] == "/opt/ros"


@pytest.mark.parametrize(
    ("given", "absolute"), [("", "/"), ("/", "/"), ("arm", "/arm"), ("arm/", "/arm"), ("/a/b", "/a/b"), ("a/b", "/a/b")]
)
def test_a_namespace_is_made_absolute(given: str, absolute: str) -> None:
    assert absolute_namespace(given) == absolute


@pytest.mark.parametrize("given", ["1arm", "left-arm", "a//b", "/a b"])
def test_a_namespace_that_ros_does_not_allow_is_refused(given: str) -> None:
    with pytest.raises(LaunchFileError, match="namespace"):
        absolute_namespace(given)


def test_the_stand_in_serves_only_where_launch_ros_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("launch", "launch_ros")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(modules.importlib.util, "find_spec", lambda name: None)
    known = set(sys.modules)
    try:
        assert install()
        assert install(), "a second time"
        assert importlib.import_module("launch_ros.actions").Node.__module__.startswith("vla_sd_ros.launching")
    finally:
        for name in set(sys.modules) - known:
            if name.partition(".")[0] in ("launch", "launch_ros"):
                del sys.modules[name]
    monkeypatch.setattr(modules.importlib.util, "find_spec", lambda name: object())
    assert not install()
    assert "launch_ros" not in sys.modules


def test_resolving_leaves_the_imported_modules_as_they_were(environment: dict[str, str]) -> None:
    before = {name: id(module) for name, module in sys.modules.items() if "launch" in name}
    with resolve(LAUNCH / "sim.launch.py", environment=environment):
        pass
    assert {name: id(module) for name, module in sys.modules.items() if "launch" in name} == before


def test_show_args_lists_every_argument_with_choices_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    path = LAUNCH / "robot.launch.py"
    assert main([str(path), "--show-args"]) == 0
    shown = capsys.readouterr().out
    for argument in declared_arguments(path):
        assert f"    {argument.name}:" in shown
    assert "legal: true, false" in shown
    assert "required" in shown


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["sim.launch.py", "record:="], "'record:=' is malformed; legal: name:=value"),
        (["sim.launch.py", "composed"], "'composed' is malformed"),
        (["sim.launch.py", "composed:=maybe"], "legal: true, false"),
        (["nowhere.launch.py"], "does not exist; installed: sim.launch.py"),
    ],
)
def test_the_command_line_says_what_is_wrong_and_ends_with_status_2(
    args: list[str],
    message: str,
    prefix: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed = prefix / "share" / "vla_sd_ros" / "launch" / "sim.launch.py"
    installed.write_text((LAUNCH / "sim.launch.py").read_text())
    monkeypatch.setenv("AMENT_PREFIX_PATH", environment["AMENT_PREFIX_PATH"])
    assert main(args) == 2
    assert message in capsys.readouterr().err
