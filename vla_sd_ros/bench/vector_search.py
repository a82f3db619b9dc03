"""Libraries for nearest-neighbour search, on the keys of an index: latency at equal recall.

The frames of every task's last episode ask the frames of its other episodes, one at a time and on one thread, as a
decode does. Libraries that are not installed are left out.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_sd_ros.retrieval.faiss_store import read_file

Vectors = npt.NDArray[np.float32]
#: One query [W] and k to the rows of its nearest neighbours, best first.
Search = Callable[[Vectors, int], npt.NDArray[np.int64]]
#: Vectors [N, W] to a search over them.
Build = Callable[[Vectors], Search]

HNSW_LINKS, HNSW_BUILD_DEPTH, HNSW_SEARCH_DEPTH = 16, 100, 64


@dataclass(frozen=True)
class VectorSearchResult:
    """One library on all tasks.

    Attributes:
        library: and its kind of index.
        frames: vectors of all tasks.
        width: of a vector.
        build_ms: for all tasks.
        median_ms: of one query.
        p95_ms: of one query.
        recall: share of the true k nearest that were found.
    """

    library: str
    frames: int
    width: int
    build_ms: float
    median_ms: float
    p95_ms: float
    recall: float


def compare_vector_searches(index_folder: Path, k: int = 5, max_queries: int = 500) -> dict[str, Any]:
    """Times every installed library on the keys of an embedded index.

    Args:
        index_folder: as ``vla-sd index build`` writes it; every task needs two episodes.
        k: neighbours per query.
        max_queries: of each task.

    Returns:
        ``{"k": .., "rows": [VectorSearchResult as a dict, ..], "table": str}``.

    Raises:
        FileNotFoundError: there is no index.
        ValueError: no task has two episodes.
    """
    tasks = {}
    store = read_file(index_folder)
    for instruction in store.sizes():
        frames = store.frames(instruction)
        asking = frames.episodes == frames.episodes[-1]
        if not asking.all():
            keys = frames.keys.astype(np.float32)
            tasks[instruction] = (keys[~asking], keys[asking][:max_queries])
    if not tasks:
        raise ValueError(f"{index_folder}: no task has two episodes; legal: at least one that has")
    rows = [_measure(name, build, tasks, k) for name, build in libraries().items()]
    return {"k": k, "rows": [asdict(row) for row in rows], "table": format_table(rows)}


def libraries() -> dict[str, Build]:
    """The candidates that are installed."""
    candidates: dict[str, tuple[str, Build]] = {
        "numpy, exact": ("numpy", _numpy),
        "faiss, flat (exact)": ("faiss", _faiss_flat),
        "faiss, HNSW": ("faiss", _faiss_hnsw),
        "usearch, HNSW": ("usearch", _usearch),
        "hnswlib, HNSW": ("hnswlib", _hnswlib),
    }
    return {name: build for name, (module, build) in candidates.items() if importlib.util.find_spec(module)}


def format_table(rows: list[VectorSearchResult]) -> str:
    """The rows as a Markdown table."""
    lines = ["| library | frames | build, ms | query p50, ms | p95, ms | recall |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.library} | {row.frames} x {row.width} | {row.build_ms:.0f} | {row.median_ms:.3f} | {row.p95_ms:.3f} "
        f"| {row.recall:.3f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _measure(name: str, build: Build, tasks: Mapping[str, tuple[Vectors, Vectors]], k: int) -> VectorSearchResult:
    build_ms, times_ms, recalls = 0.0, [], []
    for vectors, queries in tasks.values():
        exact, count = _numpy(vectors), min(k, len(vectors))
        start = time.perf_counter()
        search = build(vectors)
        build_ms += 1e3 * (time.perf_counter() - start)
        search(queries[0], count)  # what a library prepares lazily
        for query in queries:
            start = time.perf_counter()
            found = search(query, count)
            times_ms.append(1e3 * (time.perf_counter() - start))
            recalls.append(len(np.intersect1d(found, exact(query, count))) / count)
    vectors = next(iter(tasks.values()))[0]
    return VectorSearchResult(
        library=name,
        frames=sum(len(held) for held, _ in tasks.values()),
        width=vectors.shape[1],
        build_ms=build_ms,
        median_ms=float(np.median(times_ms)),
        p95_ms=float(np.quantile(times_ms, 0.95)),
        recall=float(np.mean(recalls)),
    )


def _numpy(vectors: Vectors) -> Search:
    squares = np.sum(vectors**2, axis=1)

    def search(query: Vectors, k: int) -> npt.NDArray[np.int64]:
        distances = squares - 2.0 * (vectors @ query)
        nearest = np.argpartition(distances, k - 1)[:k]
        return nearest[np.argsort(distances[nearest])]

    return search


def _faiss_flat(vectors: Vectors) -> Search:
    import faiss

    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(vectors)
    return lambda query, k: index.search(query[None], k)[1][0]


def _faiss_hnsw(vectors: Vectors) -> Search:
    import faiss

    index = faiss.IndexHNSWFlat(vectors.shape[1], HNSW_LINKS)
    index.hnsw.efConstruction, index.hnsw.efSearch = HNSW_BUILD_DEPTH, HNSW_SEARCH_DEPTH
    index.add(vectors)
    return lambda query, k: index.search(query[None], k)[1][0]


def _usearch(vectors: Vectors) -> Search:
    from usearch.index import Index

    index = Index(
        ndim=vectors.shape[1],
        metric="l2sq",
        dtype="f32",
        connectivity=HNSW_LINKS,
        expansion_add=HNSW_BUILD_DEPTH,
        expansion_search=HNSW_SEARCH_DEPTH,
    )
    index.add(np.arange(len(vectors)), vectors, threads=1)
    return lambda query, k: index.search(query, k, threads=1).keys.astype(np.int64)


def _hnswlib(vectors: Vectors) -> Search:
    import hnswlib

    index = hnswlib.Index(space="l2", dim=vectors.shape[1])
    index.init_index(max_elements=len(vectors), ef_construction=HNSW_BUILD_DEPTH, M=HNSW_LINKS)
    index.set_num_threads(1)
    index.set_ef(HNSW_SEARCH_DEPTH)
    index.add_items(vectors, num_threads=1)
    return lambda query, k: index.knn_query(query, k, num_threads=1)[0][0].astype(np.int64)
