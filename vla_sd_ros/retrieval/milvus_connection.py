"""Connecting to Milvus, and the names of what an index keeps there."""

from __future__ import annotations

import logging
from typing import Any, Final

CATALOGUE: Final = "vla_sd_catalogue"
PROJECTION: Final = "vla_sd_projection"
TASK_PREFIX: Final = "vla_sd_task_"
OPEN_TIMEOUT_S: Final = 10.0
WRITE_TIMEOUT_S: Final = 60.0


class MissingLibrary(ImportError):
    """The client of the distributed store is not installed."""


def connect(address: str) -> Any:
    """A client of Milvus.

    Raises:
        MissingLibrary: pymilvus, or milvus-lite for a path, is not installed.
        TimeoutError: the server does not answer.
    """
    try:
        from grpc import RpcError
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
    except (MilvusException, RpcError) as error:
        raise TimeoutError(f"{address} did not answer within {OPEN_TIMEOUT_S} s: {error}") from error
