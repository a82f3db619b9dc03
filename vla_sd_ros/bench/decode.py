"""Our autoregressive decoder against transformers' ``generate`` on the same weights.

Both see the same image features, prompt and projector; what differs is the language model's runtime. The two are
timed alternately in one process and on one thread, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from vla_sd_ros.actions.bins import N_DOF, Ids
from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.stage_times import Stopwatch
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.policy.transformers_names import llama_to_transformers
from vla_sd_ros.types import Observation

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PolicyFactory = Callable[[torch.dtype], LoadedPolicy]


@dataclass(frozen=True)
class DecodeComparison:
    """Median milliseconds, and medians of the ratios of neighbouring runs (``generate`` over ours).

    Attributes:
        dtype: precision of the weights.
        generate_ms: from image to tokens with transformers' ``generate``.
        autoregressive_ms: the same with our decoder.
        speed_up: of the whole; the vision towers, the same in both, dilute it.
        language_generate_ms: projector and ``generate`` alone.
        language_autoregressive_ms: the same part of our decoder (its prefill and decode stages).
        language_speed_up: of that part.
        same_tokens: share of images on which both gave the same seven tokens.
    """

    dtype: str
    generate_ms: float
    autoregressive_ms: float
    speed_up: float
    language_generate_ms: float
    language_autoregressive_ms: float
    language_speed_up: float
    same_tokens: float


@dataclass(frozen=True)
class _Run:
    tokens: Ids
    total_ms: float
    language_ms: float


class GenerateBaseline:
    """The policy with its language model replaced by transformers' ``LlamaForCausalLM``; greedy ``generate``.

    Args:
        policy: whose weights to copy and whose vision and projector to use.
    """

    def __init__(self, policy: LoadedPolicy) -> None:
        self._policy = policy
        self.language_model = transformers_llama(policy)
        first, last = policy.config.first_action_id, policy.config.vocabulary_size
        barred = torch.full((policy.config.llama.embedding_rows,), float("-inf"), device=policy.device)
        barred[first:last] = 0.0
        # The restriction to action ids as a bias of the output matrix: it costs generate nothing.
        self.language_model.lm_head.bias = torch.nn.Parameter(barred.to(policy.dtype), requires_grad=False)

    def decode(self, observation: Observation) -> Ids:
        """Seven token ids, int64 [7], of an observation with one view."""
        return self.run(observation).tokens

    @torch.inference_mode()
    def run(self, observation: Observation) -> _Run:
        """One decode with its times; un-normalises too, as our decoder does."""
        policy, watch = self._policy, Stopwatch(self._policy.device)
        pixels = policy.prepare_pixels(next(iter(observation.views.values())))
        prompt = policy.prepare_prompt(observation.instruction)
        features = policy.model.patch_features(pixels)
        with watch.stage("decode"):
            prefix = policy.model.join_prefix(features, prompt)
            ids = self.language_model.generate(
                inputs_embeds=prefix,
                attention_mask=torch.ones(prefix.shape[:2], dtype=torch.int64, device=prefix.device),
                max_new_tokens=N_DOF,
                do_sample=False,
                use_cache=True,
            )
        tokens = np.asarray(ids[0].cpu().numpy(), dtype=np.int64)
        policy.values_from_ids(tokens)
        times = watch.read()
        return _Run(tokens, times.total_ms, times.decode_ms)


def transformers_llama(policy: LoadedPolicy) -> Any:
    """The policy's language model as transformers' ``LlamaForCausalLM``: same weights, dtype and device."""
    from transformers import GenerationConfig, LlamaForCausalLM
    from transformers import LlamaConfig as TransformersConfig

    llama = policy.config.llama
    model = LlamaForCausalLM(
        TransformersConfig(
            hidden_size=llama.width,
            num_hidden_layers=llama.depth,
            num_attention_heads=llama.heads,
            num_key_value_heads=llama.heads,
            intermediate_size=llama.mlp_width,
            vocab_size=llama.embedding_rows,
            rms_norm_eps=llama.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": llama.rope_theta},
            max_position_embeddings=llama.max_positions,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )
    model.load_state_dict(llama_to_transformers(policy.model.language_model.state_dict()))
    model.generation_config = GenerationConfig(bos_token_id=None, eos_token_id=None, pad_token_id=0)
    return model.to(policy.device, policy.dtype).eval()


def compare_autoregressive_with_generate(
    policy_factory: PolicyFactory | None = None,
    dtypes: Sequence[str] = ("float32", "bfloat16"),
    rounds: int = 30,
    warm_up_rounds: int = 3,
    instruction: str = "put the bowl on the plate",
    seed: int = 0,
) -> dict[str, Any]:
    """Times both decoders on the same random images, alternating.

    Args:
        policy_factory: gives the policy in a dtype; None: the demo policy with random weights.
        dtypes: of ``float32`` and ``bfloat16``.
        rounds: timed decodes of each.
        warm_up_rounds: decodes of each before timing.
        instruction: of every observation.
        seed: of the images.

    Returns:
        ``{"threads": 1, "rounds": .., "rows": [DecodeComparison as a dict, ..], "table": str}``.

    Raises:
        ValueError: on an unknown dtype, or fewer than one round.
    """
    unknown = [name for name in dtypes if name not in DTYPES]
    if unknown or rounds < 1:
        raise ValueError(f"dtypes: {list(dtypes)}, rounds: {rounds}; legal: {sorted(DTYPES)}, at least 1")
    factory = policy_factory or (lambda dtype: random_policy(dtype=dtype))
    with _one_thread():
        rows = [_compare(factory(DTYPES[name]), name, rounds, warm_up_rounds, instruction, seed) for name in dtypes]
    return {"threads": 1, "rounds": rounds, "rows": [asdict(row) for row in rows], "table": format_table(rows)}


def _compare(
    policy: LoadedPolicy, dtype: str, rounds: int, warm_up_rounds: int, instruction: str, seed: int
) -> DecodeComparison:
    baseline, decoder = GenerateBaseline(policy), AutoregressiveDecoder(policy)
    size = policy.config.image_size_px
    images = np.random.default_rng(seed).integers(0, 256, (rounds + warm_up_rounds, size, size, 3), dtype=np.uint8)
    pairs: list[tuple[_Run, _Run]] = []
    for index, image in enumerate(images):
        observation = Observation({"camera": image}, instruction, stamp_ns=0)
        if index % 2:  # each goes first every other round
            theirs = baseline.run(observation)
            pairs.append((theirs, _run_ours(decoder, observation)))
        else:
            ours = _run_ours(decoder, observation)
            pairs.append((baseline.run(observation), ours))
    pairs = pairs[warm_up_rounds:]
    return DecodeComparison(
        dtype=dtype,
        generate_ms=statistics.median(theirs.total_ms for theirs, _ in pairs),
        autoregressive_ms=statistics.median(ours.total_ms for _, ours in pairs),
        speed_up=statistics.median(theirs.total_ms / ours.total_ms for theirs, ours in pairs),
        language_generate_ms=statistics.median(theirs.language_ms for theirs, _ in pairs),
        language_autoregressive_ms=statistics.median(ours.language_ms for _, ours in pairs),
        language_speed_up=statistics.median(theirs.language_ms / ours.language_ms for theirs, ours in pairs),
        same_tokens=statistics.mean(float(np.array_equal(theirs.tokens, ours.tokens)) for theirs, ours in pairs),
    )


def _run_ours(decoder: AutoregressiveDecoder, observation: Observation) -> _Run:
    action = decoder.decode(observation)
    times = action.stage_times
    return _Run(action.tokens, times.total_ms, times.prefill_ms + times.decode_ms)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def format_table(rows: Sequence[DecodeComparison]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| weights | generate, ms | ours, ms | speed-up | language model alone: generate, ms | ours, ms | speed-up "
        "| same tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.dtype} | {row.generate_ms:.1f} | {row.autoregressive_ms:.1f} | {row.speed_up:.2f}x "
        f"| {row.language_generate_ms:.1f} | {row.language_autoregressive_ms:.1f} | {row.language_speed_up:.2f}x "
        f"| {row.same_tokens:.0%} |"
        for row in rows
    ]
    return "\n".join(lines)
