"""``vla-sd bench run`` refuses what it cannot play, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from vla_sd_ros.cli.bench import app


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--decoders"),
        (["--ablation", "everything"], "heisd"),
        (["--decoders", "nothing_like_it"], "nothing_like_it"),
        (["--decoders", "autoregressive", "--tasks", "plate"], "plate"),
        (["--decoders", "autoregressive", "--tasks", ""], "at least one"),
        (["--decoders", "autoregressive", "--policy", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_played_is_refused(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", "--out", str(tmp_path), *arguments])
    assert result.exit_code == 2
    assert complaint in result.output
    assert not list(tmp_path.iterdir())
