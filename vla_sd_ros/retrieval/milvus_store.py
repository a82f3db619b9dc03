"""The distributed store: Milvus, for demonstrations that outgrow one machine's memory.

The address is a server's URL, or a path that ends in ``.db`` for milvus-lite, its engine inside this process. Every
task is a collection of its own; the catalogue, itself a collection, says which instruction, in full, it belongs to.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from vla_sd_ros.actions.bins import N_DOF
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

CATALOGUE: Final = "vla_sd_catalogue"
PROJECTION: Final = "vla_sd_projection"
PREFIX: Final = "vla_sd_task_"
OPEN_TIMEOUT_S: Final = 10.0
SEARCH_TIMEOUT_S: Final = 0.2
WRITE_TIMEOUT_S: Final = 60.0
ROWS_PER_INSERT: Final = 500
MAX_TEXT: Final = 8192
MAX_ROWS: Final = 10_000
PAYLOAD: Final = ("tokens", "next_tokens", "position", "gripper_open", "steps_to_gripper_change", "episode", "step")


class MissingLibrary(ImportError):
    """The client of the distributed store is not installed."""


class MilvusStore:
    """Frames in Milvus.

    Args:
        address: URL of a server, or a path ending in ``.db``.
        search_timeout_s: longest wait for an answer; a control loop cannot wait longer.

    Raises:
        MissingLibrary: pymilvus is not installed.
        TimeoutError: the server does not answer.
        FileNotFoundError: there is no index.
        EmptyIndex: it holds no frames.
        IndexMismatch: it was written in another format.
    """

    def __init__(self, address: str, search_timeout_s: float = SEARCH_TIMEOUT_S) -> None:
        self._address = address
        self._timeout_s = search_timeout_s
        self._client = connect(address)
        try:
            rows = self._catalogue()
            self.projection = self._read_projection()
        except BaseException:
            self._client.close()
            raise
        self._collections = {row["instruction"]: row["collection"] for row in rows}
        self._sizes = {row["instruction"]: int(row["size"]) for row in rows}

    def _catalogue(self) -> list[dict[str, Any]]:
        if not self._client.has_collection(CATALOGUE, timeout=OPEN_TIMEOUT_S):
            raise FileNotFoundError(f"no demonstration index at {self._address}; {REBUILD}")
        rows = self._client.query(
            CATALOGUE,
            filter='collection != ""',
            output_fields=["collection", "instruction", "size", "metadata"],
            limit=MAX_ROWS,
            consistency_level="Strong",  # an index that was written a moment ago is whole
            timeout=OPEN_TIMEOUT_S,
        )
        if not rows:
            raise EmptyIndex(f"the index at {self._address} holds no demonstrations; {REBUILD}")
        try:
            self.metadata = IndexMetadata.model_validate_json(rows[0]["metadata"])
        except ValidationError as error:
            raise IndexMismatch(f"{self._address} is not an index of this version: {error}; {REBUILD}") from error
        for row in rows:
            self._client.load_collection(row["collection"], timeout=WRITE_TIMEOUT_S)
        return list(rows)

    def _read_projection(self) -> KeyProjection:
        self._client.load_collection(PROJECTION, timeout=WRITE_TIMEOUT_S)
        rows = self._client.query(
            PROJECTION,
            filter="row >= 0",
            output_fields=["row", "values"],
            limit=MAX_ROWS,
            consistency_level="Strong",
            timeout=OPEN_TIMEOUT_S,
        )
        rows = sorted(rows, key=lambda row: int(row["row"]))
        mean, *columns = (np.asarray(row["values"], dtype=np.float32) for row in rows)
        return KeyProjection(mean, np.stack(columns, axis=1))

    def sizes(self) -> dict[str, int]:
        """Normalised instructions and how many frames each has."""
        return dict(self._sizes)

    def nearest(self, instruction: str, key: npt.NDArray[np.float32], k: int) -> list[Neighbour]:
        """See :class:`~vla_sd_ros.retrieval.stores.VectorStore`; raises TimeoutError where no answer comes."""
        if instruction not in self._collections:
            raise UnknownTask(instruction, list(self._collections))
        from pymilvus.exceptions import MilvusException

        try:
            found = self._client.search(
                self._collections[instruction],
                [key],
                limit=k,
                output_fields=list(PAYLOAD),
                timeout=self._timeout_s,
            )
        except MilvusException as error:
            raise TimeoutError(f"{self._address} did not answer within {self._timeout_s} s: {error}") from error
        return [_neighbour(hit["distance"], hit["entity"]) for hit in found[0]]

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()


def connect(address: str) -> Any:
    """A client of Milvus.

    Raises:
        MissingLibrary: pymilvus, or milvus-lite for a path, is not installed.
        TimeoutError: the server does not answer.
    """
    try:
        from pymilvus import MilvusClient
        from pymilvus.exceptions import ConnectionConfigException, MilvusException

        if "://" not in address:
            import milvus_lite  # noqa: F401

            # It logs, as an error, every call of the client that it does not have; whatever fails is raised besides.
            logging.getLogger("grpc._server").setLevel(logging.CRITICAL)
    except ImportError as error:
        raise MissingLibrary(f"{address}: needs pip install 'pymilvus>=2.5' 'milvus-lite>=2.4'") from error
    try:
        return MilvusClient(uri=address, timeout=OPEN_TIMEOUT_S)
    except ConnectionConfigException as error:
        raise ValueError(f"address of Milvus: {address!r}: {error}") from error
    except MilvusException as error:
        raise TimeoutError(f"{address} did not answer within {OPEN_TIMEOUT_S} s: {error}") from error


def write_milvus(
    address: str, metadata: IndexMetadata, projection: KeyProjection, tasks: Mapping[str, DemonstrationFrames]
) -> None:
    """Writes an index; this package's collections that were there are dropped, others are left alone.

    Raises:
        MissingLibrary: pymilvus is not installed.
        TimeoutError: the server does not answer.
    """
    client = connect(address)
    try:
        for name in client.list_collections(timeout=OPEN_TIMEOUT_S):
            if name in (CATALOGUE, PROJECTION) or name.startswith(PREFIX):
                client.drop_collection(name, timeout=WRITE_TIMEOUT_S)
        _write_projection(client, projection)
        entries = []
        for number, (instruction, frames) in enumerate(tasks.items()):
            name = f"{PREFIX}{number:05d}"
            _write_task(client, name, metadata, frames)
            entries.append(
                {
                    "collection": name,
                    "instruction": instruction,
                    "size": len(frames),
                    "metadata": metadata.model_dump_json(),
                    "place": [1.0, 0.0],
                }
            )
        # Last, so that an index that was not written to its end is not found.
        _write_catalogue(client, entries)
    finally:
        client.close()


def _write_task(client: Any, name: str, metadata: IndexMetadata, frames: DemonstrationFrames) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("key", DataType.FLOAT_VECTOR, dim=frames.keys.shape[1])
    integers = {"datatype": DataType.ARRAY, "element_type": DataType.INT64}
    schema.add_field("tokens", max_capacity=N_DOF, **integers)
    schema.add_field("next_tokens", max_capacity=N_DOF * metadata.look_ahead, **integers)
    schema.add_field("expert_tokens", max_capacity=N_DOF, **integers)
    schema.add_field("position", DataType.ARRAY, element_type=DataType.FLOAT, max_capacity=3)
    schema.add_field("gripper_open", DataType.BOOL)
    for field in ("steps_to_gripper_change", "episode", "step"):
        schema.add_field(field, DataType.INT64)
    ahead = look_ahead(frames.tokens, frames.episodes, metadata.look_ahead).reshape(len(frames), -1)
    rows = [
        {
            "row": row,
            "key": frames.keys[row].astype(np.float32),
            "tokens": frames.tokens[row].tolist(),
            "next_tokens": ahead[row].tolist(),
            "expert_tokens": frames.expert_tokens[row].tolist(),
            "position": frames.positions[row].tolist(),
            "gripper_open": bool(frames.gripper_open[row]),
            "steps_to_gripper_change": int(frames.steps_to_gripper_change[row]),
            "episode": int(frames.episodes[row]),
            "step": int(frames.steps[row]),
        }
        for row in range(len(frames))
    ]
    _create(client, name, schema, "key", rows)


def _write_projection(client: Any, projection: KeyProjection) -> None:
    """The mean as row 0, then the columns of the matrix."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("values", DataType.FLOAT_VECTOR, dim=len(projection.mean))
    vectors = [projection.mean, *projection.matrix.T]
    rows = [{"row": row, "values": np.ascontiguousarray(vector)} for row, vector in enumerate(vectors)]
    _create(client, PROJECTION, schema, "values", rows)


def _write_catalogue(client: Any, entries: list[dict[str, Any]]) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("collection", DataType.VARCHAR, is_primary=True, max_length=64)
    schema.add_field("instruction", DataType.VARCHAR, max_length=MAX_TEXT)
    schema.add_field("size", DataType.INT64)
    schema.add_field("metadata", DataType.VARCHAR, max_length=MAX_TEXT)
    schema.add_field("place", DataType.FLOAT_VECTOR, dim=2)  # Milvus has no collection without a vector
    _create(client, CATALOGUE, schema, "place", entries)


def _create(client: Any, name: str, schema: Any, vector: str, rows: list[dict[str, Any]]) -> None:
    indexes = client.prepare_index_params()
    indexes.add_index(vector, index_type="FLAT", metric_type="L2")
    client.create_collection(name, schema=schema, index_params=indexes, timeout=WRITE_TIMEOUT_S)
    for start in range(0, len(rows), ROWS_PER_INSERT):
        client.insert(name, rows[start : start + ROWS_PER_INSERT], timeout=WRITE_TIMEOUT_S)
    client.flush(name, timeout=WRITE_TIMEOUT_S)


def _neighbour(squared_distance: float, payload: Mapping[str, Any]) -> Neighbour:
    return Neighbour(
        similarity=similarity_of(float(squared_distance)),
        tokens=np.array(payload["tokens"], dtype=np.int64),
        next_tokens=np.array(payload["next_tokens"], dtype=np.int64).reshape(-1, N_DOF),
        position=np.array(payload["position"], dtype=np.float32),
        gripper_open=bool(payload["gripper_open"]),
        steps_to_gripper_change=int(payload["steps_to_gripper_change"]),
        episode=int(payload["episode"]),
        step=int(payload["step"]),
    )
