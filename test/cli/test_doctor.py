"""vla-sd doctor: names what is missing and how to mend it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from vla_sd_ros.cli import doctor
from vla_sd_ros.cli.doctor import CHECKS, Finding, Verdict
from vla_sd_ros.cli.main import app


def test_every_check_answers_here_and_what_the_tests_stand_on_is_fine() -> None:
    findings = {finding.name: finding for finding in (check() for check in CHECKS)}
    assert len(findings) == len(CHECKS)
    for name in ("Python", "ROS 2", "messages", "RMW", "launch", "clock", "simulator"):
        assert findings[name].verdict is Verdict.OK, findings[name]


def test_whatever_is_not_fine_comes_with_a_remedy() -> None:
    assert all(finding.remedy for finding in (check() for check in CHECKS) if finding.verdict is not Verdict.OK)


@pytest.mark.parametrize(("verdict", "status"), [(Verdict.BROKEN, 1), (Verdict.LACKS, 0), (Verdict.OK, 0)])
def test_only_what_everything_needs_makes_the_status_1(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict, status: int
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda: Finding("wheel", verdict, "found", "turn it"),))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == status
    assert "wheel" in result.output and "turn it" in result.output


def test_too_little_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED_MEMORY_GB", 1e6)
    finding = doctor.check_memory()
    assert finding.verdict is Verdict.BROKEN
    assert "GB free" in finding.found


def test_another_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.sys, "version_info", (3, 9, 1))
    assert doctor.check_python().verdict is Verdict.BROKEN
