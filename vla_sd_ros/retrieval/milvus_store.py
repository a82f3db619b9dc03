"""The distributed store: Milvus, for demonstrations that outgrow one machine's memory.

The address is a server's URL, or a path that ends in ``.db`` for milvus-lite, its engine inside this process. Every
task is a collection of its own; the catalogue, itself a collection, says which instruction, in full, it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.retrieval.milvus_connection import CATALOGUE, OPEN_TIMEOUT_S, PROJECTION, WRITE_TIMEOUT_S, connect
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

SEARCH_TIMEOUT_S: Final = 0.2
MAX_ROWS: Final = 10_000
PAYLOAD: Final = ("tokens", "next_tokens", "position", "gripper_open", "steps_to_gripper_change", "episode", "step")


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
        from grpc import RpcError
        from pymilvus.exceptions import MilvusException

        try:
            found = self._client.search(
                self._collections[instruction],
                [key],
                limit=k,
                output_fields=list(PAYLOAD),
                timeout=self._timeout_s,
            )
        except (MilvusException, RpcError) as error:  # the latter where its deadline passes
            raise TimeoutError(f"{self._address} gave no neighbours within {self._timeout_s} s: {error}") from error
        return [_neighbour(hit["distance"], hit["entity"]) for hit in found[0]]

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()


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
