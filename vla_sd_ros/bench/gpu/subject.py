"""What is measured: a policy of random weights, and around it what the decoders need, all of the policy's size."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Final

import numpy as np
import torch

from vla_sd_ros.actions.bins import N_BINS, N_DOF
from vla_sd_ros.bench.gpu.trace import LearnedShape
from vla_sd_ros.decoding.perception import Search
from vla_sd_ros.drafting.learned import LearnedDrafter
from vla_sd_ros.drafting.learned_config import DrafterNetworkConfig, LearnedDraftConfig
from vla_sd_ros.drafting.learned_network import DrafterNetwork
from vla_sd_ros.policy.kv_cache import KeyValueCache
from vla_sd_ros.policy.llama import rotary_table
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.retrieval.faiss_store import FaissStore
from vla_sd_ros.retrieval.frames import DemonstrationFrames
from vla_sd_ros.retrieval.index import DemonstrationIndex
from vla_sd_ros.retrieval.instruction import normalise_instruction
from vla_sd_ros.retrieval.keys import POSITION_WIDTH, key_from_features, visual_width
from vla_sd_ros.retrieval.projection import COMPONENTS, KeyProjection
from vla_sd_ros.retrieval.stores import IndexMetadata
from vla_sd_ros.types import Rgb

#: Ids of the shortest and of a long instruction's prompt, the latter in every action.
SHORT_PROMPT: Final = 18
LONG_PROMPT: Final = 35
# Of a decoder's cache: what may be drafted in one go.
LARGEST_DRAFT: Final = 64
# Frames of one task's demonstrations.
INDEX_FRAMES: Final = 4000
_WORDS: Final = ("put", "the", "bowl", "on", "the", "plate")
_POSITION_M: Final = np.array([0.4, 0.0, 0.3])


@dataclass(frozen=True)
class Subject:
    """A policy with the inputs of one control period.

    Attributes:
        policy: of random weights.
        cache: for prefix, draft and action.
        image: uint8 [S, S, 3].
        instruction: whose prompt has ``LONG_PROMPT`` ids.
        search: in an index of random demonstrations.
        drafters: learned drafters of random weights, by the shape of their trees.
    """

    policy: LoadedPolicy
    cache: KeyValueCache
    image: Rgb
    instruction: str
    search: Search
    drafters: dict[LearnedShape, LearnedDrafter]


def make_subject(policy: LoadedPolicy, shapes: set[LearnedShape], seed: int = 0) -> Subject:
    """Puts one together.

    Args:
        policy: accelerated already.
        shapes: of the learned drafters' trees.
        seed: of image, demonstrations and drafters.
    """
    random = np.random.default_rng(seed)
    size = policy.config.image_size_px
    instruction = instruction_of(policy, LONG_PROMPT)
    return Subject(
        policy=policy,
        cache=policy.model.new_cache(N_DOF + LARGEST_DRAFT, ready=True),
        image=random.integers(0, 256, (size, size, 3), dtype=np.uint8),
        instruction=instruction,
        search=_random_search(policy, instruction, random),
        drafters={shape: _random_drafter(policy, shape, seed) for shape in sorted(shapes, key=repr)},
    )


def instruction_of(policy: LoadedPolicy, ids: int) -> str:
    """An instruction whose prompt has so many ids.

    Raises:
        ValueError: there is none.
    """
    words: list[str] = []
    for word in cycle(_WORDS):
        words.append(word)
        length = len(policy.tokenizer.encode_instruction(" ".join(words)))
        if length == ids:
            return " ".join(words)
        if length > ids or len(words) > ids:
            raise ValueError(f"ids: {ids}; legal: at least those of the question around the instruction")
    raise AssertionError("the words never end")


def _random_drafter(policy: LoadedPolicy, shape: LearnedShape, seed: int) -> LearnedDrafter:
    config = DrafterNetworkConfig.of_policy(policy.config)
    with torch.device("meta"):
        network = DrafterNetwork(config, kernel="sdpa")
    network = network.to(policy.dtype).requires_grad_(False).to_empty(device=policy.device)
    network.rotary = rotary_table(config.llama).to(policy.device)
    generator = torch.Generator(policy.device).manual_seed(seed)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            parameter.fill_(1.0)
        else:
            parameter.normal_(0.0, config.width**-0.5, generator=generator)
    return LearnedDrafter(network, policy, LearnedDraftConfig(top_k=shape.top_k, total_nodes=shape.total_nodes))


def _random_search(policy: LoadedPolicy, instruction: str, random: np.random.Generator) -> Search:
    """A search as the decoders make it: the key from the patch features, the nearest of some thousand frames."""
    widths = (policy.config.dinov2.width, policy.config.siglip.width)
    key_width = visual_width(widths) + POSITION_WIDTH
    stored = COMPONENTS + POSITION_WIDTH
    metadata = IndexMetadata(policy_fingerprint="", key_width=key_width, block_widths=widths, with_position=True)
    matrix = random.normal(0.0, key_width**-0.5, (key_width, stored)).astype(np.float32)
    first, n = policy.config.first_action_id, INDEX_FRAMES
    tokens = random.integers(first, first + N_BINS, (n, N_DOF), dtype=np.int64)
    frames = DemonstrationFrames(
        keys=random.normal(0.0, stored**-0.5, (n, stored)).astype(np.float16),
        tokens=tokens,
        expert_tokens=tokens,
        positions=np.zeros((n, 3), dtype=np.float32),
        gripper_open=np.ones(n, dtype=np.bool_),
        steps_to_gripper_change=np.full(n, n, dtype=np.int64),
        episodes=np.zeros(n, dtype=np.int64),
        steps=np.arange(n, dtype=np.int64),
    )
    projection = KeyProjection(np.zeros(key_width, dtype=np.float32), matrix)
    index = DemonstrationIndex(FaissStore(metadata, projection, {normalise_instruction(instruction): frames}))
    return lambda words, features, position, k: index.search(
        words, key_from_features(features, widths, _POSITION_M if position is None else position), k
    )
