"""The pace of the scrubber: so many bytes a second, a pause between passes, nothing at 0 (I55)."""

from __future__ import annotations

import errno
import logging

import pytest

from embedbk.host.scrub_pace import PASS_PAUSE_NS, PIECE_BYTES, START_NS, ScrubPace
from embedbk.storage.memory import MemoryBookieStorage, Survivors
from embedbk.storage.memory_disk import MemoryDisk
from tests.host.place import Place
from tests.storage import small_bookie
from tests.storage.stored_entries import make_frame

S = 1_000_000_000


def filled(bytes_each: int = 1000, entries: int = 3000) -> MemoryBookieStorage:
    """About three pieces of entries in one entry log."""
    storage = MemoryBookieStorage(Survivors(b"I" * 16), flush_bytes=1)
    for first in range(0, entries, 1000):
        storage.put_frame(make_frame(3, range(first, first + 1000), size=bytes_each))
    storage.commit()
    assert storage.begin_flush_if_due()
    assert storage.finish_flush()
    return storage


def test_no_more_is_read_than_the_rate_allows() -> None:
    """I55: each piece is paid for before the next one; the first comes some time after the start."""
    pace = ScrubPace("b1", filled(), 1 << 20)
    pace.step(0)
    assert pace.deadline_ns == START_NS
    begun = []
    while pace.passes == 0:
        now, before = pace.deadline_ns, pace.bytes_read
        assert now is not None
        pace.step(now)
        begun.append((now, pace.bytes_read - before))
    assert begun[0][0] == START_NS
    for (at, size), (following, _) in zip(begun, begun[1:], strict=False):
        assert PIECE_BYTES <= size < PIECE_BYTES + 2000
        assert following - at == size * S // (1 << 20)
    assert pace.deadline_ns == begun[-1][0] + PASS_PAUSE_NS
    assert pace.bytes_read == 3000 * 1052


def test_at_0_nothing_is_read_and_nobody_is_woken() -> None:
    pace = ScrubPace("b1", filled(), 0)
    pace.step(10**15)
    assert (pace.deadline_ns, pace.bytes_read) == (None, 0)


def test_an_empty_store_is_looked_at_again_later() -> None:
    pace = ScrubPace("b1", MemoryBookieStorage(Survivors(b"I" * 16)), 1, start_ns=5, pass_pause_ns=100)
    for now in (0, 5):
        pace.step(now)
    assert pace.deadline_ns == 105


def test_what_is_found_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """I55: reported, so that somebody hears of it while other copies are good."""
    storage = filled()
    storage.make_unreadable(3, 77)
    pace = ScrubPace("b1", storage, 1 << 30, start_ns=0)
    with caplog.at_level(logging.ERROR):
        while pace.passes == 0:
            pace.step(pace.deadline_ns or 0)
    assert pace.damage_count == 1
    assert "ledger 3, entries 77..77: entries are damaged" in caplog.text


def test_a_piece_that_cannot_be_read_now_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """I55: it is no damage, and it is not asked for again at once."""
    disk = MemoryDisk(small_bookie.make().files)
    storage = small_bookie.open_disk(disk)
    pace = ScrubPace("b1", storage, 1 << 20, start_ns=5, pass_pause_ns=100)
    disk.fail("open", error=errno.EMFILE)
    for now in (0, 5):
        pace.step(now)
    assert (pace.deadline_ns, pace.bytes_read, pace.damage_count) == (105, 0, 0)
    assert "the scrubber waits" in caplog.text
    pace.step(105)
    assert pace.bytes_read > 0 and pace.damage_count == 0
    storage._release()


def test_a_bookie_scrubs_beside_its_work_and_reads_answer_on(place: Place) -> None:
    """I55, I31: it wakes by its own deadline; the damaged entry is unreadable, the others are served."""
    storage = filled(bytes_each=10, entries=1000)
    storage.make_unreadable(3, 5)
    node = place.start_bookie("b9", storage=storage)
    node.scrub = ScrubPace("b9", storage, 1 << 20, start_ns=S // 20, pass_pause_ns=S // 20)
    place.until(lambda: node.scrub.passes > 1)
    assert node.scrub.damage_count == 2
    assert [damage.first_entry for damage in storage.scrub_damages()] == [5]
    found = storage.read(3, 5, 5, 1000)
    assert (found.frame, found.absent) == (None, [])
