"""Puts the graphs under a model: towers, projector and language model."""

from __future__ import annotations

import torch

from vla_sd_ros.policy.graphs.backend import Backend
from vla_sd_ros.policy.graphs.buckets import buckets_of_an_action, padded
from vla_sd_ros.policy.graphs.fixed_shape import FixedShapeModule
from vla_sd_ros.policy.graphs.language_model import FixedForward, GraphedLlama, forward_of_fixed_shape
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.model import VisionLanguageActionModel


class GraphRuntime:
    """Computes a model's forwards by prepared steps.

    Args:
        model: at inference, where it is to stay.
        backend: repeats the steps.
        short_forward: computes the language model's short passes; compiled or not.

    Attributes:
        vision: the towers.
        projector: the projector.
        language_model: forwards on a cache.
    """

    def __init__(
        self,
        model: VisionLanguageActionModel,
        backend: Backend,
        short_forward: FixedForward = forward_of_fixed_shape,
    ) -> None:
        config, embedding = model.config, model.language_model.embed_tokens.weight
        size, dtype, device = config.image_size_px, embedding.dtype, embedding.device
        self._config = config
        self.vision = FixedShapeModule(model.vision, (1, 6, size, size), dtype, device, backend)
        features = (1, config.n_patches, config.feature_width)
        self.projector = FixedShapeModule(model.projector, features, dtype, device, backend)
        self.language_model = GraphedLlama(model.language_model, backend, short_forward)

    @torch.inference_mode()
    def prepare(self, cache: KeyValueCache, nodes: int) -> None:
        """Makes ready whatever a decoder may ask of a cache, for every length of prompt.

        Args:
            cache: of this model.
            nodes: tokens of the largest draft.
        """
        shortest, longest = self._config.n_patches + 1, self._config.n_patches + self._config.max_prompt_ids
        wanted = buckets_of_an_action(shortest, longest, nodes)
        # A short cache, of a model with few positions, holds no prompt and draft that are both of the longest.
        self.language_model.prepare(cache, [bucket for bucket in wanted if bucket.rows <= padded(cache.max_slots)])


def install(model: VisionLanguageActionModel, runtime: GraphRuntime) -> None:
    """Lets a model compute by a runtime from now on; caches made before go on the plain way."""
    model.runtime = runtime
    model.language_model.cached_forward = runtime.language_model
