"""The learned drafter: grows a tree of guesses below the last known token (EAGLE-2, as in Spec-VLA, HeiSD and KERV).

It is stateless: every call names all that it may see. Its guesses are action ids only, its depth ends with the action,
and its own predicted states feed the guesses further down.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from vla_sd_ros.actions.bins import N_DOF, Ids
from vla_sd_ros.drafting.learned_config import LearnedDraftConfig
from vla_sd_ros.drafting.learned_network import MAX_ROWS, DrafterNetwork
from vla_sd_ros.drafting.tree_growth import Children, build_tree, grow
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.llama import RmsNorm, causal_mask, rotary_table
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.packed_linear import pack_linears
from vla_sd_ros.policy.transfer import to_device, to_host
from vla_sd_ros.verification.draft_tree import DraftTree

SOURCE = "learned"


class LearnedDrafter:
    """Drafts from the policy's own hidden states.

    Not safe for calls from two threads at once: the buffers are shared. No call sees what another one left there.

    Args:
        network: becomes this drafter's own: it is packed for the CPU where the policy's device is one.
        policy: whose embeddings and output matrix it uses; not changed.
        config: shape of the trees, where a call names no other.
    """

    def __init__(self, network: DrafterNetwork, policy: LoadedPolicy, config: LearnedDraftConfig | None = None) -> None:
        self.config = config or LearnedDraftConfig()
        model, device = policy.model, policy.device
        self._first_id = policy.config.first_action_id
        self._head = model.language_model.lm_head.weight[self._first_id : policy.config.vocabulary_size]
        self._network = network.to(device, policy.dtype).eval().requires_grad_(False)
        with torch.inference_mode():
            ids = torch.arange(self._first_id, policy.config.vocabulary_size, device=device)
            table = network.from_embedding(model.language_model.embed_tokens(ids).to(policy.dtype))
        llama = network.config.llama
        cpu = device.type == "cpu"
        if cpu:  # as in ``pack_for_cpu``: matrices in the policy's precision, all else in single precision
            pack_linears(network)
            network.places.data = network.places.data.float()
            for module in network.modules():
                if isinstance(module, RmsNorm):
                    module.speed_up_single_rows()
        network.rotary = rotary_table(llama).to(device, torch.float32 if cpu else policy.dtype)
        self._embedded = table.float() if cpu else table
        self._prefix_slots = policy.config.n_patches + policy.config.max_prompt_ids if self.sees_prefix else 0
        self._slots = 0
        self._cache = self._new_cache(self.config.top_k)

    @property
    def sees_prefix(self) -> bool:
        """Whether a call must give the states of the whole prefix."""
        return self._network.config.context == "prefix"

    @torch.inference_mode()
    def draft(
        self,
        hidden: torch.Tensor,
        tokens: npt.NDArray[np.int64],
        config: LearnedDraftConfig | None = None,
        depth: int | None = None,
        prefix_hidden: torch.Tensor | None = None,
        prefix_embeddings: torch.Tensor | None = None,
    ) -> DraftTree | None:
        """Guesses what follows the known tokens.

        Args:
            hidden: the policy's states after the final norm, [m, W]; row i named ``tokens[i]``, so row 0 is that of
                the prompt's last position.
            tokens: the first m action ids, int64 [m], 1 <= m <= 7.
            config: shape of the tree; None: the drafter's own.
            depth: levels at most; None: all tokens that remain but the last, which whoever verifies the one before
                it knows without a guess. 7 - m guesses the last, too.
            prefix_hidden: states of image and prompt, [L, W], the last being ``hidden[0]``; where the drafter
                sees the prefix.
            prefix_embeddings: what the language model was given at those positions, [L, W].

        Returns:
            A tree whose depth 0 follows ``tokens[-1]``; None where nothing remains to be guessed.

        Raises:
            ValueError: on wrong shapes, ids that are no action ids, or states that are not finite.
        """
        config = config or self.config
        known = len(tokens)
        self._check(hidden, tokens)
        remaining = N_DOF - known
        depth = remaining - 1 if depth is None else min(depth, remaining)
        if depth < 1:
            return None
        cache = self._cache_for(config.top_k)
        prefix_rows = self._read_prefix(prefix_hidden, prefix_embeddings, cache)
        growth = _Growth(self, cache, prefix_rows, known, config.top_k)
        candidates = grow(growth.first(hidden, tokens), growth.extend, depth, config.top_k)
        return build_tree(candidates, config.total_nodes, SOURCE)

    def _check(self, hidden: torch.Tensor, tokens: npt.NDArray[np.int64]) -> None:
        known, width = len(tokens), self._network.config.width
        if tokens.dtype != np.int64 or tokens.shape != (known,) or not 1 <= known <= N_DOF:
            raise ValueError(f"tokens: {tokens.dtype} {tokens.shape}; legal: int64 (1,) to ({N_DOF},)")
        if hidden.shape != (known, width):
            raise ValueError(f"hidden: {tuple(hidden.shape)}; legal: ({known}, {width})")
        if tokens.min() < self._first_id or tokens.max() >= self._first_id + len(self._embedded):
            last = self._first_id + len(self._embedded) - 1
            raise ValueError(f"tokens: not action ids: {tokens.tolist()}; legal: {self._first_id} to {last}")

    def _read_prefix(self, hidden: torch.Tensor | None, embeddings: torch.Tensor | None, cache: KeyValueCache) -> int:
        if not self.sees_prefix:
            return 0
        if hidden is None or embeddings is None or hidden.shape != embeddings.shape:
            raise ValueError("this drafter sees the prefix: prefix_hidden and prefix_embeddings [L, W] are needed")
        self._network.read_prefix(self._cast(embeddings[None, 1:]), self._cast(hidden[None, :-1]), cache)
        return len(hidden) - 1

    def _cast(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.to(self._embedded.dtype)

    def _cache_for(self, top_k: int) -> KeyValueCache:
        if self._slots_for(top_k) > self._slots:
            self._cache = self._new_cache(top_k)
        return self._cache

    def _slots_for(self, top_k: int) -> int:
        return self._prefix_slots + MAX_ROWS + top_k * MAX_ROWS

    def _new_cache(self, top_k: int) -> KeyValueCache:
        llama = self._network.config.llama
        self._slots = self._slots_for(top_k)
        table = self._embedded
        return KeyValueCache(1, llama.heads, self._slots, llama.head_width, table.dtype, table.device)


class _Growth:
    """One call: scores what follows each node of the growing tree."""

    def __init__(self, drafter: LearnedDrafter, cache: KeyValueCache, prefix_rows: int, known: int, top_k: int) -> None:
        self._network, self._head, self._embedded = drafter._network, drafter._head, drafter._embedded
        self._first_id = drafter._first_id
        self._cache = cache
        self._prefix_rows = prefix_rows
        self._place = known
        self._slot = prefix_rows + known
        self._top_k = top_k
        self._states = self._embedded[:0]
        # Slots that each row of the last beam may attend to.
        self._visible: npt.NDArray[np.bool_] = np.ones((1, self._slot), dtype=np.bool_)

    def first(self, hidden: torch.Tensor, tokens: Ids) -> Children:
        """What follows the known tokens, given the policy's states [m, W]."""
        known = len(tokens)
        fused = self._fuse(tokens, hidden.to(self._embedded.dtype))
        mask = causal_mask(known, self._prefix_rows, fused.device) if known > 1 else None
        self._states = self._network(
            fused, 0, mask, self._cache, self._prefix_rows, prefix_rows=self._prefix_rows, outputs=1
        )[0]
        ids, scores = self._best_children()
        if not np.isfinite(scores).all():  # seen in what has to be read anyway: no wait of its own
            raise ValueError("hidden: states of the policy that are not finite")
        return ids[0], scores[0]

    def extend(self, tokens: Ids, rows: npt.NDArray[np.int64]) -> Children:
        """What follows the nodes of a beam; see :data:`~vla_sd_ros.drafting.tree_growth.Extend`."""
        count, slot = len(tokens), self._slot
        self._visible = np.concatenate([self._visible[rows], np.eye(count, dtype=np.bool_)], axis=1)
        mask = None if count == 1 and self._visible.all() else to_device(self._visible, self._head.device)
        states = self._states if len(self._states) == count == 1 else self._states[to_device(rows, self._head.device)]
        self._states = self._network(
            self._fuse(tokens, states),
            self._place,
            mask,
            self._cache,
            slot,
            prefix_rows=self._prefix_rows,
            siblings=True,
        )[0]
        self._place += 1
        self._slot += count
        return self._best_children()

    def _fuse(self, tokens: Ids, hidden: torch.Tensor) -> torch.Tensor:
        index = to_device(tokens - self._first_id, self._head.device)
        fused: torch.Tensor = (self._embedded[index] + self._network.from_hidden(hidden))[None]
        return fused

    def _best_children(self) -> Children:
        logits = F.linear(self._states, self._head).float()
        best = torch.topk(torch.log_softmax(logits, -1), self._top_k)
        # One read for both; ids are far below what a double holds exactly.
        scores, ids = to_host(torch.stack([best.values.double(), best.indices.double()]))
        return ids.astype(np.int64) + self._first_id, scores
