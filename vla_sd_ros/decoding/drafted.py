"""The drafted decoder: observe, draft, verify, complete, finish; or skip.

One engine stands behind HeiSD, KERV, Spec-VLA, naive speculative decoding, the lossless mode and the hybrid: they
differ in their drafts, in what is accepted and in when the policy may be left out, all of which is configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from vla_sd_ros.actions.bins import N_DOF, Ids
from vla_sd_ros.decoding.completion import POLICY, Completion
from vla_sd_ros.decoding.deviation import deviation_si
from vla_sd_ros.decoding.gate import GateVerdict
from vla_sd_ros.decoding.guard import is_near_contact
from vla_sd_ros.decoding.interface import DecodeCounts, DecodedAction, DecodeReport
from vla_sd_ros.decoding.memory import EpisodeMemory
from vla_sd_ros.decoding.parts import DecoderParts, StepParts
from vla_sd_ros.decoding.perception import Perception
from vla_sd_ros.decoding.skip import SPREAD_STEPS, spread_bins
from vla_sd_ros.decoding.speculative import KALMAN_TAIL
from vla_sd_ros.decoding.stage_times import Stopwatch
from vla_sd_ros.drafting.context import DraftContext
from vla_sd_ros.kinematics.calibration import BIN_WIDTH
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.types import KinematicState, Observation
from vla_sd_ros.verification.acceptance import GRIPPER, Verdict, deviation_in_bins
from vla_sd_ros.verification.draft_tree import DraftTree, chain, merge, truncate
from vla_sd_ros.verification.tree_forward import TreeForward, embed_token, forward_tree

#: Distance that stands for: there was no draft.
MAX_MOVE_BINS = 254


@dataclass(frozen=True)
class Outcome:
    """How the tokens of one action came about.

    Attributes:
        completion: empty where the policy was skipped.
        moved_bins: largest distance from the most trusted draft to the decoded tokens; 254 where there was no draft.
        degraded: why the decoder fell back; empty where it did not.
    """

    completion: Completion
    moved_bins: int
    degraded: str = ""

    @property
    def skipped(self) -> bool:
        """Whether no model ran."""
        return self.completion.forward_passes == 0


class DraftedDecoder:
    """Decodes with drafts.

    What it remembers changes when an action is finished; a decode that raises leaves nothing behind but where the arm
    was and what the camera saw. Not safe for calls from two threads at once.

    Args:
        policy: shared with other decoders; not changed.
        parts: what it is put together from.
        view: camera whose image the policy sees; None: the only one.
    """

    def __init__(self, policy: LoadedPolicy, parts: DecoderParts, view: str | None = None) -> None:
        self._policy = policy
        self._parts = parts
        self._view = view
        largest = max(step.max_nodes for step in parts.config.steps)
        self._cache: KeyValueCache = policy.model.new_cache(N_DOF + max(largest, 64), ready=True)
        self._memory = EpisodeMemory()

    def reset(self) -> None:
        """Forgets the episode."""
        self._memory = EpisodeMemory()
        for step in self._steps():
            if step.threshold is not None:
                step.threshold.reset()

    def end_episode(self, success: bool) -> None:
        """Lets the skip rules learn how it ended, then forgets the episode."""
        for step in self._steps():
            if step.skip is not None:
                step.skip.end_episode(success)
        self.reset()

    @torch.inference_mode()
    def decode(self, observation: Observation, state: KinematicState | None = None) -> DecodedAction:
        """Decodes one action.

        Raises:
            EmptyInstruction: the instruction is empty.
            ValueError: the image is not of the policy's size, or the view is missing or ambiguous.
            NonFiniteState: the policy gave numbers that are not finite.
        """
        watch, memory, parts = Stopwatch(self._policy.device), self._memory, self._parts
        trouble = _observe(memory, state)
        usable = None if trouble else state
        perception = Perception(self._policy, observation, usable, self._view, parts.search, parts.neighbours, watch)
        near_contact = is_near_contact(parts.config.guard, memory)
        verdict = self._judge(memory, perception, near_contact, trouble)
        step = parts.confident if verdict.confident and parts.confident is not None else parts.cautious
        with watch.stage("preprocess"):
            self._look(memory, perception)
        may_skip = not (memory.scene_changed or trouble)
        tokens = step.skip.propose(memory, perception) if step.skip is not None and may_skip else None
        if tokens is None:
            outcome = self._decode(step, memory, perception, usable, watch)
            tokens = outcome.completion.result()
        else:
            outcome = Outcome(Completion(), memory.deviation_bins)
        with watch.stage("post"):
            values = self._policy.values_from_ids(tokens)
            self._finish(memory, step, perception, tokens, outcome)
            report = self._report(step, verdict, near_contact, outcome, (trouble, perception.degraded))
        spent = outcome.completion
        counts = DecodeCounts(spent.forward_passes, spent.verified_passes, spent.accepted_tokens, spent.relaxed_tokens)
        return DecodedAction(tokens, values, _mode(step, outcome), watch.read(), counts, report)

    def _report(
        self, step: StepParts, verdict: GateVerdict, near_contact: bool, outcome: Outcome, troubles: tuple[str, str]
    ) -> DecodeReport:
        completion, skipped = outcome.completion, outcome.skipped
        deviation = (0,) * N_DOF if skipped else tuple(completion.deviation_bins)
        deviation_m, deviation_rad = deviation_si(deviation, self._policy.statistics)
        confident = step is self._parts.confident
        return DecodeReport(
            region="" if self._parts.gate is None else ("confident" if confident else "cautious"),
            gate_score=verdict.score,
            near_contact=near_contact,
            skipped=skipped,
            skipped_in_a_row=self._memory.skipped_in_a_row,
            degraded="; ".join(reason for reason in (*troubles, outcome.degraded) if reason),
            sources=("skip",) * N_DOF if skipped else tuple(completion.sources),
            deviation_bins=deviation,
            deviation_m=deviation_m,
            deviation_rad=deviation_rad,
            threshold_bins=0 if step.threshold is None else step.threshold.radius_bins,
        )

    def _steps(self) -> tuple[StepParts, ...]:
        confident = self._parts.confident
        return (self._parts.cautious,) if confident is None else (confident, self._parts.cautious)

    def _look(self, memory: EpisodeMemory, perception: Perception) -> None:
        limit = self._parts.config.guard.scene_change
        if limit is not None and memory.scene.look(perception.image) > limit:
            memory.scene_changed = True

    def _judge(self, memory: EpisodeMemory, perception: Perception, near_contact: bool, trouble: str) -> GateVerdict:
        if self._parts.gate is None or trouble:
            return GateVerdict(False, float("nan"))
        verdict = self._parts.gate(memory, perception)
        return GateVerdict(verdict.confident and not near_contact, verdict.score)

    def _decode(
        self,
        step: StepParts,
        memory: EpisodeMemory,
        perception: Perception,
        state: KinematicState | None,
        watch: Stopwatch,
    ) -> Outcome:
        """Draft, verify, complete."""
        prefix = perception.prefix
        asked = self._parts.search is not None and (
            step.config.needs_neighbours or self._parts.config.guard.needs_neighbours
        )
        neighbours = perception.neighbours if asked else ()
        with watch.stage("draft"):
            context = DraftContext(self._policy.bins, memory.history, state, neighbours)
            tree = self._draft(step, context)
            tail = None
            if step.tail is not None and memory.tail_cooldown == 0:
                tail = step.tail(context)
        completion = Completion()
        forward, start = self._first_forward(step, prefix, tree, completion, watch)
        first_choice = int(forward.choices[0])
        if step.jacobi is not None and tree is not None:
            with watch.stage("refine"):
                step.jacobi.complete(self._cache, forward, tree, completion)
        elif step.speculative is not None:
            step.speculative().complete(self._cache, forward, tree, completion, watch, tail)
        degraded = ""
        if self._breaks_bounds(completion):
            degraded = "bounds: the deviation would have exceeded what is declared; decoded exactly"
            with watch.stage("decode"):
                completion = self._decode_exactly(first_choice, start, completion)
        moved = MAX_MOVE_BINS
        if tree is not None:
            first = np.array([int(tree.tokens[node]) for node in _first_chain(tree)])
            wanted = np.array(completion.tokens[: len(first)])
            moved = int(np.abs(deviation_in_bins(first, wanted, self._policy.bins)).max())
        return Outcome(completion, moved, degraded)

    def _draft(self, step: StepParts, context: DraftContext) -> DraftTree | None:
        """What is guessed of the first six tokens: the gripper is the verifier's own."""
        merged = merge((drafter.draft(context) for drafter in step.drafters), step.config.max_nodes)
        if merged is None and step.jacobi is not None:
            rest = self._policy.bins.ids_from_normalised(self._policy.statistics.normalise(np.zeros(N_DOF)))
            merged = chain(rest, "rest")
        return None if merged is None else truncate(merged, GRIPPER)

    def _first_forward(
        self, step: StepParts, prefix: torch.Tensor, tree: DraftTree | None, completion: Completion, watch: Stopwatch
    ) -> tuple[TreeForward, int]:
        model, length = self._policy.model, prefix.shape[1]
        with watch.stage("prefill"):
            inside = tree if step.config.verify_in_prefill else None
            forward = forward_tree(model, self._cache, prefix, 0, inside)
        if tree is not None and not step.config.verify_in_prefill:
            completion.forward_passes += 1
            with watch.stage("verify"):  # the last position again, with the draft below it
                forward = forward_tree(model, self._cache, prefix[:, -1:], length - 1, tree)
        return forward, length

    def _breaks_bounds(self, completion: Completion) -> bool:
        bounds = self._parts.config.bounds
        deviation_m, deviation_rad = deviation_si(tuple(completion.deviation_bins), self._policy.statistics)
        return deviation_m > bounds.position_m or deviation_rad > bounds.rotation_rad

    def _decode_exactly(self, first_choice: int, start: int, spent: Completion) -> Completion:
        """Greedy tokens after a prefix that is in the cache already."""
        model, exact = self._policy.model, Completion()
        exact.append(first_choice, POLICY, 0)
        while not exact.finished:
            stem = embed_token(model, exact.tokens[-1])
            forward = forward_tree(model, self._cache, stem, start + len(exact) - 1, None)
            exact.commit(forward, None, Verdict())
        exact.forward_passes += spent.forward_passes
        exact.verified_passes, exact.accepted_tokens = spent.verified_passes, 0
        return exact

    def _finish(
        self,
        memory: EpisodeMemory,
        step: StepParts,
        perception: Perception,
        tokens: Ids,
        outcome: Outcome,
    ) -> None:
        """Remembers a finished action."""
        completion, skipped = outcome.completion, outcome.skipped
        seen = perception.found
        if len(seen) > 1:
            memory.spreads = (*memory.spreads, spread_bins(seen, self._policy.bins))[-SPREAD_STEPS:]
        memory.skipped_in_a_row = memory.skipped_in_a_row + 1 if skipped else 0
        memory.tail_cooldown = max(0, memory.tail_cooldown - 1)
        if not skipped:
            memory.decoded += 1
            memory.scene_changed = False
            memory.deviation_bins = outcome.moved_bins
            memory.anchor = seen[0] if len(seen) else None
            memory.anchor_tokens = tokens
            settings = step.config.completion
            if settings.kind == "speculative" and KALMAN_TAIL in completion.sources:
                memory.tail_cooldown = settings.kalman_tail_cooldown or 0
            if step.threshold is not None:
                bins = np.abs(np.array(completion.deviation_bins))[[s != POLICY for s in completion.sources]]
                step.threshold.update((bins * BIN_WIDTH).tolist())
        memory.finish(tokens, self._policy.bins)


def _observe(memory: EpisodeMemory, state: KinematicState | None) -> str:
    """Notes where the arm is; returns why it cannot be used, where it cannot."""
    if state is None:
        return ""
    try:
        memory.positions.add(state.stamp_ns, state.position)
    except ValueError as error:
        return f"state: {error}"
    return ""


def _first_chain(tree: DraftTree) -> list[int]:
    """The most trusted guess: first children down to a leaf."""
    nodes, children = [], tree.children(-1)
    while children:
        nodes.append(children[0])
        children = tree.children(children[0])
    return nodes


def _mode(step: StepParts, outcome: Outcome) -> str:
    if outcome.skipped:
        return "skip"
    settings = step.config.completion
    if settings.kind == "jacobi":
        exact = settings.tolerance_bins == 0 and not settings.position_m and not settings.rotation_rad
        return "lossless" if exact else "jacobi"
    return "speculative"
