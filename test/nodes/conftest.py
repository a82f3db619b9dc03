"""The inference node that the tests of this folder share, one process per file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tiny_policy
from node_process import NodeProcess
from probe import Probe
from thinker import Thinker


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory, probe: Probe) -> Iterator[Thinker]:
    folder = tmp_path_factory.mktemp("checkpoint") / "policy"
    parameters = {"policy": str(folder), "statistics_key": tiny_policy.STATISTICS_KEY, "dtype": "float32"}
    with NodeProcess("inference_node", parameters, ("-r", "__ns:=/thinker")) as node:
        yield Thinker(probe, folder, node)


@pytest.fixture
def thinker(process: Thinker) -> Thinker:
    process.begin_anew()
    return process
