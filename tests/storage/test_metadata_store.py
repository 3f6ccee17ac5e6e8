"""The metadata log: replay, snapshots in the log, trimming, and crashes at every write."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from embedbk.codec.metadata_messages import Put, Txn
from embedbk.errors import StorageError, UsageError
from embedbk.metadata.catalog import Catalog, Limits
from embedbk.metadata.commands import Run, StartSession, encode_command
from embedbk.storage.journal import DamagedJournal
from embedbk.storage.member_notes import MemoryNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore, open_metadata_store

FILE_BYTES = 64 << 10
SMALL = Limits(txn_bytes_max=8 << 10, txn_operations_max=16)
IDENTITY = MemberIdentity(b"t" * 16, b"i" * 16)


class Writer:
    """A store with its catalog, as a member uses them; `acknowledged` is what a client would have been told."""

    key_count = 7

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.catalog = store.catalog
        self.digests = {store.index: self.catalog.digest()}  # By index, of the catalog after it.
        self.acknowledged = store.index

    def write(self, count: int, size: int = 100) -> None:
        for _ in range(count):
            index = self.store.index + 1
            command = (
                StartSession(1, 1000, "w")
                if 1 not in self.catalog.sessions
                else Run(
                    1,
                    index,
                    index,
                    Txn([], [Put(f"/k/{index % self.key_count}", b"%d" % index + bytes(size))]),
                )
            )
            self.store.append(index, encode_command(command))
            self.catalog.apply(command)
            self.digests[index] = self.catalog.digest()

    def sync(self) -> None:
        self.acknowledged = self.store.durable()

    def snapshot_if_due(self) -> None:
        if self.store.is_snapshot_due():
            self.store.save_snapshot(self.catalog.snapshot())


def on_disk(
    disk: MemoryDisk, snapshot_due_bytes: int = 4000, notes: MemoryNotes | None = None
) -> MetadataStore:
    return open_metadata_store(
        "m",
        io=disk,
        file_bytes=FILE_BYTES,
        threaded=False,
        limits=SMALL,
        snapshot_due_bytes=snapshot_due_bytes,
        new_identity=IDENTITY,
        notes=notes,
    )


def in_memory(journal: MemoryJournal, **settings: int) -> MetadataStore:
    return MetadataStore(journal, journal.first_token(), new_identity=IDENTITY, **settings)


def test_what_was_durable_is_there_at_the_next_start() -> None:
    """P10.4: losing the metadata quorum never loses state."""
    journal = MemoryJournal()
    writer = Writer(in_memory(journal))
    writer.write(5)
    journal.commit(4)  # The identity and three commands.
    writer.sync()
    assert writer.acknowledged == 3
    again = in_memory(MemoryJournal(journal.crash()))
    assert (again.index, again.durable(), again.catalog.digest()) == (3, 3, writer.digests[3])
    assert again.identity == IDENTITY


def test_an_index_is_never_skipped_nor_given_twice() -> None:
    from embedbk.errors import InvariantError

    store = in_memory(MemoryJournal())
    for index in (0, 2):
        with pytest.raises(InvariantError):
            store.append(index, b"")


def test_a_snapshot_stands_for_what_was_before_it_and_the_log_is_trimmed() -> None:
    journal = MemoryJournal()
    writer = Writer(in_memory(journal, snapshot_due_bytes=4000, chunk_bytes=100))
    while not writer.store.is_snapshot_due():
        writer.write(1)
    writer.snapshot_if_due()
    assert not writer.store.is_snapshot_due()
    writer.write(3)  # Queued behind the first chunks; not yet durable.
    journal.commit()
    writer.sync()
    assert journal.first_token() > 1
    assert writer.acknowledged == writer.store.index
    survivors = journal.crash()
    again = in_memory(MemoryJournal(survivors))
    assert (again.index, again.catalog.digest()) == (writer.store.index, writer.catalog.digest())
    assert again.identity == IDENTITY


def test_a_large_snapshot_lets_commands_through() -> None:
    """CHUNKS_QUEUED_BYTES_MAX: chunks wait while much is queued; commands between them come after the snapshot."""
    journal = MemoryJournal()
    writer = Writer(in_memory(journal, snapshot_due_bytes=1))
    writer.write(8, size=200 << 10)
    for n in range(30):
        index = writer.store.index + 1
        command = Run(1, index, index, Txn([], [Put(f"/large/{n}", bytes(250 << 10))]))
        writer.store.append(index, encode_command(command))
        writer.catalog.apply(command)
    journal.commit()
    writer.snapshot_if_due()
    assert 0 < journal.queued_bytes() < 6 << 20
    turns = 0
    while journal.pending:
        writer.write(1)
        journal.commit()
        writer.sync()
        turns += 1
    assert turns > 1
    again = in_memory(MemoryJournal(journal.crash()))
    assert again.catalog.digest() == writer.catalog.digest()


@pytest.mark.parametrize("count", range(60))
def test_a_crash_amid_a_snapshot_leaves_the_old_one_or_the_new_one(count: int) -> None:
    """Two snapshots and the commands between them, cut off after each record."""
    journal = MemoryJournal()
    writer = Writer(in_memory(journal, snapshot_due_bytes=1500, chunk_bytes=200))
    for _ in range(8):
        writer.write(2)
        writer.snapshot_if_due()
        left = count - (journal.records[-1].token if journal.records else 0)
        journal.commit(max(0, left))
        writer.sync()
    again = in_memory(MemoryJournal(journal.crash()))
    assert again.index >= writer.acknowledged
    assert again.catalog.digest() == writer.digests[again.index]
    writer = Writer(again)  # And it goes on from there.
    writer.write(20)
    writer.snapshot_if_due()


def play(disk: MemoryDisk) -> Iterator[Writer]:
    """Puts, transactions and snapshots on the real journal, one commit at a time; yields after each."""
    writer = Writer(on_disk(disk))
    journal = writer.store._journal
    for turn in range(40):
        writer.write(turn % 3 + 1, size=400)
        writer.snapshot_if_due()
        journal.step()  # type: ignore[attr-defined]
        writer.sync()
        yield writer
    writer.store.close()


def writes_of_a_whole_run() -> int:
    disk = MemoryDisk()
    writers = list(play(disk))
    assert writers[-1].store._snapshot_bytes > 0
    return disk.calls("write")


@pytest.mark.parametrize("sectors", [0, 1, 0b110, ~(1 << 63) & (1 << 64) - 1])
def test_a_crash_at_any_write_leaves_the_old_or_the_new_value(sectors: int) -> None:
    """Issue 2, 4: a crash at any write leaves the old or the new value: with what was acknowledged, and a prefix."""
    total = writes_of_a_whole_run()
    restarts = 0
    for nth in range(1, total + 1):
        disk = MemoryDisk()
        disk.tear(nth=nth, sectors=sectors)
        writer = None
        try:
            for writer in play(disk):
                if writer.store.failed():
                    break
        except StorageError:
            pass  # The power went while it was opened, or queued more.
        acknowledged, digests = (writer.acknowledged, writer.digests) if writer else (0, {})
        if writer:
            writer.store.close()
        disk.crash(seed=nth)
        again = on_disk(disk)
        restarts += 1
        assert again.index >= acknowledged
        assert again.identity == IDENTITY
        if again.index:
            assert again.catalog.digest() == digests[again.index]
        again.close()
    assert restarts == total > 40


def test_a_failed_write_is_told_and_nothing_more_is_acknowledged() -> None:
    """P7.6: after a failed sync it never retries."""
    disk = MemoryDisk()
    writer = Writer(on_disk(disk))
    writer.write(3)
    disk.fail("write", error=errno.EIO)
    writer.store._journal.step()  # type: ignore[attr-defined]
    assert "errno 5" in str(writer.store.failed())
    assert writer.store.durable() == 0
    with pytest.raises(StorageError):
        writer.write(1)
    writer.store.close()


def test_files_are_used_again_after_snapshots() -> None:
    """The log of a member that lives for long does not grow with what it did, only with what it holds."""
    disk = MemoryDisk()
    writer = Writer(on_disk(disk))
    for _ in range(600):
        writer.write(3, size=400)
        writer.snapshot_if_due()
        while writer.store._journal.step():  # type: ignore[attr-defined]
            writer.sync()
    assert len(disk.files()) <= 6
    writer.store.close()
    again = on_disk(disk)
    assert again.catalog.digest() == writer.catalog.digest()
    again.close()


def test_a_log_without_its_beginning_is_refused() -> None:
    """P7.1 in the spirit: what is missing is said; an empty catalog is never made of a damaged log."""
    journal = MemoryJournal()
    writer = Writer(in_memory(journal))
    writer.write(5)
    journal.commit()
    with pytest.raises(StorageError, match="no whole snapshot"):
        in_memory(MemoryJournal(journal.crash()[2:]))


def test_a_gap_and_a_foreign_record_are_refused() -> None:
    journal = MemoryJournal()
    writer = Writer(in_memory(journal))
    writer.write(5)
    journal.commit()
    records = journal.crash()
    with pytest.raises(StorageError, match="follows 2"):
        in_memory(MemoryJournal((*records[:3], *records[4:])))
    stranger = MemoryJournal()
    stranger.append(77, 0, b"")
    stranger.commit()
    with pytest.raises(StorageError, match="kind 77"):
        in_memory(MemoryJournal(stranger.crash()))


def test_two_members_in_one_log_are_refused() -> None:
    journal = MemoryJournal()
    in_memory(journal)
    journal.append(3, 0, bytes([1]) + b"x" * 32)
    journal.commit()
    with pytest.raises(StorageError, match="another member"):
        in_memory(MemoryJournal(journal.crash()))


def test_an_emptied_directory_is_another_cluster(tmp_path: object) -> None:
    """P10.3: a member that lost its disk never takes part with the memory of a newborn: its token is another."""
    first = open_metadata_store(f"{tmp_path}/one")
    second = open_metadata_store(f"{tmp_path}/two")
    assert first.identity != second.identity
    kept = first.identity
    with pytest.raises(StorageError):
        open_metadata_store(f"{tmp_path}/one")  # Opened twice.
    first.close()
    second.close()
    again = open_metadata_store(f"{tmp_path}/one")
    assert again.identity == kept
    again.close()


def test_a_file_too_small_for_a_transaction_is_refused(tmp_path: object) -> None:
    with pytest.raises(UsageError, match="at least"):
        open_metadata_store(f"{tmp_path}/m", file_bytes=1 << 20)


def test_an_empty_catalog_is_the_same_in_memory_and_on_disk() -> None:
    store = on_disk(MemoryDisk())
    assert store.catalog.digest() == Catalog(SMALL).digest() == in_memory(MemoryJournal()).catalog.digest()
    assert (store.index, store.durable(), store.filenos()) == (0, 0, [])
    store.close()


def test_a_damaged_log_says_that_nobody_else_has_its_records() -> None:
    """I42: the only member cannot be replaced from others, as a bookie can."""
    disk = MemoryDisk()
    writer = Writer(on_disk(disk))
    for _ in range(4):
        writer.write(3)
        while writer.store._journal.step():  # type: ignore[attr-defined]
            writer.sync()
    writer.store.close()
    path = next(path for path in disk.files() if path.endswith("journal-0000000000000001"))
    content = bytearray(disk.read(path))
    content[4096 + 100] ^= 1  # In the first group.
    disk.put(path, bytes(content))
    with pytest.raises(DamagedJournal) as refused:
        on_disk(disk)
    assert "nobody else has" in refused.value.hint
    assert "replace" not in str(refused.value)
