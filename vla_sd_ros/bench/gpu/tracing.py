"""Makes acceptance traces from the journal of a closed-loop comparison.

The journal holds what every step cost in all and where each of its tokens came from. The tokens tell the forwards
apart: every forward but the last ends with the verifier's own choice, and the last takes what is left. How many tokens
a forward verified follows from the preset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vla_sd_ros.bench.gpu.trace import Forward, LearnedShape, Recording, Step, Trace, thin
from vla_sd_ros.bench.played_episode import PlayedEpisode
from vla_sd_ros.decoding.completion import POLICY
from vla_sd_ros.decoding.config import DecoderConfig, StepConfig
from vla_sd_ros.decoding.speculative import KALMAN_TAIL
from vla_sd_ros.verification.acceptance import GRIPPER

JOURNAL_FILE = "episodes.jsonl"
CHAIN_SOURCES = ("hold_last", "constant_velocity", "kalman", "kalman_random_walk", "kalman_authors")


class TraceMismatch(ValueError):
    """An episode cannot have been played by this preset."""


def read_journal(folder: Path) -> list[PlayedEpisode]:
    """Episodes of ``<folder>/episodes.jsonl``, in its order; a line that was cut off is left out.

    Raises:
        FileNotFoundError: there is none.
    """
    path = folder / JOURNAL_FILE
    if not path.is_file():
        raise FileNotFoundError(f"no {JOURNAL_FILE} in {folder}; play episodes with: vla-sd bench run")
    with path.open(encoding="utf-8") as lines:
        return [PlayedEpisode.from_line(line) for line in lines if line.endswith("\n")]


def make_trace(decoder: str, config: DecoderConfig, episodes: Iterable[PlayedEpisode], steps: int) -> Trace:
    """The trace of a decoder: so many steps, evenly of all that it played, each kind of step in its share.

    Args:
        decoder: label of the episodes to take.
        config: the preset that played them.
        episodes: of a journal, in its order; of several plays of one initial state the last counts.
        steps: wanted, give or take the rounding of each kind; all, where the journal has no more.

    Raises:
        TraceMismatch: the journal has no episode of the decoder, or one that the preset does not explain.
    """
    latest = {episode.place: episode for episode in episodes if episode.decoder == decoder}
    if not latest:
        raise TraceMismatch(f"decoder: the journal has no episode of {decoder!r}")
    taken = sorted(latest.values(), key=lambda episode: episode.place)
    everything = [step for episode in taken for step in steps_of(episode, config)]
    played = thin(everything, min(1.0, steps / len(everything)))
    patterns = list(dict.fromkeys(played))
    return Trace(
        decoder=decoder,
        autoregressive=config.kind == "autoregressive",
        looks_at_image=config.guard.scene_change is not None,
        learned=_learned_shape(config),
        recording=Recording(
            tasks=tuple(dict.fromkeys(f"{episode.suite}/{episode.task_id}" for episode in taken)),
            episodes=len(taken),
            steps=len(everything),
            forwards_per_action=round(sum(len(step.forwards) for step in everything) / len(everything), 4),
            skipped=round(sum(step.skipped for step in everything) / len(everything), 4),
            derived=_derived(config),
        ),
        patterns=tuple(patterns),
        order=tuple(patterns.index(step) for step in played),
    )


def steps_of(episode: PlayedEpisode, config: DecoderConfig) -> list[Step]:
    """What the language model had to do at every control period of an episode.

    Raises:
        TraceMismatch: the preset does not explain it.
    """
    return [_step(episode, index, config) for index in range(len(episode.steps))]


def _step(episode: PlayedEpisode, index: int, config: DecoderConfig) -> Step:
    steps = episode.steps
    passes = int(steps["forward_passes"][index])
    seen = {"vision": bool(steps["vision_ms"][index] > 0), "searched": bool(steps["search_ms"][index] > 0)}
    if bool(steps["skipped"][index]):
        return Step(**seen)
    if config.kind == "autoregressive":
        return Step(forwards=(Forward(nodes=0, committed=1),) * passes, **seen)
    way = config.cautious
    if str(steps["region"][index]) == "confident" and config.confident is not None:
        way = config.confident
    sources = [str(name) for name in steps["sources"][index]]
    recorded = tuple(int(steps[name][index]) for name in ("forward_passes", "verified_passes", "accepted_tokens"))
    # A motionless arm is the draft of a refinement that has no other; else there may have been none.
    for drafted in (True,) if way.completion.kind == "jacobi" else (True, False) if way.drafts else (False,):
        forwards = _forwards(sources, passes, way, drafted)
        if forwards is not None and _totals(forwards, sources) == recorded:
            return Step(forwards=forwards, **seen)
    if steps["degraded"][index]:  # a bound was broken: what was spent is lost, and the rest came token by token
        return Step(forwards=_exact_again(way, passes), **seen)
    raise TraceMismatch(
        f"{episode.decoder} {'/'.join(map(str, episode.place))}, step {index}: the preset does not explain forwards, "
        f"verifying ones and accepted tokens {recorded} with tokens from {sources}: another one played the episode"
    )


def _forwards(sources: Sequence[str], passes: int, way: StepConfig, drafted: bool) -> tuple[Forward, ...] | None:
    """The forwards behind seven tokens; None where there cannot have been as many."""
    apart = drafted and not way.verify_in_prefill  # the draft had a forward of its own
    committed = _committed(sources, passes - int(apart))
    if committed is None:
        return None
    forwards = [Forward(nodes=0, committed=0)] if apart else []
    forwards.append(Forward(nodes=_first_nodes(way) if drafted else 0, committed=committed[0]))
    known = committed[0]
    for tokens in committed[1:]:
        nodes, learned = _later_nodes(way, known)
        forwards.append(Forward(nodes=nodes, committed=tokens, learned=learned))
        known += tokens
    return tuple(forwards)


def _committed(sources: Sequence[str], passes: int) -> list[int] | None:
    """Tokens that each forward made certain: all but the last end with the verifier's own choice."""
    counts = [0]
    for source in sources:
        counts[-1] += 1
        if source == POLICY and len(counts) < passes:
            counts.append(0)
    return counts if len(counts) == passes and all(counts) else None


def _totals(forwards: Sequence[Forward], sources: Sequence[str]) -> tuple[int, int, int]:
    """Forwards, verifying ones and accepted tokens as a decoder counts them."""
    verifying = [forward for forward in forwards if forward.nodes]
    tail = sources.count(KALMAN_TAIL)  # no forward counts it as accepted, nor the gripper after it
    return len(forwards), len(verifying), sum(forward.committed for forward in verifying) - (tail + 1 if tail else 0)


def _exact_again(way: StepConfig, passes: int) -> tuple[Forward, ...]:
    spent = max(1, passes - GRIPPER)
    again = [Forward(nodes=_later_nodes(way, 1 + place)[0], committed=0) for place in range(spent - 1)]
    return (
        Forward(nodes=_first_nodes(way), committed=1),
        *again,
        *[Forward(nodes=0, committed=1)] * GRIPPER,
    )


def _first_nodes(way: StepConfig) -> int:
    """Drafted tokens of the first verification: a chain, or at most the largest tree that the preset allows."""
    chains = sum(source in CHAIN_SOURCES for source in way.drafts) or int(way.completion.kind == "jacobi")
    if "retrieval" not in way.drafts:
        return min(way.max_nodes, GRIPPER * chains)
    neighbours = way.neighbours**2 if way.cross_combine else way.neighbours
    return min(way.max_nodes, GRIPPER * (chains + neighbours))


def _later_nodes(way: StepConfig, known: int) -> tuple[int, bool]:
    """Drafted tokens of a further verification, and whether the learned drafter draws them."""
    missing = max(0, GRIPPER - known)
    completion = way.completion
    if completion.kind == "jacobi":
        return missing, False
    if completion.then != "learned" or not missing:
        return 0, False
    return min(completion.total_nodes, completion.top_k + (missing - 1) * completion.top_k**2), True


def _learned_shape(config: DecoderConfig) -> LearnedShape | None:
    if config.kind == "autoregressive":
        return None
    for way in config.steps:
        completion = way.completion
        if completion.kind == "speculative" and completion.then == "learned":
            return LearnedShape(top_k=completion.top_k, total_nodes=completion.total_nodes)
    return None


def _derived(config: DecoderConfig) -> tuple[str, ...]:
    if config.kind == "autoregressive":
        return ()
    notes = ["tokens per forward: from the sources of the seven tokens, checked against the recorded totals"]
    for way in config.steps:
        if way.completion.kind == "jacobi":
            notes.append("nodes after the first forward: the tokens that were missing (Jacobi), exact")
        elif way.completion.then == "learned":
            notes.append("nodes of the learned drafter's trees: as its growth makes them, exact")
        if "retrieval" in way.drafts:
            notes.append(f"nodes of a retrieved tree: at most {_first_nodes(way)}, which is taken for all")
    return tuple(dict.fromkeys(notes))
