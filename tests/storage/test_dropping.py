"""Dropped ledgers in the storage that ships: what is found of them, through flushes, replays and crashes (P7.3)."""

from __future__ import annotations

import pytest

from embedbk.codec.journal_records import HELD_AGAIN, RecordKind
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.stored_entries import make_frame
from tests.storage.test_bookie_storage import commit, flush, held, on_memory, put


def drop(bookie: BookieStorage, ledger_id: int) -> None:
    """What a bookie's core does: flags and record in one step, the entries when the record is durable."""
    row = bookie.table.get(ledger_id) or bookie.table.create(ledger_id)
    row.is_fenced = row.in_limbo = row.is_dropped = 1
    bookie.table.mark_dirty(row)
    row.last_token = bookie.append(RecordKind.DROP, ledger_id, b"")
    commit(bookie)
    bookie.drop(ledger_id)


def bring_back(bookie: BookieStorage, ledger_id: int) -> None:
    row = bookie.table.get(ledger_id)
    assert row is not None and row.is_dropped
    row.is_dropped = 0
    bookie.table.mark_dirty(row)
    row.last_token = bookie.append(RecordKind.LIMBO, ledger_id, HELD_AGAIN)


def is_dropped(bookie: BookieStorage, ledger_id: int) -> bool:
    row = bookie.table.get(ledger_id)
    return row is not None and bool(row.is_dropped and row.in_limbo and row.is_fenced)


@pytest.mark.parametrize("where", ["active", "frozen", "entry log"])
def test_nothing_of_a_dropped_ledger_is_found_wherever_it_stood(where: str) -> None:
    """Rule P7.3: and everything of its neighbours is."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for ledger_id in (4, 5, 6):
        put(bookie, ledger_id, range(20))
    commit(bookie)
    if where == "entry log":
        flush(bookie)
    elif where == "frozen":
        bookie._unflushed_bytes = bookie.flush_bytes
        assert bookie.begin_flush_if_due()
    drop(bookie, 5)
    for _ in range(3):
        assert held(bookie, 5) == []
        assert held(bookie, 4) == held(bookie, 6) == list(range(20))
        assert is_dropped(bookie, 5)
        bookie.close()
        disk.crash()
        bookie = on_memory(disk)
    assert bookie.table.ranges() == [] or bookie.table.ranges() == [(5, 5)]
    bookie.close()


def test_a_flush_that_races_with_a_drop_brings_nothing_back() -> None:
    """Scenario 51 (#1757): flush and drop of one ledger at once: no index of it is resurrected, and what other ledgers
    wrote meanwhile is kept."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 5, range(20))
    put(bookie, 6, range(20))
    commit(bookie)
    bookie._unflushed_bytes = bookie.flush_bytes
    assert bookie.begin_flush_if_due()  # The entry log is written, and not taken in.
    drop(bookie, 5)
    put(bookie, 6, range(20, 30))
    assert bookie.finish_flush()
    assert held(bookie, 5) == []
    assert held(bookie, 6) == list(range(30))
    disk.crash()
    bookie = on_memory(disk)
    assert held(bookie, 5) == []
    assert held(bookie, 6) == list(range(20))
    bookie.close()


def test_replay_of_a_dropped_ledgers_entries_takes_no_memory() -> None:
    """Scenario 60 (BK-198, #4462): a journal with entries of ledgers that an entry log says are dropped."""
    disk = MemoryDisk()
    bookie = on_memory(disk, flush_bytes=1 << 20, journal_file_bytes=1 << 20)
    for number in range(20):
        put(bookie, 5, range(number * 20, number * 20 + 20))
    row = bookie.table.get(5)
    assert row is not None
    row.is_fenced = row.in_limbo = row.is_dropped = 1
    bookie.table.mark_dirty(row)
    bookie.append(RecordKind.DROP, 5, b"")
    # The freeze takes the dropped state while nothing is durable yet: the mark stays below everything.
    bookie._unflushed_bytes = bookie.flush_bytes
    assert bookie.begin_flush_if_due()
    commit(bookie)
    bookie.finish_flush()
    disk.crash()
    bookie = on_memory(disk, flush_bytes=1 << 20, journal_file_bytes=1 << 20)
    assert bookie.log_mark() == 0
    assert bookie.cached_bytes() == 0
    assert is_dropped(bookie, 5) and held(bookie, 5) == []
    bookie.close()


@pytest.mark.parametrize("flushes", [0, 1, 2])
def test_a_ledger_that_came_back_keeps_what_came(flushes: int) -> None:
    """P7.3: recovery adds pass; a crash after them must not drop the ledger again, wherever drop and return stand."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 5, range(20))
    commit(bookie)
    drop(bookie, 5)
    if flushes > 0:
        flush(bookie)
    bring_back(bookie, 5)
    bookie.put_frame(make_frame(5, range(3, 6), size=500))
    commit(bookie)
    if flushes > 1:
        flush(bookie)
    for _ in range(2):
        disk.crash()
        bookie = on_memory(disk)
        row = bookie.table.get(5)
        assert row is not None
        assert (row.is_dropped, row.in_limbo, row.is_fenced) == (0, 1, 1)
        assert set(held(bookie, 5)) >= {3, 4, 5}
    bookie.close()


@pytest.mark.parametrize("flushed_behind", ["nothing", "the entries", "the drop", "the return"])
def test_a_drop_that_is_taken_back_before_it_is_carried_out_takes_nothing(flushed_behind: str) -> None:
    """P7.3: recovery finds what is still there and is told OK once the return is durable, although the drop's record is
    durable too: no flush and no replay may carry the drop out afterwards (seed 15004263)."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 5, range(20))
    commit(bookie)
    if flushed_behind == "the entries":
        flush(bookie)
    row = bookie.table.get(5)
    assert row is not None
    row.is_fenced = row.in_limbo = row.is_dropped = 1
    bookie.table.mark_dirty(row)
    row.last_token = bookie.append(RecordKind.DROP, 5, b"")
    if flushed_behind == "the drop":
        bookie._unflushed_bytes = bookie.flush_bytes
        assert (
            bookie.begin_flush_if_due()
        )  # Takes the ledger's dropped state, and the mark stays below the drop.
        assert bookie.finish_flush()
    bring_back(bookie, 5)
    commit(bookie)
    if flushed_behind == "the return":
        flush(bookie)
    for _ in range(2):
        assert held(bookie, 5) == list(range(20))
        disk.crash()
        bookie = on_memory(disk)
        row = bookie.table.get(5)
        assert row is not None
        assert (row.is_dropped, row.in_limbo, row.is_fenced) == (0, 1, 1)
    assert held(bookie, 5) == list(range(20))
    bookie.close()


def test_dropped_ledgers_cost_no_rows_for_ever() -> None:
    """P7.3: kept as intervals of ids: memory follows what lives, not what ever was."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    for ledger_id in range(300):
        put(bookie, ledger_id, range(1))
        drop(bookie, ledger_id)
    flush(bookie)
    assert len(bookie.table) == 0
    assert bookie.table.ranges() == [(0, 299)]
    bookie.close()
    disk.crash()
    bookie = on_memory(disk)
    assert bookie.table.ranges() == [(0, 299)] and len(bookie.table) == 0
    bookie.close()
