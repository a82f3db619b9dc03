"""The decoder that is in use: runs it, exchanges it while the arm moves, and tells it where its past ends.

Decoders know nothing of threads. One thread decodes here; all others only leave a note, which is read between two
decodes, or build another decoder in a thread of its own and put it in place between two decodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from vla_sd_ros.decoding.config import DecoderConfig
from vla_sd_ros.decoding.interface import DecodedAction, Decoder
from vla_sd_ros.safety.freshness import NS_PER_S
from vla_sd_ros.types import KinematicState, Observation

#: Stamps of successive decodes that lie further apart, or further back, belong to different episodes: what was done
#: before a jump in time, or before a pause, says nothing about what to do now.
MAX_GAP_S = 1.0


@dataclass(frozen=True)
class _Moment:
    """What a decode was asked about."""

    instruction: str
    observation_ns: int
    state_ns: int | None

    def follows(self, before: _Moment) -> bool:
        """Whether it may belong to the episode of another one."""
        gap_s = (self.observation_ns - before.observation_ns) / NS_PER_S
        if self.instruction != before.instruction or not 0.0 <= gap_s <= MAX_GAP_S:
            return False
        if self.state_ns is None or before.state_ns is None:
            return True
        return abs(self.state_ns - before.state_ns) / NS_PER_S <= MAX_GAP_S


class DecoderHost:
    """Decodes with the decoder of the moment.

    Args:
        build: makes a decoder from its configuration.
        name: of the first decoder.
        config: of the first decoder; it is built at once.
        on_exchange: called, in the thread that built, with the name and why it could not be built; None: it is in use.
    """

    def __init__(
        self,
        build: Callable[[DecoderConfig], Decoder],
        name: str,
        config: DecoderConfig,
        on_exchange: Callable[[str, Exception | None], None],
    ) -> None:
        self._build = build
        self._on_exchange = on_exchange
        self._name, self._config, self._decoder = name, config, build(config)
        self._in_use = threading.Lock()  # held while the decoder works, and while it is exchanged
        self._building = threading.Lock()  # one at a time: each may take much memory
        self._noting = threading.Lock()
        self._endings: list[bool | None] = []
        self._wish = 0
        self._before: _Moment | None = None

    @property
    def name(self) -> str:
        """Of the decoder in use."""
        return self._name

    def decode(self, observation: Observation, state: KinematicState | None) -> tuple[str, DecodedAction]:
        """Decodes one action; returns the decoder's name too.

        The decoder is reset first where the instruction is another one, time has jumped back, or more than
        ``MAX_GAP_S`` lies between.

        Raises:
            Exception: whatever the decoder raises.
        """
        with self._in_use:
            self._read_notes()
            now = _Moment(observation.instruction, observation.stamp_ns, None if state is None else state.stamp_ns)
            if self._before is not None and not now.follows(self._before):
                self._decoder.reset()
            self._before = now
            return self._name, self._decoder.decode(observation, state)

    def reset(self) -> None:
        """Lets the next decode begin without a past."""
        with self._noting:
            self._endings.append(None)

    def end_episode(self, success: bool) -> None:
        """Tells the decoder before the next decode how the episode ended; one that it did not act in is left out."""
        with self._noting:
            self._endings.append(success)

    def exchange(self, name: str, config: DecoderConfig) -> None:
        """Builds another decoder and puts it in place of this one; of several wishes only the newest is fulfilled."""
        with self._noting:
            self._wish += 1
            wish = self._wish
        if (name, config) != (self._name, self._config):
            threading.Thread(target=self._exchange, args=(wish, name, config), name="build", daemon=True).start()

    def close(self) -> None:
        """Drops a decoder that is still being built."""
        with self._noting:
            self._wish += 1

    def _exchange(self, wish: int, name: str, config: DecoderConfig) -> None:
        failure: Exception | None = None
        with self._building:
            if wish != self._wish:
                return
            try:
                decoder = self._build(config)
            except Exception as error:  # whatever it is, the decoder in use goes on
                failure = error
            else:
                with self._in_use, self._noting:
                    if wish != self._wish:
                        return
                    self._name, self._config, self._decoder = name, config, decoder
                    self._before = None
                    self._endings.clear()  # they concern the decoder before
        if wish == self._wish:
            self._on_exchange(name, failure)

    def _read_notes(self) -> None:
        with self._noting:
            endings, self._endings = self._endings, []
        for success in endings:
            if success is None:
                self._decoder.reset()
            elif self._before is not None:
                self._decoder.end_episode(success)
            self._before = None
