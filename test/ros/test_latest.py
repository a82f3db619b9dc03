from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from vla_sd_ros.ros.latest import LatestSlot


def always() -> bool:
    return True


def test_the_newest_item_wins_and_the_others_are_counted() -> None:
    slot: LatestSlot[int] = LatestSlot()
    for item in range(5):
        slot.put(item)
    assert slot.take(always, 1.0) == 4 and slot.dropped == 4
    assert slot.take(always, 0.0) is None, "an item is taken once"


def test_an_item_that_was_taken_does_not_count_as_dropped() -> None:
    slot: LatestSlot[int] = LatestSlot()
    for item in range(3):
        slot.put(item)
        assert slot.take(always, 1.0) == item
    assert slot.dropped == 0


def test_a_cleared_item_is_gone_and_not_counted() -> None:
    slot: LatestSlot[int] = LatestSlot()
    slot.put(1)
    slot.clear()
    assert slot.take(always, 0.0) is None and slot.dropped == 0


def test_a_falsy_item_is_an_item() -> None:
    slot: LatestSlot[int] = LatestSlot()
    slot.put(0)
    assert slot.take(always, 0.0) == 0


def test_a_waiting_worker_gets_an_item_as_soon_as_it_comes() -> None:
    slot: LatestSlot[int] = LatestSlot()
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(slot.take, always, 10.0)
        slot.put(7)
        assert taken.result(timeout=5.0) == 7


def test_an_item_waits_until_the_worker_is_ready_and_is_woken() -> None:
    slot: LatestSlot[int] = LatestSlot()
    ready = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(slot.take, ready.is_set, 10.0)
        slot.put(1)
        slot.put(2)
        assert not taken.done()
        ready.set()
        slot.wake()
        assert taken.result(timeout=5.0) == 2 and slot.dropped == 1


def test_closing_ends_a_wait_at_once_and_for_good() -> None:
    slot: LatestSlot[int] = LatestSlot()
    with ThreadPoolExecutor(1) as pool:
        began_s = time.monotonic()
        taken = pool.submit(slot.take, always, 30.0)
        slot.close()
        assert taken.result(timeout=5.0) is None and time.monotonic() - began_s < 5.0
    slot.put(1)
    assert slot.closed and slot.take(always, 0.0) is None
