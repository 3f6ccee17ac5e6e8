"""Dropped ledgers in the storage that ships: what is found of them, through flushes, replays and crashes (P7.3)."""

from __future__ import annotations

import pytest

from embedbk.codec.frame import Frame
from embedbk.codec.journal_records import HELD_AGAIN, RecordKind, encode_gone
from embedbk.core.ledger_table import LedgerTable
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.replay import replay_record
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
        bookie.flushes.unflushed_bytes = bookie.flushes.flush_bytes
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
    bookie.flushes.unflushed_bytes = bookie.flushes.flush_bytes
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
    bookie.flushes.unflushed_bytes = bookie.flushes.flush_bytes
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
        bookie.flushes.unflushed_bytes = bookie.flushes.flush_bytes
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


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("is_back", [False, True])
def test_ledgers_that_are_gone_are_so_after_every_start(is_flushed: bool, is_back: bool) -> None:
    """P7.4, P7.3: until the next flush the journal says it, then the entry log; what came back by recovery stays."""
    disk = MemoryDisk()
    bookie = on_memory(disk)
    put(bookie, 4, [0])
    bookie.table.drop_range(1, 3)
    bookie.append(RecordKind.GONE, 1, encode_gone(3))
    bookie.table.drop_range(5, 90)
    bookie.append(RecordKind.GONE, 5, encode_gone(90))
    commit(bookie)
    if is_back:
        bring_back(bookie, 50)
        put(bookie, 50, [0])
        commit(bookie)
    for _ in range(2):
        if is_flushed:
            flush(bookie)
        disk.crash(3)
        bookie = on_memory(disk)
        assert [is_dropped(bookie, each) for each in (1, 3, 4, 5, 49, 51, 90)] == [1, 1, 0, 1, 1, 1, 1]
        assert is_dropped(bookie, 50) != is_back
        assert held(bookie, 4) == [0] and held(bookie, 50) == ([0] if is_back else [])
        assert bookie.table.get(91) is None


def test_a_journal_that_is_read_before_that_of_the_gone_keeps_its_ledgers() -> None:
    """P7.4: several journals are read one behind the other, and their records stand in no order. Recovery brought
    ledger 7 back behind the record that names a range with it: read before or behind that, it stays."""
    body = make_frame(7, [0], size=10, lac=-1).body
    gone = (RecordKind.GONE, 1, encode_gone(9))
    back = (RecordKind.LIMBO, 7, HELD_AGAIN), (RecordKind.FRAME, 7, body)
    for records in ((gone, *back), (*back, gone)):
        for table in (LedgerTable(), NativeLedgerTable()):
            taken: list[Frame] = []
            for token, (kind, ledger_id, content) in enumerate(records, 1):
                replay_record(table, taken.append, token, kind, ledger_id, memoryview(content))
            row = table.get(7)
            assert row is not None and (row.is_dropped, row.in_limbo, row.last_entry) == (0, 1, 0)
            assert len(taken) == 1 and table.ranges() in ([(1, 6), (8, 9)], [(1, 9)])


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
