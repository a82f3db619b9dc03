"""The parts of an action, each timed by itself at the shapes that actions have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.bench.gpu.clock import Clock, Timing
from vla_sd_ros.bench.gpu.replay import NEIGHBOURS, Replay, level_tree
from vla_sd_ros.bench.gpu.subject import LONG_PROMPT, SHORT_PROMPT, Subject, instruction_of
from vla_sd_ros.bench.gpu.trace import Forward, Step
from vla_sd_ros.decoding.perception import features_for_search
from vla_sd_ros.policy.runtime import decode_one, prefill
from vla_sd_ros.verification.acceptance import GRIPPER
from vla_sd_ros.verification.draft_tree import DraftTree
from vla_sd_ros.verification.tree_forward import embed_token, forward_tree

PREFILL_DRAFTS: Final = (6, 24)
VERIFIED_NODES: Final = (0, 1, 6, 12, 24)
AUTOREGRESSIVE: Final = Step(forwards=(Forward(nodes=0, committed=1),) * N_DOF)
#: Everything that was drafted is accepted in the prefill.
ACCEPTED: Final = Step(forwards=(Forward(nodes=GRIPPER, committed=N_DOF),))
SKIPPED: Final = Step(vision=False)


@dataclass(frozen=True)
class Work:
    """Something to time.

    Attributes:
        name: in the figures.
        label: for people.
        run: does it ``parts`` times.
        parts: equal parts of a run, of which one is reported.
    """

    name: str
    label: str
    run: Callable[[], object]
    parts: int = 1


@dataclass(frozen=True)
class Row:
    """What one of them took.

    Attributes:
        name: of the work.
        label: of the work.
        timing: None where it failed.
        error: why; empty where it did not.
    """

    name: str
    label: str
    timing: Timing | None
    error: str = ""


def time_row(work: Work, clock: Clock, seconds: float, repeats: int) -> Row:
    """Times one; a failure becomes part of the row, so that one does not cost all others."""
    try:
        with torch.inference_mode():
            timing = clock.measure(work.run, seconds, repeats)
    except RuntimeError as error:
        return Row(work.name, work.label, None, f"{type(error).__name__}: {error}".splitlines()[0])
    return Row(work.name, work.label, timing.divided_by(work.parts))


@torch.inference_mode()
def works(subject: Subject) -> list[Work]:
    """All parts of an action, and two whole ones, in the order of the table."""
    return [*_perception(subject), *_forwards(subject), *_drafts(subject), *_actions(subject)]


def _perception(subject: Subject) -> Iterator[Work]:
    policy, model = subject.policy, subject.policy.model
    pixels = policy.prepare_pixels(subject.image)
    prompt = policy.prepare_prompt(subject.instruction)
    # Copies, since a runtime may give the same buffer again.
    features = model.patch_features(pixels).clone()
    yield Work("preprocess", "image upload and normalisation", lambda: policy.prepare_pixels(subject.image))
    yield Work("vision", "vision towers", lambda: model.patch_features(pixels))
    yield Work("projector", "projector and prompt embeddings", lambda: model.join_prefix(features, prompt))

    def search() -> object:
        return subject.search(subject.instruction, features_for_search(features[0]), None, NEIGHBOURS)

    yield Work("search", "features to the host, nearest demonstrations", search)


def _forwards(subject: Subject) -> Iterator[Work]:
    policy, model, cache = subject.policy, subject.policy.model, subject.cache
    first = policy.config.first_action_id
    features = model.patch_features(policy.prepare_pixels(subject.image)).clone()
    short = torch.tensor(
        [policy.tokenizer.encode_instruction(instruction_of(policy, SHORT_PROMPT))], device=policy.device
    )
    few = model.join_prefix(features, short).clone()
    prefix = model.join_prefix(features, policy.prepare_prompt(subject.instruction)).clone()
    length = prefix.shape[1]
    patches = policy.config.n_patches

    def fill(embeddings: torch.Tensor) -> Callable[[], object]:
        return lambda: prefill(model, cache, embeddings).argmax(-1, keepdim=True)

    yield Work(f"prefill_{SHORT_PROMPT}", f"prefill, {patches} patches + {SHORT_PROMPT} ids", fill(few))
    yield Work("prefill", f"prefill, {patches} patches + {LONG_PROMPT} ids", fill(prefix))
    for nodes in PREFILL_DRAFTS:
        yield Work(
            f"prefill_draft_{nodes}",
            f"the same, a draft of {nodes} verified in it",
            partial(forward_tree, model, cache, prefix, 0, level_tree(nodes, GRIPPER, first)),
        )
    token = torch.tensor([first], device=policy.device)

    def decode() -> object:
        chosen = token
        for place in range(N_DOF - 1):
            chosen = decode_one(model, cache, chosen, length + place).argmax(-1, keepdim=True) + first
        return chosen

    yield Work("decode", "one decode step, of six in a row", decode, parts=N_DOF - 1)

    def verify(tree: DraftTree | None) -> object:
        return forward_tree(model, cache, embed_token(model, first), length, tree)

    for nodes in VERIFIED_NODES:
        label = f"verification of {nodes} drafted after one token" if nodes else "one token, read by the host"
        yield Work(f"verify_{nodes}", label, partial(verify, level_tree(nodes, GRIPPER - 1, first)))


def _drafts(subject: Subject) -> Iterator[Work]:
    model, cache = subject.policy.model, subject.cache
    first = subject.policy.config.first_action_id
    after_prefix = subject.policy.config.n_patches + LONG_PROMPT
    hidden = forward_tree(model, cache, embed_token(model, first), after_prefix, None).hidden.clone()
    known = np.array([first], dtype=np.int64)
    for shape, drafter in subject.drafters.items():
        yield Work(
            f"draft_{shape.top_k}x{shape.total_nodes}",
            f"learned drafter, top {shape.top_k}, {shape.total_nodes} nodes",
            partial(drafter.draft, hidden, known),
        )


def _actions(subject: Subject) -> Iterator[Work]:
    greedy, drafted = Replay(subject, autoregressive=True), Replay(subject)
    watched = Replay(subject, looks_at_image=True)
    yield Work("skipped", "an action without the policy, image compared", lambda: watched.play(SKIPPED))
    yield Work("action_ar", "whole action: prefill and six decode steps", lambda: greedy.play(AUTOREGRESSIVE))
    yield Work("action_accepted", "whole action: draft of 6 accepted in the prefill", lambda: drafted.play(ACCEPTED))
