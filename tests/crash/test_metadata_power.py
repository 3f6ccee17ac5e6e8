"""Power goes before every call that a metadata member's log makes: no acknowledged change is lost (P2.1, P10, I40).

Its log stands in the same kind of journal as a bookie's, and its snapshots in files beside it, cut while commands go
on: rolling, recycling, the writing, renaming, naming and deleting of snapshots, and trimming are all met, with direct
I/O and without, and any subset of unsynced sectors and names (D1, D14; scenario 90).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from embedbk.codec.metadata_messages import Put, Txn
from embedbk.errors import EmbedbkError, StorageError
from embedbk.metadata import cutting
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import Run
from embedbk.metadata.log_records import encode_configuration
from embedbk.metadata.raft_vocabulary import Persist
from embedbk.storage.member_notes import MemoryNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import FETCHED_SUFFIX, SnapshotHeader, read_header
from embedbk.storage.snapshot_writer import SnapshotWriter
from tests.storage.solo import replayed
from tests.storage.test_metadata_store import IDENTITY, Writer, on_disk

TURNS = 40
PARTS = 4  # The calls are dealt to so many tests, for as many processes.


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch):
    """A snapshot takes several turns."""
    monkeypatch.setattr(cutting, "SLICE_BYTES", 8 << 10)


def disk_of(direct: bool) -> MemoryDisk:
    disk = MemoryDisk()
    if not direct:
        disk.refuse_direct()
    return disk


class LargeWriter(Writer):
    """Its snapshots have several chunks: nothing may be trimmed before one is named durably."""

    key_count = 10


def work(writer: Writer, turns: int) -> None:
    """Puts of several sizes, and snapshots of several chunks; `acknowledged` follows what the log says."""
    for turn in range(turns):
        writer.write(3, size=(100, 4000, 7000)[turn % 3])
        writer.snapshot_if_due(3)
        while writer.store._journal.step():  # type: ignore[attr-defined]
            writer.sync()
        writer.sync()


def life(disk: MemoryDisk, turns: int, notes: MemoryNotes | None = None) -> Writer | None:
    """One process: a start and its work, until the power goes; None when it did not even start. notes: of how far the
    log was used; they outlive everything that becomes of it."""
    writer: Any = None
    with contextlib.suppress(EmbedbkError):
        writer = LargeWriter(on_disk(disk, notes=notes))
        work(writer, turns)
    return writer


def close(writer: Writer | None) -> None:
    with contextlib.suppress(EmbedbkError):
        if writer is not None:
            writer.store.close()  # On a disk without power: this writes nothing.


def check(disk: MemoryDisk, notes: MemoryNotes, *lives: Writer | None) -> None:
    """What the log holds is a prefix of what was written, with everything acknowledged in any of the lives; and it is
    never taken for one that has less than was used (P9.2)."""
    again = on_disk(disk, notes=notes)
    assert again.identity == IDENTITY
    digests: dict[int, str] = {}
    for writer in lives:
        if writer is not None:
            assert again.index >= writer.acknowledged
            digests.update(writer.digests)
    assert again.index == 0 or replayed(again).digest() == digests[again.index]
    again.close()


def call_count(direct: bool) -> int:
    disk = disk_of(direct)
    writer = life(disk, TURNS)
    count = disk.calls()
    close(writer)
    return count


def test_the_workload_meets_what_it_should() -> None:
    """Rolling, recycling, snapshots and trimming are among the calls; else the tests below would be blind."""
    disk = disk_of(True)
    writer = life(disk, TURNS)
    assert writer is not None
    assert writer.acknowledged == writer.store.index > 40
    facts = writer.store._journal.facts()  # type: ignore[attr-defined]
    assert facts.generation > 3
    assert facts.first_token > 1
    assert writer.store.snapshots is not None
    newest = writer.store.snapshots.kept[-1]
    assert disk.calls("rename") > 5
    assert disk.calls("unlink") > 1
    with writer.store.snapshots._files.open(newest.name) as file:
        assert read_header(file).chunk_count > 4
    writer.store.close()


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("part", range(PARTS))
def test_no_acknowledged_change_is_lost_when_the_power_goes(part: int, direct: bool) -> None:
    """I40, I43, I44, I45, I49: before any call of a first life, then again somewhere in the second. Each way of syncing
    takes every other call."""
    for call in range(1 + 2 * part + direct, call_count(direct) + 1, 2 * PARTS):
        disk = disk_of(direct)
        disk.halt(call)
        notes = MemoryNotes()
        first = life(disk, TURNS, notes)
        disk.crash(call)
        close(first)
        check(disk, notes, first)
        disk.halt(20 + call % 40)
        second = life(disk, 6, notes)
        disk.crash(call + 1)
        close(second)
        check(disk, notes, first, second)


@pytest.mark.parametrize("sectors", [0, 1, 0b10, 0b1110, ~1 & (1 << 64) - 1, (1 << 63) - 1])
def test_no_acknowledged_change_is_lost_in_a_torn_write(sectors: int) -> None:
    """D2: any of these sectors of any write is stored, and the others are not."""
    disk = disk_of(True)
    writer = life(disk, TURNS)
    writes = disk.calls("write")
    close(writer)
    for nth in range(1, writes + 1, 2):
        disk = disk_of(True)
        disk.tear(nth=nth, sectors=sectors)
        notes = MemoryNotes()
        writer = life(disk, TURNS, notes)
        disk.crash(nth)
        close(writer)
        check(disk, notes, writer)


# --- A snapshot of another member ---------------------------------------------------------------------------


@contextlib.contextmanager
def _fetch_refused() -> Iterator[None]:
    try:
        yield
    except OSError as refused:
        raise StorageError(str(refused)) from refused


def put_fetched(writer: Writer, disk: MemoryDisk) -> None:
    """A snapshot of 20 entries more comes from another member, and takes the place of the log."""
    store, catalog, index = writer.store, copy.deepcopy(writer.catalog), writer.store.index
    for index in range(store.index + 1, store.index + 21):
        put = Put(f"/k/{index % 10}", b"%d" % index + bytes(3000))
        catalog.apply(Run(1, index, index, Txn([], [put])), index, FIRST_TERM)
    cut = catalog.cut()
    counts = cut.head.revision, cut.head.records, cut.head.sessions
    configuration = encode_configuration(IDENTITY.first_configuration)
    header = SnapshotHeader(IDENTITY.cluster_token, b"o" * 16, index, FIRST_TERM, *counts, configuration, 0)
    files = SnapshotFiles("m/snapshots", io=disk)
    fetched = SnapshotWriter(files, header, lambda: None)
    for piece in iter(cut.next_piece, None):
        fetched.add(piece)
    fetched.finish()
    if fetched.failure is not None:
        raise StorageError("nothing was fetched")
    with _fetch_refused():
        files.rename(fetched.name, fetched.name + FETCHED_SUFFIX)
    store.install(index, FIRST_TERM, keeps_entries=False)
    catalog.end_cut()
    writer.digests[index] = catalog.digest()
    store.persist(Persist(index, FIRST_TERM, None, index, ()))
    for _ in store.load(index, FIRST_TERM):
        pass
    writer.catalog, writer.cut = catalog, None


def followers_life(disk: MemoryDisk, notes: MemoryNotes | None = None) -> Writer | None:
    writer: Any = None
    with contextlib.suppress(EmbedbkError):
        writer = LargeWriter(on_disk(disk, notes=notes))
        work(writer, 4)
        for _ in range(3):
            put_fetched(writer, disk)
            work(writer, 6)
    return writer


@pytest.mark.parametrize("part", range(PARTS))
def test_a_fetched_snapshot_counts_whole_or_not_at_all(part: int) -> None:
    """I80, I81: the power goes before any call while snapshots of another member take the place of the log."""
    disk = disk_of(True)
    whole = followers_life(disk)
    assert whole is not None
    assert whole.acknowledged == whole.store.index > 60
    total = disk.calls()
    close(whole)
    for call in range(1 + part, total + 1, PARTS):
        disk = disk_of(True)
        disk.halt(call)
        notes = MemoryNotes()
        first = followers_life(disk, notes)
        disk.crash(call)
        close(first)
        check(disk, notes, first)
