from __future__ import annotations

import numpy as np
import pytest
import tiny_policy
import torch

from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.prompt import EmptyInstruction
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.training.teacher import greedy_batches, greedy_tokens_in_batches
from vla_sd_ros.types import Observation

INSTRUCTIONS = ("put the bowl on the plate", "turn on the stove", "put the bowl on top of the cabinet")


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return random_policy(tiny_policy.tiny_config())


def some_frames(policy: LoadedPolicy, count: int) -> tuple[np.ndarray, list[str]]:
    size = policy.config.image_size_px
    images = np.random.default_rng(3).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return images, [INSTRUCTIONS[row % len(INSTRUCTIONS)] for row in range(count)]


def test_the_tokens_are_those_of_the_autoregressive_decoder(policy: LoadedPolicy) -> None:
    images, texts = some_frames(policy, 23)
    decoder = AutoregressiveDecoder(policy)
    expected = [
        decoder.decode(Observation({"camera": image}, text, stamp_ns=0)).tokens
        for image, text in zip(images, texts, strict=True)
    ]
    tokens, hidden = greedy_tokens_in_batches(policy, images, texts, batch=4)
    np.testing.assert_array_equal(tokens, expected)
    assert hidden.shape == (23, 7, policy.config.llama.width)
    assert len(np.unique(tokens, axis=0)) > 6, "the images must matter for this test to mean anything"


def test_the_hidden_states_name_the_tokens(policy: LoadedPolicy) -> None:
    images, texts = some_frames(policy, 6)
    for part in greedy_batches(policy, images, texts, batch=4, with_prefix_hidden=True):
        named = policy.model.action_logits(part.hidden).argmax(-1) + policy.config.first_action_id
        np.testing.assert_array_equal(named.numpy(), part.tokens)
        assert part.prefix_hidden is not None
        torch.testing.assert_close(part.prefix_hidden[:, -1], part.hidden[:, 0])
        assert part.prefix_embeddings.shape == part.prefix_hidden.shape


def test_one_instruction_may_serve_all_frames(policy: LoadedPolicy) -> None:
    images, _ = some_frames(policy, 5)
    alone, _ = greedy_tokens_in_batches(policy, images, INSTRUCTIONS[0])
    listed, _ = greedy_tokens_in_batches(policy, images, [INSTRUCTIONS[0]] * 5, batch=2)
    np.testing.assert_array_equal(alone, listed)


def test_no_frame_gives_no_token(policy: LoadedPolicy) -> None:
    images, _ = some_frames(policy, 0)
    tokens, hidden = greedy_tokens_in_batches(policy, images, [])
    assert tokens.shape == (0, 7)
    assert hidden.shape == (0, 7, policy.config.llama.width)


def test_what_does_not_fit_is_refused(policy: LoadedPolicy) -> None:
    images, texts = some_frames(policy, 3)
    with pytest.raises(ValueError, match="instructions: 2 for 3 images"):
        greedy_tokens_in_batches(policy, images, texts[:2])
    with pytest.raises(ValueError, match=r"images: uint8 \(3, 28, 28\)"):
        greedy_tokens_in_batches(policy, images[..., 0], texts)
    with pytest.raises(EmptyInstruction):
        greedy_tokens_in_batches(policy, images, " ")
