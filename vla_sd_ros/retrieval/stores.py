"""What every vector store can do, what an index says of itself, and what can be wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from vla_sd_ros.retrieval.frames import LOOK_AHEAD
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.retrieval.projection import KeyProjection

# Raise it whenever files or keys are made in another way: an old index then says so in place of misleading.
FORMAT_VERSION = 1
REBUILD = "make it anew with: vla-sd index build"


class UnknownTask(ValueError):
    """The index has no demonstrations of this instruction; the message lists those it has."""

    def __init__(self, instruction: str, known: Sequence[str]) -> None:
        super().__init__(f"instruction: {instruction!r} has no demonstrations; legal: {sorted(known)}")


class EmptyIndex(ValueError):
    """There are no demonstrations in the index."""


class IndexMismatch(ValueError):
    """The index belongs to another checkpoint, or was written in another format."""


class IndexMetadata(BaseModel):
    """What an index says of itself.

    Attributes:
        policy_fingerprint: SHA-256 of the weights whose features are the keys and whose tokens are the drafts.
        key_width: D, of the keys that are asked with.
        block_widths: of the vision towers whose features the keys are made of.
        with_position: whether keys end in the end effector's position.
        source: what it was built from, for people.
        look_ahead: frames ahead that a neighbour carries.
        format_version: of files and keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy_fingerprint: str
    key_width: Annotated[int, Field(ge=1)]
    block_widths: tuple[int, ...]
    with_position: bool
    source: str = ""
    look_ahead: Annotated[int, Field(ge=1)] = LOOK_AHEAD
    format_version: int = FORMAT_VERSION


def similarity_of(squared_distance: float) -> float:
    """``1 - d^2 / 2``, not below -1: the cosine of two unit vectors, less for a distance between end effectors."""
    return max(-1.0, 1.0 - 0.5 * max(0.0, squared_distance))


class VectorStore(Protocol):
    """Frames of demonstrations by task, found by the similarity of their keys."""

    @property
    def metadata(self) -> IndexMetadata:
        """What the index says of itself."""
        ...

    @property
    def projection(self) -> KeyProjection:
        """From keys to what the store compares."""
        ...

    def sizes(self) -> dict[str, int]:
        """Normalised instructions and how many frames each has."""
        ...

    def nearest(self, instruction: str, key: npt.NDArray[np.float32], k: int) -> list[Neighbour]:
        """The frames of a task with the smallest Euclidean distance, best first.

        Args:
            instruction: normalised, one of :meth:`sizes`.
            key: float32 [W], projected.
            k: at most as many as the task has.

        Raises:
            UnknownTask: on another instruction.
        """
        ...

    def close(self) -> None:
        """Gives back what the store holds open."""
        ...
