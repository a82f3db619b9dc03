"""Jacobi refinement: the verifier's rows over a draft are the next draft, until they no longer change.

With a tolerance of 0 the tokens are exactly those of greedy decoding: a token is certain once everything before it is,
and every pass makes at least one more certain. With a tolerance, rows that hardly move are taken as they are: the
tokens are always the verifier's own reading of the present image, never the draft's, so that no error of a draft
lives on in the next (Santilli et al., "Accelerating Transformer Inference for Translation via Parallel Decoding", 2023,
for the exact form).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_DOF, ActionBins, Ids
from vla_sd_ros.decoding.completion import POLICY, Completion, follow
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.verification.acceptance import GRIPPER, Strict, Verdict, deviation_in_bins, gripper_is_open
from vla_sd_ros.verification.draft_tree import NO_PARENT, DraftTree, chain
from vla_sd_ros.verification.tree_forward import TreeForward, embed_token, forward_tree, keep_path


class JacobiCompletion:
    """Completes an action from its first verified draft.

    Args:
        model: the policy.
        bins: its action bins.
        tolerance_bins: how far a row may be from the draft before it and still count as unchanged, int64 [7]; the
            gripper's class must be the same in any case.
    """

    def __init__(self, model: VisionLanguageActionModel, bins: ActionBins, tolerance_bins: Ids) -> None:
        self._model = model
        self._bins = bins
        self._tolerance_bins = tolerance_bins
        self._strict = Strict()

    def complete(
        self, cache: KeyValueCache, forward: TreeForward, tree: DraftTree, completion: Completion
    ) -> Completion:
        """Forwards until nothing changes. Each is read once on the host: what it says decides whether there is another.

        Args:
            cache: holds the prefix and, from ``forward.first_slot`` on, the tree.
            forward: the first verification, whose tree begins at degree of freedom ``len(completion)``.
            tree: the draft that it verified.
            completion: tokens before the tree; is completed and returned.
        """
        model, slot = self._model, forward.first_slot
        while True:
            first_dof = len(completion)
            verdict = self._strict.judge(tree, forward.targets(tree), first_dof)
            below = follow(tree, verdict.path[-1] if verdict.path else NO_PARENT, forward.choices)
            if self._hardly_moved(tree, forward, verdict, below, first_dof):
                self._take_rows(completion, tree, forward, verdict, below)
                return completion
            completion.commit(forward, tree, verdict)
            if completion.finished:
                return completion
            keep_path(cache, forward, list(verdict.path))
            slot += len(verdict.path)
            # The last committed token is not in the cache yet: it is the stem; the rows below it are the next draft.
            guesses = [int(forward.choices[node + 1]) for node in below]
            wanted = GRIPPER - len(completion)
            tree = chain(guesses[:wanted], "jacobi")
            forward = forward_tree(model, cache, embed_token(model, completion.tokens[-1]), slot, tree)
            slot = forward.first_slot

    def _hardly_moved(
        self, tree: DraftTree, forward: TreeForward, verdict: Verdict, below: list[int], first_dof: int
    ) -> bool:
        if not self._tolerance_bins.any() or first_dof + len(verdict.path) + len(below) < GRIPPER:
            return False  # the rows do not reach the gripper
        nodes = np.array(below, dtype=np.int64)
        dof = first_dof + tree.depths[nodes]
        wanted = forward.targets(tree)[nodes]
        moved: npt.NDArray[np.int64] = np.abs(deviation_in_bins(tree.tokens[nodes], wanted, self._bins))
        still = moved <= self._tolerance_bins[dof]
        same_class = gripper_is_open(tree.tokens[nodes], self._bins) == gripper_is_open(wanted, self._bins)
        return bool(np.where(dof == GRIPPER, same_class, still).all())

    def _take_rows(
        self, completion: Completion, tree: DraftTree, forward: TreeForward, verdict: Verdict, below: list[int]
    ) -> None:
        before = len(completion)
        for node in verdict.path:
            completion.append(int(tree.tokens[node]), tree.sources[node], 0)
        targets = forward.targets(tree)
        for node in below:
            moved = int(deviation_in_bins(tree.tokens[node], targets[node], self._bins))
            completion.append(int(targets[node]), POLICY, moved)
        if not completion.finished:
            completion.append(int(forward.choices[(below or verdict.path)[-1] + 1]), POLICY, 0)
        completion.forward_passes += 1
        completion.verified_passes += 1
        completion.accepted_tokens += N_DOF - before
