"""Traces that nobody recorded, with every kind of step that the benchmark replays."""

from __future__ import annotations

from typing import Any

from vla_sd_ros.bench.gpu.stages import ACCEPTED, AUTOREGRESSIVE, SKIPPED
from vla_sd_ros.bench.gpu.trace import Forward, LearnedShape, Recording, Step, Trace

CHAIN = LearnedShape(top_k=1, total_nodes=5)
SEARCHED = Step(searched=True, forwards=(Forward(nodes=24, committed=2), Forward(nodes=4, committed=5, learned=True)))
APART = Step(forwards=(Forward(nodes=0, committed=0), Forward(nodes=6, committed=7)))
VERIFIED = ("verify_0", "verify_1", "verify_6", "verify_12", "verify_24")
PREFILLED = ("prefill_18", "prefill", "prefill_draft_6", "prefill_draft_24")
ACTIONS = ("skipped", "action_ar", "action_accepted")
#: Names of all rows, in the order of the table, where the traces have one learned drafter.
STAGES = ["preprocess", "vision", "projector", "search", *PREFILLED, "decode", *VERIFIED, "draft_1x5", *ACTIONS]


def trace(name: str, *steps: Step, **fields: Any) -> Trace:
    """A trace of these steps."""
    patterns = tuple(dict.fromkeys(steps))
    recording = Recording(tasks=("made/up",), episodes=1, steps=len(steps), forwards_per_action=1.0, skipped=0.0)
    order = tuple(patterns.index(step) for step in steps)
    return Trace(decoder=name, recording=recording, patterns=patterns, order=order, **fields)


AR = trace("ar", AUTOREGRESSIVE, AUTOREGRESSIVE, autoregressive=True)
OURS = trace("ours", SKIPPED, SEARCHED, ACCEPTED, SKIPPED, SEARCHED, APART, looks_at_image=True, learned=CHAIN)
