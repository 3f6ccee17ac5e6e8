"""A bookie's durable side as one: replay, flush, trim, and what a crash may not take away (P7.3, P7.5, P7.6)."""

from __future__ import annotations

import errno
import gc
import os
import resource
import select
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.frame import encode_frame_header, frame_of
from embedbk.codec.journal_records import RecordKind, encode_explicit_lac
from embedbk.codec.messages import encode_message
from embedbk.config import FRAME_BYTES_MAX
from embedbk.errors import StorageError, UsageError
from embedbk.ids import NO_ENTRY
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.directory_discovery import find_places
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.flushing import FlushState
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.small_bookie import INCARNATION, TOKEN, open_disk
from tests.storage.stored_entries import ids_in, make_frame, payload, payloads_in

KEY = bytes(range(16))
SIZE = 500  # Payload bytes of an entry in these tests.
CALLS = ("open", "write", "sync", "allocate", "rename", "sync_directory")


def on_memory(disk: MemoryDisk, **settings: Any) -> BookieStorage:
    return open_disk(disk, **{"flush_bytes": 20_000, **settings})


def put(bookie: BookieStorage, ledger_id: int, ids: range) -> int:
    """What a bookie's core does with an add: the row, then the frame and its record."""
    row = bookie.table.get(ledger_id) or bookie.table.create(ledger_id)
    row.last_entry = max(row.last_entry, ids[-1])
    bookie.table.mark_dirty(row)
    return bookie.put_frame(make_frame(ledger_id, ids, size=SIZE, lac=ids[0] - 1))


def fence(bookie: BookieStorage, ledger_id: int) -> int:
    row = bookie.table.get(ledger_id) or bookie.table.create(ledger_id)
    row.is_fenced = 1
    bookie.table.mark_dirty(row)
    return bookie.append(RecordKind.FENCE, ledger_id, b"")


def commit(bookie: BookieStorage) -> int:
    while bookie.step():
        pass
    return bookie.durable()


def flush(bookie: BookieStorage) -> None:
    bookie.flushes.unflushed_bytes = max(bookie.flushes.unflushed_bytes, bookie.flushes.flush_bytes)
    assert bookie.begin_flush_if_due()
    assert bookie.finish_flush()


def is_fenced(bookie: BookieStorage, ledger_id: int) -> bool:
    row = bookie.table.get(ledger_id)
    return row is not None and bool(row.is_fenced)


def held(bookie: BookieStorage, ledger_id: int, last: int = 999) -> list[int]:
    found = bookie.read(ledger_id, 0, last, 1 << 24)
    assert payloads_in(found.frame) == {i: payload(ledger_id, i, SIZE) for i in ids_in(found.frame)}
    return ids_in(found.frame)


def test_what_was_durable_is_there_after_a_restart() -> None:
    """P3.2: what was journaled and synced is held, with its ledger's row."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    assert bookie.next_token() == 1
    assert bookie.append(RecordKind.BIRTH, 5, KEY) == 1
    assert put(bookie, 5, range(4)) == 2
    assert put(bookie, 5, range(4, 8)) == 3
    bookie.append(RecordKind.EXPLICIT_LAC, 5, encode_explicit_lac(7, 8 * SIZE))
    assert bookie.durable() == 0
    assert commit(bookie) == 4
    disk.crash()
    bookie = on_memory(disk)
    assert held(bookie, 5) == list(range(8))
    row = bookie.table.get(5)
    assert row is not None
    assert (row.last_entry, row.lac, row.lac_length) == (7, 7, 8 * SIZE)
    assert bookie.table.key(row) == KEY
    assert (bookie.next_token(), bookie.durable()) == (5, 4)
    bookie.close()


def test_a_clean_stop_leaves_nothing_to_replay() -> None:
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 5, range(4))
    fence(bookie, 6)
    bookie.close()
    bookie.close()
    disk.crash()
    bookie = on_memory(disk)
    assert bookie.log_mark() == 2
    assert bookie.cached_bytes() == 0
    assert held(bookie, 5) == [0, 1, 2, 3]
    assert is_fenced(bookie, 6)
    assert bookie.next_token() == 3
    bookie.close()
    with pytest.raises(StorageError, match="closed"):
        bookie.next_token()


def test_fences_survive_flush_trim_and_restart() -> None:
    """P7.3: a fence lives through crash, restart and journal trimming, also of a ledger without entries."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 5, range(4))
    fence(bookie, 5)
    fence(bookie, 99)
    commit(bookie)
    flush(bookie)
    for number in range(1, 30):  # Far enough that the journal's first files are used again.
        put(bookie, 5, range(number * 40, number * 40 + 40))
        commit(bookie)
        flush(bookie)
    disk.crash()
    bookie = on_memory(disk)
    assert is_fenced(bookie, 5)
    assert is_fenced(bookie, 99)
    assert bookie.read(99, 0, 9, 1000).absent == [(0, 9)]
    assert held(bookie, 5, 1199) == [0, 1, 2, 3, *range(40, 1200)]
    bookie.close()


def test_a_flush_is_due_by_what_was_journaled() -> None:
    """Write cache and journal have one bound; a journal of small records is flushed too."""
    bookie = on_memory(MemoryDisk())
    assert not bookie.begin_flush_if_due()
    token = 0
    while not bookie.begin_flush_if_due():
        token = fence(bookie, 1)
    assert token == -(-20_000 // 64)
    assert bookie.finish_flush()
    assert not bookie.finish_flush()
    bookie.close()


def test_the_mark_is_never_ahead_of_the_journal() -> None:
    """P7.5, I45: what is queued and not durable is no part of the mark, though its entries are in the entry log."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 5, range(10))
    commit(bookie)
    put(bookie, 5, range(10, 20))
    flush(bookie)
    assert bookie.log_mark() == 1
    disk.crash()
    bookie = on_memory(disk)
    assert bookie.next_token() == 2
    assert held(bookie, 5) == list(range(20))
    bookie.close()


def test_a_frozen_half_is_kept_while_the_journal_borrows_it() -> None:
    """I52: bytes handed to the journal do not change before they are durable, whatever the flush does."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    tokens = [put(bookie, 5, range(i * 10, i * 10 + 10)) for i in range(5)]
    flush(bookie)
    tokens += [put(bookie, 6, range(i * 10, i * 10 + 10)) for i in range(5, 9)]  # Into the other half.
    assert not bookie.begin_flush_if_due()  # Which cannot be frozen: nothing takes puts then.
    tokens += [
        put(bookie, 7, range(i * 10, i * 10 + 10)) for i in range(9)
    ]  # These would overwrite the first half.
    assert not bookie.finish_flush()
    assert commit(bookie) == tokens[-1]
    disk.crash()  # What is read from now on is what the journal has written.
    bookie = on_memory(disk, flush_bytes=4 << 20)
    assert held(bookie, 5) == list(range(50))
    assert held(bookie, 6) == list(range(50, 90))
    assert held(bookie, 7) == list(range(90))
    bookie.close()


@pytest.mark.parametrize("is_cyclic", [False, True])
def test_a_bookie_that_is_let_go_writes_nothing_of_memory_that_is_gone(is_cyclic: bool) -> None:
    """I52: nobody closed it; its journal ends before the write cache from which it writes, in whatever order."""
    disk = MemoryDisk()
    bookie: Any = on_memory(disk)
    for number in range(5):
        put(bookie, 5, range(number * 10, number * 10 + 10))
    if is_cyclic:
        bookie.itself = bookie
    del bookie
    gc.collect()
    disk.crash()
    bookie = on_memory(disk)
    assert held(bookie, 5) == list(range(50))
    bookie.close()


def test_a_full_write_cache_waits_for_the_flush() -> None:
    """The bound cache_bytes_max is back pressure, not an error."""
    bookie = on_memory(MemoryDisk(), flush_bytes=4 << 20, cache_bytes_max=4 << 20)
    for number in range(300):
        put(bookie, 5, range(number * 100, number * 100 + 100))
        assert bookie.cached_bytes() <= 2 * ((4 << 20) + FRAME_BYTES_MAX)
    assert held(bookie, 5, 99) == list(range(100))
    bookie.close()


def test_a_long_journal_is_replayed_in_bounded_memory() -> None:
    disk = MemoryDisk()
    bookie = on_memory(disk, flush_bytes=4 << 20)
    for number in range(60):
        put(bookie, number % 3, range(number // 3 * 50, number // 3 * 50 + 50))
        commit(bookie)
    fence(bookie, 77)
    commit(bookie)
    disk.crash()
    bookie = on_memory(disk, flush_bytes=100_000)
    assert bookie.cached_bytes() < 200_000
    assert bookie.log_mark() > 50
    for ledger_id in range(3):
        assert held(bookie, ledger_id) == list(range(1000))
    assert is_fenced(bookie, 77)
    bookie.close()


def test_replaying_twice_gives_the_same_store() -> None:
    """I44: replay is idempotent."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 5, range(10))
    fence(bookie, 5)
    commit(bookie)
    for _ in range(3):
        disk.crash()
        bookie = on_memory(disk)
        assert held(bookie, 5) == list(range(10))
        assert is_fenced(bookie, 5)
        assert bookie.next_token() == 3


class Worked:
    """A bookie at work until its disk fails: what was durable then."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.entries: dict[int, int] = {}  # Ledger -> entries 0..n-1 that were durable.
        self.fenced: set[int] = set()
        self.failure: StorageError | None = None
        try:
            self.bookie = on_memory(disk, flush_bytes=12_000)
            self.work()
        except StorageError as failed:
            self.failure = failed

    def work(self) -> None:
        bookie = self.bookie
        for turn in range(12):
            ledger_id = turn % 3
            begin = turn // 3 * 8
            waiting = {put(bookie, ledger_id, range(begin, begin + 8)): ledger_id}
            token = fence(bookie, 100 + turn)
            durable = commit(bookie)
            for add, ledger in waiting.items():
                if add <= durable:
                    self.entries[ledger] = begin + 8
            if token <= durable:
                self.fenced.add(100 + turn)
            if bookie.failed():
                return
            bookie.begin_flush_if_due()
            bookie.finish_flush()


def calls_of_a_whole_run() -> dict[str, int]:
    disk = MemoryDisk()
    worked = Worked(disk)
    assert worked.failure is None
    assert worked.bookie.log_mark() > 0, "the run is long enough to flush"
    return {call: disk.calls(call) for call in CALLS}


def every_call() -> list[tuple[str, int]]:
    return [(call, nth) for call, count in calls_of_a_whole_run().items() for nth in range(1, count + 1)]


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("stays", [False, True])
def test_a_fault_at_every_call_and_a_crash_lose_nothing_durable(seed: int, stays: bool) -> None:
    """P7.5, I41, I45, I46: at each I/O call of journal and flush, fail it (once, or from then on), go on as far as
    it goes, cut the power. Every durable entry is readable, every durable fence stands, nothing false is absent."""
    for call, nth in every_call():
        disk = MemoryDisk()
        disk.fail(call, nth=nth, stays=stays)
        worked = Worked(disk)
        disk.crash(seed)
        bookie = on_memory(disk)
        for ledger_id, count in worked.entries.items():
            assert held(bookie, ledger_id)[:count] == list(range(count)), (call, nth)
        for ledger_id in sorted(worked.fenced):
            assert is_fenced(bookie, ledger_id), (call, nth)
        assert bookie.next_token() > bookie.log_mark(), (call, nth)
        bookie.close()


@pytest.mark.parametrize("sectors", [0, 0b1, 0b10110, 2**63])
def test_power_lost_inside_every_write_loses_nothing_durable(sectors: int) -> None:
    """D2: a torn write, sector by sector, of journal and entry log alike."""
    for nth in range(1, calls_of_a_whole_run()["write"] + 1):
        disk = MemoryDisk()
        disk.tear(nth=nth, sectors=sectors)
        worked = Worked(disk)
        disk.crash(nth)
        bookie = on_memory(disk)
        for ledger_id, count in worked.entries.items():
            assert held(bookie, ledger_id)[:count] == list(range(count)), nth
        assert all(is_fenced(bookie, ledger_id) for ledger_id in worked.fenced), nth
        bookie.close()


def test_a_failed_flush_is_tried_again_in_another_file() -> None:
    """P7.6, I48: never the same pages, never the same id; nothing is trimmed meanwhile."""
    disk = MemoryDisk()
    bookie = on_memory(disk, journal_file_bytes=4 << 20)
    put(bookie, 5, range(60))
    commit(bookie)
    disk.fail("rename")
    assert bookie.begin_flush_if_due()
    assert not bookie.finish_flush()
    assert bookie.log_mark() == 0
    assert bookie.failed() is None
    assert not bookie.begin_flush_if_due(), "not at once: there is no clock here, more has to come first"
    assert held(bookie, 5) == list(range(60))
    while not bookie.begin_flush_if_due():
        put(bookie, 6, range(10))
        commit(bookie)
    assert bookie.finish_flush()
    assert bookie.log_mark() == 1
    names = sorted(name for name in disk.files() if "elog" in name)
    assert names == ["/b1/entries/00000002.elog"]
    bookie.close()


def test_nobody_waits_for_a_flush_that_could_not_begin() -> None:
    """P7.6: nothing runs, so there is no end to wait for; the journal has everything, and the next start flushes it."""
    last_log = "/b1/entries/ffffffff.elog.tmp"  # Behind it there are no ids for new ones.
    disk = MemoryDisk({last_log: b""})
    bookie = on_memory(disk, journal_file_bytes=4 << 20)
    put(bookie, 5, range(60))
    commit(bookie)
    with pytest.raises(StorageError):
        bookie.begin_flush_if_due()
    assert bookie.flushes.state is FlushState.FAILED
    assert not bookie.begin_flush_if_due(), "not at once: more has to come first"
    assert held(bookie, 5) == list(range(60))
    bookie.close()
    disk.drop(last_log)
    bookie = on_memory(disk, journal_file_bytes=4 << 20)
    assert held(bookie, 5) == list(range(60))
    flush(bookie)
    bookie.close()


@pytest.mark.parametrize("way", ["core", "path"])
def test_who_sent_a_frame_may_use_its_buffer_again_at_once(way: str) -> None:
    """I52: the journal borrows the write cache's copy, never what came from a link: bytes that change between the
    queueing and the commit would be journaled under a sum that is right."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 5, range(1))
    row = bookie.table.get(5)
    assert row is not None
    bookie.table.set_key(row, bytes(16))
    row.is_awaited = 0
    frame = make_frame(5, range(1, 8), size=SIZE)
    if way == "core":
        body = bytearray(frame.body)
        bookie.put_frame(frame_of(memoryview(body), 5))
    else:
        request = AddRequest(INCARNATION, 1, 1, False)
        pieces = encode_message(1, request, [(encode_frame_header(frame, bytes(16)), frame)])
        body = bytearray(b"".join(bytes(piece) for piece in pieces))
        assert bookie.add_path is not None and bookie.add_path.take(1, memoryview(body))
    body[:] = b"\xee" * len(body)
    assert held(bookie, 5) == list(range(8))
    commit(bookie)
    bookie._release()
    disk.crash()
    bookie = on_memory(disk)
    assert held(bookie, 5) == list(range(8))
    bookie.close()


def test_an_id_of_an_entry_log_is_never_given_out_twice() -> None:
    """I48: not by a start either, whatever is there; else a new log would take the place of an old one."""
    disk = MemoryDisk()
    for life in range(4):
        bookie = on_memory(disk)
        assert held(bookie, 5) == list(range(life))
        put(bookie, 5, range(life, life + 1))
        commit(bookie)
        flush(bookie)
        names = sorted(name for name in disk.files() if "elog" in name)
        assert names == [f"/b1/entries/{number:08x}.elog" for number in range(1, life + 2)]
        disk.crash()
        bookie._release()


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("call", ["open", "write", "sync", "allocate", "rename", "sync_directory"])
def test_a_first_start_without_room_is_refused_or_whole(call: str, nth: int) -> None:
    """I53: it says that there is no room; with room the next start finds nothing half-made, and serves."""
    disk = MemoryDisk()
    disk.fail(call, nth=nth, error=errno.ENOSPC, stays=True)
    said = ""
    try:
        bookie = on_memory(disk)
        bookie._release()
    except StorageError as refused:
        said = str(refused)
    assert not said or "o space left" in said
    disk.fail(call, nth=0)
    disk.crash()
    bookie = on_memory(disk)
    put(bookie, 5, range(4))
    commit(bookie)
    assert held(bookie, 5) == list(range(4))
    bookie.close()


def test_a_full_device_stops_the_bookie_only_when_its_memory_is_full() -> None:
    """I53: no space for entry logs; what was durable is served, and the reason is said."""
    disk = MemoryDisk()
    bookie = on_memory(disk, flush_bytes=2_500_000, cache_bytes_max=2_500_000)
    disk.fail("allocate", error=errno.ENOSPC, stays=True, nth=4)  # The journal needs a few itself.

    def work(bookie: BookieStorage) -> None:
        for number in range(200):
            put(bookie, 5, range(number * 100, number * 100 + 100))
            commit(bookie)
            bookie.finish_flush()
            bookie.begin_flush_if_due()

    with pytest.raises(StorageError, match="No space left"):
        work(bookie)
    assert bookie.failed() is not None
    assert held(bookie, 5, 99) == list(range(100))


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_flush_without_descriptors_waits_as_one_without_room(error: int) -> None:
    """I53, P7.8: puts wait when the write cache is full. The first that was let in ended the bookie for good."""
    disk = MemoryDisk()
    bookie = on_memory(disk, flush_bytes=2_500_000, cache_bytes_max=2_500_000, journal_file_bytes=64 << 20)
    first = 0
    disk.fail("open", error=error, stays=True)
    while bookie.has_room() and first < 100_000:
        put(bookie, 5, range(first, first + 100))
        first += 100
        commit(bookie)
        bookie.begin_flush_if_due()
        bookie.finish_flush()
        assert bookie.failed() is None
    assert first < 100_000
    assert bookie.is_full()
    assert os.strerror(error) in bookie.why_full()
    assert bookie.has_room(is_urgent=True), "a fence and a recovery go on"
    disk.fail("open", nth=0)
    bookie.retry_flush()
    assert bookie.finish_flush()
    commit(bookie)  # The journal prepares its next file.
    bookie.finish_flush()
    flush(bookie)
    assert (bookie.has_room(), bookie.is_full(), bookie.failed()) == (True, False, None)
    assert held(bookie, 5, first - 1) == list(range(first))
    bookie.close()


def test_what_is_wanting_is_said() -> None:
    """P7.8, I53: also where it is no room on a device."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    assert (bookie.is_full(), bookie.why_full()) == (False, "")
    disk.fail("open", error=errno.EMFILE, stays=True)
    for first in range(0, 400, 40):
        put(bookie, 5, range(first, first + 40))
        commit(bookie)
    assert bookie.is_full()
    assert bookie.why_full() == (
        f"journal /b1/journal: the next file cannot be made: {os.strerror(errno.EMFILE)} (errno {errno.EMFILE})"
    )
    disk.fail("open", nth=0)
    bookie.retry_flush()
    commit(bookie)
    assert (bookie.is_full(), bookie.why_full()) == (False, "")
    disk.fail("allocate", error=errno.ENOSPC, stays=True)
    flush_begins = bookie.flushes.begin_if_due()
    assert flush_begins and not bookie.finish_flush()
    assert "00000001.elog: writing it failed: No space left on device" in bookie.why_full()
    bookie._release()


def crashed_with(frames: int) -> MemoryDisk:
    """A disk whose journal alone holds so many frames of ledger 5, and the fence of ledger 77; and is full now."""
    disk = MemoryDisk()
    bookie = on_memory(disk, flush_bytes=16 << 20, cache_bytes_max=16 << 20)
    fence(bookie, 77)
    for number in range(frames):
        put(bookie, 5, range(number * 100, number * 100 + 100))
        commit(bookie)
    disk.crash()
    disk.fail("allocate", error=errno.ENOSPC, stays=True)
    return disk


def test_a_full_device_keeps_no_bookie_from_its_start() -> None:
    """I53, P7.8: what was in the write cache when it stopped is served at once, and flushed when there is room."""
    disk = crashed_with(60)
    bookie = on_memory(disk, flush_bytes=1 << 20, cache_bytes_max=4 << 20)
    assert bookie.is_full()
    assert bookie.log_mark() == 0
    assert held(bookie, 5, 5999) == list(range(6000))
    assert is_fenced(bookie, 77)
    fence(bookie, 5)
    put(bookie, 5, range(6000, 6100))
    commit(bookie)
    bookie.retry_flush()
    assert not bookie.finish_flush()
    assert bookie.is_full()
    disk.fail("allocate", nth=0)
    bookie.retry_flush()
    assert bookie.finish_flush()
    commit(bookie)  # The journal makes its next file.
    assert not bookie.is_full()
    flush(bookie)
    assert bookie.log_mark() == bookie.durable()
    bookie.close()
    bookie = on_memory(disk)
    assert held(bookie, 5, 6099) == list(range(6100))
    assert is_fenced(bookie, 5) and is_fenced(bookie, 77)
    bookie.close()


def test_a_start_without_a_free_byte_serves_fences_and_goes_on_by_itself() -> None:
    """I53, P7.8: no block for a probe, no next file, no entry log; what then finds no room in the journal waits."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for first in range(0, 60, 10):
        put(bookie, 5, range(first, first + 10))
    fence(bookie, 77)
    commit(bookie)
    disk.crash()
    disk.limit(1)
    bookie = on_memory(disk)
    assert held(bookie, 5) == list(range(60))
    assert is_fenced(bookie, 77)
    commit(bookie)  # The journal asks for its next file.
    assert bookie.is_full()
    fence(bookie, 5)
    last = commit(bookie)
    assert last == bookie.next_token() - 1, "a fence has room in the rest of the file"
    for ledger_id in range(100, 140):
        put(bookie, ledger_id, range(8))  # What recovery brings; more than the file has room for.
    commit(bookie)
    assert last < bookie.durable() < bookie.next_token() - 1
    assert bookie.failed() is None
    disk.limit(0)
    bookie.retry_flush()
    assert bookie.finish_flush()
    assert commit(bookie) == bookie.next_token() - 1
    assert not bookie.is_full()
    bookie.close()
    bookie = on_memory(disk)
    assert is_fenced(bookie, 5) and is_fenced(bookie, 77)
    assert [held(bookie, ledger_id) for ledger_id in range(100, 140)] == [list(range(8))] * 40
    bookie.close()


def test_a_full_device_loses_nothing_when_the_bookie_stops_again() -> None:
    """I44, I53: no room for the whole life: the next start finds what the first one found, and what came since."""
    disk = crashed_with(60)
    for life in range(3):
        bookie = on_memory(disk, flush_bytes=1 << 20, cache_bytes_max=4 << 20)
        assert held(bookie, 5, 5999 + life) == list(range(6000 + life))
        put(bookie, 5, range(6000 + life, 6001 + life))
        bookie.close()
        disk.crash()
        disk.fail("allocate", error=errno.ENOSPC, stays=True)


def test_a_start_without_room_for_more_than_the_write_cache_says_so() -> None:
    """I53: the bound stands; nothing is served in part, and nothing changes."""
    disk = crashed_with(120)
    with pytest.raises(StorageError, match="journal holds more than its write cache") as refused:
        on_memory(disk, flush_bytes=1 << 20, cache_bytes_max=5 << 19)
    assert "make room" in refused.value.hint
    disk.fail("allocate", nth=0)
    bookie = on_memory(disk, flush_bytes=1 << 20, cache_bytes_max=5 << 19)
    assert held(bookie, 5, 11999) == list(range(12000))
    bookie.close()


def test_a_start_on_a_device_with_little_room_fills_a_half_before_it_freezes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I53: as much as the write cache held when the bookie stopped has room in it again: both halves, whole."""
    disk = crashed_with(150)  # 8 MiB, more than what would be frozen too early and one half.
    monkeypatch.setattr(BookieStorage, "_ledgers_free", lambda self: 1 << 20)
    bookie = on_memory(disk, flush_bytes=1 << 20, cache_bytes_max=5 << 20)
    assert held(bookie, 5, 14999) == list(range(15000))
    bookie.close()


def test_a_damaged_journal_refuses_to_start() -> None:
    """I42: damage before the tail is not "the end": what stood there may have been acknowledged."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for number in range(8):
        put(bookie, 5, range(number * 4, number * 4 + 4))
        commit(bookie)
    disk.crash()
    path, content = next((path, content) for path, content in disk.files().items() if "journal-" in path)
    damaged = bytearray(content)
    damaged[3 * 4096 + 700] ^= 1
    disk.put(path, bytes(damaged))
    with pytest.raises(StorageError, match=path) as caught:
        on_memory(disk)
    assert caught.value.hint


@pytest.mark.parametrize("count", range(1, 12))
def test_lost_entry_logs_are_in_the_journal_or_refuse_the_start(count: int) -> None:
    """P7.1, P7.5: a missing file never makes what it held absent. The newest logs may go as long as the journal
    still has what they held; then it was trimmed further than the logs reach, and that is found."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for number in range(24):
        put(bookie, 5, range(number * 40, number * 40 + 40))
        commit(bookie)
        bookie.begin_flush_if_due()
        bookie.finish_flush()
    disk.crash()
    logs = sorted(path for path in disk.files() if path.endswith(".elog"))
    for path in logs[-count:]:
        disk.drop(path)
    try:
        bookie = on_memory(disk)
    except StorageError:
        assert count > 1, "a journal file of this size holds more than one flush"
    else:
        assert held(bookie, 5, 959) == list(range(960))
        assert count < 8
        bookie.close()


def test_a_log_missing_between_others_refuses_the_start() -> None:
    """P7.1: each entry log names the one before it."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for number in range(3):
        put(bookie, 5, range(number * 40, number * 40 + 40))
        commit(bookie)
        bookie.begin_flush_if_due()
        bookie.finish_flush()
    disk.crash()
    disk.drop("/b1/entries/00000002.elog")
    with pytest.raises(
        StorageError, match=r"00000002\.elog is missing here; 00000003\.elog says that it must be there"
    ):
        on_memory(disk)


def test_a_record_of_an_unknown_kind_refuses_to_start() -> None:
    disk = MemoryDisk()
    bookie = on_memory(disk)
    bookie.append(77, 5, b"from the future")
    commit(bookie)
    disk.crash()
    with pytest.raises(StorageError, match="kind 77"):
        on_memory(disk)


@pytest.mark.parametrize(
    "settings", [{"cache_bytes_max": 1000}, {"flush_bytes": 0}, {"flush_bytes": 1 << 40}]
)
def test_bounds_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="allowed is"):
        on_memory(MemoryDisk(), **settings)


def test_journal_files_without_room_for_the_largest_frame_are_refused(tmp_path: Path) -> None:
    """P7.6: the first entry that no journal file holds would end the bookie, long after its start. On a disk in memory
    tests know what they do."""
    with pytest.raises(UsageError, match=r"journal_file_bytes=1048576: allowed is 2097152 or more"):
        BookieStorage(tmp_path / "b1", "b1", TOKEN, journal_file_bytes=1 << 20)
    assert not (tmp_path / "b1").exists()
    bookie = BookieStorage(tmp_path / "b1", "b1", TOKEN, journal_file_bytes=2 << 20, threaded=False)
    put_frame = make_frame(5, range(1), size=1 << 20)
    bookie.put_frame(put_frame)
    assert commit(bookie) == 1
    bookie.close()


# --- On the real disk, with threads ------------------------------------------------------------------------


def wait_durable(bookie: BookieStorage, token: int) -> None:
    while bookie.durable() < token:
        assert bookie.failed() is None
        select.select(bookie.filenos(), [], [], 60)


def test_a_bookie_on_a_real_disk(tmp_path: Path) -> None:
    """Threads, descriptors, identity, lock: as a host uses it."""
    settings: dict[str, Any] = {
        "flush_bytes": 1 << 20,
        "journal_file_bytes": 2 << 20,
        "cache_bytes_max": 8 << 20,
    }
    bookie = BookieStorage(tmp_path / "b1", "b1", TOKEN, **settings)
    incarnation = bookie.incarnation
    row = bookie.table.create(9)
    assert row.last_entry == NO_ENTRY
    has_begun = False
    for number in range(100):
        token = put(bookie, number % 4, range(number // 4 * 100, number // 4 * 100 + 100))
        has_begun |= bookie.begin_flush_if_due()
        bookie.finish_flush()
    wait_durable(bookie, token)
    with pytest.raises(UsageError, match=f"in use by process {os.getpid()}"):
        BookieStorage(tmp_path / "b1", "b1", TOKEN, **settings)
    with pytest.raises(UsageError, match="in use"):
        BookieStorage(tmp_path / "b1", "b2", TOKEN, **settings)
    assert held(bookie, 3, 2499) == list(range(2500))
    bookie.close()
    assert has_begun  # When a flush ends is its thread's own time; that it ends is what close waits for.
    again = BookieStorage(tmp_path / "b1", "b1", b"", **settings)
    assert again.incarnation == incarnation
    assert again.cluster_token == TOKEN
    assert again.reports() == []
    for ledger_id in range(4):
        assert held(again, ledger_id, 2499) == list(range(2500))
    assert again.next_token() == 101
    again.close()


def test_a_note_of_loss_that_cannot_be_removed_costs_no_more_than_another_round_of_limbo(
    tmp_path: Path,
) -> None:
    """Rule P7.4: the bookie serves, and its next start takes the note to be true once more."""
    bookie = BookieStorage(tmp_path / "b1", "b1", TOKEN, may_have_lost=True)
    note = tmp_path / "b1" / "MAY_HAVE_LOST"
    note.unlink()
    note.mkdir()
    bookie.end_loss()
    assert not bookie.may_have_lost
    bookie.close()
    bookie = BookieStorage(tmp_path / "b1", "b1", TOKEN)
    assert bookie.may_have_lost
    bookie.close()


def test_a_refused_start_lets_the_directory_go(tmp_path: Path) -> None:
    BookieStorage(tmp_path / "b1", "b1", TOKEN).close()
    for _ in range(2):
        with pytest.raises(UsageError, match="belongs to bookie 'b1'"):
            BookieStorage(tmp_path / "b1", "other", TOKEN)
    BookieStorage(tmp_path / "b1", "b1", TOKEN).close()


def test_directories_given_from_elsewhere_are_kept_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is what it was at the start, for a process that goes elsewhere and for one that starts there."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    bookie = BookieStorage(
        "b1",
        "b1",
        TOKEN,
        journal_directories=["fast"],
        ledger_directories=["slow"],
        threaded=False,
        flush_bytes=20_000,
    )
    monkeypatch.chdir(tmp_path / "there")
    put(bookie, 7, range(100))
    commit(bookie)
    flush(bookie)  # Makes a file.
    bookie.close()
    assert list((tmp_path / "there").iterdir()) == []
    (place,) = find_places(tmp_path / "here" / "fast")
    assert place.parts == {"journal": tmp_path / "here" / "fast", "entries": tmp_path / "here" / "slow"}


def test_flushes_are_waited_for_beside_very_many_open_files(tmp_path: Path) -> None:
    """Descriptors above 1,023 are waited for like any others, when a bookie stops and when one starts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(before[1], 2048)), before[1]))
        for _ in range(1024):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        bookie = BookieStorage(tmp_path / "b1", "b1", TOKEN)
        put(bookie, 5, range(10))
        bookie.close()
        store = NativeEntryStore(["/entries"], TOKEN, INCARNATION, io=MemoryDisk({"/entries/.made": b""}))
        store.put(make_frame(5, range(10)))
        assert store.freeze(b"", 1)
        store.flush_until_done()  # As a start does it.
        store.close()
    bookie = BookieStorage(tmp_path / "b1", "b1", TOKEN)
    assert bookie.log_mark() == bookie.durable() == 1
    bookie.close()


def test_too_few_descriptors_are_called_so(tmp_path: Path) -> None:
    """At every descriptor that a start wants: the system's own reason, never memory, damage or a loss."""
    BookieStorage(tmp_path / "b1", "b1", TOKEN).close()
    told = subprocess.run(
        [sys.executable, "-c", START_WITH_FEW, str(tmp_path / "b1"), TOKEN.hex()],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    refusals = told.stdout.splitlines()
    assert refusals.pop() == "opened"
    assert len(refusals) >= 5
    for refusal in refusals:
        assert refusal.startswith("StorageError ")
        assert "Too many open files" in refusal
        assert "memory" not in refusal


START_WITH_FEW = """
import os, resource, sys
from embedbk.errors import EmbedbkError
from embedbk.storage.bookie_storage import BookieStorage

path, token = sys.argv[1], bytes.fromhex(sys.argv[2])
BookieStorage(path, "b1", token).close()  # Whatever is imported later has its descriptors.
held, most = len(os.listdir("/proc/self/fd")) - 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for more in range(64):
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + more, most))
    try:
        BookieStorage(path, "b1", token, may_have_lost=True).close()
    except EmbedbkError as refused:
        print(type(refused).__name__, refused)
    else:
        print("opened")
        break
"""


def test_going_on_behind_a_damaged_journal_names_the_damage(caplog: pytest.LogCaptureFixture) -> None:
    """P7.4, I42: also where the second reading finds nothing bad any more, as behind a sector that answered once."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 5, range(40))
    commit(bookie)
    files = disk.files()
    bookie._release()
    for nth in range(1, 12):
        again = MemoryDisk(files)
        again.fail("read", nth=nth)
        bookie = on_memory(again, may_have_lost=True)
        assert held(bookie, 5) == list(range(40))
        bookie.close()
    told = [each.getMessage() for each in caplog.records if "goes on behind" in each.getMessage()]
    assert len(told) > 3
    assert all("(" in text and "()" not in text for text in told), told


@pytest.mark.parametrize("error", [errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOSPC])
def test_a_next_journal_file_that_cannot_be_made_is_told_with_its_reason(error: int) -> None:
    """P7.8: such a bookie becomes read-only for want of room. How much is free on its device tells an operator why only
    where that is full; a limit of file sizes, a quota and a device that is mounted read-only leave it as it was."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    disk.fail("allocate", error=error, stays=True)
    put(bookie, 5, range(4))
    commit(bookie)
    for _ in range(3):
        assert bookie.is_full()
        told = bookie.why_full()
        assert bool(told) == (error != errno.ENOSPC), told
        assert not told or ("the next file cannot be made" in told and os.strerror(error) in told)
        assert ("ulimit -f" in told) == (error == errno.EFBIG)
        bookie.retry_flush()
        bookie._open_journals().step()
    disk.fail("allocate", nth=0)
    bookie.retry_flush()
    bookie._open_journals().step()
    assert not bookie.is_full()
    bookie.close()


@pytest.mark.parametrize("gone", ["all", "entries", "OWNER"])
def test_a_directory_that_is_removed_beneath_its_bookie_fails_it(tmp_path: Path, gone: str) -> None:
    """P7.6: what is written to it is kept nowhere, so nothing more is promised; where it is only moved it is kept."""
    with ExitStack() as opened:
        bookie = BookieStorage(tmp_path / "b1", "b1", TOKEN, threaded=False)
        opened.callback(bookie.close)
        bookie.look_at_directories()
        assert bookie.failed() is None
        (tmp_path / "b1").rename(tmp_path / "moved")
        bookie.look_at_directories()
        assert bookie.failed() is None
        where = tmp_path / "moved" / {"all": ".", "entries": "entries", "OWNER": "entries/OWNER"}[gone]
        if where.is_dir():
            shutil.rmtree(where)
        else:
            where.unlink()
        bookie.look_at_directories()
        assert "removed" in (bookie.failed() or "")
