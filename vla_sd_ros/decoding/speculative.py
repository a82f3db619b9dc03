"""Speculative completion: accepted draft tokens are committed, and the rest is drafted and verified again.

The verifier's own token after the accepted ones comes free with every verification. A further forward is made only for
tokens that are not known by then; the gripper is the verifier's own, for no draft goes past the rotation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from vla_sd_ros.actions.bins import ActionBins, Ids
from vla_sd_ros.decoding.completion import POLICY, Completion, follow
from vla_sd_ros.decoding.stage_times import Stopwatch
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.verification.acceptance import GRIPPER, AcceptanceRule, Verdict, deviation_in_bins, gripper_is_open
from vla_sd_ros.verification.draft_tree import NO_PARENT, DraftTree, truncate
from vla_sd_ros.verification.tree_forward import TreeForward, embed_token, forward_tree, keep_path

KALMAN_TAIL = "kalman_tail"
#: Draws a tree that follows the known tokens: (states [m, W] that predicted them, tokens int64 [m]) -> tree or None.
LearnedDraft = Callable[[torch.Tensor, Ids], DraftTree | None]


class SpeculativeCompletion:
    """Completes an action from its first verified draft.

    Args:
        model: the policy.
        bins: its action bins.
        rule: accepts the first draft.
        learned_rule: accepts the learned drafter's trees.
        learned: None: what is missing is decoded token by token.
    """

    def __init__(
        self,
        model: VisionLanguageActionModel,
        bins: ActionBins,
        rule: AcceptanceRule,
        learned_rule: AcceptanceRule,
        learned: LearnedDraft | None,
    ) -> None:
        self._model = model
        self._bins = bins
        self._rule = rule
        self._learned_rule = learned_rule
        self._learned = learned

    def complete(
        self,
        cache: KeyValueCache,
        forward: TreeForward,
        tree: DraftTree | None,
        completion: Completion,
        watch: Stopwatch,
        tail: Ids | None = None,
    ) -> Completion:
        """Forwards until seven tokens are known.

        Args:
            cache: holds the prefix and, from ``forward.first_slot`` on, the tree.
            forward: the first forward.
            tree: the draft that it verified; None: it had none.
            completion: empty; is completed and returned.
            watch: gets the stages.
            tail: prediction of all seven tokens, int64 [7]; what follows the first error is taken from it where the
                verifier's row agrees on the gripper's class (KERV). None: never.
        """
        slot, rule = forward.first_slot, self._rule
        while True:
            verdict = Verdict() if tree is None else rule.judge(tree, forward.targets(tree), len(completion))
            completion.commit(forward, tree, verdict)
            if completion.finished:
                return completion
            if tree is not None and tail is not None and self._take_tail(completion, forward, tree, verdict, tail):
                return completion
            if tree is not None:
                keep_path(cache, forward, list(verdict.path))
                slot += len(verdict.path)
            tree, rule = self._draft(completion, watch), self._learned_rule
            with watch.stage("verify" if tree is not None else "decode"):
                forward = forward_tree(self._model, cache, embed_token(self._model, completion.tokens[-1]), slot, tree)
            slot = forward.first_slot

    def _draft(self, completion: Completion, watch: Stopwatch) -> DraftTree | None:
        missing = GRIPPER - len(completion)  # tokens before the gripper
        if self._learned is None or missing < 1:
            return None
        with watch.stage("draft"):
            known = np.array(completion.tokens, dtype=np.int64)
            tree = self._learned(torch.stack(completion.hidden), known)
            return None if tree is None else truncate(tree, missing)

    def _take_tail(
        self, completion: Completion, forward: TreeForward, tree: DraftTree, verdict: Verdict, tail: Ids
    ) -> bool:
        """The tail of the Kalman filter, where the verifier's row at the draft's end agrees on the gripper."""
        last = verdict.path[-1] if verdict.path else NO_PARENT
        below = follow(tree, last, forward.choices)
        first = len(completion)
        if not below or first - 1 + len(below) < GRIPPER:
            return False
        # ``below[0]`` stands at the place of the verifier's correction, the nodes after it at those of the tail.
        gripper = int(forward.choices[below[GRIPPER - first] + 1])
        if bool(gripper_is_open(gripper, self._bins)) != bool(gripper_is_open(tail[GRIPPER], self._bins)):
            return False
        targets = forward.targets(tree)
        for dof in range(first, GRIPPER):
            deviation = int(deviation_in_bins(tail[dof], targets[below[dof - first + 1]], self._bins))
            completion.append(int(tail[dof]), KALMAN_TAIL, deviation)
        completion.append(gripper, POLICY, 0)
        return True
