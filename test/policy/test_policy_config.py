from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from vla_sd_ros.policy.config import PolicyConfig


def test_the_demos_sizes() -> None:
    config = PolicyConfig.demo()
    assert config.n_patches == 64 and config.feature_width == 256
    assert config.llama.embedding_rows == config.vocabulary_size == config.first_action_id + 256


def test_a_configuration_survives_its_json() -> None:
    for config in (PolicyConfig.demo(), PolicyConfig.openvla_7b()):
        assert PolicyConfig.model_validate_json(config.model_dump_json()) == config


def test_single_fields_of_a_group_can_be_changed() -> None:
    config = PolicyConfig.demo(llama={"depth": 4}, crop_fraction=1.0)
    assert (config.llama.depth, config.llama.width, config.crop_fraction) == (4, 256, 1.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"image_size_px": 113}, "image_size_px: 113"),
        ({"llama": {"heads": 3}}, "width: 256"),
        ({"llama": {"embedding_rows": 100}}, "embedding_rows: 100"),
        ({"siglip": {"feature_layer": -5}}, "feature_layer: -5"),
        ({"siglip": {"feature_layer": 0}}, "feature_layer"),
        ({"bos_id": 300}, "bos_id: 300"),
        ({"extra_prompt_id": 300}, "extra_prompt_id: 300"),
        ({"vocabulary_size": 256}, "vocabulary_size"),
        ({"crop_fraction": 0.0}, "crop_fraction"),
        ({"attention": "flash"}, "attention"),
        ({"depth": 3}, "depth"),
    ],
)
def test_sizes_that_cannot_be_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        PolicyConfig.demo(**changes)
