"""Images drawn when a decoder first looks, with the drawing kept out of the decoder's clock.

A camera delivers its image before a decode begins. A simulator has to draw it, which takes longer than most decodes,
and a decoder that skips the model does not look at it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from vla_sd_ros.decoding.stage_times import StageTimes
from vla_sd_ros.types import Rgb

NS_PER_MS = 1e6


class ViewsOnDemand(Mapping[str, Rgb]):
    """The one view of an observation, drawn at its first use and kept.

    Args:
        name: of the view.
        draw: gives the image, uint8 [S, S, 3].
    """

    def __init__(self, name: str, draw: Callable[[], Rgb]) -> None:
        self._name = name
        self._draw = draw
        self._image: Rgb | None = None
        self._drawing_ns = 0
        self._drawing_cpu_ns = 0

    @property
    def drawing_ms(self) -> float:
        """What the drawing took so far; 0 where nobody looked."""
        return self._drawing_ns / NS_PER_MS

    @property
    def drawing_cpu_ms(self) -> float:
        """Processor time of that, of the thread that looked."""
        return self._drawing_cpu_ns / NS_PER_MS

    def __getitem__(self, name: str) -> Rgb:
        """The image.

        Raises:
            KeyError: where it is not the one view.
        """
        if name != self._name:
            raise KeyError(name)
        if self._image is None:
            began_ns, began_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
            self._image = self._draw()
            self._drawing_cpu_ns = time.thread_time_ns() - began_cpu_ns
            self._drawing_ns = time.perf_counter_ns() - began_ns
        return self._image

    def __contains__(self, name: object) -> bool:
        """Whether there is such a view; nothing is drawn to answer."""
        return name == self._name

    def __iter__(self) -> Iterator[str]:
        """The name."""
        return iter((self._name,))

    def __len__(self) -> int:
        """One."""
        return 1


def without_drawing(times: StageTimes, drawing_ms: float) -> StageTimes:
    """Stage times of a decode in which an image was drawn, as if it had been there.

    Raises:
        ValueError: where the decoder looked at its image outside the stage ``preprocess``; the time cannot be given
            back to the right stage then.
    """
    if drawing_ms > times.preprocess_ms:
        raise ValueError(
            f"drawing took {drawing_ms:.2f} ms and the stage preprocess {times.preprocess_ms:.2f} ms: a decoder must "
            "look at its image in that stage"
        )
    return replace(times, preprocess_ms=times.preprocess_ms - drawing_ms, total_ms=times.total_ms - drawing_ms)
