"""What a learned drafter is, and how it drafts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from vla_sd_ros.policy.config import LlamaConfig, PolicyConfig, PositiveInt

DraftingContext = Literal["tail", "prefix"]


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LearnedDraftConfig(_Checked):
    """Shape of the drafted tree.

    Alternatives pay where acceptance is strict. Where it is relaxed a chain is accepted as far and costs less: the
    likeliest alternatives are neighbouring bins, which a radius covers anyway.

    Attributes:
        top_k: alternatives per node, and nodes that are extended per level; 1 gives a chain.
        total_nodes: nodes of the tree.
    """

    top_k: Annotated[int, Field(ge=1, le=16)] = 2
    total_nodes: Annotated[int, Field(ge=1, le=128)] = 12


class DrafterNetworkConfig(_Checked):
    """Sizes of the drafter's block.

    Attributes:
        width: of the policy's language model.
        heads: attention heads.
        mlp_width: of its perceptron.
        context: what the block attends to: ``tail``, the last position of the prompt and the action tokens after it,
            or ``prefix``, every position of image and prompt as well (as in Spec-VLA).
        norm_epsilon: of the RMS norms.
        rope_theta: base of the rotary frequencies.
        max_positions: longest sequence.
    """

    width: PositiveInt
    heads: PositiveInt
    mlp_width: PositiveInt
    context: DraftingContext = "tail"
    norm_epsilon: float = 1e-6
    rope_theta: float = 10000.0
    max_positions: PositiveInt = 1024

    @classmethod
    def of_policy(cls, policy: PolicyConfig, context: DraftingContext = "tail") -> DrafterNetworkConfig:
        """A block of the same sizes as the policy's own."""
        llama = policy.llama
        return cls(
            width=llama.width,
            heads=llama.heads,
            mlp_width=llama.mlp_width,
            context=context,
            norm_epsilon=llama.norm_epsilon,
            rope_theta=llama.rope_theta,
            max_positions=llama.max_positions,
        )

    @property
    def llama(self) -> LlamaConfig:
        """The block as a language model of one layer; it has no embedding of its own."""
        return LlamaConfig(
            width=self.width,
            depth=1,
            heads=self.heads,
            mlp_width=self.mlp_width,
            embedding_rows=1,
            norm_epsilon=self.norm_epsilon,
            rope_theta=self.rope_theta,
            max_positions=self.max_positions,
        )
