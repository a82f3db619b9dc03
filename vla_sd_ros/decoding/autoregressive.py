"""Plain greedy decoding: one token per forward. The denominator that every other decoder is measured against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.decoding.interface import DecodeCounts, DecodedAction
from vla_sd_ros.decoding.stage_times import Stopwatch
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.runtime import decode_one, prefill
from vla_sd_ros.types import KinematicState, Observation
from vla_sd_ros.verification.tree_forward import read_finite


class AutoregressiveDecoder:
    """Greedy decoding of the 256 action ids with a static cache: one prefill and six one-token forwards.

    Not safe for calls from two threads at once: the cache is one.

    Args:
        policy: shared with other decoders; not changed.
        view: camera whose image the policy sees; None: the only one.
    """

    mode = "ar"

    def __init__(self, policy: LoadedPolicy, view: str | None = None) -> None:
        self._policy = policy
        self._view = view
        self._cache = policy.model.new_cache(ready=True)

    @torch.inference_mode()
    def decode(self, observation: Observation, state: KinematicState | None = None) -> DecodedAction:
        """Decodes one action; ``state`` is not used.

        Raises:
            EmptyInstruction: the instruction is empty.
            ValueError: the image is not of the policy's size, or the view is missing or ambiguous.
            NonFiniteState: the policy gave numbers that are not finite.
        """
        policy, watch = self._policy, Stopwatch(self._policy.device)
        with watch.stage("preprocess"):
            pixels = policy.prepare_pixels(choose_view(observation, self._view))
            prompt = policy.prepare_prompt(observation.instruction)
        with watch.stage("vision"):
            features = policy.model.patch_features(pixels)
        with watch.stage("prefill"):
            prefix = policy.model.join_prefix(features, prompt)
            logits = prefill(policy.model, self._cache, prefix)
        with watch.stage("decode"):
            tokens = greedy_tokens(policy, self._cache, logits, prefix.shape[1])
        with watch.stage("post"):
            values = policy.values_from_ids(tokens)
        return DecodedAction(tokens, values, self.mode, watch.read(), DecodeCounts(forward_passes=N_DOF))

    def reset(self) -> None:
        """Does nothing: no action depends on another."""

    def end_episode(self, success: bool) -> None:
        """Does nothing."""


def greedy_tokens(
    policy: LoadedPolicy, cache: KeyValueCache, first_logits: torch.Tensor, position: int
) -> npt.NDArray[np.int64]:
    """The seven tokens after a prefill.

    Args:
        policy: whose model filled the cache.
        cache: holds the prefix.
        first_logits: [256], of the first token.
        position: slots that the prefix fills.

    Returns:
        int64 [7]; ids stay tensors until the last one is known, so that no step waits for the host.

    Raises:
        NonFiniteState: the scores are not finite; the cache is cleared.
    """
    scores, tokens = [first_logits], [first_logits.argmax(-1, keepdim=True) + policy.config.first_action_id]
    for step in range(N_DOF - 1):
        scores.append(decode_one(policy.model, cache, tokens[-1], position + step))
        tokens.append(scores[-1].argmax(-1, keepdim=True) + policy.config.first_action_id)
    return read_finite(torch.cat(tokens), torch.cat(scores), cache)


def choose_view(observation: Observation, view: str | None) -> npt.NDArray[np.uint8]:
    """The image of a named view, or of the only one, uint8 [H, W, 3].

    Raises:
        ValueError: where it is missing, or None is ambiguous.
    """
    names = sorted(observation.views)
    if view is None and len(names) == 1:
        view = names[0]
    if view is None or view not in observation.views:
        raise ValueError(f"view: {view!r} is not in the observation; legal: {names}")
    return observation.views[view]
