from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_policy
import torch
from pydantic import ValidationError

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.drafting.learned import LearnedDrafter
from vla_sd_ros.drafting.learned_checkpoint import load_drafter
from vla_sd_ros.drafting.learned_config import DraftingContext, LearnedDraftConfig
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.training.config import AugmentationConfig, StageConfig, load_config
from vla_sd_ros.training.drafter_config import DrafterTrainingConfig
from vla_sd_ros.training.drafter_data import TeacherData, ask_teacher
from vla_sd_ros.training.drafter_rollout import roll_out
from vla_sd_ros.training.drafter_training import DrafterLearner, acceptance, train_drafter
from vla_sd_ros.training.stage import Interruption, learning_rate

CHAIN = LearnedDraftConfig(top_k=1, total_nodes=6)


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_policy.write_policy(tmp_path_factory.mktemp("policies") / "tiny")


@pytest.fixture
def config(policy_folder: Path, demonstrations: Path, tmp_path: Path) -> DrafterTrainingConfig:
    shutil.copytree(policy_folder, tmp_path / "teacher")
    return DrafterTrainingConfig(
        policy=tmp_path / "teacher",
        demonstrations=demonstrations,
        precision="float32",
        max_frames=60,
        held_out_fraction=0.2,
        stage=StageConfig(epochs=3, max_minutes=None, batch_size=24, learning_rate=4e-3, warm_up_steps=5),
        weight_decay=0.0,
    )


def teacher_data(config: DrafterTrainingConfig, **changes: Any) -> tuple[LoadedPolicy, TeacherData]:
    policy = load_policy(config.policy)
    data = ask_teacher(policy, config.model_copy(update=changes), Interruption(), show_progress=False)
    assert data is not None
    return policy, data


def test_a_drafter_learns_a_small_set_by_heart(config: DrafterTrainingConfig) -> None:
    policy, data = teacher_data(config, max_frames=10)
    everything = np.arange(10)
    data = replace(data, training=everything, held_out=everything)
    learner = DrafterLearner(policy, data, config)
    before = learner.validate()["rolled_out_accepted_exact"]
    optimiser = torch.optim.AdamW(learner.network.parameters(), lr=1e-2, weight_decay=0.0)
    steps = 200
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = learning_rate(1e-2, step, 10, step / steps)
        loss, _ = learner.loss(everything, np.random.default_rng(step))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    after = learner.validate()["rolled_out_accepted_exact"]
    assert before < 1 < 3 < after, "of six guesses behind the first token"


@pytest.mark.parametrize("context", ["tail", "prefix"])
def test_a_run_writes_a_drafter_that_its_policy_loads(config: DrafterTrainingConfig, context: DraftingContext) -> None:
    config = config.model_copy(update={"context": context})
    result = train_drafter(config, show_progress=False)
    assert result.finished
    drafter = load_drafter(config.policy / "drafter", load_policy(config.policy))
    assert drafter.sees_prefix == (context == "prefix")
    for name in ("teacher_forced_exact", "rolled_out_exact", "rolled_out_within_9_bins"):
        assert len(result.held_out[name]) == 6
    assert result.held_out["tree_ms"] > 0
    recipe = json.loads((config.policy / "drafter" / "config.json").read_text())["recipe"]
    assert recipe["held_out"]["rolled_out_exact"] == result.held_out["rolled_out_exact"]


def test_the_accepted_length_ends_at_the_first_guess_too_far_off() -> None:
    apart = torch.tensor([[0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 0], [99, 0, 0, 0, 0, 0]])
    figures = acceptance(apart, "rolled_out")
    assert figures["rolled_out_exact"] == pytest.approx([2 / 3, 1, 2 / 3, 1, 1, 1], abs=1e-3)
    assert figures["rolled_out_accepted_exact"] == pytest.approx((2 + 6 + 0) / 3, abs=1e-3)
    assert figures["rolled_out_accepted_within_5_bins"] == pytest.approx(4.0)


@pytest.mark.parametrize("context", ["tail", "prefix"])
@pytest.mark.parametrize("known", [1, 3])
def test_the_rollout_in_training_is_what_the_drafter_does(
    config: DrafterTrainingConfig, context: DraftingContext, known: int
) -> None:
    config = config.model_copy(update={"context": context})
    policy, data = teacher_data(config)
    learner = DrafterLearner(policy, data, config)
    torch.nn.init.normal_(learner.network.places)
    torch.nn.init.normal_(learner.network.layer.attention.out.weight, std=0.2)
    rows = np.arange(4)
    with torch.no_grad():
        predicted, _ = learner._predict(rows, torch.full((4,), known))
    guesses = policy.model.action_logits(predicted).argmax(-1).numpy() + policy.config.first_action_id
    drafter = LearnedDrafter(learner.network, policy)
    for row in rows:
        prefix: dict[str, torch.Tensor] = {}
        if data.prefixes is not None:
            length = int(data.prefixes.lengths[row])
            states, embeddings = data.prefixes.hidden[row, -length:], data.prefixes.embeddings[row, -length:]
            prefix["prefix_hidden"] = torch.cat([states, data.hidden[row, :1]]).float()
            prefix["prefix_embeddings"] = torch.cat([embeddings[:1], embeddings]).float()
        tree = drafter.draft(
            data.hidden[row, :known].float(), data.tokens[row, :known].numpy(), CHAIN, depth=N_DOF, **prefix
        )
        assert tree is not None
        assert tree.tokens.tolist() == guesses[row, known - 1 :].tolist()


def test_given_states_are_used_up_to_the_number_known(config: DrafterTrainingConfig) -> None:
    policy, data = teacher_data(config)
    network = DrafterLearner(policy, data, config).network
    hidden, tokens = data.hidden[:2].float(), data.tokens[:2]
    changed = hidden.clone()
    changed[:, 3] += 1.0
    with torch.no_grad():
        for known, first_difference in ((1, None), (3, None), (4, 3), (7, 3)):
            before = roll_out(network, policy.model, tokens, hidden, torch.full((2,), known))
            after = roll_out(network, policy.model, tokens, changed, torch.full((2,), known))
            differs = (before != after).any(-1).any(0).tolist()
            expected = [first_difference is not None and place >= first_difference for place in range(6)]
            assert differs[:3] == expected[:3]
            assert differs[3] == expected[3]


def test_gradients_pass_through_the_states_that_it_feeds_itself(config: DrafterTrainingConfig) -> None:
    policy, data = teacher_data(config)
    network = DrafterLearner(policy, data, config).network
    predicted = roll_out(
        network, policy.model, data.tokens[:3], data.hidden[:3].float(), torch.ones(3, dtype=torch.int64)
    )
    predicted[:, -1].square().sum().backward()  # type: ignore[no-untyped-call]
    assert network.places.grad is not None
    assert (network.places.grad.abs().sum(-1) > 0).all()


def test_the_teacher_holds_out_whole_episodes_and_changes_only_what_it_trains_on(config: DrafterTrainingConfig) -> None:
    _, plain = teacher_data(config, max_frames=10**6)
    change = AugmentationConfig(shift_px=0, brightness=0.9, colour=0.0)
    _, changed = teacher_data(config, max_frames=10**6, augmentation=change)
    assert len(plain.held_out) == 2 * 12
    assert not set(plain.held_out) & set(plain.training)
    torch.testing.assert_close(changed.hidden[plain.held_out], plain.hidden[plain.held_out])
    assert not torch.equal(changed.hidden[plain.training], plain.hidden[plain.training])


def test_a_signal_leaves_the_old_drafter(config: DrafterTrainingConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = config.policy / "drafter"
    folder.mkdir()
    (folder / "config.json").write_text("old")
    learn = DrafterLearner.loss

    def interrupted(self: DrafterLearner, rows: np.ndarray, rng: np.random.Generator) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return learn(self, rows, rng)

    monkeypatch.setattr(DrafterLearner, "loss", interrupted)
    result = train_drafter(config, show_progress=False)
    assert not result.finished
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("config.json", "old")]


def test_the_committed_configuration_is_complete_and_its_errors_name_the_key() -> None:
    path = Path(__file__).parents[2] / "config" / "training" / "drafter.yaml"
    config = load_config(DrafterTrainingConfig, path, {"stage.epochs": 3, "draft.top_k": 4})
    assert config.stage.epochs == 3
    assert config.draft.top_k == 4
    with pytest.raises(ValidationError, match="stage.epoch"):
        load_config(DrafterTrainingConfig, path, {"stage.epoch": 3})
