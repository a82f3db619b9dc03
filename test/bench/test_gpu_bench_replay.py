"""Replays make the forwards that a trace names, no more and no fewer, and weigh what they had to leave out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from made_up_traces import APART, AR, CHAIN, OURS, SEARCHED, trace

from vla_sd_ros.bench.gpu.actions import Played, play_traces, speed_ups
from vla_sd_ros.bench.gpu.clock import Budget, Clock
from vla_sd_ros.bench.gpu.replay import Replay, level_tree
from vla_sd_ros.bench.gpu.stages import ACCEPTED, AUTOREGRESSIVE, SKIPPED
from vla_sd_ros.bench.gpu.subject import LONG_PROMPT, Subject, make_subject
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.random_policy import random_policy_on, tiny_openvla


@pytest.fixture(scope="module")
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return random_policy_on("cpu", tiny_openvla(), torch.float32)


@pytest.fixture(scope="module")
def subject(policy: LoadedPolicy) -> Subject:
    return make_subject(policy, {CHAIN})


@contextmanager
def counted(policy: LoadedPolicy) -> Iterator[list[tuple[int, int | None]]]:
    """(queries, wanted states) of every forward of the language model inside."""
    seen: list[tuple[int, int | None]] = []

    def note(_: Any, arguments: tuple[Any, ...], named: dict[str, Any], __: Any) -> None:
        seen.append((arguments[0].shape[1], named.get("outputs")))

    handle = policy.model.language_model.register_forward_hook(note, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def test_a_replay_makes_exactly_the_forwards_of_the_trace(subject: Subject) -> None:
    prefix = subject.policy.config.n_patches + LONG_PROMPT
    for step, replay, expected in (
        (AUTOREGRESSIVE, Replay(subject, autoregressive=True), [(prefix, 1), *[(1, None)] * 6]),
        (ACCEPTED, Replay(subject), [(prefix + 6, 7)]),
        (SEARCHED, Replay(subject, learned=CHAIN), [(prefix + 24, 25), (1 + 4, 5)]),
        (APART, Replay(subject), [(prefix, 1), (1 + 6, 7)]),
        (SKIPPED, Replay(subject, looks_at_image=True), []),
    ):
        with counted(subject.policy) as seen:
            tokens = replay.play(step)
        assert seen == expected
        assert tokens.shape == (7,)


def test_a_replay_asks_for_vision_search_and_drafts_where_the_trace_does(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        type(subject.policy.model),
        "patch_features",
        _noting(asked, "vision", type(subject.policy.model).patch_features),
    )
    drafter = subject.drafters[CHAIN]
    monkeypatch.setattr(drafter, "draft", _noting(asked, "draft", drafter.draft))
    searching = Subject(**{**vars(subject), "search": _noting(asked, "search", subject.search)})
    replay = Replay(searching, looks_at_image=True, learned=CHAIN)
    replay.play(SKIPPED)
    assert asked == []
    replay.play(SEARCHED)
    assert asked == ["vision", "search", "draft"]


def _noting(log: list[str], name: str, call: Any) -> Any:
    def noted(*arguments: Any, **named: Any) -> Any:
        log.append(name)
        return call(*arguments, **named)

    return noted


@pytest.mark.parametrize(("nodes", "depth"), [(1, 6), (6, 6), (10, 5), (24, 6), (2, 1)])
def test_a_replayed_draft_has_its_nodes_on_its_levels(nodes: int, depth: int) -> None:
    tree = level_tree(nodes, depth, 31744)
    assert tree is not None
    assert len(tree) == nodes
    assert tree.depths.max() + 1 == min(nodes, depth)
    assert level_tree(0, depth, 31744) is None


def test_a_whole_trace_is_replayed_where_the_time_allows(subject: Subject) -> None:
    clock = Clock(torch.device("cpu"))
    played = play_traces(subject, [AR, OURS], clock, Budget(60.0), lambda trace, step: 1.0)
    assert [one.replayed for one in played] == [len(AR), len(OURS)]
    assert [one.forwards for one in played] == [AR.forwards, OURS.forwards]
    ratios = speed_ups(played)
    assert ratios["ar"] == 1.0
    assert ratios["ours"] == pytest.approx(played[0].mean_ms / played[1].mean_ms)


def test_every_kind_of_step_is_replayed_once_where_time_is_short(subject: Subject) -> None:
    long = trace("ours", *(OURS.patterns[index] for index in OURS.order * 20), learned=CHAIN)
    (played,) = play_traces(subject, [long], Clock(torch.device("cpu")), Budget(0.0), lambda trace, step: 100.0)
    assert {index: len(times) for index, times in played.times_ms.items()} == dict.fromkeys(range(4), 1)
    assert math.isfinite(played.mean_ms)


def test_steps_that_were_left_out_are_weighed_in() -> None:
    played = Played(trace("ours", *[SKIPPED] * 9, ACCEPTED), {0: [1.0, 3.0], 1: [12.0]})
    assert played.mean_ms == pytest.approx((9 * 2.0 + 12.0) / 10)
    assert (played.quantile_ms(0.5), played.quantile_ms(0.95)) == (3.0, 12.0)
    assert math.isnan(Played(played.trace, {0: [1.0]}).mean_ms)
