"""A policy ready to act: model, tokenizer and statistics that belong together."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from vla_sd_ros.actions.bins import N_DOF, ActionBins, Values
from vla_sd_ros.actions.statistics import ActionStatistics
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.image import pixel_values
from vla_sd_ros.policy.image_upload import ImageUpload
from vla_sd_ros.policy.model import VisionLanguageActionModel
from vla_sd_ros.policy.runtime import decode_one, prefill
from vla_sd_ros.policy.tokenizer import PromptTokenizer
from vla_sd_ros.policy.transfer import to_device

logger = logging.getLogger(__name__)


class LoadedPolicy:
    """What the decoders share.

    Args:
        model: in evaluation mode, in its final dtype and on its device.
        tokenizer: of the same checkpoint.
        statistics: of the chosen data set.
        weights_path: file the weights came from; None for a model made in memory.
        further_weights: other files that they came from: shards, the base of an adapter.
    """

    def __init__(
        self,
        model: VisionLanguageActionModel,
        tokenizer: PromptTokenizer,
        statistics: ActionStatistics,
        weights_path: Path | None = None,
        further_weights: Sequence[Path] = (),
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.statistics = statistics
        self.bins = ActionBins(model.config.vocabulary_size)
        self._weights_path = weights_path
        self._further_weights = tuple(further_weights)
        self._prompt: tuple[str, torch.Tensor] | None = None

    @property
    def folder(self) -> Path | None:
        """Folder of the checkpoint, where what was derived from it lies too; None for a model made in memory."""
        return None if self._weights_path is None else self._weights_path.parent

    @property
    def config(self) -> PolicyConfig:
        """The model's configuration."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.language_model.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the matrices."""
        return self.model.language_model.embed_tokens.weight.dtype

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the weights, 64 hexadecimal digits: of the files, or of the tensors of a model in memory."""
        if self._weights_path is not None:
            return files_fingerprint((self._weights_path, *self._further_weights))
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
        return digest.hexdigest()

    def prepare_pixels(self, rgb: npt.NDArray[np.uint8]) -> torch.Tensor:
        """One image of the model's size, uint8 [S, S, 3], as pixels [1, 6, S, S] in the model's dtype and device."""
        if self.device.type == "cuda":
            return self._upload(rgb)
        return pixel_values(rgb, self.config).unsqueeze(0).to(self.device, self.dtype)

    @cached_property
    def _upload(self) -> ImageUpload:
        return ImageUpload(self.config, self.device, self.dtype)

    def prepare_prompt(self, instruction: str) -> torch.Tensor:
        """Ids of an instruction's prompt, int64 [1, T]; the last instruction's are remembered.

        Raises:
            EmptyInstruction: where the instruction is empty.
        """
        remembered = self._prompt
        if remembered is not None and remembered[0] == instruction:
            return remembered[1]
        encoded = np.array([self.tokenizer.encode_instruction(instruction)], dtype=np.int64)
        ids = to_device(encoded, self.device)
        self._prompt = (instruction, ids)
        return ids

    def values_from_ids(self, ids: npt.NDArray[np.int64]) -> Values:
        """Un-normalised action of seven token ids, float64 [7]."""
        return self.statistics.unnormalise(self.bins.normalised_from_ids(ids))

    @torch.inference_mode()
    def warm_up(self, rounds: int = 2) -> None:
        """Runs the whole path on a grey image, so that the first real decode pays no lazy initialisation."""
        size = self.config.image_size_px
        grey = np.full((size, size, 3), 127, dtype=np.uint8)
        ids = torch.full((1, 16), self.config.bos_id, device=self.device)
        cache = self.model.new_cache()
        for _ in range(rounds):
            prefix = self.model.embed_prefix(self.prepare_pixels(grey), ids)
            logits = prefill(self.model, cache, prefix)
            for step in range(N_DOF - 1):
                token = logits.argmax(-1, keepdim=True) + self.config.first_action_id
                logits = decode_one(self.model, cache, token, prefix.shape[1] + step)
        logger.debug("policy warmed up in %d rounds", rounds)


def files_fingerprint(files: Sequence[Path]) -> str:
    """SHA-256 of files, one after the other, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
