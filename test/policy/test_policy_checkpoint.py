from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from vla_sd_ros.actions.statistics import UnknownStatisticsKey
from vla_sd_ros.policy import memory
from vla_sd_ros.policy.checkpoint import CheckpointError, load_policy, save_policy
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.libero_words import DEMO_VOCABULARY
from vla_sd_ros.policy.memory import InsufficientMemory
from vla_sd_ros.policy.model import VisionLanguageActionModel, initialise
from vla_sd_ros.policy.self_test import self_test
from vla_sd_ros.policy.tokenizer import build_word_tokenizer


def statistics(**changes: Any) -> dict[str, Any]:
    action = {"q01": [-0.05] * 6 + [0.0], "q99": [0.05] * 6 + [1.0], "mask": [True] * 6 + [False], **changes}
    return {"action": action, "num_transitions": 10, "num_trajectories": 1}


@pytest.fixture(scope="module")
def model(tiny_config: PolicyConfig) -> VisionLanguageActionModel:
    return initialise(VisionLanguageActionModel(tiny_config), seed=2, deviation=0.12)


@pytest.fixture
def folder(tmp_path: Path, model: VisionLanguageActionModel) -> Path:
    build_word_tokenizer().save(str(tmp_path / "words.json"))
    table = {"libero_goal": statistics(), "libero_spatial": statistics(q99=[0.1] * 6 + [1.0])}
    save_policy(tmp_path / "policy", model, tmp_path / "words.json", table, {"epochs": 8})
    return tmp_path / "policy"


def test_weights_come_back_as_half_precision_holds_them(folder: Path, model: VisionLanguageActionModel) -> None:
    policy = load_policy(folder, torch.float32, "libero_goal")
    found = policy.model.state_dict()
    assert found.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(found[name], tensor.half().float(), rtol=0, atol=0)
    assert not policy.model.training and not any(p.requires_grad for p in policy.model.parameters())
    assert json.loads((folder / "recipe.json").read_text()) == {"epochs": 8}


def test_a_loaded_policy_gives_the_logits_of_the_saved_model(folder: Path, model: VisionLanguageActionModel) -> None:
    loaded = load_policy(folder, torch.float32, "libero_goal").model
    pixels = torch.randn(1, 6, 28, 28, generator=torch.Generator().manual_seed(0))
    ids, wanted = torch.tensor([[1, 5, 6]]), torch.full((1, 7), model.config.first_action_id)
    with torch.no_grad():
        before, _ = model.training_logits(pixels, ids, wanted)
        after, _ = loaded.training_logits(pixels, ids, wanted)
    torch.testing.assert_close(after, before, rtol=0.0, atol=0.02 * float(before.std()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loaded_policy_is_warm_and_passes_the_self_test(folder: Path, dtype: torch.dtype) -> None:
    policy = load_policy(folder, dtype, "libero_goal")
    assert policy.dtype == dtype and policy.device == torch.device("cpu")
    policy.warm_up(rounds=1)
    self_test(policy)


def test_the_fingerprint_is_that_of_the_weights(folder: Path, model: VisionLanguageActionModel) -> None:
    first = load_policy(folder, torch.float32, "libero_goal").fingerprint
    assert len(first) == 64 and first == load_policy(folder, torch.bfloat16, "libero_spatial").fingerprint
    weights = load_file(folder / "model.safetensors")
    weights["projector.fc1.bias"][0] += 1
    save_file(weights, folder / "model.safetensors")
    assert load_policy(folder, torch.float32, "libero_goal").fingerprint != first


@pytest.mark.parametrize("key", [None, "libero", "LIBERO_GOAL"])
def test_an_unknown_or_ambiguous_statistics_key_is_refused_with_the_keys_there_are(
    folder: Path, key: str | None
) -> None:
    with pytest.raises(UnknownStatisticsKey, match=r"\['libero_goal', 'libero_spatial'\]"):
        load_policy(folder, torch.float32, key)


def test_the_chosen_statistics_unnormalise_the_action(folder: Path) -> None:
    goal, spatial = (load_policy(folder, torch.float32, key) for key in ("libero_goal", "libero_spatial"))
    highest = [goal.config.first_action_id] * 7
    assert spatial.values_from_ids(highest)[0] > 1.9 * goal.values_from_ids(highest)[0] > 0.09


@pytest.mark.parametrize(
    "names", [["model.safetensors"], ["tokenizer.json", "config.json"], ["dataset_statistics.json"]]
)
def test_missing_files_are_named(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).unlink()
    with pytest.raises(CheckpointError) as refusal:
        load_policy(folder)
    assert all(name in str(refusal.value) for name in names)


def test_a_missing_recipe_is_no_reason_to_refuse(folder: Path) -> None:
    (folder / "recipe.json").unlink()
    load_policy(folder, torch.float32, "libero_goal")


def test_memory_is_checked_before_the_weights_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory_bytes", lambda device: 1000)

    def never(*arguments: object) -> None:
        raise AssertionError("a weight was read")

    monkeypatch.setattr("vla_sd_ros.policy.checkpoint._read_weights", never)
    with pytest.raises(InsufficientMemory, match=r"needs \d+\.\d+ GB on cpu .* 0\.00 GB are free"):
        load_policy(folder, torch.float32, "libero_goal")


@pytest.mark.parametrize(
    "changes", [{"mask": [True] * 6}, {"q01": [0.0] * 8}, {"q99": [float("nan")] * 7}, {"q01": None}]
)
def test_statistics_of_a_wrong_length_or_value_are_refused(folder: Path, changes: dict[str, Any]) -> None:
    (folder / "dataset_statistics.json").write_text(json.dumps({"libero_goal": statistics(**changes)}))
    with pytest.raises(ValueError, match="statistics"):
        load_policy(folder)


def test_another_models_tokenizer_is_refused(folder: Path) -> None:
    build_word_tokenizer(DEMO_VOCABULARY[:-1]).save(str(folder / "tokenizer.json"))
    with pytest.raises(ValueError, match="another model's tokenizer"):
        load_policy(folder, torch.float32, "libero_goal")


def test_a_configuration_with_an_unknown_field_is_refused_by_name(folder: Path) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, "image_size": 224}))
    with pytest.raises(CheckpointError, match="image_size"):
        load_policy(folder, torch.float32, "libero_goal")


@pytest.mark.parametrize("fault", ["lacks", "has unknown", "has a wrong shape for"])
def test_weights_of_another_architecture_are_refused_by_name(folder: Path, fault: str) -> None:
    weights = load_file(folder / "model.safetensors")
    name = "language_model.norm.weight"
    if fault == "lacks":
        del weights[name]
    elif fault == "has unknown":
        name = "wrist.weight"
        weights[name] = torch.zeros(3)
    else:
        weights[name] = torch.zeros(3)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"{fault} 1 tensors: {name}"):
        load_policy(folder, torch.float32, "libero_goal")


def test_weights_that_are_not_finite_are_refused_by_name(folder: Path, model: VisionLanguageActionModel) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["projector.fc2.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"projector\.fc2\.weight"):
        load_policy(folder, torch.float32, "libero_goal")


def test_weights_too_large_for_half_precision_are_not_saved(tmp_path: Path, tiny_config: PolicyConfig) -> None:
    broken = VisionLanguageActionModel(tiny_config)
    torch.nn.init.constant_(broken.projector.fc1.bias, 1e6)
    build_word_tokenizer().save(str(tmp_path / "words.json"))
    with pytest.raises(CheckpointError, match=r"projector\.fc1\.bias"):
        save_policy(tmp_path / "policy", broken, tmp_path / "words.json", {}, {})


def test_the_demo_policy_fits_into_thirty_megabytes() -> None:
    with torch.device("meta"):
        model = VisionLanguageActionModel(PolicyConfig.demo())
    assert 2 * sum(tensor.numel() for tensor in model.state_dict().values()) < 30e6
