"""The simulator's bookie storage: what is durable and when, and what a crash leaves."""

from __future__ import annotations

import pytest

from embedbk.codec.journal_records import RecordKind, encode_explicit_lac
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY
from embedbk.storage.memory import MemoryBookieStorage, Survivors
from tests.storage.stored_entries import ids_in, make_frame, payload, payloads_in

KEY = bytes(range(16))


@pytest.fixture
def bookie() -> MemoryBookieStorage:
    return MemoryBookieStorage(Survivors(bytes(16)), flush_bytes=1000)


def test_a_record_is_durable_when_it_is_committed(bookie: MemoryBookieStorage) -> None:
    """P3.2: nothing is durable before the journal is synced."""
    assert bookie.next_token() == 1
    assert bookie.append(RecordKind.BIRTH, 5, KEY) == 1
    assert bookie.put_frame(make_frame(5, range(3))) == 2
    assert bookie.durable() == 0
    assert bookie.commit(1) == 1
    assert bookie.commit() == bookie.durable() == 2


def test_what_was_not_committed_is_lost_in_a_crash(bookie: MemoryBookieStorage) -> None:
    bookie.append(RecordKind.BIRTH, 5, KEY)
    bookie.put_frame(make_frame(5, range(3)))
    bookie.commit()
    bookie.put_frame(make_frame(5, range(3, 6)))
    assert ids_in(bookie.read(5, 0, 9, 10_000).frame) == [0, 1, 2, 3, 4, 5]
    after = MemoryBookieStorage(bookie.crash())
    found = after.read(5, 0, 9, 10_000)
    assert payloads_in(found.frame) == {entry_id: payload(5, entry_id) for entry_id in range(3)}
    assert found.absent == [(3, 9)]
    assert (after.durable(), after.next_token()) == (2, 3)
    assert after.table.key(after.table.get(5)) == KEY
    row = after.table.get(5)
    assert row is not None
    assert row.last_entry == 2


def test_fences_survive_flush_trim_and_restart(bookie: MemoryBookieStorage) -> None:
    """P7.3: fences live through crash, restart and journal trimming."""
    bookie.append(RecordKind.FENCE, 8, b"")
    row = bookie.table.create(8)
    row.is_fenced = 1
    bookie.table.mark_dirty(row)
    bookie.put_frame(make_frame(5, range(100), lac=7))
    bookie.commit()
    assert bookie.begin_flush_if_due()
    assert not bookie.begin_flush_if_due(), "one flush at a time"
    assert bookie.finish_flush()
    assert bookie.records == []
    after = MemoryBookieStorage(bookie.crash())
    fenced = after.table.get(8)
    assert fenced is not None
    assert fenced.is_fenced == 1
    assert ids_in(after.read(5, 0, 99, 100_000).frame) == list(range(100))
    assert after.next_token() == 3


def test_a_crash_inside_a_flush_leaves_the_journal_whole(bookie: MemoryBookieStorage) -> None:
    """P7.5: the journal is not trimmed before what it holds is in an entry log."""
    bookie.append(RecordKind.FENCE, 8, b"")
    bookie.put_frame(make_frame(5, range(100)))
    bookie.commit()
    assert bookie.begin_flush_if_due()
    after = MemoryBookieStorage(bookie.crash())
    assert ids_in(after.read(5, 0, 99, 100_000).frame) == list(range(100))
    fenced = after.table.get(8)
    assert fenced is not None
    assert fenced.is_fenced == 1


def test_a_failed_sync_is_final(bookie: MemoryBookieStorage) -> None:
    """P7.6: after a failed sync the journal stops acknowledging, and the sync is not tried again."""
    bookie.put_frame(make_frame(5, range(2)))
    bookie.fail_next_sync("injected")
    assert bookie.commit() == 0
    assert bookie.failed() == "injected"
    assert bookie.commit() == 0
    with pytest.raises(StorageError, match="injected"):
        bookie.append(RecordKind.FENCE, 5, b"")
    assert MemoryBookieStorage(bookie.crash()).read(5, 0, 1, 1000).absent == [(0, 1)]


def test_an_unreadable_entry_is_neither_held_nor_absent(bookie: MemoryBookieStorage) -> None:
    """P7.1: what cannot be read is unknown, never absent; a valid copy replaces it (P3.4c)."""
    bookie.put_frame(make_frame(5, [0, 1, 2, 5]))
    bookie.make_unreadable(5, 1)
    found = bookie.read(5, 0, 9, 10_000)
    assert ids_in(found.frame) == [0, 2, 5]
    assert found.absent == [(3, 4), (6, 9)]
    bookie.put_frame(make_frame(5, [1]))
    assert ids_in(bookie.read(5, 0, 9, 10_000).frame) == [0, 1, 2, 5]


def test_special_records_are_replayed_in_order(bookie: MemoryBookieStorage) -> None:
    bookie.append(RecordKind.BIRTH, 1, KEY)
    bookie.append(RecordKind.EXPLICIT_LAC, 1, encode_explicit_lac(6, 600))
    bookie.append(RecordKind.EXPLICIT_LAC, 1, encode_explicit_lac(4, 400))
    bookie.append(RecordKind.LIMBO, 2, b"\1")
    bookie.append(RecordKind.LIMBO, 3, b"\1")
    bookie.append(RecordKind.LIMBO, 3, b"\0")
    bookie.append(RecordKind.DROP, 4, b"")
    bookie.commit()
    table = MemoryBookieStorage(bookie.crash()).table
    row = table.get(1)
    assert row is not None
    assert (row.lac, row.lac_length, row.last_entry, row.last_token) == (6, 600, NO_ENTRY, 3)
    assert [table.get(ledger_id).in_limbo for ledger_id in (1, 2, 3, 4)] == [0, 1, 0, 1]
    assert [table.get(ledger_id).is_fenced for ledger_id in (1, 2, 3, 4)] == [0, 0, 0, 1]


def test_a_record_of_an_unknown_kind_is_refused(bookie: MemoryBookieStorage) -> None:
    bookie.append(99, 1, b"")
    bookie.commit()
    with pytest.raises(StorageError, match="kind 99"):
        MemoryBookieStorage(bookie.crash())


def test_what_was_dropped_is_not_scrubbed_any_more(bookie: MemoryBookieStorage) -> None:
    """I55: its entry log still names it; the scrubber passes it by and reads the rest."""
    for ledger_id in (5, 6):
        bookie.put_frame(make_frame(ledger_id, range(8), size=100))
    bookie.commit()
    assert bookie.begin_flush_if_due()
    assert bookie.finish_flush()
    bookie.drop(5)
    bookie.make_unreadable(6, 7)
    assert bookie.begin_scrub(1 << 20)
    assert bookie.finish_scrub() is not None
    assert [(damage.ledger_id, damage.first_entry) for damage in bookie.scrub_damages()] == [(6, 7)]
