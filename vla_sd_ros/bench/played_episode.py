"""An episode that was played, as one line of ``episodes.jsonl``, and the file of those lines.

The file is the state of a run: whoever finds an episode there under its key does not play it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vla_sd_ros.bench.disturbance import Push
from vla_sd_ros.bench.steps import Steps


@dataclass(frozen=True)
class PlayedEpisode:
    """Outcome and course of one episode.

    Attributes:
        key: names decoder, policy, task, state and setting; see ``BenchPlan.key``.
        decoder: label.
        suite: LIBERO suite.
        task_id: its task.
        instruction: what the policy was told.
        initial_state: index of LIBERO's initial state.
        success: whether the task's predicate held before the step limit.
        steps: what every control period recorded.
        push: where the object was pushed.
    """

    key: str
    decoder: str
    suite: str
    task_id: int
    instruction: str
    initial_state: int
    success: bool
    steps: Steps
    push: Push | None = None

    @property
    def place(self) -> tuple[str, int, int]:
        """Suite, task and initial state: what is the same for paired episodes."""
        return self.suite, self.task_id, self.initial_state

    def to_line(self) -> str:
        """One line of JSON, without its end."""
        content: dict[str, Any] = {
            **{name: getattr(self, name) for name in _PLAIN},
            "push": asdict(self.push) if self.push else None,
            "steps": self.steps.to_json(),
        }
        return json.dumps(content, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> PlayedEpisode:
        """Inverse of :meth:`to_line`, up to the decimals that are kept."""
        content = json.loads(line)
        push = content["push"]
        return cls(
            **{name: content[name] for name in _PLAIN},
            steps=Steps.from_json(content["steps"]),
            push=Push(push["step"], tuple(push["offset_m"])) if push else None,
        )


_PLAIN = ("key", "decoder", "suite", "task_id", "instruction", "initial_state", "success")


class EpisodeJournal:
    """Episodes on disk, appended one by one; a line that was cut off by a crash is dropped.

    Args:
        path: of the file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            content = path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            if whole != content:
                path.write_bytes(whole)

    def read(self, keys: Iterable[str]) -> dict[str, PlayedEpisode]:
        """The episodes that are there, of those asked for, by key."""
        wanted = set(keys)
        found: dict[str, PlayedEpisode] = {}
        if self._path.exists():
            with self._path.open(encoding="utf-8") as lines:
                for line in lines:
                    episode = PlayedEpisode.from_line(line)
                    if episode.key in wanted:
                        found[episode.key] = episode
        return found

    def append(self, episode: PlayedEpisode) -> None:
        """Writes an episode down at once."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(episode.to_line() + "\n")
