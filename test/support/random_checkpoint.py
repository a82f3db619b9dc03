"""A checkpoint of random weights on disk: it decodes like the demo policy and knows nothing."""

from __future__ import annotations

from pathlib import Path

from vla_sd_ros.policy.checkpoint import save_policy
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.model import VisionLanguageActionModel, initialise
from vla_sd_ros.policy.tokenizer import build_word_tokenizer

STATISTICS = {
    "random": {
        "action": {
            "q01": [-0.02, -0.02, -0.02, -0.05, -0.05, -0.05, 0.0],
            "q99": [0.02, 0.02, 0.02, 0.05, 0.05, 0.05, 1.0],
            "mask": [True, True, True, True, True, True, False],
        }
    }
}


def write_random_checkpoint(folder: Path, config: PolicyConfig | None = None) -> Path:
    """Writes a random policy, of the demo's size where no other is given, and returns its folder."""
    config = config or PolicyConfig.demo()
    model = initialise(VisionLanguageActionModel(config), seed=0, deviation=config.llama.width**-0.5)
    tokenizer = folder.parent / f"{folder.name}_tokenizer.json"
    build_word_tokenizer().save(str(tokenizer))
    save_policy(folder, model, tokenizer, STATISTICS, {"weights": "random, for tests"})
    return folder
