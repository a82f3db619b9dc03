from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from vla_sd_ros.actions.bins import ActionBins
from vla_sd_ros.cli.calibrate import calibrate as command
from vla_sd_ros.drafting.hold_last import HoldLastDrafter
from vla_sd_ros.kinematics.calibration import load_calibration, save_calibration
from vla_sd_ros.kinematics.fused_metric import radii_and_lengths
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.training.calibration import (
    QUANTILES,
    accepted_variability,
    calibrate,
    calibrate_kalman,
    calibrate_metrics,
    variability_reference,
)
from vla_sd_ros.training.dataset import held_out_episodes
from vla_sd_ros.training.demonstrations import (
    Demonstration,
    demonstration_path,
    find_demonstrations,
    load_demonstration,
    save_demonstration,
)

BINS = ActionBins(32000)
ZERO = BINS.ids_from_normalised(np.zeros(7))


def trajectories(count: int = 4, steps: int = 60) -> list[np.ndarray]:
    """Ways that bend, speed up and come to rest, float64 [steps, 3], m."""
    rng = np.random.default_rng(0)
    speeds_m = 0.008 * np.sin(np.linspace(0.0, np.pi, steps)) ** 2
    found = []
    for _ in range(count):
        angles = np.cumsum(rng.normal(0.0, 0.1, (steps, 2)), axis=0)
        directions = np.stack([np.cos(angles[:, 0]), np.sin(angles[:, 0]), np.sin(angles[:, 1])], axis=1)
        found.append(np.cumsum(speeds_m[:, None] * directions, axis=0) + np.array([0.4, 0.0, 0.3]))
    return found


@pytest.fixture
def policy() -> LoadedPolicy:
    from tiny_policy import tiny_config

    return random_policy(tiny_config())


@pytest.fixture
def moving(tmp_path: Path) -> Path:
    """A folder of demonstrations whose arm moves; two tasks of three episodes."""
    folder = tmp_path / "moving"
    rng = np.random.default_rng(0)
    for number, positions in enumerate(trajectories(6, 40)):
        task, steps = (8, 4)[number % 2], len(positions)
        actions = np.zeros((steps, 7), dtype=np.float32)
        actions[:, :3] = np.diff(positions, axis=0, append=positions[-1:])
        proprio = np.zeros((steps, 16), dtype=np.float32)
        proprio[:, 9:12] = positions
        episode = Demonstration(
            images=rng.integers(0, 255, (steps, 28, 28, 3), dtype=np.uint8),
            actions=actions,
            poses=np.zeros((steps, 11), dtype=np.float32),
            proprio=proprio,
            suite="libero_goal",
            task_id=task,
            instruction="put the bowl on the plate",
            seed=number,
            noise=0.0,
        )
        save_demonstration(demonstration_path(folder, "libero_goal", task, number), episode)
    return folder


@pytest.mark.parametrize("policy_tokens", [True, False])
def test_every_part_is_calibrated(policy: LoadedPolicy, moving: Path, policy_tokens: bool) -> None:
    found = calibrate(policy, find_demonstrations(moving), policy_tokens, progress=False)
    assert found.policy_fingerprint == policy.fingerprint
    assert {(each.form, each.window) for each in found.metrics} == {
        (form, window) for form in ("paper", "authors", "curvature") for window in (5, 15)
    }
    assert set(found.kalman) == {"random_walk", "constant_velocity"}
    assert set(found.variability) == {"hold_last", "kalman"}
    assert found.variability["hold_last"].frames == 2 * 39 and found.variability["kalman"].frames == 2 * 37
    assert "6 episodes" in found.source and "2 held-out" in found.source


def test_the_first_episode_of_a_task_is_one_that_training_holds_out(moving: Path) -> None:
    paths = find_demonstrations(moving)
    chosen = held_out_episodes([load_demonstration(path) for path in paths], 0.05)
    assert all(
        chosen[index] for index, path in enumerate(paths) if path.parent not in {p.parent for p in paths[:index]}
    )


def test_quantiles_rise_and_lie_in_range() -> None:
    for each in calibrate_metrics(trajectories()):
        values = [each.threshold(share) for share in QUANTILES]
        assert values == sorted(values) and 0.0 <= values[0] < values[-1] <= 1.0


def test_half_of_the_frames_lie_above_the_median_threshold() -> None:
    paths = trajectories()
    for each in calibrate_metrics(paths):
        values = each.metric().fuse(*radii_and_lengths(paths, each.form, each.window))
        assert np.mean(values > each.threshold()) == pytest.approx(0.5, abs=0.02)


def test_the_noise_of_smooth_actions_is_less_under_the_constant_velocity_model() -> None:
    smooth = [np.sin(np.linspace(0.0, 6.0, 80) + start)[:, None] * np.ones(7) for start in range(3)]
    found = calibrate_kalman(smooth)
    assert max(found["constant_velocity"].process_noise) < min(found["random_walk"].process_noise)


def test_only_accepted_tokens_are_variability() -> None:
    draft = ZERO.copy()
    draft[0] -= 2
    draft[1] += 3
    draft[2] -= 16  # rejected, and with it what follows
    draft[3] -= 5
    assert accepted_variability(draft, ZERO, BINS) == pytest.approx(5 * 2.0 / 255)
    assert accepted_variability(ZERO, ZERO, BINS) == 0.0


def test_an_arm_that_repeats_itself_has_no_variability() -> None:
    found = variability_reference(HoldLastDrafter(), [np.tile(ZERO, (9, 1))], BINS)
    assert found.median == found.upper_quartile == 0.0 and found.frames == 8


def test_a_drift_has_the_variability_of_its_steps() -> None:
    drift = ZERO - 2 * np.arange(10)[:, None] * (np.arange(7) < 6)
    found = variability_reference(HoldLastDrafter(), [drift], BINS)
    assert found.median == pytest.approx(6 * 2 * 2.0 / 255)


def test_episodes_without_history_are_refused() -> None:
    with pytest.raises(ValueError, match="enough history"):
        variability_reference(HoldLastDrafter(), [ZERO[None]], BINS)


def test_no_demonstrations_are_refused(policy: LoadedPolicy) -> None:
    with pytest.raises(ValueError, match="no demonstrations"):
        calibrate(policy, [], progress=False)


def test_without_the_gates_the_command_keeps_what_was_calibrated_of_them_before(tmp_path: Path, moving: Path) -> None:
    from tiny_policy import write_policy

    folder = write_policy(tmp_path / "policy")
    app = typer.Typer()
    app.command()(command)
    arguments = ["--policy", str(folder), "--demonstrations", str(moving), "--dtype", "float32", "--no-gates"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    path, fingerprint = folder / "calibration.json", load_policy(folder, torch.float32).fingerprint
    first = load_calibration(path, fingerprint)
    save_calibration(path, first.model_copy(update={"skip": {"floor": 0.9}}))
    assert CliRunner().invoke(app, [*arguments, "--no-policy-tokens"]).exit_code == 0
    second = load_calibration(path, fingerprint)
    assert second.skip == {"floor": 0.9} and second.metrics == first.metrics
