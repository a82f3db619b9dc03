"""The seven tokens in the making: what is certain, where it came from, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from vla_sd_ros.actions.bins import N_DOF, Ids
from vla_sd_ros.verification.acceptance import Verdict
from vla_sd_ros.verification.draft_tree import NO_PARENT, DraftTree
from vla_sd_ros.verification.tree_forward import TreeForward

POLICY = "policy"


@dataclass
class Completion:
    """Grows from no token to seven; local to one decode.

    Attributes:
        tokens: committed so far.
        sources: drafter of each, or ``policy``.
        deviation_bins: committed minus the verifier's choice of each.
        hidden: the policy's states that predicted each, [W] each.
        forward_passes: forwards of the language model.
        verified_passes: those that verified a draft.
        accepted_tokens: tokens that those advanced by.
    """

    tokens: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    deviation_bins: list[int] = field(default_factory=list)
    hidden: list[torch.Tensor] = field(default_factory=list)
    forward_passes: int = 0
    verified_passes: int = 0
    accepted_tokens: int = 0

    def __len__(self) -> int:
        """Tokens that are committed."""
        return len(self.tokens)

    @property
    def finished(self) -> bool:
        """Whether all seven are there."""
        return len(self.tokens) == N_DOF

    @property
    def relaxed_tokens(self) -> int:
        """Committed tokens that are not the verifier's choice."""
        return sum(deviation != 0 for deviation in self.deviation_bins)

    def commit(self, forward: TreeForward, tree: DraftTree | None, verdict: Verdict) -> None:
        """Takes the accepted path of a forward, and the verifier's own token after it."""
        before = len(self)
        node = NO_PARENT
        if tree is not None:
            for node, deviation in zip(verdict.path, verdict.deviation_bins, strict=True):
                self._add(int(tree.tokens[node]), tree.sources[node], deviation, forward, int(tree.parents[node]))
        if not self.finished:
            self._add(int(forward.choices[node + 1]), POLICY, 0, forward, node)
        self.forward_passes += 1
        if tree is not None and len(tree):
            self.verified_passes += 1
            self.accepted_tokens += len(self) - before

    def append(self, token: int, source: str, deviation_bins: int) -> None:
        """Takes a token that no forward of its own stands behind."""
        self.tokens.append(token)
        self.sources.append(source)
        self.deviation_bins.append(deviation_bins)

    def _add(self, token: int, source: str, deviation: int, forward: TreeForward, above: int) -> None:
        self.append(token, source, deviation)
        self.hidden.append(forward.hidden[above + 1])

    def result(self) -> Ids:
        """The seven tokens, int64 [7].

        Raises:
            RuntimeError: where they are not seven.
        """
        if not self.finished:
            raise RuntimeError(f"{len(self)} tokens of {N_DOF} were decoded")
        return np.array(self.tokens, dtype=np.int64)


def follow(tree: DraftTree, node: int, wanted: Sequence[int] | Ids) -> list[int]:
    """Nodes below one, nearest to what the verifier wanted there: where its rows are worth most.

    Args:
        tree: a verified draft.
        node: where to begin; -1: before the first.
        wanted: the verifier's choice after the beginning and after every node, [1 + N].

    Returns:
        Nodes from the child of ``node`` down to a leaf; empty where there is none.
    """
    path = []
    while children := tree.children(node):
        node = min(children, key=lambda child: abs(int(tree.tokens[child]) - int(wanted[node + 1])))
        path.append(node)
    return path
