"""The whole policy: image and prompt in, scores of the 256 action ids out."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.llama import Llama, RmsNorm, rotary_table
from vla_sd_ros.policy.packed_linear import pack_linears
from vla_sd_ros.policy.projector import FusedProjector
from vla_sd_ros.policy.vision import FusedVision, LayerScale

#: Slots of a cache come in multiples of this: fused attention wants rows of a mask that are aligned.
SLOT_MULTIPLE = 16


class FixedShapeRuntime(Protocol):
    """Another way to compute what has the same shape in every action."""

    def vision(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixels [B, 6, H, W] to patch features [B, P, Dv]."""
        ...

    def projector(self, features: torch.Tensor) -> torch.Tensor:
        """Patch features [B, P, Dv] to embeddings [B, P, hidden]."""
        ...

    def prepare(self, cache: KeyValueCache, nodes: int) -> None:
        """Makes ready whatever a decoder may ask of this cache with drafts of up to ``nodes`` tokens."""
        ...


class VisionLanguageActionModel(nn.Module):
    """OpenVLA's architecture at any size.

    Sequence: BOS, then the projected patches, then the rest of the prompt, then up to seven action tokens.

    Attributes:
        runtime: computes what has a fixed shape; None: the modules are called. See
            :mod:`~vla_sd_ros.policy.acceleration`.
    """

    runtime: FixedShapeRuntime | None = None

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.config = config
        self.vision = FusedVision(config)
        self.projector = FusedProjector(config.feature_width, config.llama.width)
        self.language_model = Llama(config.llama, config.attention)

    def patch_features(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Pixels, float [B, 6, H, W] as :func:`~vla_sd_ros.policy.image.pixel_values` gives, to [B, P, Dv]."""
        see = self.vision if self.runtime is None else self.runtime.vision
        features: torch.Tensor = see(pixel_values)
        return features

    def embed_prefix(self, pixel_values: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings [B, P + T, hidden] of image and prompt; ``input_ids`` int64 [B, T] start with BOS."""
        return self.join_prefix(self.patch_features(pixel_values), input_ids)

    def join_prefix(self, patch_features: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings [B, P + T, hidden]: BOS, projected patches [B, P, Dv], the rest of ``input_ids`` [B, T]."""
        words = self.language_model.embed_tokens(input_ids)
        project = self.projector if self.runtime is None else self.runtime.projector
        patches = project(patch_features).to(words.dtype)
        return torch.cat([words[:, :1], patches, words[:, 1:]], dim=1)

    def training_logits(
        self,
        pixel_values: torch.Tensor,
        input_ids: torch.Tensor,
        action_ids: torch.Tensor,
        prompt_lengths: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of all seven tokens under teacher forcing; gradients flow, autocast applies.

        Args:
            pixel_values: float [B, 6, H, W].
            input_ids: int64 [B, T], prompts; where lengths differ, padded at the end with any id.
            action_ids: int64 [B, 7], token ids of the wanted action.
            prompt_lengths: int64 [B], ids of each prompt that are not padding; None: all T. A prompt's action
                follows its own last id, as at run time, and causal attention never sees the padding.

        Returns:
            Logits [B, 7, 256] over the action ids in id order, and the patch features [B, P, Dv].
        """
        features = self.patch_features(pixel_values)
        batch, longest = input_ids.shape
        if prompt_lengths is None:
            prompt_lengths = torch.full((batch,), longest, device=input_ids.device)
        forced = N_DOF - 1
        places = prompt_lengths[:, None] + torch.arange(forced, device=input_ids.device)
        ids = F.pad(input_ids, (0, forced), value=self.config.bos_id).scatter(1, places, action_ids[:, :forced])
        hidden = self.language_model(self.join_prefix(features, ids))
        # The position before a token predicts it: the prompt's last position predicts the first token.
        rows = self.config.n_patches + prompt_lengths[:, None] - 1 + torch.arange(N_DOF, device=input_ids.device)
        predicting = hidden.gather(1, rows[:, :, None].expand(-1, -1, hidden.shape[-1]))
        return self.action_logits(predicting), features

    def action_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [..., hidden] to scores [..., 256] of the action ids alone, in id order."""
        first, last = self.config.first_action_id, self.config.vocabulary_size
        weight = self.language_model.lm_head.weight[first:last]
        return F.linear(hidden, weight)

    def new_cache(self, extra_slots: int = N_DOF, ready: bool = False) -> KeyValueCache:
        """A cache for the longest prefix and ``extra_slots`` more, on the model's device.

        On a CPU it is float32 whatever the weights are: attention over few queries is four times faster than in
        bfloat16 there.

        Args:
            extra_slots: for a draft, and seven for the action.
            ready: prepare everything that decoding with it can ask for, as a decoder must before the arm moves;
                otherwise each is prepared when it is first asked for.
        """
        weight = self.language_model.embed_tokens.weight
        dtype = torch.float32 if weight.device.type == "cpu" else weight.dtype
        llama = self.config.llama
        slots = min(self.config.n_patches + self.config.max_prompt_ids + extra_slots, llama.max_positions)
        # One slot that nothing ever attends to, for the queries that fill a bucket up, and an aligned number in all.
        reserved = 0 if self.runtime is None else SLOT_MULTIPLE - slots % SLOT_MULTIPLE
        cache = KeyValueCache(llama.depth, llama.heads, slots, llama.head_width, dtype, weight.device, reserved)
        if ready and self.runtime is not None:
            self.runtime.prepare(cache, max(0, extra_slots - N_DOF))
        return cache


def pack_for_cpu(model: VisionLanguageActionModel) -> VisionLanguageActionModel:
    """Makes a CPU's inference fast; the model can be neither trained nor moved nor cast from then on.

    Linear layers are laid out for the matrix kernels. Where they are bfloat16, the language model's residual stream,
    norms, rotary embedding, attention and action scores stay float32, as under autocast in training: a CPU computes
    them no slower, and scores rounded to eight bits would tie.
    """
    for part in (model.vision, model.projector, model.language_model.layers):
        pack_linears(part)
    llama = model.language_model
    llama.lm_head.float()
    for module in llama.modules():
        if isinstance(module, RmsNorm):
            module.speed_up_single_rows()
    llama.rotary = rotary_table(llama.config)
    return model


def initialise(model: VisionLanguageActionModel, seed: int = 0, deviation: float = 0.02) -> VisionLanguageActionModel:
    """Weights for training from scratch: truncated normal, biases 0, norms 1; reproducible."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=deviation, generator=generator)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        elif isinstance(module, LayerScale):
            nn.init.constant_(module.scale_factor, model.config.dinov2.layer_scale or 1.0)
    for name, parameter in model.named_parameters():
        if name.endswith(("pos_embed", "cls_token", "reg_token")):
            nn.init.trunc_normal_(parameter, std=deviation, generator=generator)
    return model
