"""The pace at which lost indexes are made again: so many bytes a second, until nothing is left (ST38)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from embedbk.errors import StorageError
from embedbk.host.rebuild_pace import RETRY_NS, RebuildPace
from embedbk.host.registering import TELL_NS
from embedbk.ports.upkeep import RebuildLeft, RebuildPiece
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from tests.host.place import Place
from tests.storage.test_bookie_storage import held, on_memory
from tests.storage.test_compaction import KEPT, fill
from tests.storage.test_lost_indexes import ENTRIES, damaged_bookie, spoil, spoiled

S = 1_000_000_000


class RefusingOnce:
    """A bookie's storage, of which one call is refused once."""

    def __init__(self, storage: BookieStorage, call: str) -> None:
        self._storage, self._call = storage, call

    def rebuild_left(self) -> RebuildLeft:
        return self._storage.rebuild_left()

    def begin_rebuild(self, bytes_max: int) -> bool:
        self._refuse("begin")
        return self._storage.begin_rebuild(bytes_max)

    def finish_rebuild(self) -> RebuildPiece | None:
        self._refuse("finish")
        return self._storage.finish_rebuild()

    def _refuse(self, call: str) -> None:
        if call == self._call:
            self._call = ""
            raise StorageError("memory was refused")


def run(pace: RebuildPace) -> list[int]:
    """To its end; the times of its turns."""
    pace.step(0)
    times = [0]
    while pace.deadline_ns is not None:
        times.append(pace.deadline_ns)
        pace.step(times[-1])
    return times


def test_no_more_is_looked_through_than_the_rate_allows() -> None:
    """ST38: each slice is paid for before the next one, from the start on; clients come first."""
    _, bookie = damaged_bookie(1, 2, 3, 4)
    total = bookie.rebuild_left().bytes_left
    pace = RebuildPace("b1", bookie, bytes_per_s=1000, slice_bytes=600)
    times = run(pace)
    assert pace.bytes_read == total
    assert times[-1] == pytest.approx(total * S // 1000, abs=len(times))
    assert (pace.whole_logs, pace.dark_logs) == (4, 0)
    assert held(bookie, 1) == KEPT[1]
    bookie.close()


def test_a_bookie_without_damage_never_wakes_for_it() -> None:
    _, bookie = damaged_bookie()
    pace = RebuildPace("b1", bookie)
    assert run(pace) == [0]
    assert pace.left == (0, 0)
    bookie.close()


@pytest.mark.parametrize("call", ["begin", "finish"])
def test_a_refusal_costs_time_and_nothing_else(call: str) -> None:
    """Memory or a descriptor was refused: the same slice comes once more."""
    _, bookie = damaged_bookie(1, 3)
    storage: Any = RefusingOnce(bookie, call)
    pace = RebuildPace("b1", storage)
    pace.step(5)
    assert pace.deadline_ns == 5 + RETRY_NS
    pace.step(6)
    assert pace.deadline_ns == 5 + RETRY_NS
    while pace.deadline_ns is not None:
        pace.step(pace.deadline_ns)
    assert (pace.whole_logs, pace.dark_logs) == (2, 0)
    assert held(bookie, 1) == KEPT[1]
    bookie.close()


def test_it_is_told_how_much_is_dark_and_how_it_ended(caplog: pytest.LogCaptureFixture) -> None:
    """ST38: one line at the start, one at the end, and one for each log."""
    _, bookie = damaged_bookie(1, 3)
    left = bookie.rebuild_left()
    with caplog.at_level(logging.WARNING):
        run(RebuildPace("b1", bookie))
    assert f"of 2 entry logs no index is whole; {left.bytes_left} bytes of their entries" in caplog.text
    assert (
        "00000001.elog: 70 of 70 entries were found by a scan; it is copied into a new log soon"
        in caplog.text
    )
    assert (
        f"looked through {left.bytes_left} bytes of 2 entry logs: 2 are whole again, 0 keep something"
        in caplog.text
    )
    bookie.close()


def test_a_bookie_makes_them_again_beside_its_work(place: Place) -> None:
    """ST38: it wakes by its own deadline, and is not read-only meanwhile."""
    _, storage = damaged_bookie(1, 2, 3, 4)
    node = place.start_bookie("b9", storage=storage)
    del place.disks["b9"]  # Nothing of it waits for a commit.
    node.rebuild = RebuildPace("b9", storage, bytes_per_s=1 << 20, slice_bytes=2000)
    place.until(lambda: node.rebuild.whole_logs == 4)
    assert node.core.is_writable
    assert held(storage, 1) == KEPT[1]


def test_the_list_of_bookies_says_how_many_logs_hide_something(place: Place) -> None:
    """ST38, P7.1: "while there are any, it denies nothing": whom that makes wait reads it in `bk.bookies()`, while it
    looks and, where an entry is bad too, behind that."""
    disk = MemoryDisk()
    fill(disk)._release()
    disk.crash()
    spoil(disk, 3)
    path = f"{ENTRIES}/00000002.elog"
    disk.put(path, spoiled(disk.read(path), 5000))
    storage = on_memory(disk)
    client = place.start_client()
    node = place.start_bookie("b9", storage=storage)
    del place.disks["b9"]  # Nothing of it waits for a commit.
    node.rebuild = RebuildPace("b9", storage, bytes_per_s=1 << 14, slice_bytes=2000)

    def listed() -> int | None:
        there = client.listed.registrations.get("b9")
        return None if there is None else there.dark_logs

    place.until(lambda: listed() is not None)
    assert (listed(), node.rebuild.is_looking) == (2, True)
    place.until(lambda: not node.rebuild.is_looking, S // 50)
    ended_ns = place.now_ns
    place.until(lambda: listed() != 2, S // 50)
    assert place.now_ns - ended_ns <= TELL_NS + S, "with its next report"
    assert (listed(), node.rebuild.whole_logs, node.rebuild.dark_logs) == (1, 1, 1)
    assert client.listed.registrations["b1"].dark_logs == 0
