"""The language model in buckets: any forward on a cache becomes the replay of one that was prepared.

The outer interface is :meth:`~vla_sd_ros.policy.llama.Llama.forward`'s. Behind it, queries are padded at the front, so
that those wanted stay the last; nothing inside a prepared step depends on a number of the host's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch

from vla_sd_ros.policy.graphs.backend import Backend, Step
from vla_sd_ros.policy.graphs.buckets import Bucket, bucket_for, padded
from vla_sd_ros.policy.graphs.inputs import SlotWriter, StaticInputs
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.llama import Llama
from vla_sd_ros.policy.transfer import to_host

Layers = list[tuple[torch.Tensor, torch.Tensor]]
#: Computes the states of one bucket; see :func:`forward_of_fixed_shape`.
FixedForward = Callable[
    [Llama, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Layers, int], torch.Tensor
]


def forward_of_fixed_shape(
    llama: Llama,
    embeddings: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    visible: torch.Tensor,
    levels: torch.Tensor,
    layers: Layers,
    outputs: int,
) -> torch.Tensor:
    """A function of tensors alone; writes the cache's layers.

    Args:
        llama: the language model.
        embeddings: [1, S, W], in the norms' dtype.
        positions: int64 [S].
        slots: int64 [S].
        visible: bool [S, slots].
        levels: what is added to a score where a slot is visible and where it is not, [2]: 0 and minus infinity.
        layers: keys and values of each layer, [1, H, slots, d].
        outputs: how many of the last queries' states are wanted.

    Returns:
        [1, outputs, W].
    """
    table = llama.rotary.index_select(1, positions)
    # Once here, and not in every layer by the kernel, which takes additive masks only.
    mask = torch.where(visible, levels[0], levels[1])
    return llama.run_layers(embeddings, table, mask, SlotWriter(layers, slots), 0, outputs)


class GraphedLlama:
    """Runs forwards with a cache as prepared steps.

    What was prepared for a cache goes with the cache. One cache serves one thread at a time; different caches may be
    used by different threads.

    Args:
        llama: the language model, at inference.
        backend: repeats the steps.
        short_forward: computes the short passes; compiled or not.
    """

    def __init__(self, llama: Llama, backend: Backend, short_forward: FixedForward = forward_of_fixed_shape) -> None:
        self._llama = llama
        self._backend = backend
        self._short_forward = short_forward
        self._sessions: WeakKeyDictionary[KeyValueCache, _Session] = WeakKeyDictionary()
        self._looking_up = threading.Lock()

    def __call__(
        self,
        embeddings: torch.Tensor,
        positions: torch.Tensor | None,
        mask: torch.Tensor | None,
        cache: KeyValueCache,
        start: int,
        outputs: int | None,
    ) -> torch.Tensor | None:
        """See :class:`~vla_sd_ros.policy.llama.CachedForward`.

        None, for the plain way, where the cache has no slot to spare, where there are several sequences, or where the
        mask is additive or differs between heads.
        """
        if not cache.reserved or len(embeddings) != 1 or cache.keys.shape[1] != 1:
            return None
        if mask is not None and (mask.dtype != torch.bool or mask.dim() != 2):
            return None
        return self._session(cache).run(embeddings, positions, mask, start, outputs)

    def prepare(self, cache: KeyValueCache, buckets: list[Bucket]) -> None:
        """Prepares steps before they are needed; in the order given, of which the largest had better be the first."""
        session = self._session(cache)
        for bucket in buckets:
            session.step(bucket)

    def prepared(self, cache: KeyValueCache) -> frozenset[Bucket]:
        """What is prepared for a cache."""
        return frozenset(self._session(cache).steps)

    def _session(self, cache: KeyValueCache) -> _Session:
        with self._looking_up:
            session = self._sessions.get(cache)
            if session is None or not session.belongs_to(cache):
                session = _Session(self._llama, cache, self._backend, self._short_forward)
                self._sessions[cache] = session
            return session


class _Session:
    """Buffers and steps of one cache; knows its tensors, not the cache, which must be free to go."""

    def __init__(self, llama: Llama, cache: KeyValueCache, backend: Backend, short_forward: FixedForward) -> None:
        self._llama, self._backend, self._short_forward = llama, backend, short_forward
        self._keys, self._layers = cache.keys, cache.layers
        self._slots, self._spare = cache.keys.shape[3], cache.max_slots
        self._device = cache.keys.device
        self.steps: dict[Bucket, Step] = {}
        self._inputs: dict[int, StaticInputs] = {}
        norm = llama.norm.weight
        shape = (1, padded(cache.max_slots), llama.config.width)
        # Not inference tensors, whatever mode the first caller is in: they are written in either.
        with torch.inference_mode(False):
            self._embeddings = torch.zeros(shape, dtype=norm.dtype, device=self._device)
            self._states = torch.zeros(shape, dtype=norm.dtype, device=self._device)
            self._levels = torch.tensor([0.0, float("-inf")], dtype=cache.keys.dtype, device=self._device)

    def belongs_to(self, cache: KeyValueCache) -> bool:
        """Whether the cache is still where it was; one that was moved or cast has other tensors."""
        return cache.keys is self._keys

    def run(
        self,
        embeddings: torch.Tensor,
        positions: torch.Tensor | None,
        mask: torch.Tensor | None,
        start: int,
        outputs: int | None,
    ) -> torch.Tensor:
        length = embeddings.shape[1]
        outputs = length if outputs is None else outputs
        bucket = bucket_for(length, outputs)
        step = self.step(bucket)
        self._inputs[bucket.rows].fill(
            length, start, None if positions is None else to_host(positions), None if mask is None else to_host(mask)
        )
        padding = bucket.rows - length
        # Zeros stay zeros in every layer: whatever an earlier, failed decode left in the buffer cannot spread.
        self._embeddings[:, :padding].zero_()
        self._embeddings[:, padding : bucket.rows].copy_(embeddings)
        step()
        return self._states[:, bucket.outputs - outputs : bucket.outputs].clone()

    def step(self, bucket: Bucket) -> Step:
        """The step of a bucket, prepared if it is not yet; on padding alone, so that the cache keeps what it holds."""
        prepared = self.steps.get(bucket)
        if prepared is not None:
            return prepared
        inputs = self._inputs.get(bucket.rows)
        if inputs is None:
            with torch.inference_mode(False):
                inputs = StaticInputs(bucket.rows, self._slots, self._spare, self._device)
            self._inputs[bucket.rows] = inputs
        inputs.pad()
        self._embeddings.zero_()
        prepared = self._backend.prepare(self._step_for(bucket, inputs))
        self.steps[bucket] = prepared
        return prepared

    def _step_for(self, bucket: Bucket, inputs: StaticInputs) -> Step:
        llama, layers, levels = self._llama, self._layers, self._levels
        forward = self._short_forward if bucket.outputs == bucket.rows else forward_of_fixed_shape
        embeddings, states = self._embeddings[:, : bucket.rows], self._states[:, : bucket.outputs]

        def step() -> None:
            states.copy_(
                forward(
                    llama,
                    embeddings,
                    inputs.positions,
                    inputs.slots,
                    inputs.visible,
                    levels,
                    layers,
                    bucket.outputs,
                )
            )

        return step
