"""Replays a trace: the forwards that a trained policy needed, made by the runtime that the decoders use.

What is replayed: image preparation, vision, search, the learned drafter, every forward with its draft tree, the moving
of accepted paths in the cache, and un-normalisation. Judging drafts and the gates are host work that takes no longer
with a larger policy (``vla-sd bench bookkeeping`` measures it) and is left out.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from vla_sd_ros.actions.bins import N_DOF, Ids
from vla_sd_ros.bench.gpu.subject import Subject
from vla_sd_ros.bench.gpu.trace import LearnedShape, Step
from vla_sd_ros.decoding.autoregressive import greedy_tokens
from vla_sd_ros.decoding.perception import features_for_search
from vla_sd_ros.decoding.scene import SceneChange
from vla_sd_ros.policy.runtime import prefill
from vla_sd_ros.verification.acceptance import GRIPPER
from vla_sd_ros.verification.draft_tree import DraftTree
from vla_sd_ros.verification.tree_forward import embed_token, forward_tree, keep_path

#: Demonstrations that a search asks for.
NEIGHBOURS = 3


class Replay:
    """Plays single steps.

    Args:
        subject: what is measured.
        autoregressive: whether tokens stay on the device until the last one, as in greedy decoding.
        looks_at_image: whether a skipped step compares the image with the one before.
        learned: shape of the learned drafter's trees.
    """

    def __init__(
        self,
        subject: Subject,
        autoregressive: bool = False,
        looks_at_image: bool = False,
        learned: LearnedShape | None = None,
    ) -> None:
        self._subject = subject
        self._autoregressive = autoregressive
        self._looks_at_image = looks_at_image
        self._drafter = None if learned is None else subject.drafters[learned]
        self._scene = SceneChange()
        first = subject.policy.config.first_action_id
        self._any_action: Ids = np.arange(first, first + N_DOF, dtype=np.int64)

    @torch.inference_mode()
    def play(self, step: Step) -> Ids:
        """One control period from the image to the action's values; the tokens, int64 [7].

        Raises:
            NonFiniteState: the random weights gave numbers that are not finite.
        """
        subject, policy = self._subject, self._subject.policy
        tokens = self._any_action
        if self._looks_at_image:
            self._scene.look(subject.image)
        if step.vision:
            features = policy.model.patch_features(policy.prepare_pixels(subject.image))
            if step.searched:
                subject.search(subject.instruction, features_for_search(features[0]), None, NEIGHBOURS)
            if step.forwards:
                prefix = policy.model.join_prefix(features, policy.prepare_prompt(subject.instruction))
                tokens = self._greedy(prefix) if self._autoregressive else self._drafted(prefix, step)
        policy.values_from_ids(tokens)
        return tokens

    def _greedy(self, prefix: torch.Tensor) -> Ids:
        policy, cache = self._subject.policy, self._subject.cache
        logits = prefill(policy.model, cache, prefix)
        return greedy_tokens(policy, cache, logits, prefix.shape[1])

    def _drafted(self, prefix: torch.Tensor, step: Step) -> Ids:
        model, cache = self._subject.policy.model, self._subject.cache
        tokens: list[int] = []
        hidden: list[torch.Tensor] = []
        last = len(step.forwards) - 1
        for number, planned in enumerate(step.forwards):
            if number == 0:
                stem, start = prefix, 0
            elif not tokens:  # the prompt's last position again, with the draft below it
                stem, start = prefix[:, -1:], prefix.shape[1] - 1
            else:
                stem, start = embed_token(model, tokens[-1]), prefix.shape[1] + len(tokens) - 1
            depth = GRIPPER - len(tokens)
            if planned.learned and self._drafter is not None:
                self._drafter.draft(torch.stack(hidden), np.array(tokens, dtype=np.int64))
            tree = level_tree(planned.nodes, depth, int(self._any_action[0]))
            forward = forward_tree(model, cache, stem, start, tree)
            path = [] if tree is None else tree.path(len(tree) - 1)[: max(0, planned.committed - 1)]
            rows = [0, *(node + 1 for node in path)]
            if number < last and path:
                keep_path(cache, forward, path)
            for place in range(planned.committed):  # a filter's tail goes past the rows
                row = rows[min(place, len(rows) - 1)]
                tokens.append(int(forward.choices[row]))
                hidden.append(forward.hidden[row])
        return np.array(tokens, dtype=np.int64)


@lru_cache(maxsize=256)
def level_tree(nodes: int, depth: int, token: int) -> DraftTree | None:
    """A draft of so many nodes on so many levels, as even as it gets; a chain where the nodes are no more than levels.

    Args:
        nodes: of the tree; 0: there is none.
        depth: levels at most, at least 1.
        token: lowest of the ids that the nodes have.
    """
    if not nodes:
        return None
    levels = min(nodes, depth)
    widths = [nodes // levels + (level < nodes % levels) for level in range(levels)]
    parents: list[int] = []
    above: list[int] = [-1] * widths[0]
    for width in widths:
        first = len(parents)
        parents += above[:width]
        above = list(range(first, first + width))
    tokens = token + np.arange(nodes, dtype=np.int64)
    return DraftTree(tokens, np.array(parents, dtype=np.int64), ("replay",) * nodes)
