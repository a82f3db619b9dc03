"""``vla-sd model check`` says what a checkpoint is, or why it is unfit."""

from __future__ import annotations

from pathlib import Path

import pytest
from openvla_checkpoint import KEYS, write_fine_tuned_statistics, write_lora_adapter, write_openvla_checkpoint
from typer.testing import CliRunner

from vla_sd_ros.cli.model import app
from vla_sd_ros.policy.checkpoint import load_policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_openvla_checkpoint(tmp_path / "openvla")


def check(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["check", *arguments])
    return done.exit_code, done.output


def test_a_sound_checkpoint_is_described_with_its_hash_and_statistics_keys(folder: Path) -> None:
    status, text = check(str(folder))
    assert status == 0
    for said in ("DINOv2 128 wide, 2 of 3 blocks", "2 layers, 64 wide", "31744 to 31999", "name one as statistics_key"):
        assert said in text
    assert all(key in text for key in KEYS)
    assert load_policy(folder, statistics_key=KEYS[0]).fingerprint in text


def test_an_adapter_is_described_with_its_base(folder: Path, tmp_path: Path) -> None:
    write_lora_adapter(tmp_path / "adapter", folder, ("projector.fc2",))
    status, text = check(str(tmp_path / "adapter"), "--no-hash")
    assert status == 0
    assert str(folder) in text and "adapter_model.safetensors, model-00001" in text and "SHA" not in text


def test_statistics_of_a_fine_tune_need_no_choice(folder: Path) -> None:
    write_fine_tuned_statistics(folder)
    assert "name one as" not in check(str(folder), "--no-hash")[1]


@pytest.mark.parametrize("missing", ["tokenizer.json", "model-00002-of-00003.safetensors", "preprocessor_config.json"])
def test_an_unfit_checkpoint_ends_with_status_1_and_what_is_missing(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    status, text = check(str(folder))
    assert status == 1 and missing in text


def test_a_folder_of_something_else_is_unfit(tmp_path: Path) -> None:
    assert check(str(tmp_path))[0] == 1
