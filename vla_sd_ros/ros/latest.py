"""A slot between a callback and a worker thread: the newest item wins, older ones are counted, none is queued."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LatestSlot(Generic[Item]):
    """Holds one item; ``wake`` lets the worker look again when something else it waits for has changed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._item: Item | None = None
        self._closed = False
        self.dropped = 0

    def put(self, item: Item) -> None:
        """Replaces the item; an item that nobody took is dropped and counted."""
        with self._changed:
            if self._item is not None:
                self.dropped += 1
            self._item = item
            self._changed.notify_all()

    def clear(self) -> None:
        """Drops the item without counting it."""
        with self._changed:
            self._item = None

    def wake(self) -> None:
        """Makes a waiting worker check its condition again."""
        with self._changed:
            self._changed.notify_all()

    def take(self, ready: Callable[[], bool], timeout_s: float) -> Item | None:
        """The newest item once ``ready()`` holds; None after ``timeout_s`` or when closed."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._closed and (self._item is None or not ready()):
                remaining = deadline - time.monotonic()
                if remaining <= 0.0:
                    return None
                self._changed.wait(remaining)
            item, self._item = self._item, None
            return None if self._closed else item

    @property
    def closed(self) -> bool:
        """Whether the slot was closed."""
        return self._closed

    def close(self) -> None:
        """Ends every wait, for good."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
