"""The policy as a teacher: its own greedy tokens, and the hidden states that named them, for many frames at once.

The prompt is that of inference; no demonstrated action follows it. Spec-VLA's teacher saw the true action behind the
prompt, so its states differed from those that a drafter meets when it runs (methods of section 3.c).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from vla_sd_ros.actions.bins import N_DOF, Ids
from vla_sd_ros.policy.image import pixel_values
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.model import VisionLanguageActionModel


@dataclass(frozen=True, eq=False)
class GreedyBatch:
    """What the policy does at B frames that have prompts of one length.

    Attributes:
        rows: which of the given frames they are, int64 [B].
        tokens: token ids, int64 [B, 7].
        hidden: states after the final norm that named each token, [B, 7, W].
        features: patch features, [B, P, Dv].
        prefix_embeddings: of image and prompt, [B, L, W].
        prefix_hidden: states of the same positions, [B, L, W]; None where they were not asked for. The last equals
            ``hidden[:, 0]``.
    """

    rows: npt.NDArray[np.int64]
    tokens: Ids
    hidden: torch.Tensor
    features: torch.Tensor
    prefix_embeddings: torch.Tensor
    prefix_hidden: torch.Tensor | None


class BatchedCache(KeyValueCache):
    """A cache of several sequences of one length; slots as in :class:`KeyValueCache`.

    Args:
        model: whose keys and values it holds.
        batch: sequences.
        slots: longest sequence.
    """

    def __init__(self, model: VisionLanguageActionModel, batch: int, slots: int) -> None:
        sample = model.new_cache()
        super().__init__(0, 0, 0, 0)
        layers, _, heads, _, width = sample.keys.shape
        self.keys = sample.keys.new_zeros(layers, batch, heads, slots, width)
        self.values = torch.zeros_like(self.keys)
        self._slice_layers()


def greedy_tokens_in_batches(
    policy: LoadedPolicy, images: npt.NDArray[np.uint8], instructions: str | Sequence[str], batch: int = 32
) -> tuple[Ids, npt.NDArray[np.float16]]:
    """The policy's own greedy action at each frame.

    Args:
        policy: in float32 the tokens are those of the autoregressive decoder; in bfloat16 up to near ties.
        images: of the policy's size, uint8 [N, S, S, 3].
        instructions: one for all, or one per frame, N of them.
        batch: frames per forward.

    Returns:
        Token ids, int64 [N, 7], and the states after the final norm that named them, float16 [N, 7, W].

    Raises:
        ValueError: where numbers or shapes do not fit.
        EmptyInstruction: where an instruction is empty.
    """
    tokens = np.empty((len(images), N_DOF), dtype=np.int64)
    hidden = np.empty((len(images), N_DOF, policy.config.llama.width), dtype=np.float16)
    for part in greedy_batches(policy, images, instructions, batch):
        tokens[part.rows] = part.tokens
        hidden[part.rows] = part.hidden.to("cpu", torch.float16).numpy()
    return tokens, hidden


def greedy_batches(
    policy: LoadedPolicy,
    images: npt.NDArray[np.uint8],
    instructions: str | Sequence[str],
    batch: int = 32,
    with_prefix_hidden: bool = False,
) -> Iterator[GreedyBatch]:
    """As :func:`greedy_tokens_in_batches`, piece by piece and with the patch features.

    Frames with prompts of one length share a forward, so the pieces do not come in the order of the frames.
    """
    size = policy.config.image_size_px
    if images.ndim != 4 or images.shape[1:] != (size, size, 3) or images.dtype != np.uint8:
        raise ValueError(f"images: {images.dtype} {images.shape}; legal: uint8 (N, {size}, {size}, 3)")
    texts = [instructions] * len(images) if isinstance(instructions, str) else list(instructions)
    if len(texts) != len(images):
        raise ValueError(f"instructions: {len(texts)} for {len(images)} images")
    prompts = {text: policy.prepare_prompt(text) for text in dict.fromkeys(texts)}
    lengths = np.array([prompts[text].shape[1] for text in texts], dtype=np.int64)
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for first in range(0, len(same), batch):
            rows = same[first : first + batch]
            ids = torch.cat([prompts[texts[row]] for row in rows])
            yield _decode(policy, rows, images[rows], ids, with_prefix_hidden)


@torch.inference_mode()
def _decode(
    policy: LoadedPolicy,
    rows: npt.NDArray[np.int64],
    images: npt.NDArray[np.uint8],
    prompt_ids: torch.Tensor,
    with_prefix_hidden: bool,
) -> GreedyBatch:
    model = policy.model
    features = model.patch_features(pixel_values(images, policy.config).to(policy.device, policy.dtype))
    prefix = model.join_prefix(features, prompt_ids)
    length = prefix.shape[1]
    cache = BatchedCache(model, len(rows), length + N_DOF - 1)
    states = model.language_model(prefix, cache=cache, outputs=None if with_prefix_hidden else 1)
    prefix_hidden = states if with_prefix_hidden else None
    tokens: list[torch.Tensor] = []
    hidden: list[torch.Tensor] = []
    for dof in range(N_DOF):
        if dof:
            embeddings = model.language_model.embed_tokens(tokens[-1])[:, None]
            states = model.language_model(embeddings, cache=cache, start=length + dof - 1)
        hidden.append(states[:, -1])
        tokens.append(model.action_logits(hidden[-1]).argmax(-1) + policy.config.first_action_id)
    ids: Ids = torch.stack(tokens, dim=1).cpu().numpy()
    return GreedyBatch(rows, ids, torch.stack(hidden, dim=1), features, prefix, prefix_hidden)
