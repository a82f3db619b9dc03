"""How the policy runs on its device, as parameters of the inference node."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_policy
from node_process import NodeProcess
from probe import CONFIGURE, Probe
from thinker import INSTRUCTION, NOISE, Thinker

from vla_sd_ros.decoding.autoregressive import AutoregressiveDecoder
from vla_sd_ros.policy.checkpoint import load_policy
from vla_sd_ros.types import Observation


def test_a_node_on_graphs_acts_as_one_without_whatever_the_decoder(probe: Probe, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    parameters = {
        "policy": str(folder),
        "statistics_key": tiny_policy.STATISTICS_KEY,
        "dtype": "float32",
        "runtime": "graphs",
    }
    with NodeProcess("inference_node", parameters, ("-r", "__ns:=/thinker")) as node:
        thinker = Thinker(probe, folder, node)
        thinker.begin_anew()
        decoder = AutoregressiveDecoder(load_policy(folder, statistics_key=tiny_policy.STATISTICS_KEY), "camera")
        expected = decoder.decode(Observation({"camera": NOISE}, INSTRUCTION, 1)).tokens.tolist()
        assert thinker.act().tokens.tolist() == expected
        assert thinker.decode_by("ar").tokens.tolist() == expected


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"compile": True}, ["compile: true needs graphs"]),
        ({"quantisation": "int4"}, ["'int4' needs a CUDA device", "legal here: none, int8"]),
        ({"runtime": "fast"}, ["parameter runtime = 'fast'"]),
    ],
)
def test_what_cannot_be_had_refuses_the_configuration_with_the_reason(
    parameters: dict[str, object], reason: list[str], probe: Probe, tmp_path: Path
) -> None:
    policy = {"policy": str(tiny_policy.write_policy(tmp_path / "policy"))}
    with NodeProcess("inference_node", {**policy, **parameters}, ("-r", "__ns:=/doubter")):
        probe.forget_diagnostics()
        assert not probe.change_state("doubter/inference_node", CONFIGURE)
        probe.wait_for_reason("cannot configure", *reason, node="doubter")
