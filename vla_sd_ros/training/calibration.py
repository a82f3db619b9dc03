"""Calibrates what depends on how the arm moves, from demonstrations and the policy's own tokens on some of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final, get_args

import numpy as np
from tqdm import tqdm

from vla_sd_ros.actions.bins import ActionBins, Ids, Values
from vla_sd_ros.drafting.context import DraftContext, Drafter
from vla_sd_ros.drafting.history import ActionHistory
from vla_sd_ros.drafting.hold_last import HoldLastDrafter
from vla_sd_ros.drafting.kalman_draft import KalmanDrafter
from vla_sd_ros.kinematics.calibration import (
    Calibration,
    KalmanCalibration,
    MetricCalibration,
    VariabilityReference,
    VariabilitySource,
)
from vla_sd_ros.kinematics.fused_metric import FusedMetric, MetricForm, radii_and_lengths, ranges_of
from vla_sd_ros.kinematics.kalman import KalmanModel
from vla_sd_ros.kinematics.kalman_noise import fit_noise
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.training.dataset import action_ids
from vla_sd_ros.training.demonstrations import load_demonstration
from vla_sd_ros.training.teacher import greedy_tokens_in_batches

logger = logging.getLogger(__name__)

WINDOWS: Final = (15, 5)
ALPHA: Final = 0.5
QUANTILES: Final = (0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9)
#: Loosest radius of acceptance: beyond, a token is rejected and does not count as variability.
LARGEST_RADIUS_BINS: Final = 15
#: So many windows say as much about quantiles as all of them.
MAX_WINDOWS: Final = 4000


def calibrate(
    policy: LoadedPolicy, demonstration_paths: Sequence[Path], policy_tokens: bool = True, progress: bool = True
) -> Calibration:
    """Calibrates fused metric, Kalman filters and kinematic variability.

    Ranges and thresholds of the metric come from all demonstrated positions, the filters' noise from all demonstrated
    actions. The variability is that of drafts on the first episode of every task, which training always holds out.

    Args:
        policy: whose statistics normalise the actions.
        demonstration_paths: episode files, those of a task in one folder, in the order of ``find_demonstrations``.
        policy_tokens: whether drafts are compared with the policy's own greedy tokens (minutes where it is large, and
            what a decoder compares with); else with the demonstrated ones.
        progress: whether bars are shown.

    Raises:
        ValueError: where the demonstrations are too few or too short.
    """
    positions, actions, held_out = _read(policy, demonstration_paths, policy_tokens, progress)
    kalman = calibrate_kalman(actions)
    drafters: dict[VariabilitySource, Drafter] = {
        "hold_last": HoldLastDrafter(),
        "kalman": KalmanDrafter(kalman["constant_velocity"].action_filter("constant_velocity")),
    }
    tokens = f"greedy tokens, {policy.dtype} weights" if policy_tokens else "demonstrated tokens"
    return Calibration(
        policy_fingerprint=policy.fingerprint,
        source=f"{len(positions)} episodes; variability: {tokens}, {len(held_out)} held-out episodes",
        metrics=calibrate_metrics(positions, progress),
        kalman=kalman,
        variability={name: variability_reference(drafter, held_out, policy.bins) for name, drafter in drafters.items()},
    )


def calibrate_metrics(trajectories: Sequence[Values], progress: bool = False) -> tuple[MetricCalibration, ...]:
    """Every form over every window, of positions float64 [T, 3] each, m, base frame."""
    # Neighbouring windows hardly differ; the fit of a circle to each of them would take minutes.
    stride = max(1, sum(map(len, trajectories)) // MAX_WINDOWS)
    found = []
    choices: list[tuple[MetricForm, int]] = list(product(get_args(MetricForm), WINDOWS))
    for form, window in tqdm(choices, desc="fused metric", disable=not progress):
        radii_m, lengths_m = radii_and_lengths(trajectories, form, window, stride)
        ranges = ranges_of(radii_m, lengths_m)
        values = FusedMetric(form, window, ALPHA, ranges=ranges).fuse(radii_m, lengths_m)
        quantiles = {f"{share:g}": float(np.quantile(values, share)) for share in QUANTILES}
        found.append(MetricCalibration(form=form, window=window, alpha=ALPHA, ranges=ranges, quantiles=quantiles))
    return tuple(found)


def calibrate_kalman(trajectories: Sequence[Values]) -> dict[KalmanModel, KalmanCalibration]:
    """Noise of both models, of normalised actions float64 [T, 7] each."""
    found: dict[KalmanModel, KalmanCalibration] = {}
    for model in get_args(KalmanModel):
        noise = fit_noise(trajectories, model)
        logger.info("%s: log-likelihood %s", model, np.round(noise.log_likelihood, 3).tolist())
        found[model] = KalmanCalibration(
            process_noise=tuple(noise.process.tolist()), measurement_noise=tuple(noise.measurement.tolist())
        )
    return found


def variability_reference(drafter: Drafter, episodes: Sequence[Ids], bins: ActionBins) -> VariabilityReference:
    """Quantiles of K over the frames of episodes, tokens int64 [T, 7] each, that the drafter drafts for.

    Raises:
        ValueError: where it drafts for none.
    """
    found = [value for tokens in episodes for value in _variabilities(drafter, tokens, bins)]
    if not found:
        raise ValueError("no held-out frame has enough history; give more or longer demonstrations")
    median, upper = np.quantile(found, [0.5, 0.75])
    return VariabilityReference(median=float(median), upper_quartile=float(upper), frames=len(found))


def accepted_variability(draft: Ids, target: Ids, bins: ActionBins, radius_bins: int = LARGEST_RADIUS_BINS) -> float:
    """K of one action: absolute differences of accepted tokens, summed, in normalised units.

    Args:
        draft: int64 [7].
        target: the verifier's choice, int64 [7].
        bins: ids to values.
        radius_bins: tokens are accepted until one is farther off.
    """
    near = np.abs(bins.bin_of(draft) - bins.bin_of(target)) <= radius_bins
    accepted = len(near) if near.all() else int(np.argmin(near))
    return float(np.abs(bins.normalised_from_ids(draft) - bins.normalised_from_ids(target))[:accepted].sum())


def _variabilities(drafter: Drafter, tokens: Ids, bins: ActionBins) -> Iterator[float]:
    history = ActionHistory()
    for target in tokens:
        draft = drafter.draft(DraftContext(bins, history))
        if draft is not None:
            yield accepted_variability(draft.tokens, target, bins)
        history.add(target)


def _read(
    policy: LoadedPolicy, paths: Sequence[Path], policy_tokens: bool, progress: bool
) -> tuple[list[Values], list[Values], list[Ids]]:
    """Positions and normalised actions of all episodes, tokens of the held-out ones; images of one at a time."""
    positions: list[Values] = []
    actions: list[Values] = []
    held_out: list[Ids] = []
    seen: set[Path] = set()
    for path in tqdm(paths, desc="demonstrations", unit="episode", disable=not progress):
        episode = load_demonstration(path)
        positions.append(episode.end_effector_positions.astype(np.float64))
        actions.append(policy.statistics.normalise(episode.actions))
        if path.parent not in seen:
            seen.add(path.parent)
            if policy_tokens:
                held_out.append(greedy_tokens_in_batches(policy, episode.images, episode.instruction)[0])
            else:
                held_out.append(action_ids(episode.actions, policy.statistics, policy.bins))
    if not positions:
        raise ValueError("no demonstrations; gather some with: vla-sd train policy --gather-only")
    return positions, actions, held_out
