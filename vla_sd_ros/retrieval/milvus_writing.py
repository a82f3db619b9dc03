"""Writes an index to Milvus: a collection per task, the projection, and the catalogue last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.retrieval.frames import DemonstrationFrames, look_ahead
from vla_sd_ros.retrieval.milvus_connection import (
    CATALOGUE,
    OPEN_TIMEOUT_S,
    PROJECTION,
    TASK_PREFIX,
    WRITE_TIMEOUT_S,
    connect,
)
from vla_sd_ros.retrieval.projection import KeyProjection
from vla_sd_ros.retrieval.stores import IndexMetadata

ROWS_PER_INSERT: Final = 500
MAX_TEXT: Final = 8192


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
            if name in (CATALOGUE, PROJECTION) or name.startswith(TASK_PREFIX):
                client.drop_collection(name, timeout=WRITE_TIMEOUT_S)
        _write_projection(client, projection)
        entries = []
        for number, (instruction, frames) in enumerate(tasks.items()):
            name = f"{TASK_PREFIX}{number:05d}"
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
