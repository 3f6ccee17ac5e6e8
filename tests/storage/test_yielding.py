"""A flush lets a busy journal go first, and never waits for ever (native/base/yield.h)."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.journal import Journal
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.native import ffi
from tests.storage.stored_entries import make_frame
from tests.storage.test_entry_store import make_disk, open_store

ENOUGH, AWAITED = 1 << 31, 1 << 30
YIELD_BYTES = 64 << 10
LOOKS_MAX = 50_000_000


class Place:
    """A store with a frozen half of four chunks, and its word, in which a journal is busy for all that it knows."""

    def __init__(self) -> None:
        self.disk = make_disk()
        self.store: NativeEntryStore = open_store(self.disk)
        self.word: Any = ffi.cast("uint32_t *", self.store.yield_word(YIELD_BYTES))
        self.journal_disk = MemoryDisk()
        self.journal: Journal | None = None
        for first in range(0, 4000, 1000):
            self.store.put(make_frame(7, range(first, first + 1000), size=1000))
        assert self.store.freeze(b"", 1)

    def begin_flush_beside_a_busy_journal(self) -> int:
        """Returns how many writes of the disk were seen when the flush began to wait."""
        self.word[0] |= 1  # As the journal does before it writes a group.
        self.store.flush(threaded=True)
        self.until(lambda: bool(self.word[0] & AWAITED))
        return self.disk.calls("write")

    def open_journal(self) -> Journal:
        """The journal that is busy. Not earlier: a thread that has just begun finds itself idle nobody knows when."""
        self.journal = Journal("/journal", io=self.journal_disk, file_bytes=1 << 20)
        return self.journal

    def until(self, holds: Callable[[], bool]) -> None:
        """For what no descriptor tells of."""
        for _ in range(LOOKS_MAX):
            if holds():
                return
        raise AssertionError(f"never came; the word is {self.word[0]:#x}")

    def ends(self) -> None:
        poll = select.poll()
        poll.register(self.store.fileno(), select.POLLIN)
        assert poll.poll(20_000)
        assert self.store.finish_flush()

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()
        self.store.close()


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.close()


def test_a_flush_waits_until_the_journal_is_idle(place: Place) -> None:
    """It writes nothing beside a busy journal, and goes on when that has nothing more to write."""
    before = place.begin_flush_beside_a_busy_journal()
    assert not place.store.finish_flush()
    assert place.disk.calls("write") == before
    journal = place.open_journal()
    journal.show_busy(place.store.yield_word(YIELD_BYTES), 0)
    journal.wait(journal.append(1, 7, b"x" * 100))  # A group, and then none.
    place.ends()
    assert place.disk.calls("write") > before


def test_a_flush_waits_no_more_when_the_cache_wants_its_room(place: Place) -> None:
    """RP33: what is put meanwhile is bounded, so the flush ends beside the busiest journal."""
    before = place.begin_flush_beside_a_busy_journal()
    place.store.put(make_frame(8, range(50), size=1000))
    assert place.store.active_bytes() < YIELD_BYTES
    assert not place.word[0] & ENOUGH
    assert place.disk.calls("write") == before
    place.store.put(make_frame(8, range(50, 100), size=1000))
    assert place.store.active_bytes() >= YIELD_BYTES
    place.ends()
    place.store.release()
    assert place.store.freeze(b"", 2)
    assert place.word[0] & (ENOUGH | 1) == 1  # With the next half it yields again.


def test_a_journal_that_fails_holds_nobody_up(place: Place) -> None:
    """P7.6: it writes nothing more, ever; what it had is needed in entry logs all the more."""
    place.begin_flush_beside_a_busy_journal()
    journal = place.open_journal()
    place.journal_disk.fail("write", stays=True)
    journal.show_busy(place.store.yield_word(YIELD_BYTES), 0)
    journal.append(1, 7, b"x" * 100)
    place.ends()


def test_a_store_that_closes_lets_its_flush_end(place: Place) -> None:
    place.begin_flush_beside_a_busy_journal()
    place.store.close()
    assert [name.endswith(".elog") for name in place.disk.files()].count(True) == 1
