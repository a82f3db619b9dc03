"""Greedy autoregressive decoding of a checkpoint for evaluation: the plainest decoder there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.policy.runtime import decode_one, prefill


class GreedyPolicy:
    """Image and instruction to an SI action, seven forwards of the language model per call.

    Args:
        folder: Checkpoint, as ``save_policy`` writes it.
        dtype: Precision of the weights.
        statistics_key: Which data set's statistics; None: the only one there is.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, statistics_key: str | None = None) -> None:
        self._policy = load_policy(folder, dtype, statistics_key)
        self._cache = self._policy.model.new_cache()

    @torch.inference_mode()
    def __call__(self, image: npt.NDArray[np.uint8], instruction: str) -> npt.NDArray[np.float64]:
        """Return the action [7] in SI units for an image, uint8 [S, S, 3]."""
        return self._policy.values_from_ids(self.decode_ids(image, instruction))

    @torch.inference_mode()
    def decode_ids(self, image: npt.NDArray[np.uint8], instruction: str) -> npt.NDArray[np.int64]:
        """Return the seven token ids, int64 [7]."""
        model = self._policy.model
        prefix = model.embed_prefix(self._policy.prepare_pixels(image), self._policy.prepare_prompt(instruction))
        logits = prefill(model, self._cache, prefix)
        ids: list[int] = []
        for step in range(N_DOF):
            token = logits.argmax(-1, keepdim=True) + model.config.first_action_id
            ids.append(int(token))
            if step < N_DOF - 1:
                logits = decode_one(model, self._cache, token, prefix.shape[1] + step)
        return np.array(ids, dtype=np.int64)
