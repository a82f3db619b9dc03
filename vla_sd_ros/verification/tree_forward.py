"""One forward of the language model over what is certain and a tree of what is guessed.

With the prompt as the stem the draft is verified inside the prefill; with the last certain tokens as the stem, after.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from vla_sd_ros.actions.bins import Ids
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.policy.transfer import to_device, to_host
from vla_sd_ros.verification.draft_tree import DraftTree


class NonFiniteState(RuntimeError):
    """The policy gave numbers that are not finite: corrupt weights, or an input that it cannot bear."""


@dataclass(frozen=True)
class TreeForward:
    """What the policy says after the stem and after every node.

    Attributes:
        hidden: states after the final norm, [1 + N, W]: of the stem's last position, then of the nodes.
        choices: the policy's own next token after each of them, int64 [1 + N].
        first_slot: cache slot of the first node.
    """

    hidden: torch.Tensor
    choices: Ids
    first_slot: int

    def targets(self, tree: DraftTree) -> Ids:
        """The policy's own choice at the place of every node, given the node's ancestors, int64 [N]."""
        return self.choices[tree.parents + 1]


def forward_tree(
    model: VisionLanguageActionModel,
    cache: KeyValueCache,
    stem: torch.Tensor,
    start: int,
    tree: DraftTree | None,
) -> TreeForward:
    """Runs the stem, and a tree below it, through the language model; waits for the device once, for the choices.

    Args:
        model: the policy.
        cache: holds the slots before ``start``; receives the stem's, then the nodes' in their order.
        stem: embeddings [1, m, W] of what is certain: the prefix (``start`` 0), or the tokens after it.
        start: slot and position of the stem's first row.
        tree: what is guessed to follow; None or empty: nothing.

    Raises:
        NonFiniteState: the states are not finite; the cache is cleared.
    """
    rows, count = stem.shape[1], 0 if tree is None else len(tree)
    positions = mask = None
    if tree is not None and count:
        tokens = to_device(tree.tokens, stem.device)
        stem = torch.cat([stem, model.language_model.embed_tokens(tokens)[None].to(stem.dtype)], dim=1)
        if not is_chain(tree):
            base = start + rows
            positions = torch.from_numpy(np.concatenate([np.arange(start, base), base + tree.depths]))
            mask = torch.from_numpy(visibility(rows, start, tree))
    hidden = model.language_model(stem, positions, mask, cache, start, outputs=count + 1)[0]
    choices = read_finite(model.action_logits(hidden).argmax(-1), hidden, cache)
    return TreeForward(hidden, choices + model.config.first_action_id, start + rows)


def read_finite(numbers: torch.Tensor, behind: torch.Tensor, cache: KeyValueCache) -> Ids:
    """Brings integers to the host, int64 [N], together with whether what they were read from is finite.

    Args:
        numbers: int64 [N].
        behind: the states or scores that they come from, of any shape.
        cache: is cleared where those are not finite, so that nothing of them is left.

    Raises:
        NonFiniteState: they are not finite.
    """
    finite = torch.isfinite(behind.sum(dtype=torch.float32)).view(1)
    read = to_host(torch.cat([numbers, finite.to(torch.int64)]))
    if not read[-1]:
        cache.clear()
        raise NonFiniteState("the policy's states are not finite: its weights are corrupt, or its input is")
    return np.asarray(read[:-1], dtype=np.int64)


def embed_token(model: VisionLanguageActionModel, token: int) -> torch.Tensor:
    """A certain token as a stem, [1, 1, W]; a view of the embedding's row, for which no number is sent anywhere."""
    return model.language_model.embed_tokens.weight[token].view(1, 1, -1)


def is_chain(tree: DraftTree) -> bool:
    """Whether every node follows the one before it, so that causal attention and plain positions serve."""
    return bool((tree.parents == np.arange(len(tree)) - 1).all())


def visibility(rows: int, start: int, tree: DraftTree) -> npt.NDArray[np.bool_]:
    """Which slots each query may attend, bool [rows + N, start + rows + N].

    The stem is causal; a node sees all before the tree, its ancestors and itself.
    """
    base = start + rows
    mask = np.zeros((rows + len(tree), base + len(tree)), dtype=np.bool_)
    mask[:rows, :base] = np.tri(rows, base, start, dtype=np.bool_)
    mask[rows:, :base] = True
    mask[rows:, base:] = tree.ancestors()
    return mask


def keep_path(cache: KeyValueCache, forward: TreeForward, path: list[int]) -> None:
    """Moves the slots of an accepted path to the tree's beginning, so that what follows finds them in order."""
    if path != list(range(len(path))):
        cache.gather(forward.first_slot, path)
