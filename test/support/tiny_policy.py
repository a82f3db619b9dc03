"""A policy folder of random weights that decodes in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from vla_sd_ros.policy.checkpoint import STATISTICS_FILE, WEIGHTS_FILE, save_policy
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.model import VisionLanguageActionModel, initialise
from vla_sd_ros.policy.tokenizer import build_word_tokenizer

IMAGE_SIZE_PX = 28
STATISTICS_KEY = "libero_goal"
# Displacements that the command gate would let pass.
_STATISTICS = {"action": {"q01": [-0.02] * 6 + [0.0], "q99": [0.02] * 6 + [1.0], "mask": [True] * 6 + [False]}}


def tiny_config() -> PolicyConfig:
    """Four patches, two layers everywhere: the demo's architecture at a size that costs nothing."""
    tower = {"width": 32, "depth": 2, "mlp_width": 64}
    return PolicyConfig.demo(
        image_size_px=IMAGE_SIZE_PX,
        dinov2=tower,
        siglip=tower,
        llama={"width": 64, "depth": 2, "heads": 4, "mlp_width": 96},
        attention="sdpa",
    )


def write_policy(folder: Path, config: PolicyConfig | None = None) -> Path:
    """Writes a whole, sound policy, a tiny one by default, and returns its folder; what stood there is replaced."""
    config = config or tiny_config()
    model = initialise(VisionLanguageActionModel(config), 0, deviation=config.llama.width**-0.5)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = folder / "tokenizer.json"
    build_word_tokenizer().save(str(tokenizer))
    save_policy(folder, model, tokenizer, {STATISTICS_KEY: _STATISTICS}, {"trained": "not at all"})
    return folder


def damage_weights(folder: Path) -> None:
    """Writes one NaN into the weights."""
    weights = load_file(folder / WEIGHTS_FILE)
    next(iter(weights.values())).view(-1)[0] = float("nan")
    save_file(weights, folder / WEIGHTS_FILE)


def blind(folder: Path) -> None:
    """Zeroes the projector: whatever the image, the language model sees the same."""
    weights = load_file(folder / WEIGHTS_FILE)
    for name, tensor in weights.items():
        if name.startswith("projector"):
            tensor.zero_()
    save_file(weights, folder / WEIGHTS_FILE)


def rename_statistics(folder: Path, keys: list[str]) -> None:
    """Gives the statistics other keys."""
    (folder / STATISTICS_FILE).write_text(json.dumps(dict.fromkeys(keys, _STATISTICS)))
