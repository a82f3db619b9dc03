from __future__ import annotations

import numpy as np
import pytest
import torch

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.bench.decode import GenerateBaseline, transformers_llama
from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder, choose_view
from vla_sd_ros.decoding.interface import Decoder
from vla_sd_ros.decoding.stage_times import STAGES
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.prompt import EmptyInstruction
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.types import Observation, Rgb

INSTRUCTIONS = ("put the bowl on the plate", "turn on the stove", "pick up the milk and place it in the basket")


def observation(seed: int, size_px: int = 28, instruction: str | None = None) -> Observation:
    image = np.random.default_rng(seed).integers(0, 256, (size_px, size_px, 3), dtype=np.uint8)
    return Observation({"camera": image}, instruction or INSTRUCTIONS[seed % len(INSTRUCTIONS)], stamp_ns=seed)


def all_tokens(decoder: Decoder, seeds: range) -> np.ndarray:
    return np.stack([decoder.decode(observation(seed), None).tokens for seed in seeds])


def test_the_tokens_are_those_of_transformers_greedy_generate(tiny_policy: LoadedPolicy) -> None:
    decoder, baseline = AutoregressiveDecoder(tiny_policy), GenerateBaseline(tiny_policy)
    expected = np.stack([baseline.decode(observation(seed)) for seed in range(12)])
    np.testing.assert_array_equal(all_tokens(decoder, range(12)), expected)
    assert len(np.unique(expected, axis=0)) > 6, "the images must matter for this test to mean anything"


def test_at_the_demos_size_too() -> None:
    policy = random_policy()
    decoder, baseline = AutoregressiveDecoder(policy), GenerateBaseline(policy)
    for seed in range(3):
        seen = observation(seed, policy.config.image_size_px)
        np.testing.assert_array_equal(decoder.decode(seen).tokens, baseline.decode(seen))


@torch.no_grad()
def test_the_best_id_of_all_may_be_a_word_but_a_word_is_never_chosen(tiny_policy: LoadedPolicy) -> None:
    weight = tiny_policy.model.language_model.lm_head.weight
    weight[: tiny_policy.config.first_action_id] *= 50.0
    seen = observation(0)
    prefix = tiny_policy.model.embed_prefix(
        tiny_policy.prepare_pixels(seen.views["camera"]), tiny_policy.prepare_prompt(seen.instruction)
    )
    unrestricted = transformers_llama(tiny_policy)(inputs_embeds=prefix).logits[0, -1].argmax()
    assert unrestricted < tiny_policy.config.first_action_id
    assert (all_tokens(AutoregressiveDecoder(tiny_policy), range(5)) >= tiny_policy.config.first_action_id).all()


def test_the_values_are_the_unnormalised_bin_centres(tiny_policy: LoadedPolicy) -> None:
    action = AutoregressiveDecoder(tiny_policy).decode(observation(1))
    normalised = tiny_policy.bins.normalised_from_ids(action.tokens)
    statistics = tiny_policy.statistics
    expected = statistics.q01 + (normalised + 1) / 2 * (statistics.q99 - statistics.q01)
    np.testing.assert_allclose(action.values[:6], expected[:6])
    assert action.values[6] == normalised[6]
    assert action.tokens.dtype == np.int64 and action.values.dtype == np.float64


def test_an_action_costs_one_prefill_and_six_steps_and_says_where_the_time_went(tiny_policy: LoadedPolicy) -> None:
    action = AutoregressiveDecoder(tiny_policy).decode(observation(1))
    times = action.stage_times
    assert action.mode == "ar" and action.counts.forward_passes == N_DOF
    for stage in ("preprocess", "vision", "prefill", "decode", "post"):
        assert getattr(times, f"{stage}_ms") > 0
    assert sum(getattr(times, f"{stage}_ms") for stage in STAGES) <= times.total_ms


def test_what_an_earlier_decode_left_in_the_cache_is_never_read(tiny_policy: LoadedPolicy) -> None:
    decoder = AutoregressiveDecoder(tiny_policy)
    clean = all_tokens(decoder, range(6))
    for garbage in (float("nan"), 1e30):
        found = []
        for seed in range(6):
            decoder._cache.keys.fill_(garbage)
            decoder._cache.values.fill_(garbage)
            found.append(decoder.decode(observation(seed)).tokens)
        np.testing.assert_array_equal(np.stack(found), clean)


@pytest.mark.parametrize("failing_call", range(1, 2 * N_DOF + 1))
def test_a_decode_that_fails_halfway_does_not_change_the_next(
    failing_call: int, tiny_policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault strikes in either layer of any of the seven forwards, after the layer wrote its keys."""
    decoder = AutoregressiveDecoder(tiny_policy)
    clean = all_tokens(decoder, range(3))
    update, calls = decoder._cache.update, 0

    def failing(layer: int, start: int, keys: torch.Tensor, values: torch.Tensor) -> object:
        nonlocal calls
        calls += 1
        written = update(layer, start, keys, values)
        if calls == failing_call:
            raise RuntimeError("out of luck")
        return written

    with monkeypatch.context() as patch:
        patch.setattr(decoder._cache, "update", failing)
        with pytest.raises(RuntimeError, match="out of luck"):
            decoder.decode(observation(99))
    np.testing.assert_array_equal(all_tokens(decoder, range(3)), clean)


def test_two_decoders_of_one_policy_do_not_disturb_each_other(tiny_policy: LoadedPolicy) -> None:
    first, second = AutoregressiveDecoder(tiny_policy), AutoregressiveDecoder(tiny_policy)
    alone = all_tokens(AutoregressiveDecoder(tiny_policy), range(4))
    for seed in range(4):
        np.testing.assert_array_equal(first.decode(observation(seed)).tokens, alone[seed])
        np.testing.assert_array_equal(second.decode(observation(3 - seed)).tokens, alone[3 - seed])


def test_the_instruction_changes_the_action(tiny_policy: LoadedPolicy) -> None:
    decoder = AutoregressiveDecoder(tiny_policy)
    tokens = {tuple(decoder.decode(observation(0, instruction=text)).tokens) for text in INSTRUCTIONS}
    assert len(tokens) > 1


def test_the_longest_prompt_fits_into_the_cache(tiny_policy: LoadedPolicy) -> None:
    decoder = AutoregressiveDecoder(tiny_policy)
    assert decoder.decode(observation(0, instruction="?" * 10_000)).tokens.shape == (N_DOF,)


@pytest.mark.parametrize("instruction", [" ", "\n"])
def test_an_empty_instruction_decodes_nothing(instruction: str, tiny_policy: LoadedPolicy) -> None:
    with pytest.raises(EmptyInstruction):
        AutoregressiveDecoder(tiny_policy).decode(observation(0, instruction=instruction))


def test_an_image_of_another_size_is_refused_with_both_sizes(tiny_policy: LoadedPolicy) -> None:
    with pytest.raises(ValueError, match=r"\(30, 30, 3\); legal: \(\.\.\., 28, 28, 3\)"):
        AutoregressiveDecoder(tiny_policy).decode(observation(0, size_px=30))


def test_the_view_must_be_named_where_there_are_two(tiny_config: PolicyConfig) -> None:
    front: Rgb = np.zeros((28, 28, 3), np.uint8)
    wrist: Rgb = np.full((28, 28, 3), 9, np.uint8)
    both = Observation({"front": front, "wrist": wrist}, "put it down", stamp_ns=0)
    assert choose_view(both, "wrist") is wrist
    assert choose_view(Observation({"front": front}, "put it down", stamp_ns=0), None) is front
    for view in (None, "side"):
        with pytest.raises(ValueError, match=r"legal: \['front', 'wrist'\]"):
            choose_view(both, view)
    with pytest.raises(ValueError, match=r"legal: \[\]"):
        choose_view(Observation({}, "put it down", stamp_ns=0), None)
