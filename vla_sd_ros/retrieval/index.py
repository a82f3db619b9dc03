"""The demonstration index of HeiSD: which demonstrated frames look like the present one.

A location is a folder (the embedded store: faiss over one file in memory), or the address of Milvus, for
demonstrations that outgrow one machine: a URL, or a path that ends in ``.db`` (its embedded engine).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vla_sd_ros.retrieval.frames import DemonstrationFrames
from vla_sd_ros.retrieval.instruction import normalise_instruction
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.retrieval.projection import KeyProjection
from vla_sd_ros.retrieval.stores import (
    FORMAT_VERSION,
    REBUILD,
    EmptyIndex,
    IndexMetadata,
    IndexMismatch,
    UnknownTask,
    VectorStore,
)

#: Where a policy's index lies beside its checkpoint.
INDEX_FOLDER = "index"


class DemonstrationIndex:
    """Demonstrations by instruction.

    Args:
        store: where they are.

    Raises:
        EmptyIndex: the store holds none.
    """

    def __init__(self, store: VectorStore) -> None:
        self.store = store
        self._sizes = store.sizes()
        if not any(self._sizes.values()):
            raise EmptyIndex(f"the index holds no demonstrations; {REBUILD}")

    @property
    def metadata(self) -> IndexMetadata:
        """What the index says of itself."""
        return self.store.metadata

    @property
    def instructions(self) -> tuple[str, ...]:
        """Normalised instructions that have demonstrations, sorted."""
        return tuple(sorted(self._sizes))

    def size(self, instruction: str) -> int:
        """Frames of a task; 0 where it is unknown."""
        return self._sizes.get(normalise_instruction(instruction), 0)

    def search(self, instruction: str, key: npt.NDArray[np.floating], k: int) -> list[Neighbour]:
        """The frames of a task that look most like the present one, best first.

        Args:
            instruction: what the robot was told; normalised here.
            key: [D], from :func:`~vla_sd_ros.retrieval.keys.key_from_features`, with or without a position as the
                index was built.
            k: how many; all, where the task has fewer.

        Raises:
            UnknownTask: the instruction has no demonstrations.
            ValueError: ``k`` is below 1, or the key is not finite or of another width.
            TimeoutError: a distributed store did not answer in time.
        """
        name = normalise_instruction(instruction)
        size = self._sizes.get(name)
        if size is None:
            raise UnknownTask(name, self.instructions)
        if k < 1:
            raise ValueError(f"k: {k}; legal: at least 1")
        return self.store.nearest(name, self.store.projection(self._checked(key)), min(k, size))

    def close(self) -> None:
        """Gives back what the store holds open."""
        self.store.close()

    def _checked(self, key: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
        width = self.metadata.key_width
        if key.shape != (width,):
            position = "with" if self.metadata.with_position else "without"
            raise ValueError(f"key: shape {key.shape}; legal: ({width},), {position} the end effector's position")
        if not np.isfinite(key).all():
            raise ValueError("key: not finite; legal: finite values")
        return key.astype(np.float32, copy=False)


def is_milvus(location: str | Path) -> bool:
    """Whether a location is the address of Milvus rather than a folder."""
    return "://" in str(location) or str(location).endswith(".db")


def save_index(
    location: str | Path,
    metadata: IndexMetadata,
    projection: KeyProjection,
    tasks: Mapping[str, DemonstrationFrames],
) -> None:
    """Writes an index; what was there is replaced.

    Args:
        location: folder, or address of Milvus.
        metadata: of the index.
        projection: that the frames' keys have been through.
        tasks: instruction to its frames.

    Raises:
        EmptyIndex: there are no frames.
        ValueError: two instructions are one after normalising, or keys have another width than the projection gives.
        MissingLibrary: Milvus is addressed and its client is not installed.
    """
    if not tasks:
        raise EmptyIndex("an index needs demonstrations; legal: at least one task with one frame")
    named = {normalise_instruction(instruction): frames for instruction, frames in tasks.items()}
    if len(named) != len(tasks):
        raise ValueError(f"instructions are the same after normalising: {sorted(tasks)}")
    for name, frames in named.items():
        if frames.keys.shape[1] != projection.matrix.shape[1]:
            raise ValueError(f"keys of {name!r}: width {frames.keys.shape[1]}; legal: {projection.matrix.shape[1]}")
    if is_milvus(location):
        from vla_sd_ros.retrieval.milvus_writing import write_milvus

        write_milvus(str(location), metadata, projection, named)
    else:
        from vla_sd_ros.retrieval.faiss_store import write_file

        write_file(Path(location), metadata, projection, named)


def load_index(location: str | Path, policy_fingerprint: str) -> DemonstrationIndex:
    """Opens an index that belongs to a policy.

    Args:
        location: folder, or address of Milvus.
        policy_fingerprint: ``LoadedPolicy.fingerprint`` of the policy that will ask.

    Raises:
        FileNotFoundError: there is no index.
        EmptyIndex: it holds no frames.
        IndexMismatch: it was built with another checkpoint, or in another format.
        MissingLibrary: Milvus is addressed and its client is not installed.
        TimeoutError: Milvus did not answer in time.
    """
    index = open_index(location)
    if index.metadata.policy_fingerprint != policy_fingerprint:
        index.close()
        raise IndexMismatch(
            f"index {location} was built with checkpoint {index.metadata.policy_fingerprint}, the policy is "
            f"{policy_fingerprint}: keys and tokens would not be its own; {REBUILD}"
        )
    return index


def open_index(location: str | Path) -> DemonstrationIndex:
    """Opens an index whatever policy it belongs to, to look at it; raises as :func:`load_index` otherwise."""
    store: VectorStore
    if is_milvus(location):
        from vla_sd_ros.retrieval.milvus_store import MilvusStore

        store = MilvusStore(str(location))
    else:
        from vla_sd_ros.retrieval.faiss_store import read_file

        store = read_file(Path(location))
    if store.metadata.format_version != FORMAT_VERSION:
        found = store.metadata.format_version
        store.close()
        raise IndexMismatch(f"index {location} has format {found}; legal: {FORMAT_VERSION}; {REBUILD}")
    return DemonstrationIndex(store)
