"""Success rates without ROS: every rate has its number of episodes and its interval."""

from __future__ import annotations

import json
from pathlib import Path

from made_up_episodes import action, episode

from vla_sd_ros.bench.decoder_choice import AUTOREGRESSIVE, choose_decoder
from vla_sd_ros.bench.plan import BenchPlan
from vla_sd_ros.bench.success_rate import Outcome, summary_of, table_of, task_results, write_summary


def test_episodes_are_grouped_by_task_in_the_order_of_their_states() -> None:
    played = [
        episode([action()] * 3, initial_state=1, success=False),
        episode([action()] * 2, initial_state=0),
        episode([action()], initial_state=0, task_id=1),
    ]
    first, second = task_results(played)
    assert first.episodes == (Outcome(0, True, 2), Outcome(1, False, 3))
    assert (second.task_id, second.successes) == (1, 1)


def test_the_summary_holds_totals_and_intervals(tmp_path: Path) -> None:
    plan = BenchPlan(Path("models/demo"), (choose_decoder(AUTOREGRESSIVE, tmp_path, tmp_path),), (("libero_goal", 8),))
    results = task_results([episode([action()] * 9), episode([action()] * 2, initial_state=1, success=False)])
    write_summary(tmp_path / "summary.json", summary_of(plan, results))
    content = json.loads((tmp_path / "summary.json").read_text())
    assert (content["successes"], content["trials"], content["policy"]) == (1, 2, "demo")
    assert content["tasks"][0]["episodes"][1] == {"initial_state": 1, "success": False, "steps": 2}
    low, high = content["tasks"][0]["interval_95"]
    assert 0.0 < low < 0.5 < high < 1.0
    assert "| libero_goal | 8 | put the bowl on the plate | 1/2 |" in table_of(results)
