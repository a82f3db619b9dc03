"""What a policy is made of: sizes of the two vision towers and the language model, vocabulary, image size."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from vla_sd_ros.actions.bins import N_BINS
from vla_sd_ros.policy.libero_words import DEMO_VOCABULARY

AttentionKernel = Literal["eager", "sdpa"]
PositiveInt = Annotated[int, Field(ge=1)]
Colour = tuple[float, float, float]


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class VisionTowerConfig(_Checked):
    """A pre-norm vision transformer on square patches.

    Attributes:
        width: of the residual stream.
        depth: blocks of the published network; those past the feature layer are not built.
        heads: attention heads.
        mlp_width: hidden width of each block's perceptron.
        class_token: whether a class token precedes the patches.
        registers: register tokens between class token and patches (Darcet et al. 2023); 0 for none.
        layer_scale: initial gain of each residual branch (LayerScale); None where the network has none.
        feature_layer: block whose patch tokens are the features: -1 the last, -2 the second to last.
        feature_norm: whether the final layer norm is applied to the features.
        norm_epsilon: of the layer norms.
        image_mean: per channel, of pixels in [0, 1].
        image_std: per channel.
    """

    width: PositiveInt
    depth: PositiveInt
    heads: PositiveInt
    mlp_width: PositiveInt
    class_token: bool
    registers: Annotated[int, Field(ge=0)]
    layer_scale: float | None
    feature_layer: Annotated[int, Field(le=-1)]
    feature_norm: bool
    norm_epsilon: float = 1e-6
    image_mean: Colour
    image_std: Colour

    @property
    def built_blocks(self) -> int:
        """Number of blocks up to and including the feature layer."""
        return self.depth + 1 + self.feature_layer

    @property
    def prefix_tokens(self) -> int:
        """Class and register tokens before the patches."""
        return int(self.class_token) + self.registers

    @model_validator(mode="after")
    def _check(self) -> VisionTowerConfig:
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} is not a multiple of heads: {self.heads}")
        if self.built_blocks < 1:
            raise ValueError(f"feature_layer: {self.feature_layer}; legal: {-self.depth} to -1 for depth {self.depth}")
        return self


class LlamaConfig(_Checked):
    """The language model: Llama 2 without grouped queries (Touvron et al. 2023).

    Attributes:
        width: hidden size.
        depth: decoder layers.
        heads: attention heads.
        mlp_width: intermediate size.
        embedding_rows: rows of embedding and output matrix, padding included.
        norm_epsilon: of the RMS norms.
        rope_theta: base of the rotary frequencies.
        max_positions: longest sequence.
    """

    width: PositiveInt
    depth: PositiveInt
    heads: PositiveInt
    mlp_width: PositiveInt
    embedding_rows: PositiveInt
    norm_epsilon: float = 1e-6
    rope_theta: float = 10000.0
    max_positions: PositiveInt = 1024

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    @model_validator(mode="after")
    def _check(self) -> LlamaConfig:
        if self.width % (2 * self.heads):
            raise ValueError(f"width: {self.width} is not an even multiple of heads: {self.heads}")
        return self


class PolicyConfig(_Checked):
    """A vision-language-action policy of the OpenVLA architecture.

    Attributes:
        image_size_px: side of the square image.
        crop_fraction: share of the camera image's shorter side that the policy was trained on (see ``fit_image``).
        patch_px: side of a patch.
        dinov2: first vision tower.
        siglip: second vision tower.
        llama: language model.
        vocabulary_size: effective vocabulary, padding rows excluded; its last 256 ids are the action ids.
        bos_id: first id of every prompt; the patches are inserted after it.
        extra_prompt_id: id that must end every prompt (29871 for OpenVLA, the empty string after the colon); None
            for none.
        max_prompt_ids: longest prompt; longer instructions are cut with a warning.
        attention: kernel of every attention; ``eager`` trains faster on a CPU at the demo's size.
    """

    image_size_px: PositiveInt
    crop_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    patch_px: PositiveInt = 14
    dinov2: VisionTowerConfig
    siglip: VisionTowerConfig
    llama: LlamaConfig
    vocabulary_size: Annotated[int, Field(gt=N_BINS)]
    bos_id: Annotated[int, Field(ge=0)] = 1
    extra_prompt_id: int | None = None
    max_prompt_ids: PositiveInt = 128
    attention: AttentionKernel = "eager"

    @property
    def n_patches(self) -> int:
        """Patches per image and tower."""
        return int((self.image_size_px // self.patch_px) ** 2)

    @property
    def feature_width(self) -> int:
        """Width of a fused patch feature: both towers side by side."""
        return self.dinov2.width + self.siglip.width

    @property
    def first_action_id(self) -> int:
        """Lowest action id."""
        return self.vocabulary_size - N_BINS

    @model_validator(mode="after")
    def _check(self) -> PolicyConfig:
        if self.image_size_px % self.patch_px:
            raise ValueError(f"image_size_px: {self.image_size_px} is not a multiple of patch_px: {self.patch_px}")
        if self.llama.embedding_rows < self.vocabulary_size:
            raise ValueError(
                f"llama.embedding_rows: {self.llama.embedding_rows} is below vocabulary_size: {self.vocabulary_size}"
            )
        for name, value in (("bos_id", self.bos_id), ("extra_prompt_id", self.extra_prompt_id)):
            if value is not None and not 0 <= value < self.first_action_id:
                raise ValueError(f"{name}: {value} is no text id; legal: 0 to {self.first_action_id - 1}")
        return self

    @classmethod
    def demo(cls, **changes: Any) -> PolicyConfig:
        """The small demo policy: 112 px, two towers of width 128 and depth 4, Llama of width 256 and depth 8.

        Args:
            **changes: fields to set otherwise; a mapping changes single fields of a nested group
                (``llama={"depth": 4}``).
        """
        tower = {"width": 128, "depth": 4, "heads": 2, "mlp_width": 512, "feature_layer": -1, "feature_norm": True}
        rows = len(DEMO_VOCABULARY) + N_BINS
        fields: dict[str, Any] = {
            "image_size_px": 112,
            "crop_fraction": 0.875,
            "dinov2": {
                **tower,
                "class_token": True,
                "registers": 4,
                "layer_scale": 0.1,
                "image_mean": (0.485, 0.456, 0.406),
                "image_std": (0.229, 0.224, 0.225),
            },
            "siglip": {
                **tower,
                "class_token": False,
                "registers": 0,
                "layer_scale": None,
                "image_mean": (0.5, 0.5, 0.5),
                "image_std": (0.5, 0.5, 0.5),
            },
            "llama": {"width": 256, "depth": 8, "heads": 4, "mlp_width": 688, "embedding_rows": rows},
            "vocabulary_size": rows,
        }
        return cls.model_validate(_merged(fields, changes))

    @classmethod
    def openvla_7b(cls, **changes: Any) -> PolicyConfig:
        """OpenVLA-7B: DINOv2 ViT-L/14 with 4 registers, SigLIP So400m/14, Llama-2-7B (Kim et al. 2024, section 3.1).

        The features are the patch tokens of the second-to-last blocks without the final norm, as timm's
        ``get_intermediate_layers`` returns them; means and deviations are those of the published image processor.
        The published text configuration leaves the RMS norm's epsilon at the library's 1e-6.

        Args:
            **changes: as for :meth:`demo`; fine-tunes with image augmentation want ``crop_fraction`` sqrt(0.9).
        """
        features = {"feature_layer": -2, "feature_norm": False}
        fields: dict[str, Any] = {
            "image_size_px": 224,
            "dinov2": {
                **features,
                "width": 1024,
                "depth": 24,
                "heads": 16,
                "mlp_width": 4096,
                "class_token": True,
                "registers": 4,
                "layer_scale": 1e-5,
                "image_mean": (0.484375, 0.455078125, 0.40625),
                "image_std": (0.228515625, 0.2236328125, 0.224609375),
            },
            "siglip": {
                **features,
                "width": 1152,
                "depth": 27,
                "heads": 16,
                "mlp_width": 4304,
                "class_token": False,
                "registers": 0,
                "layer_scale": None,
                "image_mean": (0.5, 0.5, 0.5),
                "image_std": (0.5, 0.5, 0.5),
            },
            "llama": {
                "width": 4096,
                "depth": 32,
                "heads": 32,
                "mlp_width": 11008,
                "embedding_rows": 32064,
                "max_positions": 2048,
            },
            "vocabulary_size": 32000,
            "extra_prompt_id": 29871,
            "attention": "sdpa",
        }
        return cls.model_validate(_merged(fields, changes))


def _merged(fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    nested = {key: {**fields[key], **value} for key, value in changes.items() if isinstance(value, dict)}
    return {**fields, **changes, **nested}
