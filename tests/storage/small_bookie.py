"""A small bookie directory with everything in it: flushed and journaled entries, striped and gapped ids, a fence, an
explicit LAC, a conflict-free double entry; and the truth about it, for tests that damage it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embedbk.codec.journal_records import RecordKind, encode_explicit_lac
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.stored_entries import ids_in, make_frame

TOKEN, INCARNATION = b"T" * 16, b"I" * 16
JOURNAL_FILE_BYTES = 65536
KEY = b"k" * 16


@dataclass(frozen=True)
class SmallBookie:
    """Files by path under /b1, and every entry that was acknowledged: (ledger, entry) to its bytes."""

    files: Mapping[str, bytes]
    entries: Mapping[tuple[int, int], bytes]
    fenced: frozenset[int]


def open_on(files: Mapping[str, bytes], devices: int = 1) -> BookieStorage:
    return open_disk(MemoryDisk(files), devices=devices)


def open_disk(
    disk: MemoryDisk, incarnation: bytes = INCARNATION, *, devices: int = 1, **settings: Any
) -> BookieStorage:
    """settings: of BookieStorage, where a test wants others."""
    usual: dict[str, Any] = {
        "journal_file_bytes": JOURNAL_FILE_BYTES,
        "flush_bytes": 4 << 20,
        "cache_bytes_max": 4 << 20,
        "journal_directories": places("journal", devices),
        "ledger_directories": places("entries", devices),
    }
    return BookieStorage(
        "/b1", "b1", TOKEN, threaded=False, io=disk, incarnation=incarnation, **(usual | settings)
    )


def places(kind: str, devices: int) -> list[str]:
    return [f"/b1/{kind}", *(f"/b1/{kind}-{number}" for number in range(2, devices + 1))]


def flush(storage: BookieStorage) -> None:
    """One entry log of what was put since the last one."""
    commit(storage)
    storage.flushes.begin()
    storage.flushes.wait()


def commit(storage: BookieStorage) -> None:
    while storage.durable() + 1 < storage.next_token():
        storage.step()


def held(storage: BookieStorage, ledger_id: int) -> list[int]:
    """The entries that it has of a ledger."""
    return ids_in(storage.read(ledger_id, 0, 10_000, 1 << 24).frame)


def make(*, logs: int = 3, incarnation: bytes = INCARNATION, devices: int = 1) -> SmallBookie:
    """logs flushes of a few KiB each, and a journal with records above the log mark, in two files."""
    disk = MemoryDisk({"/b1/.made": b""})
    storage = open_disk(disk, incarnation, devices=devices)
    entries: dict[tuple[int, int], bytes] = {}

    def put(ledger_id: int, ids: list[int], size: int = 0) -> None:
        frame = make_frame(ledger_id, ids, size=size)
        storage.put_frame(frame)
        row = storage.table.get(ledger_id) or storage.table.create(ledger_id)
        row.last_entry = max(row.last_entry, ids[-1])
        storage.table.mark_dirty(row)
        at = 0
        for entry_id in ids:
            end = at + 52 + int.from_bytes(frame.body[at + 4 : at + 8], "little")
            entries[ledger_id, entry_id] = bytes(frame.body[at:end])
            at = end

    for number in range(logs):
        storage.append(RecordKind.BIRTH, 100 + number, KEY)
        put(3, list(range(40 * number, 40 * number + 40)), size=30)
        put(5, [i for i in range(30 * number, 30 * number + 30) if i % 3 != 1])
        put(9, [number, 100 + number, 1000 * number + 500])
        if number == 1:
            row = storage.table.get(5)
            assert row is not None
            row.is_fenced = 1
            storage.table.mark_dirty(row)
            storage.append(RecordKind.FENCE, 5, b"")
        flush(storage)
    put(3, [1, 2], size=30)  # Stored again, as a recovery does.
    flush(storage)
    for number in range(15):
        put(200 + number % 3, list(range(8 * (number // 3), 8 * (number // 3) + 8)), size=300 + number)
        if number % 2:
            storage.append(RecordKind.EXPLICIT_LAC, 200, encode_explicit_lac(number // 3, 0))
        commit(storage)
    storage.append(RecordKind.FENCE, 201, b"")
    storage.table.get(201).is_fenced = 1  # type: ignore[union-attr]
    commit(storage)
    fenced = {5, 201}
    if devices > 1:  # So that no entry is in the last group of a journal.
        for ledger_id in range(301, 309):
            storage.table.create(ledger_id).is_fenced = 1
            storage.append(RecordKind.FENCE, ledger_id, b"")
            fenced.add(ledger_id)
        commit(storage)
    files = {path: content for path, content in disk.files().items() if not path.endswith(("LOCK", ".made"))}
    storage._release()
    return SmallBookie(files, entries, frozenset(fenced))
