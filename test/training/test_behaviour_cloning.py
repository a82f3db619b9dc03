"""A tiny policy on synthetic episodes: it learns, it resumes, it writes what it is."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from vla_sd_ros.actions.bins import ActionBins
from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.interface import DecodedAction
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.training import behaviour_cloning
from vla_sd_ros.training.behaviour_cloning import train_policy
from vla_sd_ros.training.config import TrainingConfig, load_training_config
from vla_sd_ros.training.stage import batch_rows, learning_rate
from vla_sd_ros.types import Observation

CONFIG_FILE = Path(__file__).parents[2] / "config" / "training" / "demo_policy.yaml"


def decode(folder: Path, image: np.ndarray, instruction: str) -> DecodedAction:
    return AutoregressiveDecoder(load_policy(folder)).decode(Observation({"camera": image}, instruction, 0))


def test_training_lowers_the_loss_and_writes_a_policy_that_acts(tiny_config: TrainingConfig) -> None:
    result = train_policy(tiny_config, show_progress=False)
    assert result.finished
    assert result.held_out["tokens"] < 0.75 * np.log(256)
    assert result.held_out["accuracy_gripper"] > 0.8
    recipe = json.loads((tiny_config.out / "recipe.json").read_text())
    assert recipe["demonstrations"]["episodes_per_task"] == {"libero_goal/4": 5, "libero_goal/8": 5}
    assert set(recipe["steps"]) == {"vision", "cloning"} and min(recipe["steps"].values()) > 0
    action = decode(tiny_config.out, np.zeros((28, 28, 3), np.uint8), "put the bowl on the plate")
    assert np.isfinite(action.values).all()


def test_training_sees_what_greedy_decoding_sees(tiny_config: TrainingConfig) -> None:
    """Teacher-forced scores of the policy's own tokens must point at these tokens, for prompts of either length."""
    train_policy(tiny_config, show_progress=False)
    policy = load_policy(tiny_config.out)
    image = np.random.default_rng(0).integers(0, 255, (28, 28, 3), dtype=np.uint8)
    texts = ["put the bowl on the plate", "put the bowl on top of the cabinet"]
    ids = torch.from_numpy(np.stack([decode(tiny_config.out, image, text).tokens for text in texts]))
    prompts = [torch.tensor(policy.tokenizer.encode_instruction(text)) for text in texts]
    with torch.no_grad():
        logits, _ = policy.model.training_logits(
            policy.prepare_pixels(image).expand(2, -1, -1, -1),
            torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True),
            ids,
            torch.tensor([len(p) for p in prompts]),
        )
    assert len(prompts[0]) != len(prompts[1])
    torch.testing.assert_close(logits.argmax(-1) + policy.config.first_action_id, ids)


@pytest.mark.parametrize("stop_after", [5, 80])
def test_an_interrupted_run_ends_with_the_same_weights(
    tiny_config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    whole = tiny_config.model_copy(update={"out": tmp_path / "whole"})
    train_policy(whole, show_progress=False)

    original, calls = behaviour_cloning.make_batch, 0

    def interrupting(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(behaviour_cloning, "make_batch", interrupting)
    first = train_policy(tiny_config, show_progress=False)
    assert not first.finished
    with pytest.raises(FileExistsError, match="resume"):
        train_policy(tiny_config, show_progress=False)
    assert train_policy(tiny_config, resume=True, show_progress=False).finished
    one = load_policy(whole.out).model.state_dict()
    other = load_policy(tiny_config.out).model.state_dict()
    for name, weight in one.items():
        torch.testing.assert_close(weight, other[name], rtol=0, atol=0)


def test_there_must_be_something_to_resume(tiny_config: TrainingConfig) -> None:
    with pytest.raises(FileNotFoundError, match="nothing to resume"):
        train_policy(tiny_config, resume=True)


def test_tasks_without_demonstrations_are_refused(tiny_config: TrainingConfig) -> None:
    with pytest.raises(FileNotFoundError, match="libero_goal/8"):
        train_policy(tiny_config.model_copy(update={"tasks": ("libero_goal/1",)}))


def test_the_learning_rate_warms_up_and_anneals() -> None:
    assert learning_rate(1.0, 0, 10, 0.0) == pytest.approx(0.1)
    assert learning_rate(1.0, 100, 10, 0.5) == pytest.approx(0.505)
    assert learning_rate(1.0, 100, 10, 1.0) == pytest.approx(0.01)
    assert learning_rate(1.0, 0, 0, 0.0) == 1.0


def test_an_epoch_visits_every_row_once_in_an_order_of_its_own() -> None:
    rows = np.arange(32)
    epochs = [np.concatenate([batch_rows(rows, e * 4 + i, 8, 0, "cloning") for i in range(4)]) for e in range(2)]
    for order in epochs:
        np.testing.assert_array_equal(np.sort(order), rows)
    assert (epochs[0] != epochs[1]).any()


def test_the_shipped_configuration_is_valid_and_can_be_overridden() -> None:
    config = load_training_config(CONFIG_FILE, {"cloning.max_minutes": 3, "seed": 5})
    assert (config.cloning.max_minutes, config.seed, config.cloning.batch_size) == (3, 5, 32)
    with pytest.raises(ValueError, match="lerning_rate"):
        load_training_config(CONFIG_FILE, {"cloning.lerning_rate": 1})


def test_the_consistency_stage_sees_disturbed_tokens_and_the_others_do_not(
    tiny_config: TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    whole = behaviour_cloning.disturb_tokens

    def noting(ids: np.ndarray, bins: ActionBins, rng: np.random.Generator, deviation_bins: float) -> np.ndarray:
        asked.append(deviation_bins)
        return whole(ids, bins, rng, deviation_bins)

    monkeypatch.setattr(behaviour_cloning, "disturb_tokens", noting)
    train_policy(tiny_config, show_progress=False)
    assert asked == []
    stage = tiny_config.cloning.model_copy(update={"epochs": 1.0})
    further = tiny_config.model_copy(update={"consistency": stage, "out": tiny_config.out / "further"})
    train_policy(further, show_progress=False)
    assert set(asked) == {further.draft_noise_bins}
    steps = json.loads((further.out / "recipe.json").read_text())["steps"]
    assert len(asked) == steps["consistency"]


def test_refining_begins_where_cloning_ended(tiny_config: TrainingConfig, tmp_path: Path) -> None:
    still = tiny_config.cloning.model_copy(update={"learning_rate": 1e-12, "epochs": 1.0})
    train_policy(tiny_config.model_copy(update={"refining": still}), show_progress=False)
    train_policy(tiny_config.model_copy(update={"out": tmp_path / "plain"}), show_progress=False)
    assert set(json.loads((tiny_config.out / "recipe.json").read_text())["steps"]) == {"vision", "cloning", "refining"}
    refined, plain = (load_policy(folder).model.state_dict() for folder in (tiny_config.out, tmp_path / "plain"))
    for name, tensor in plain.items():
        torch.testing.assert_close(refined[name], tensor)
