"""Acceptance traces: what the language model had to do at every control period of an episode that was played.

Random weights accept nothing. A trace says what a trained policy accepted, so that its forwards can be replayed at any
size of the policy: which were made, over how many drafted tokens, and how many tokens each made certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vla_sd_ros.actions.bins import N_DOF

Nodes = Annotated[int, Field(ge=0, le=128)]
Item = TypeVar("Item", bound=Hashable)


class UnknownTrace(ValueError):
    """No trace of that name, or a file that is none."""


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LearnedShape(_Checked):
    """Shape of the learned drafter's trees."""

    top_k: Annotated[int, Field(ge=1, le=16)]
    total_nodes: Annotated[int, Field(ge=1, le=128)]


class Forward(_Checked):
    """One forward of the language model.

    Attributes:
        nodes: drafted tokens that it verifies; 0: none. Besides them it reads the prefix (the first forward) or the
            last certain token (all others).
        committed: tokens that are certain after it and were not before.
        learned: whether the learned drafter drew the nodes.
    """

    nodes: Nodes
    committed: Annotated[int, Field(ge=0, le=N_DOF)]
    learned: bool = False


class Step(_Checked):
    """One control period.

    Attributes:
        vision: whether the image went through the vision towers.
        searched: whether the demonstrations were asked.
        forwards: of the language model, the prefill first; none where it was left out.

    Raises:
        ValueError: forwards without vision, or tokens that do not add up.
    """

    vision: bool = True
    searched: bool = False
    forwards: tuple[Forward, ...] = ()

    @property
    def skipped(self) -> bool:
        """Whether the language model was left out."""
        return not self.forwards

    @model_validator(mode="after")
    def _adds_up(self) -> Step:
        certain = sum(forward.committed for forward in self.forwards)
        if self.forwards and (not self.vision or certain != N_DOF):
            raise ValueError(f"forwards need vision, and {N_DOF} tokens; these have {certain}, vision {self.vision}")
        if self.searched and not self.vision:
            raise ValueError("a search needs the features of the vision towers")
        return self


class Recording(_Checked):
    """Where a trace comes from.

    Attributes:
        tasks: suite and number of each.
        episodes: of the decoder in the journal.
        steps: in all of them; the trace is an even choice.
        forwards_per_action: mean over all of them.
        skipped: share of them that left the language model out.
        derived: what the journal does not hold and how it was found.
    """

    tasks: tuple[str, ...]
    episodes: Annotated[int, Field(ge=1)]
    steps: Annotated[int, Field(ge=1)]
    forwards_per_action: Annotated[float, Field(ge=0.0)]
    skipped: Annotated[float, Field(ge=0.0, le=1.0)]
    derived: tuple[str, ...] = ()


class Trace(_Checked):
    """Steps of a decoder.

    Attributes:
        decoder: label.
        autoregressive: whether it is plain greedy decoding, whose tokens stay on the device until the last one.
        looks_at_image: whether a skipped step compares the image with the one before.
        learned: shape of the learned drafter's trees; None where it has no part.
        recording: where it comes from.
        patterns: steps that differ, each once.
        order: index into ``patterns`` for every step, in the order in which they were played.

    Raises:
        ValueError: no steps, or an index without a pattern.
    """

    decoder: str
    autoregressive: bool = False
    looks_at_image: bool = False
    learned: LearnedShape | None = None
    recording: Recording
    patterns: tuple[Step, ...]
    order: tuple[int, ...]

    @model_validator(mode="after")
    def _complete(self) -> Trace:
        if not self.order or not all(0 <= index < len(self.patterns) for index in self.order):
            raise ValueError(f"order: legal: at least one index, each from 0 to {len(self.patterns) - 1}")
        if self.learned is None and any(f.learned for step in self.patterns for f in step.forwards):
            raise ValueError("learned: its forwards verify the learned drafter's trees, but their shape is missing")
        return self

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.order)

    @property
    def forwards(self) -> int:
        """Forwards of the language model in all steps."""
        return sum(len(self.patterns[index].forwards) for index in self.order)

    @property
    def skipped(self) -> float:
        """Share of the steps that leave the language model out."""
        return sum(self.patterns[index].skipped for index in self.order) / len(self)


def thin(items: Sequence[Item], share: float, at_least: int = 0) -> list[Item]:
    """This share of every kind of item, evenly along the way, in order.

    Args:
        items: equal ones are of one kind.
        share: 0 to 1.
        at_least: of each kind; the first ones are taken where the share is less.
    """
    kept: list[Item] = []
    seen = Counter[Item]()
    for item in items:
        before = seen[item]
        seen[item] += 1
        due = int((before + 1) * share + 0.5) > int(before * share + 0.5)
        if due or before < at_least:
            kept.append(item)
    return kept


def save_trace(folder: Path, trace: Trace) -> Path:
    """Writes ``<decoder>.json``; a reader never sees half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{trace.decoder}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(trace.model_dump_json(exclude_defaults=True) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def trace_names(folder: Path) -> list[str]:
    """Decoders that have a trace, sorted."""
    return sorted(path.stem for path in folder.glob("*.json"))


def load_trace(name: str, folder: Path) -> Trace:
    """Reads a decoder's trace.

    Raises:
        UnknownTrace: there is none, or it is not legal; the message names both.
    """
    path = folder / f"{name}.json"
    if not path.is_file():
        raise UnknownTrace(f"decoder: {name!r} has no trace in {folder}; legal: {', '.join(trace_names(folder))}")
    try:
        return Trace.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UnknownTrace(f"{path}: {error}") from error
