"""The engine: lossless is lossless, bounds hold, guards hold, and a failure leaves no trace."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from decoder_parts import INSTRUCTION, Dictated, make_decoder, make_parts, neighbour, observation, state_at
from draft_trees import draft_trees
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.decoding.config import JacobiConfig, SkipConfig, SpeculativeConfig, StepConfig
from vla_sd_ros.drafting.hold_last import HoldLastDrafter
from vla_sd_ros.policy.config import PolicyConfig
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.random_policy import random_policy
from vla_sd_ros.types import Observation
from vla_sd_ros.verification.acceptance import GRIPPER, SequenceWise, Strict, TokenRadius
from vla_sd_ros.verification.draft_tree import chain

SPECULATIVE = SpeculativeConfig(kind="speculative")


@pytest.fixture(scope="module")
def policy(tiny_config: PolicyConfig) -> LoadedPolicy:
    torch.set_num_threads(1)
    return random_policy(tiny_config)


def greedy(policy: LoadedPolicy, seed: int) -> np.ndarray:
    return AutoregressiveDecoder(policy).decode(observation(seed)).tokens


@settings(max_examples=60)
@given(st.data(), st.integers(0, 2**20), st.booleans(), st.booleans())
def test_lossless_decoding_gives_the_greedy_tokens_whatever_the_draft(
    policy: LoadedPolicy, data: st.DataObject, seed: int, in_prefill: bool, jacobi: bool
) -> None:
    truth = greedy(policy, seed)
    tree = data.draw(draft_trees(policy.config.first_action_id))
    right = data.draw(st.integers(0, N_DOF - 1))  # some drafts must be right for a while
    near = truth.copy()
    near[right:] = policy.config.first_action_id + 5
    drafters = [Dictated(lambda _: chain(near, "near")), Dictated(lambda _: tree)]
    step = StepConfig(
        drafts=("hold_last",), verify_in_prefill=in_prefill, completion=JacobiConfig() if jacobi else SPECULATIVE
    )
    decoded = make_decoder(policy, make_parts(policy, step, drafters)).decode(observation(seed), None)
    np.testing.assert_array_equal(decoded.tokens, truth)
    assert decoded.counts.relaxed_tokens == 0
    assert decoded.report.deviation_bins == (0,) * N_DOF


def test_a_perfect_draft_costs_one_forward_and_a_wrong_one_never_more_than_greedy_decoding(
    policy: LoadedPolicy,
) -> None:
    step = StepConfig(drafts=("hold_last",))
    for seed in range(20):
        truth = greedy(policy, seed)
        perfect = make_parts(policy, step, [Dictated(lambda _, t=truth: chain(t, "perfect"))])
        decoded = make_decoder(policy, perfect).decode(observation(seed), None)
        assert (decoded.counts.forward_passes, decoded.counts.acceptance_length) == (1, N_DOF)
        assert decoded.report.sources == ("perfect",) * GRIPPER + ("policy",)
        worst = make_parts(policy, step, [Dictated(lambda _, t=truth: chain(t.max() + t.min() - t, "worst"))])
        assert make_decoder(policy, worst).decode(observation(seed), None).counts.forward_passes <= N_DOF


def test_the_bonus_token_ends_the_decode_without_a_forward_of_its_own(policy: LoadedPolicy) -> None:
    truth = greedy(policy, 3)
    step = StepConfig(drafts=("hold_last",), completion=SPECULATIVE)
    half = make_parts(policy, step, [Dictated(lambda _: chain(truth[:3], "half"))])
    decoded = make_decoder(policy, half).decode(observation(3), None)
    assert decoded.counts.forward_passes == 4, "three drafted and one bonus token, then three one by one"
    np.testing.assert_array_equal(decoded.tokens, truth)


def test_the_learned_drafter_sees_one_state_for_every_known_token(policy: LoadedPolicy) -> None:
    truth = greedy(policy, 4)
    seen: list[tuple[int, int]] = []

    def draft(hidden: torch.Tensor, tokens: np.ndarray):
        seen.append((len(hidden), len(tokens)))
        predicted = policy.model.action_logits(hidden).argmax(-1).numpy() + policy.config.first_action_id
        np.testing.assert_array_equal(predicted, tokens)
        return chain(truth[len(tokens) : len(tokens) + 2], "learned")

    step = StepConfig(completion=SpeculativeConfig(kind="speculative", then="learned"))
    decoded = make_decoder(policy, make_parts(policy, step, [], learned=draft)).decode(observation(4), None)
    np.testing.assert_array_equal(decoded.tokens, truth)
    assert seen == [(1, 1), (4, 4)]
    assert decoded.counts.forward_passes == 3


def test_relaxed_acceptance_tells_what_it_let_through(policy: LoadedPolicy) -> None:
    truth = greedy(policy, 5)
    draft = np.clip(truth + 4, policy.config.first_action_id, policy.config.vocabulary_size - 1)
    step = StepConfig(drafts=("hold_last",), completion=SPECULATIVE)
    for rule in (TokenRadius(200, policy.bins), SequenceWise(254, 254, policy.bins)):
        parts = make_parts(policy, step, [Dictated(lambda _: chain(draft, "off"))], rule)
        decoded = make_decoder(policy, parts).decode(observation(5), None)
        assert decoded.counts.forward_passes == 1
        np.testing.assert_array_equal(decoded.tokens[:GRIPPER], draft[:GRIPPER])
        assert decoded.report.deviation_bins[0] == -4, "four ids more are four bins less"
        assert decoded.report.deviation_m > 0.0


def test_an_action_that_would_break_the_declared_bounds_is_decoded_exactly(policy: LoadedPolicy) -> None:
    truth = greedy(policy, 6)
    draft = np.clip(truth + 60, policy.config.first_action_id, policy.config.vocabulary_size - 1)
    step = StepConfig(drafts=("hold_last",), completion=SPECULATIVE)
    parts = make_parts(policy, step, [Dictated(lambda _: chain(draft, "off"))], TokenRadius(254, policy.bins))
    bounded = make_decoder(policy, parts, bounds={"position_m": 0.001}).decode(observation(6), None)
    np.testing.assert_array_equal(bounded.tokens, truth)
    assert "bounds" in bounded.report.degraded
    assert bounded.report.deviation_m == 0.0


def test_with_a_tolerance_the_tokens_are_still_the_policys_own_rows(policy: LoadedPolicy) -> None:
    truth = greedy(policy, 7)
    draft = truth.copy()
    draft[0] += 1 if draft[0] + 1 < policy.config.vocabulary_size else -1
    step = StepConfig(drafts=("hold_last",))
    parts = make_parts(policy, step, [Dictated(lambda _: chain(draft, "off"))], tolerance_bins=254)
    decoded = make_decoder(policy, parts).decode(observation(7), None)
    assert decoded.counts.forward_passes <= 2
    assert decoded.tokens[0] == truth[0], "the first row is exact: nothing drafted stands before it"


def test_skipping_keeps_its_budget_and_repeats_the_last_action(policy: LoadedPolicy) -> None:
    step = StepConfig(drafts=("hold_last",), skip=SkipConfig(max_in_a_row=2))
    decoder = make_decoder(policy, make_parts(policy, step))
    decoded = [decoder.decode(observation(seed), state_at(seed)) for seed in range(9)]
    assert [action.report.skipped for action in decoded] == [False, True, True] * 3
    assert [action.report.skipped_in_a_row for action in decoded] == [0, 1, 2] * 3
    for exact, *skipped in zip(decoded[::3], decoded[1::3], decoded[2::3], strict=True):
        for action in skipped:
            np.testing.assert_array_equal(action.tokens, exact.tokens)
            assert (action.counts.forward_passes, action.mode) == (0, "skip")


def guarded(policy: LoadedPolicy, steps_to_change: int):
    truth = greedy(policy, 0)
    found = [neighbour(truth, steps_to_change)]
    confident = make_parts(policy, StepConfig(drafts=("hold_last",), skip=SkipConfig(max_in_a_row=4)))
    cautious = make_parts(policy, StepConfig(drafts=("hold_last",)))
    return make_decoder(
        policy, cautious, confident, lambda *_: found, guard={"contact_steps": 5, "contact_travel_m": 0.0}
    )


def test_near_a_gripper_change_of_the_demonstration_nothing_is_skipped(policy: LoadedPolicy) -> None:
    near, far = guarded(policy, 3), guarded(policy, 100)
    reports = [[decoder.decode(observation(0), state_at(seed)).report for seed in range(6)] for decoder in (near, far)]
    assert not any(report.skipped for report in reports[0])
    assert [report.near_contact for report in reports[0]] == [False] + [True] * 5
    assert any(report.skipped for report in reports[1])


def test_the_guard_counts_the_skipped_steps_down_towards_the_contact(policy: LoadedPolicy) -> None:
    decoder = guarded(policy, 7)
    reports = [decoder.decode(observation(0), state_at(seed)).report for seed in range(4)]
    assert [report.skipped for report in reports] == [False, True, True, False]


def watchful(policy: LoadedPolicy):
    step = make_parts(policy, StepConfig(drafts=("hold_last",), skip=SkipConfig(max_in_a_row=16)))
    return make_decoder(policy, step, guard={"scene_change": 0.12})


def seen(brightness: int) -> Observation:
    image = np.full((28, 28, 3), 100, dtype=np.uint8)
    image[8:12, 8:12] = brightness
    return Observation({"camera": image}, INSTRUCTION, stamp_ns=0)


def test_a_step_on_which_something_new_moves_is_decoded_and_the_next_one_may_be_skipped(policy: LoadedPolicy) -> None:
    decoder = watchful(policy)
    brightness = [100, 100, 100, 220, 220, 220]
    reports = [decoder.decode(seen(each), state_at(step)).report for step, each in enumerate(brightness)]
    assert [report.skipped for report in reports] == [False, True, True, False, True, True]


def test_what_moved_before_a_decode_that_failed_is_decoded_by_the_next_one(
    policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = watchful(policy)
    for step in range(3):
        decoder.decode(seen(100), state_at(step))
    with monkeypatch.context() as broken:
        broken.setattr(type(policy.model), "patch_features", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            decoder.decode(seen(220), state_at(3))
    reports = [decoder.decode(seen(220), state_at(step)).report for step in (4, 5)]
    assert [report.skipped for report in reports] == [False, True]


def test_after_a_change_of_the_gripper_the_arm_is_near_contact_for_a_while(policy: LoadedPolicy) -> None:
    tokens = {True: greedy(policy, 0), False: greedy(policy, 0)}
    for is_open, ids in tokens.items():
        ids[GRIPPER] = policy.bins.ids_from_normalised(1.0 if is_open else 0.0)
    confident = make_parts(policy, StepConfig(drafts=("hold_last",), skip=SkipConfig(max_in_a_row=1)))
    decoder = make_decoder(
        policy, make_parts(policy, StepConfig(drafts=("hold_last",))), confident, guard={"contact_travel_m": 0.02}
    )
    decoder.decode(observation(0), state_at(0))
    decoder._memory.finish(tokens[True], policy.bins)
    decoder._memory.finish(tokens[False], policy.bins)
    assert decoder.decode(observation(0), state_at(1, (0.41, 0.0, 0.3))).report.near_contact
    assert not decoder.decode(observation(0), state_at(2, (0.43, 0.0, 0.3))).report.near_contact


@pytest.mark.parametrize("broken_call", [1, 2])
def test_a_failure_in_the_middle_of_a_verify_leaves_no_trace_in_the_next_action(
    policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch, broken_call: int
) -> None:
    step = StepConfig(drafts=("hold_last",))
    decoder, clean = (make_decoder(policy, make_parts(policy, step)) for _ in range(2))
    for seed in range(3):
        decoder.decode(observation(seed), state_at(seed))
        clean.decode(observation(seed), state_at(seed))
    calls = 0
    attend = type(policy.model.language_model).forward

    def fail_half_way(self: torch.nn.Module, *args: object, **kwargs: object) -> torch.Tensor:
        nonlocal calls
        calls += 1
        result = attend(self, *args, **kwargs)  # the cache is written by now
        if calls == broken_call:
            raise RuntimeError("the device was lost")
        return result

    monkeypatch.setattr(type(policy.model.language_model), "forward", fail_half_way)
    with pytest.raises(RuntimeError, match="lost"):
        decoder.decode(observation(77), state_at(3))
    monkeypatch.undo()
    for seed in range(3, 8):
        after, expected = (each.decode(observation(seed), state_at(seed)) for each in (decoder, clean))
        np.testing.assert_array_equal(after.tokens, expected.tokens)
        assert (after.counts, after.report.sources) == (expected.counts, expected.report.sources)
    np.testing.assert_array_equal(AutoregressiveDecoder(policy).decode(observation(9)).tokens, greedy(policy, 9))


def test_a_state_that_is_not_finite_is_told_and_nothing_is_skipped_on_it(policy: LoadedPolicy) -> None:
    confident = make_parts(policy, StepConfig(drafts=("hold_last",), skip=SkipConfig(max_in_a_row=4)))
    decoder = make_decoder(policy, make_parts(policy, StepConfig(drafts=("hold_last",))), confident)
    decoder.decode(observation(0), state_at(0))
    report = decoder.decode(observation(1), state_at(1, (float("nan"), 0.0, 0.0))).report
    assert "position" in report.degraded
    assert (report.skipped, report.region) == (False, "cautious")


def test_a_search_that_fails_degrades_to_the_other_drafts_and_says_why(policy: LoadedPolicy) -> None:
    def failing(*_: object) -> list[object]:
        raise ValueError("instruction: 'dance' has no demonstrations")

    step = StepConfig(drafts=("retrieval", "hold_last"))
    decoder = make_decoder(policy, make_parts(policy, step), search=failing)  # type: ignore[arg-type]
    decoded = decoder.decode(observation(2), None)
    np.testing.assert_array_equal(decoded.tokens, greedy(policy, 2))
    assert "no demonstrations" in decoded.report.degraded


def test_resetting_forgets_the_last_action(policy: LoadedPolicy) -> None:
    step = StepConfig(drafts=("hold_last",), skip=SkipConfig(max_in_a_row=4))
    decoder = make_decoder(policy, make_parts(policy, step))
    decoder.decode(observation(0), state_at(0))
    assert decoder.decode(observation(1), state_at(1)).report.skipped
    decoder.reset()
    assert not decoder.decode(observation(2), state_at(2)).report.skipped


def test_the_stages_of_a_decode_add_up_to_no_more_than_its_total(policy: LoadedPolicy) -> None:
    decoder = make_decoder(policy, make_parts(policy, StepConfig(drafts=("hold_last",)), [HoldLastDrafter()], Strict()))
    for seed in range(5):
        times = decoder.decode(observation(seed), None).stage_times
        parts = sum(value for name, value in vars(times).items() if name != "total_ms")
        assert 0.0 < parts <= times.total_ms
