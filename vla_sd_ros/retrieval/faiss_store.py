"""The embedded store: exact search with faiss over one file that is held in memory.

A task has a few thousand frames of 67 values. There an exact search beats every graph, and needs no building: on 4,085
frames of the demo policy a query takes faiss 0.014 ms exactly, 0.017 ms with HNSW, hnswlib 0.016 ms, usearch 0.033 ms,
each at a recall of 1.000 (``vla-sd bench vectors``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from vla_sd_ros.retrieval.frames import DemonstrationFrames, look_ahead
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.retrieval.projection import KeyProjection
from vla_sd_ros.retrieval.stores import (
    REBUILD,
    EmptyIndex,
    IndexMetadata,
    IndexMismatch,
    UnknownTask,
    similarity_of,
)

INDEX_FILE = "demonstrations.safetensors"

# One query is too little work for two threads, and waiting ones would take the cores from the model.
faiss.omp_set_num_threads(1)


class FaissStore:
    """Frames in memory, one flat index per task.

    Args:
        metadata: of the index.
        projection: from keys to the frames' own.
        tasks: normalised instruction to its frames.
    """

    def __init__(
        self, metadata: IndexMetadata, projection: KeyProjection, tasks: Mapping[str, DemonstrationFrames]
    ) -> None:
        self.metadata = metadata
        self.projection = projection
        self._tasks = dict(tasks)
        self._next_tokens = {
            name: look_ahead(frames.tokens, frames.episodes, metadata.look_ahead) for name, frames in tasks.items()
        }
        self._indexes = {}
        for name, frames in tasks.items():
            self._indexes[name] = faiss.IndexFlatL2(frames.keys.shape[1])
            self._indexes[name].add(frames.keys.astype(np.float32))

    def sizes(self) -> dict[str, int]:
        """Normalised instructions and how many frames each has."""
        return {name: len(frames) for name, frames in self._tasks.items()}

    def frames(self, instruction: str) -> DemonstrationFrames:
        """All frames of a task, for calibration and study.

        Raises:
            UnknownTask: on an instruction without demonstrations.
        """
        if instruction not in self._tasks:
            raise UnknownTask(instruction, list(self._tasks))
        return self._tasks[instruction]

    def nearest(self, instruction: str, key: npt.NDArray[np.float32], k: int) -> list[Neighbour]:
        """See :class:`~vla_sd_ros.retrieval.stores.VectorStore`."""
        frames = self.frames(instruction)
        distances, rows = self._indexes[instruction].search(key[None], min(k, len(frames)))
        ahead = self._next_tokens[instruction]
        return [
            Neighbour(
                similarity=similarity_of(distance),
                tokens=frames.tokens[row],
                next_tokens=ahead[row],
                position=frames.positions[row],
                gripper_open=bool(frames.gripper_open[row]),
                steps_to_gripper_change=int(frames.steps_to_gripper_change[row]),
                episode=int(frames.episodes[row]),
                step=int(frames.steps[row]),
            )
            for distance, row in zip(distances[0].tolist(), rows[0].tolist(), strict=True)
        ]

    def close(self) -> None:
        """Does nothing: the file was read whole."""


def write_file(
    folder: Path, metadata: IndexMetadata, projection: KeyProjection, tasks: Mapping[str, DemonstrationFrames]
) -> Path:
    """Writes an index to ``<folder>/demonstrations.safetensors``; a reader never sees half a file.

    Keys are half precision, everything else the smallest type that holds it; the look-ahead is made on reading.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, partial = folder / INDEX_FILE, folder / f".{INDEX_FILE}.partial"
    arrays: dict[str, npt.NDArray[np.generic]] = {"mean": projection.mean, "matrix": projection.matrix}
    for number, frames in enumerate(tasks.values()):
        for field in fields(frames):
            array = getattr(frames, field.name)
            if array.dtype == np.int64:
                array = array.astype(np.min_scalar_type(int(array.max())))
            arrays[f"{number}.{field.name}"] = array
    # The library would write the memory behind a view, not what the view shows.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header = {"metadata": metadata.model_dump_json(), "instructions": "\n".join(tasks)}
    save_file(arrays, partial, header)
    partial.chmod(0o644)  # the library writes for its owner alone
    partial.replace(path)
    return path


def read_file(folder: Path) -> FaissStore:
    """Reads what :func:`write_file` wrote.

    Raises:
        FileNotFoundError: there is no index in the folder.
        EmptyIndex: it holds no frames.
        IndexMismatch: it is no index, or one of another format.
    """
    path = folder / INDEX_FILE
    if not path.is_file():
        raise FileNotFoundError(f"no demonstration index in {folder} ({INDEX_FILE}); {REBUILD}")
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = IndexMetadata.model_validate_json(header["metadata"])
        names = [name for name in header["instructions"].split("\n") if name]
        if not names:
            raise EmptyIndex(f"{path} holds no demonstrations; {REBUILD}")
        projection = KeyProjection(arrays["mean"], arrays["matrix"])
        tasks = {name: _frames(arrays, number) for number, name in enumerate(names)}
    except (SafetensorError, ValidationError, KeyError) as error:
        raise IndexMismatch(f"{path} is not an index of this version: {error}; {REBUILD}") from error
    return FaissStore(metadata, projection, tasks)


def _frames(arrays: Mapping[str, npt.NDArray[np.generic]], number: int) -> DemonstrationFrames:
    found = {field.name: arrays[f"{number}.{field.name}"] for field in fields(DemonstrationFrames)}
    for name, array in found.items():
        if np.issubdtype(array.dtype, np.unsignedinteger):
            found[name] = array.astype(np.int64)
    return DemonstrationFrames(**found)  # type: ignore[arg-type]
