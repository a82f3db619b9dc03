"""The index, over both of its stores: faiss in a folder and Milvus in its embedded engine."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from demonstration_frames import (
    BUTTER,
    FINGERPRINT,
    KEY_WIDTH,
    METADATA,
    MILK,
    PROJECTION,
    random_frames,
    random_keys,
    two_tasks,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from vla_sd_ros.retrieval.faiss_store import INDEX_FILE, FaissStore, write_file
from vla_sd_ros.retrieval.frames import look_ahead
from vla_sd_ros.retrieval.index import DemonstrationIndex, is_milvus, load_index, open_index, save_index
from vla_sd_ros.retrieval.milvus_connection import MissingLibrary
from vla_sd_ros.retrieval.milvus_store import MilvusStore
from vla_sd_ros.retrieval.milvus_writing import write_milvus
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.retrieval.stores import EmptyIndex, IndexMismatch, UnknownTask

TASKS = two_tasks()


@pytest.fixture(scope="module")
def locations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same demonstrations in a folder and in a database of milvus-lite."""
    folder = tmp_path_factory.mktemp("stores")
    places = {"embedded": str(folder / "index"), "milvus": str(folder / "index.db")}
    for place in places.values():
        save_index(place, METADATA, PROJECTION, TASKS)
    return places


@pytest.fixture(scope="module")
def indexes(locations: dict[str, str]) -> Iterator[dict[str, DemonstrationIndex]]:
    opened = {kind: load_index(place, FINGERPRINT) for kind, place in locations.items()}
    yield opened
    for index in opened.values():
        index.close()


@pytest.fixture(params=["embedded", "milvus"])
def index(request: pytest.FixtureRequest, indexes: dict[str, DemonstrationIndex]) -> DemonstrationIndex:
    return indexes[request.param]


def a_key(seed: int = 5) -> np.ndarray:
    return random_keys(np.random.default_rng(seed), 1)[0]


def key_of(instruction: str, row: int) -> np.ndarray:
    """A key that the projection takes to the frame's own."""
    return PROJECTION.mean + np.linalg.pinv(PROJECTION.matrix.T) @ TASKS[instruction].keys[row].astype(np.float32)


def places_of(neighbours: list[Neighbour]) -> list[tuple[int, int]]:
    return [(neighbour.episode, neighbour.step) for neighbour in neighbours]


def test_a_demonstrated_frame_finds_itself_with_all_it_knows(index: DemonstrationIndex) -> None:
    frames = TASKS[BUTTER]
    for row in (0, 23, 59):
        best = index.search(BUTTER, key_of(BUTTER, row), 3)[0]
        assert best.similarity == pytest.approx(1.0, abs=1e-4)
        assert (best.episode, best.step) == (frames.episodes[row], frames.steps[row])
        np.testing.assert_array_equal(best.tokens, frames.tokens[row])
        np.testing.assert_array_equal(best.next_tokens, look_ahead(frames.tokens, frames.episodes)[row])
        np.testing.assert_allclose(best.position, frames.positions[row], rtol=1e-6)
        assert best.gripper_open == frames.gripper_open[row]
        assert best.steps_to_gripper_change == frames.steps_to_gripper_change[row]
        assert best.tokens.dtype == best.next_tokens.dtype == np.int64
        assert best.position.dtype == np.float32


def test_neighbours_come_nearest_first(index: DemonstrationIndex) -> None:
    found = index.search(BUTTER, a_key(), 10)
    distances = np.linalg.norm(PROJECTION(a_key()) - TASKS[BUTTER].keys.astype(np.float32), axis=1)
    order = np.argsort(distances)[:10]
    assert places_of(found) == [(TASKS[BUTTER].episodes[row], TASKS[BUTTER].steps[row]) for row in order]
    np.testing.assert_allclose(
        [neighbour.similarity for neighbour in found], np.maximum(1 - distances[order] ** 2 / 2, -1), atol=1e-4
    )


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 70), task=st.sampled_from([BUTTER, MILK]))
def test_both_stores_give_the_same_neighbours(
    indexes: dict[str, DemonstrationIndex], seed: int, k: int, task: str
) -> None:
    ours, theirs = (indexes[kind].search(task, a_key(seed), k) for kind in ("embedded", "milvus"))
    assert len(ours) == len(theirs) == min(k, len(TASKS[task]))
    np.testing.assert_allclose([n.similarity for n in ours], [n.similarity for n in theirs], atol=1e-4)
    assert sorted(places_of(ours)) == sorted(places_of(theirs)) or k < len(TASKS[task])
    for mine, other in zip(ours, theirs, strict=True):
        if (mine.episode, mine.step) == (other.episode, other.step):  # all but equally near ones
            np.testing.assert_array_equal(mine.tokens, other.tokens)
            np.testing.assert_array_equal(mine.next_tokens, other.next_tokens)
    assert np.mean([a == b for a, b in zip(places_of(ours), places_of(theirs), strict=True)]) > 0.8


def test_more_neighbours_than_frames_are_all_frames(index: DemonstrationIndex) -> None:
    assert sorted(places_of(index.search(MILK, a_key(), 500))) == [(e, s) for e in range(3) for s in range(10)]


def test_two_tasks_never_share_frames_however_much_their_names_hash_alike(index: DemonstrationIndex) -> None:
    def released(instruction: str) -> int:
        return int(hashlib.md5(instruction.lower().strip().encode()).hexdigest(), 16) % 1001

    assert released(BUTTER) == released(MILK), "the pair no longer shows what it is here for"
    assert (index.size(BUTTER), index.size(MILK)) == (60, 30)
    own = {tuple(tokens) for tokens in TASKS[MILK].tokens.tolist()}
    assert {tuple(neighbour.tokens.tolist()) for neighbour in index.search(MILK, key_of(BUTTER, 3), 30)} == own


def test_an_instruction_is_known_in_any_spelling_of_it(index: DemonstrationIndex) -> None:
    spelt = f"  {BUTTER.replace(' ', '  ').capitalize()}\n"
    assert places_of(index.search(spelt, a_key(), 5)) == places_of(index.search(BUTTER, a_key(), 5))


def test_an_unknown_task_is_refused_with_the_known_ones(index: DemonstrationIndex) -> None:
    with pytest.raises(UnknownTask, match="fly.*butter.*milk"):
        index.search("fly", a_key(), 5)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_key_that_is_not_finite_is_refused(index: DemonstrationIndex, wrong: float) -> None:
    key = a_key()
    key[3] = wrong
    with pytest.raises(ValueError, match="not finite"):
        index.search(BUTTER, key, 5)


def test_a_key_without_its_position_is_refused(index: DemonstrationIndex) -> None:
    with pytest.raises(ValueError, match=rf"{KEY_WIDTH}.*with the end effector's position"):
        index.search(BUTTER, a_key()[:-3], 5)


@pytest.mark.parametrize("k", [0, -1])
def test_fewer_than_one_neighbour_is_refused(index: DemonstrationIndex, k: int) -> None:
    with pytest.raises(ValueError, match="legal: at least 1"):
        index.search(BUTTER, a_key(), k)


@pytest.mark.parametrize("kind", ["embedded", "milvus"])
def test_another_checkpoint_is_refused_by_name(locations: dict[str, str], kind: str) -> None:
    with pytest.raises(IndexMismatch, match=f"{FINGERPRINT}.*{'b' * 64}"):
        load_index(locations[kind], "b" * 64)
    opened = open_index(locations[kind])
    assert opened.metadata == METADATA
    opened.close()


@pytest.mark.parametrize("name", ["index", "index.db"])
def test_no_demonstrations_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(EmptyIndex):
        save_index(tmp_path / name, METADATA, PROJECTION, {})
    assert not (tmp_path / name).exists()


def test_a_file_without_frames_is_refused(tmp_path: Path) -> None:
    write_file(tmp_path, METADATA, PROJECTION, {})
    with pytest.raises(EmptyIndex):
        load_index(tmp_path, FINGERPRINT)


def test_a_database_without_frames_is_refused(tmp_path: Path) -> None:
    write_milvus(str(tmp_path / "index.db"), METADATA, PROJECTION, {})
    with pytest.raises(EmptyIndex):
        load_index(tmp_path / "index.db", FINGERPRINT)


@pytest.mark.parametrize("name", ["index", "index.db"])
def test_where_there_is_no_index_it_is_said_how_to_make_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match="vla-sd index build"):
        load_index(tmp_path / name, FINGERPRINT)


@pytest.mark.parametrize("name", ["index", "index.db"])
def test_writing_again_replaces_what_was_there(tmp_path: Path, name: str) -> None:
    for tasks in (TASKS, {MILK: random_frames(10, 3)}):
        save_index(tmp_path / name, METADATA, PROJECTION, tasks)
    opened = load_index(tmp_path / name, FINGERPRINT)
    assert opened.instructions == (MILK,)
    assert opened.size(MILK) == 10
    opened.close()


def test_an_index_answers_the_same_before_and_after_it_was_saved(indexes: dict[str, DemonstrationIndex]) -> None:
    fresh = DemonstrationIndex(FaissStore(METADATA, PROJECTION, TASKS))
    for seed in range(20):
        before, after = (which.search(BUTTER, a_key(seed), 5) for which in (fresh, indexes["embedded"]))
        assert places_of(before) == places_of(after)
        assert [n.similarity for n in before] == [n.similarity for n in after]


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    save_index(tmp_path, METADATA.model_copy(update={"format_version": 99}), PROJECTION, TASKS)
    with pytest.raises(IndexMismatch, match="format 99"):
        load_index(tmp_path, FINGERPRINT)


@pytest.mark.parametrize("content", [b"", b"not an index at all, but some other file of some length"])
def test_a_file_that_is_no_index_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / INDEX_FILE).write_bytes(content)
    with pytest.raises(IndexMismatch, match="vla-sd index build"):
        load_index(tmp_path, FINGERPRINT)


def test_an_index_that_lacks_an_array_is_refused(tmp_path: Path) -> None:
    save_index(tmp_path, METADATA, PROJECTION, TASKS)
    arrays = load_file(tmp_path / INDEX_FILE)
    arrays.pop("1.tokens")
    header = {"metadata": METADATA.model_dump_json(), "instructions": f"{BUTTER}\n{MILK}"}
    save_file(arrays, tmp_path / INDEX_FILE, header)
    with pytest.raises(IndexMismatch, match=r"1\.tokens"):
        load_index(tmp_path, FINGERPRINT)


def test_instructions_that_mean_the_same_task_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="same after normalising"):
        save_index(tmp_path, METADATA, PROJECTION, {MILK: TASKS[MILK], MILK.upper(): TASKS[BUTTER]})


def test_frames_that_were_not_projected_are_refused(tmp_path: Path) -> None:
    wide = replace(TASKS[MILK], keys=np.zeros((30, KEY_WIDTH), np.float16))
    with pytest.raises(ValueError, match="width"):
        save_index(tmp_path, METADATA, PROJECTION, {MILK: wide})


def test_an_address_of_milvus_is_told_from_a_folder() -> None:
    assert is_milvus("http://milvus.example:19530") and is_milvus("tcp://10.0.0.1:19530") and is_milvus("a/index.db")
    assert not is_milvus("models/demo_policy/index") and not is_milvus(Path("index"))


def test_a_server_that_does_not_answer_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vla_sd_ros.retrieval.milvus_connection.OPEN_TIMEOUT_S", 0.5)
    with pytest.raises(TimeoutError, match="127.0.0.1:9"):
        MilvusStore("http://127.0.0.1:9")


def test_a_database_that_goes_away_is_an_error_that_decoders_expect(tmp_path: Path) -> None:
    save_index(tmp_path / "index.db", METADATA, PROJECTION, {MILK: TASKS[MILK]})
    opened = load_index(tmp_path / "index.db", FINGERPRINT)
    opened.close()
    with pytest.raises((OSError, ValueError)):
        opened.search(MILK, a_key(), 3)


def test_an_answer_that_comes_too_late_is_not_waited_for(
    locations: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from milvus_lite.engine.collection import Collection

    search = Collection.search

    def slow(self: Collection, *arguments: object, **options: object) -> object:
        time.sleep(1.0)
        return search(self, *arguments, **options)

    store = MilvusStore(locations["milvus"], search_timeout_s=0.05)
    monkeypatch.setattr(Collection, "search", slow)  # the engine runs in threads of this process
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        DemonstrationIndex(store).search(MILK, a_key(), 3)
    assert time.monotonic() - began_s < 1.0
    store.close()


def test_without_its_client_milvus_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingLibrary, match="pip install"):
        load_index(tmp_path / "index.db", FINGERPRINT)
