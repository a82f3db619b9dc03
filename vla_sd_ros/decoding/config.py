"""What a decoder is told: one YAML file per preset, validated whole before anything runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Bins = Annotated[int, Field(ge=0, le=254)]
Steps = Annotated[int, Field(ge=0, le=64)]


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StrictConfig(_Checked):
    """Only the policy's own tokens are accepted."""

    kind: Literal["strict"] = "strict"


class TokenRadiusConfig(_Checked):
    """Spec-VLA's token-wise radius."""

    kind: Literal["token_radius"]
    radius_bins: Bins = 9


class SequenceConfig(_Checked):
    """HeiSD's sequence-wise rule; the paper's bounds."""

    kind: Literal["sequence"]
    max_sum_bins: Annotated[int, Field(ge=0, le=762)] = 30
    max_each_bins: Bins = 15


class PhysicalConfig(_Checked):
    """A bound per degree of freedom, in metres and radians per control period."""

    kind: Literal["physical"]
    position_m: Annotated[float, Field(ge=0.0, le=0.05)]
    rotation_rad: Annotated[float, Field(ge=0.0, le=0.5)]


class VariabilityConfig(_Checked):
    """KERV's radius, driven by kinematic variability.

    Attributes:
        schedule: ``variability`` (as the paper means it) or ``authors`` (as the released code does: by time alone).
        min_bins: tightest radius.
        max_bins: loosest radius.
        horizon_steps: of the authors' schedule.
    """

    kind: Literal["variability"]
    schedule: Literal["variability", "authors"] = "variability"
    min_bins: Bins = 5
    max_bins: Bins = 15
    horizon_steps: Annotated[int, Field(ge=1)] = 300

    @model_validator(mode="after")
    def _ordered(self) -> VariabilityConfig:
        if self.min_bins > self.max_bins:
            raise ValueError(f"min_bins = {self.min_bins} is above max_bins = {self.max_bins}")
        return self


Rule = Annotated[
    StrictConfig | TokenRadiusConfig | SequenceConfig | PhysicalConfig | VariabilityConfig, Field(discriminator="kind")
]
DraftSource = Literal["hold_last", "constant_velocity", "kalman", "kalman_random_walk", "kalman_authors", "retrieval"]


class JacobiConfig(_Checked):
    """The policy's own rows are the next draft until they stay as they are.

    Attributes:
        tolerance_bins: rows that moved by no more count as unchanged; 0: the result is that of greedy decoding.
        position_m: the same in metres per displacement; the tighter bound counts.
        rotation_rad: the same in radians per rotation.
    """

    kind: Literal["jacobi"] = "jacobi"
    tolerance_bins: Bins = 0
    position_m: Annotated[float, Field(ge=0.0, le=0.05)] | None = None
    rotation_rad: Annotated[float, Field(ge=0.0, le=0.5)] | None = None


class SpeculativeConfig(_Checked):
    """Accepted draft tokens are committed; the rest comes from further drafts, or token by token.

    Attributes:
        rule: by which drafts are accepted.
        then: ``learned``: the trained drafter's trees, verified; ``autoregressive``: one token per forward.
        learned_rule: for the learned drafter's trees; None: ``rule``.
        top_k: branching of the learned tree.
        total_nodes: size of the learned tree.
        kalman_tail_cooldown: the tail after the first error is the Kalman filter's, at most every so many steps plus
            one (KERV); None: never.
    """

    kind: Literal["speculative"]
    rule: Rule = StrictConfig()
    then: Literal["learned", "autoregressive"] = "autoregressive"
    learned_rule: Rule | None = None
    top_k: Annotated[int, Field(ge=1, le=10)] = 2
    total_nodes: Annotated[int, Field(ge=1, le=60)] = 12
    kalman_tail_cooldown: Annotated[int, Field(ge=0, le=64)] | None = None


class SkipConfig(_Checked):
    """When the policy is left out altogether, and what acts in its place.

    Attributes:
        kind: ``fixed``: so many steps after every decode; ``similarity``: where the nearest demonstration is near
            enough; ``ambiguity``: where the nearest demonstrations agree ever more.
        action: ``repeat``: the last action; ``lookahead``: what followed the nearest demonstration of the last decode;
            ``lookahead_change``: the last action plus the change that followed there; ``nearest``: the nearest
            demonstration's action, searched at every step.
        max_in_a_row: budget between two decodes.
        max_change_bins: an action that differs more from the last one is not taken unverified.
        max_spread_bins: ``ambiguity`` only: agreement of the nearest demonstrations that is needed.
        max_deviation_bins: a skip is taken only where the last decode moved the draft by no more.
        adapt: whether success widens and failure narrows the ``similarity`` bounds.
    """

    kind: Literal["fixed", "similarity", "ambiguity"] = "fixed"
    action: Literal["repeat", "lookahead", "lookahead_change", "nearest"] = "repeat"
    max_in_a_row: Annotated[int, Field(ge=1, le=16)] = 2
    max_change_bins: Bins = 254
    max_spread_bins: Annotated[float, Field(ge=0.0)] = 15.0
    max_deviation_bins: Bins = 254
    adapt: bool = True


class StepConfig(_Checked):
    """How one action is decoded.

    Attributes:
        drafts: what is guessed before the language model runs, most trusted first.
        neighbours: how many demonstrations are asked for.
        cross_combine: whether the position of one neighbour may be followed by the rotation of another.
        max_nodes: of the merged draft tree.
        verify_in_prefill: whether the draft goes into the prefill; else into a forward of its own.
        completion: what follows the first verification.
        skip: when the policy is left out; None: never.
    """

    drafts: tuple[DraftSource, ...] = ()
    neighbours: Annotated[int, Field(ge=1, le=64)] = 5
    cross_combine: bool = False
    max_nodes: Annotated[int, Field(ge=1, le=128)] = 24
    verify_in_prefill: bool = True
    completion: Annotated[JacobiConfig | SpeculativeConfig, Field(discriminator="kind")] = JacobiConfig()
    skip: SkipConfig | None = None

    @property
    def needs_neighbours(self) -> bool:
        """Whether the demonstrations are asked."""
        return "retrieval" in self.drafts or (
            self.skip is not None and (self.skip.kind != "fixed" or self.skip.action != "repeat")
        )


class GateConfig(_Checked):
    """Which steps are decoded with confidence.

    Attributes:
        kind: ``fused_metric``: HeiSD's kinematic metric lies above its threshold; ``acceptance``: the calibrated
            probability that a retrieved draft is accepted does; ``always``.
        form: of the fused metric.
        window: positions that it looks at.
        alpha: weight of its radius.
        quantile: of the metric over the demonstrations, which is the threshold where no other is named: the share of
            demonstrated steps that is cautious.
        threshold: None: as calibrated.
    """

    kind: Literal["always", "fused_metric", "acceptance"]
    form: Literal["paper", "authors", "curvature"] = "curvature"
    window: Annotated[int, Field(ge=3, le=64)] = 15
    alpha: Probability = 0.5
    quantile: Probability = 0.5
    threshold: float | None = None


class GuardConfig(_Checked):
    """Where no gate may be confident and every step is decoded as the cautious ones are; and when none is skipped.

    Attributes:
        contact_steps: control periods around a change of the gripper, in the demonstrations and in the arm's own past.
        contact_travel_m: distance that the arm may travel after the last gripper change before it counts as free; 0:
            not asked.
        scene_change: no step is skipped whose image changed by more than this where nothing moved a control period
            ago (:class:`~vla_sd_ros.decoding.scene.SceneChange`, 0 to 1); None: skipped steps do not look.
    """

    contact_steps: Steps = 0
    contact_travel_m: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    scene_change: Annotated[float, Field(gt=0.0, le=1.0)] | None = None

    @property
    def needs_neighbours(self) -> bool:
        """Whether the demonstrations are asked."""
        return self.contact_steps > 0


class BoundsConfig(_Checked):
    """Deviations from the verifier's choice that no action may exceed; one that would is decoded exactly instead."""

    position_m: Annotated[float, Field(gt=0.0, le=0.05)] = 0.05
    rotation_rad: Annotated[float, Field(gt=0.0, le=0.5)] = 0.5


class DecoderConfig(_Checked):
    """A decoder.

    Attributes:
        kind: ``autoregressive``: nothing but greedy decoding; ``drafted``: as the rest says.
        gate: None: every step is cautious.
        confident: how steps above the gate are decoded.
        cautious: how all others are.
        guard: where the gate has no say.
        bounds: checked on every action.
        index: demonstrations: a folder or a URL; empty: ``index`` beside the checkpoint.
    """

    kind: Literal["autoregressive", "drafted"]
    gate: GateConfig | None = None
    confident: StepConfig | None = None
    cautious: StepConfig = StepConfig()
    guard: GuardConfig = GuardConfig()
    bounds: BoundsConfig = BoundsConfig()
    index: str = ""

    @model_validator(mode="after")
    def _belongs_together(self) -> DecoderConfig:
        if (self.gate is None) != (self.confident is None):
            raise ValueError("gate and confident: legal: both, or neither")
        return self

    @property
    def steps(self) -> tuple[StepConfig, ...]:
        """All ways in which an action may be decoded."""
        return (self.cautious,) if self.confident is None else (self.confident, self.cautious)
