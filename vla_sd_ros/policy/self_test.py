"""Does the policy see? A check at configuration, before anything is allowed to move.

A vision tower that silently does not run leaves a policy that answers every image with the same action.
"""

from __future__ import annotations

import numpy as np
import torch

from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.runtime import prefill


class SelfTestFailed(RuntimeError):
    """The policy must not be activated; the message says why."""


@torch.inference_mode()
def self_test(policy: LoadedPolicy, instruction: str = "put the bowl on the plate", least_change: float = 1e-3) -> None:
    """Compares the first action token's logits for a black and a white image.

    Args:
        policy: to be tested; its weights are not changed.
        instruction: of the prompt; any will do.
        least_change: largest difference of the logits that still counts as none, as a share of their spread.

    Raises:
        SelfTestFailed: logits that are not finite, constant, or the same for both images.
    """
    size = policy.config.image_size_px
    prompt = policy.prepare_prompt(instruction)
    cache = policy.model.new_cache()
    logits = []
    for colour, level in (("black", 0), ("white", 255)):
        image = np.full((size, size, 3), level, dtype=np.uint8)
        prefix = policy.model.embed_prefix(policy.prepare_pixels(image), prompt)
        logits.append(prefill(policy.model, cache, prefix).float())
        if not torch.isfinite(logits[-1]).all():
            raise SelfTestFailed(f"the logits of a {colour} image are not finite: the weights are damaged")
    spread = float(torch.stack(logits).std(-1).max())
    if spread == 0.0:
        raise SelfTestFailed("the logits of all action tokens are equal: the weights are damaged")
    change = float((logits[0] - logits[1]).abs().max()) / spread
    if change <= least_change:
        raise SelfTestFailed(
            f"a black and a white image give the same logits (largest change {change:.1e} of their spread; "
            f"at least {least_change:.0e} is needed): the policy does not see"
        )
