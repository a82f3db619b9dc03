"""Plays a comparison's episodes in worker processes and writes each down as soon as it has ended."""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from vla_sd_ros.bench.decode import GenerateBaseline
from vla_sd_ros.bench.decoder_choice import decoder_for
from vla_sd_ros.bench.episode_runner import CAMERA, SI_IN_BASE_AXES, EpisodeRunner
from vla_sd_ros.bench.plan import BenchPlan, Piece, pieces_of
from vla_sd_ros.bench.played_episode import EpisodeJournal, PlayedEpisode
from vla_sd_ros.bench.shadow import ShadowDecoder
from vla_sd_ros.policy.checkpoint import load_policy, policy_weight_files
from vla_sd_ros.policy.loaded import files_fingerprint
from vla_sd_ros.policy.precision import choose_dtype
from vla_sd_ros.sim.world import LiberoWorld

WARM_UP_ROUNDS = 3
#: Control periods between two runs of ``generate``, where it is timed.
GENERATE_EVERY = 10
POLL_S = 0.5


def weights_fingerprint(policy: Path) -> str:
    """SHA-256 of a checkpoint's weights, as ``LoadedPolicy.fingerprint`` gives it.

    Raises:
        CheckpointError: there are no weights in the folder.
    """
    return files_fingerprint(policy_weight_files(policy))


def run_plan(
    plan: BenchPlan, fingerprint: str, jobs: int, journal: EpisodeJournal | None = None
) -> list[PlayedEpisode]:
    """Plays what the journal does not hold yet.

    Args:
        plan: what to play.
        fingerprint: SHA-256 of the policy's weights.
        jobs: worker processes, one thread each.
        journal: where episodes are written down; None keeps them in memory only.

    Returns:
        Every episode of the plan, in its order.

    Raises:
        Exception: whatever a worker raised; what had ended by then is in the journal.
    """
    slots = list(plan.slots())
    keys = [plan.key(slot, fingerprint) for slot in slots]
    found = journal.read(keys) if journal is not None else {}
    left = [slot for slot, key in zip(slots, keys, strict=True) if key not in found]
    tally: dict[str, list[int]] = {decoder.label: [0, 0] for decoder in plan.decoders}
    with tqdm(total=len(slots), initial=len(found), unit="episode", smoothing=0.1) as bar:
        for episode in _play(plan, fingerprint, pieces_of(left, jobs), jobs):
            if journal is not None:
                journal.append(episode)
            found[episode.key] = episode
            won, played = tally[episode.decoder]
            tally[episode.decoder] = [won + episode.success, played + 1]
            bar.set_postfix({label: f"{won}/{played}" for label, (won, played) in tally.items() if played})
            bar.update()
    return [found[key] for key in keys]


def _play(plan: BenchPlan, fingerprint: str, pieces: list[Piece], jobs: int) -> Iterator[PlayedEpisode]:
    """Episodes as they end."""
    if not pieces:
        return
    spawn = multiprocessing.get_context("spawn")
    ended: Any = spawn.Queue()
    stop: Any = spawn.Event()
    pool = ProcessPoolExecutor(min(jobs, len(pieces)), mp_context=spawn, initializer=_adopt, initargs=(ended, stop))
    try:
        futures = [pool.submit(_play_piece, plan, fingerprint, piece) for piece in pieces]
        left = sum(len(piece.slots) for piece in pieces)
        while left:
            try:
                line = ended.get(timeout=POLL_S)
            except queue.Empty:
                _raise_failure(futures)
                continue
            left -= 1
            yield PlayedEpisode.from_line(line)
    finally:
        stop.set()  # whoever is left ends its episode and no other
        pool.shutdown(wait=True, cancel_futures=True)


def _raise_failure(futures: list[Future[None]]) -> None:
    for future in futures:
        if future.done():
            future.result()


def _is_orphan() -> bool:
    """Whether the process that waits for the episodes was killed."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


class Stopped(Exception):
    """The comparison was given up while a worker played."""


_ended: Any = None
_stop: Any = None


def _adopt(ended: Any, stop: Any) -> None:
    """Gives a worker the queue of episodes that have ended, and the event after which no other begins."""
    global _ended, _stop
    _ended, _stop = ended, stop


def _play_piece(plan: BenchPlan, fingerprint: str, piece: Piece) -> None:
    def on_end(episode: PlayedEpisode) -> None:
        _ended.put(episode.to_line())
        if _stop.is_set() or _is_orphan():
            raise Stopped

    play_piece(plan, fingerprint, piece, on_end)


def play_piece(plan: BenchPlan, fingerprint: str, piece: Piece, on_end: Callable[[PlayedEpisode], None]) -> None:
    """Plays a piece in this process, on one thread; every decoder is made anew for it.

    Raises:
        ValueError: the policy's weights are not those of the fingerprint.
    """
    torch.set_num_threads(1)
    policy = load_policy(plan.policy, dtype=choose_dtype(plan.setting.dtype, "cpu"))
    if policy.fingerprint != fingerprint:
        raise ValueError(f"{plan.policy}: the weights changed while the comparison ran")
    policy.warm_up(WARM_UP_ROUNDS)
    choices = {slot.decoder.label: slot.decoder for slot in piece.slots}
    decoders = {label: decoder_for(choice, policy, CAMERA) for label, choice in choices.items()}
    shadow = ShadowDecoder(policy, CAMERA, SI_IN_BASE_AXES)
    generate = GenerateBaseline(policy) if plan.setting.generate_every else None
    with LiberoWorld(piece.suite, piece.task_id, camera_px=plan.setting.camera_px) as world:
        runner = EpisodeRunner(world, policy.config.image_size_px, plan.setting)
        for decoder in decoders.values():
            runner.warm_up(decoder, WARM_UP_ROUNDS)
        for slot in piece.slots:
            label = slot.decoder.label
            on_end(
                runner.play(
                    decoders[label],
                    slot.initial_state,
                    label,
                    plan.key(slot, fingerprint),
                    shadow if slot.shadow else None,
                    generate if label == plan.reference else None,
                )
            )
