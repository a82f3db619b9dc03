"""Episodes survive the file and a crash, and are not played twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_up_episodes import action, episode

from vla_sd_ros.bench.decoder_choice import AUTOREGRESSIVE, choose_decoder
from vla_sd_ros.bench.disturbance import Push
from vla_sd_ros.bench.plan import BenchPlan, EpisodeSetting, pieces_of
from vla_sd_ros.bench.played_episode import EpisodeJournal, PlayedEpisode
from vla_sd_ros.bench.run import run_plan
from vla_sd_ros.bench.steps import Shadow


def plan(tmp_path: Path, states: int = 2, shadow: int = 0, setting: EpisodeSetting | None = None) -> BenchPlan:
    (tmp_path / "other.yaml").write_text("kind: autoregressive\nindex: elsewhere\n")
    decoders = tuple(choose_decoder(name, tmp_path, tmp_path) for name in (AUTOREGRESSIVE, "other"))
    tasks = (("libero_goal", 8), ("libero_goal", 1))
    return BenchPlan(tmp_path, decoders, tasks, tuple(range(states)), shadow, setting or EpisodeSetting())


def test_a_line_gives_back_the_episode() -> None:
    actions = [action(11.25, gate_score=0.25, region="confident"), action(2.5, skipped=True, degraded="no state")]
    first = episode(
        actions, positions_m=[0.1, 0.2], shadow=Shadow(True, 0.0, 0.0, False), push=Push(1, (0.04, 0.0, 0.0))
    )
    again = PlayedEpisode.from_line(first.to_line())
    assert (again.key, again.success, again.push, again.place) == (first.key, first.success, first.push, first.place)
    assert list(again.steps) == list(first.steps)
    for name in first.steps:
        assert again.steps[name].dtype.kind == first.steps[name].dtype.kind
        if first.steps[name].dtype.kind == "f":
            np.testing.assert_allclose(again.steps[name], first.steps[name], atol=1e-7)
        else:
            np.testing.assert_array_equal(again.steps[name], first.steps[name])


def test_a_line_that_a_crash_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "episodes.jsonl"
    EpisodeJournal(path).append(episode([action()], initial_state=1))
    with path.open("a") as file:
        file.write(episode([action()], initial_state=2).to_line()[:50])
    journal = EpisodeJournal(path)
    journal.append(episode([action()], initial_state=3))
    assert set(journal.read(["ours-8-1", "ours-8-2", "ours-8-3"])) == {"ours-8-1", "ours-8-3"}


def test_what_is_written_down_is_not_played_again(tmp_path: Path) -> None:
    chosen, journal = plan(tmp_path), EpisodeJournal(tmp_path / "episodes.jsonl")
    for slot in chosen.slots():
        played = episode([action()], slot.decoder.label, slot.initial_state, task_id=slot.task_id)
        journal.append(PlayedEpisode(**{**vars(played), "key": chosen.key(slot, "weights")}))
    # No policy lies in the folder: a worker that had to play would fail.
    episodes = run_plan(chosen, "weights", jobs=1, journal=journal)
    assert [(one.task_id, one.initial_state, one.decoder) for one in episodes] == [
        (task, state, label) for task in (8, 1) for state in (0, 1) for label in ("autoregressive", "other")
    ]


def test_an_episode_is_another_where_anything_that_decides_it_is(tmp_path: Path) -> None:
    first = plan(tmp_path)
    keys = {first.key(slot, "weights") for slot in first.slots()}
    assert len(keys) == 8
    assert keys.isdisjoint({first.key(slot, "other weights") for slot in first.slots()})
    disturbed = plan(tmp_path, setting=EpisodeSetting(disturb=True))
    assert keys.isdisjoint({disturbed.key(slot, "weights") for slot in disturbed.slots()})
    shadowed = plan(tmp_path, shadow=1)
    assert len(keys & {shadowed.key(slot, "weights") for slot in shadowed.slots()}) == 4
    timed = plan(tmp_path, setting=EpisodeSetting(generate_every=10))
    assert len(keys & {timed.key(slot, "weights") for slot in timed.slots()}) == 4  # those of the other decoder


def test_what_lies_beside_the_checkpoint_counts_for_decoders_that_draft(tmp_path: Path) -> None:
    (tmp_path / "lossless.yaml").write_text("kind: drafted\n")
    plain, drafted = (choose_decoder(name, tmp_path, tmp_path) for name in (AUTOREGRESSIVE, "lossless"))
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "keys.npy").write_bytes(b"1")
    assert choose_decoder(AUTOREGRESSIVE, tmp_path, tmp_path) == plain
    assert choose_decoder("lossless", tmp_path, tmp_path).digest != drafted.digest
    assert choose_decoder(str(tmp_path / "lossless.yaml"), tmp_path / "nowhere", tmp_path).label == "lossless"


def test_decoders_take_turns_on_each_state_and_workers_share_the_states(tmp_path: Path) -> None:
    pieces = pieces_of(list(plan(tmp_path, states=12).slots()), jobs=1)
    assert [len(piece.slots) for piece in pieces] == [20, 4, 20, 4]
    assert [(slot.initial_state, slot.decoder.label) for slot in pieces[0].slots[:3]] == [
        (0, "autoregressive"),
        (0, "other"),
        (1, "autoregressive"),
    ]
    assert [len(piece.slots) for piece in pieces_of(list(plan(tmp_path, states=3).slots()), jobs=6)] == [2] * 6


def test_two_decoders_of_one_name_are_refused(tmp_path: Path) -> None:
    choice = choose_decoder(AUTOREGRESSIVE, tmp_path, tmp_path)
    with pytest.raises(ValueError, match="must differ"):
        BenchPlan(tmp_path, (choice, choice), (("libero_goal", 8),))
