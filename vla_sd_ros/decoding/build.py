"""Puts decoders together from their configuration and from what was derived from the policy's checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from vla_sd_ros.actions.bins import N_DOF, Ids
from vla_sd_ros.decoding.assets import DerivedAssets
from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.config import DecoderConfig, GateConfig, Rule, SpeculativeConfig, StepConfig
from vla_sd_ros.decoding.drafted import DraftedDecoder
from vla_sd_ros.decoding.gate import Gate, always
from vla_sd_ros.decoding.interface import Decoder
from vla_sd_ros.decoding.jacobi import JacobiCompletion
from vla_sd_ros.decoding.parts import DecoderParts, StepParts, Threshold
from vla_sd_ros.decoding.skip import SkipPolicy
from vla_sd_ros.decoding.speculative import LearnedDraft, SpeculativeCompletion
from vla_sd_ros.drafting.constant_velocity import ConstantVelocityDrafter
from vla_sd_ros.drafting.context import DraftContext, Drafter
from vla_sd_ros.drafting.hold_last import HoldLastDrafter
from vla_sd_ros.drafting.kalman_draft import AuthorsKalmanDrafter
from vla_sd_ros.drafting.learned_config import LearnedDraftConfig
from vla_sd_ros.drafting.retrieved import RetrievalDrafter
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.verification.acceptance import (
    GRIPPER,
    AcceptanceRule,
    Physical,
    SequenceWise,
    Strict,
    TokenRadius,
    bin_size_si,
    gripper_is_open,
)


def build_decoder(config: DecoderConfig, policy: LoadedPolicy, view: str | None = None) -> Decoder:
    """A decoder.

    Args:
        config: what it is.
        policy: decodes; its folder holds the index, the drafter and the calibration that the decoder needs.
        view: camera whose image the policy sees; None: the only one.

    Raises:
        ValueError: something that the configuration needs is missing, or belongs to another checkpoint.
        FileNotFoundError: an index or a drafter is not there; the message says how to make one.
    """
    if config.kind == "autoregressive":
        return AutoregressiveDecoder(policy, view)
    return DraftedDecoder(policy, _Builder(config, policy).parts(), view)


class _Builder:
    def __init__(self, config: DecoderConfig, policy: LoadedPolicy) -> None:
        self._config = config
        self._policy = policy
        self._assets = DerivedAssets(policy)

    def parts(self) -> DecoderParts:
        config, steps = self._config, self._config.steps
        asked = any(step.needs_neighbours for step in steps) or config.guard.needs_neighbours
        asked = asked or (config.gate is not None and config.gate.kind == "acceptance")
        return DecoderParts(
            config=config,
            gate=None if config.gate is None else self._gate(config.gate),
            confident=None if config.confident is None else self._step(config.confident),
            cautious=self._step(config.cautious),
            search=self._assets.search(config.index) if asked else None,
            neighbours=max(step.neighbours for step in steps),
        )

    def _gate(self, gate: GateConfig) -> Gate:
        if gate.kind == "always":
            return always
        if gate.kind == "fused_metric":
            return self._assets.fused_metric_gate(gate)
        return self._assets.acceptance_gate(gate.threshold)

    def _step(self, step: StepConfig) -> StepParts:
        policy, completion = self._policy, step.completion
        jacobi, speculative, threshold, tail = None, None, None, None
        if completion.kind == "jacobi":
            tolerance = np.full(N_DOF, completion.tolerance_bins, dtype=np.int64)
            bin_si = bin_size_si(policy.statistics)
            for part, bound in ((slice(0, 3), completion.position_m), (slice(3, 6), completion.rotation_rad)):
                if bound is not None:
                    tolerance[part] = np.floor(bound / bin_si[part] + 1e-9)
            tolerance[GRIPPER] = 0
            jacobi = JacobiCompletion(policy.model, policy.bins, tolerance)
        else:
            threshold = self._assets.threshold(completion.rule)
            speculative = partial(self._speculative, completion, threshold, self._learned(completion))
            if completion.kalman_tail_cooldown is not None:
                tail = self._tail(step)
        drafters = tuple(self._drafter(name, step) for name in step.drafts)
        skip = None
        if step.skip is not None:
            calibration = self._assets.skip_calibration() if step.skip.kind == "similarity" else None
            skip = SkipPolicy(step.skip, policy.bins, calibration)
        return StepParts(step, drafters, jacobi, speculative, skip, threshold, tail)

    def _speculative(
        self, settings: SpeculativeConfig, threshold: Threshold | None, learned: LearnedDraft | None
    ) -> SpeculativeCompletion:
        rule = self._rule(settings.rule, threshold)
        learned_rule = rule if settings.learned_rule is None else self._rule(settings.learned_rule, threshold)
        return SpeculativeCompletion(self._policy.model, self._policy.bins, rule, learned_rule, learned)

    def _rule(self, rule: Rule, threshold: Threshold | None) -> AcceptanceRule:
        bins = self._policy.bins
        if rule.kind == "token_radius":
            return TokenRadius(rule.radius_bins, bins)
        if rule.kind == "sequence":
            return SequenceWise(rule.max_sum_bins, rule.max_each_bins, bins)
        if rule.kind == "physical":
            return Physical(rule.position_m, rule.rotation_rad, bins, self._policy.statistics)
        if rule.kind == "variability" and threshold is not None:
            return TokenRadius(threshold.radius_bins, bins)
        return Strict()

    def _learned(self, settings: SpeculativeConfig) -> LearnedDraft | None:
        if settings.then != "learned":
            return None
        drafter = self._assets.drafter
        shape = LearnedDraftConfig(top_k=settings.top_k, total_nodes=settings.total_nodes)
        return lambda hidden, tokens: drafter.draft(hidden, tokens, shape)

    def _drafter(self, name: str, step: StepConfig) -> Drafter:
        if name == "hold_last":
            return HoldLastDrafter()
        if name == "constant_velocity":
            return ConstantVelocityDrafter()
        if name == "kalman":
            return self._assets.kalman("constant_velocity")
        if name == "kalman_random_walk":
            return self._assets.kalman("random_walk")
        if name == "kalman_authors":
            return AuthorsKalmanDrafter()
        return RetrievalDrafter(step.cross_combine)

    def _tail(self, step: StepConfig) -> Callable[[DraftContext], Ids | None]:
        name = next((name for name in step.drafts if name.startswith("kalman")), "kalman")
        return partial(_steady_gripper_tail, self._drafter(name, step))


def _steady_gripper_tail(drafter: Drafter, context: DraftContext) -> Ids | None:
    """The filter's seven tokens; None while the gripper has changed within the history."""
    history = context.history.tokens()
    predicted = drafter.draft(context)
    if predicted is None or len(np.unique(gripper_is_open(history[:, GRIPPER], context.bins))) != 1:
        return None
    tokens = predicted.tokens.copy()
    tokens[GRIPPER] = history[-1, GRIPPER]
    return tokens
