"""The metadata log: replay, snapshots, trimming, and crashes at every write (test_snapshots.py: their files)."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from embedbk.codec.metadata_messages import Put, Txn
from embedbk.errors import StorageError, UsageError
from embedbk.metadata.catalog import Catalog, Limits
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import Run, StartSession, encode_command
from embedbk.metadata.cutting import CatalogCut
from embedbk.storage.journal import DamagedJournal
from embedbk.storage.member_notes import MemoryNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_log import KIND_STEP
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.storage.snapshot_files import SnapshotFiles
from tests.storage.solo import append, begin_snapshot, replayed

FILE_BYTES = 64 << 10
SMALL = Limits(txn_bytes_max=8 << 10, txn_operations_max=16)
IDENTITY = MemberIdentity(b"t" * 16, b"i" * 16)


class Writer:
    """A store with its catalog, as a member uses them; `acknowledged` is what a client would have been told."""

    key_count = 7

    def __init__(self, store: MetadataStore) -> None:
        self.cut: CatalogCut | None = None
        self.store = store
        self.catalog = replayed(store)
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
            append(self.store, index, encode_command(command))
            self.catalog.apply(command, index, FIRST_TERM)
            self.digests[index] = self.catalog.digest()

    def sync(self) -> None:
        self.acknowledged = max(self.acknowledged, self.store.durable())

    def snapshot_if_due(self, slices: int = 1000) -> None:
        """Begin one if it is due, and take so many slices of the one under way, as a member's turns do."""
        snapshots = self.store.snapshots
        assert snapshots is not None
        if self.store.is_snapshot_due():
            self.cut = self.catalog.cut()
            begin_snapshot(self.store, self.store.index, self.cut.head)
        for _ in range(slices):
            if self.cut is None:
                return
            piece = self.cut.next_piece()
            if piece is not None:
                snapshots.add(piece)
                continue
            self.cut = None
            self.catalog.end_cut()
            snapshots.end()


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


def in_memory(
    journal: MemoryJournal, disk: MemoryDisk | None = None, snapshot_due_bytes: int = 4000
) -> MetadataStore:
    """disk: for its snapshots; without, it has none."""
    return MetadataStore(
        journal,
        journal.first_token(),
        new_identity=IDENTITY,
        snapshots=SnapshotFiles("snapshots", io=disk) if disk is not None else None,
        snapshot_due_bytes=snapshot_due_bytes,
    )


def test_what_was_durable_is_there_at_the_next_start() -> None:
    """P10.4: losing the metadata quorum never loses state."""
    journal = MemoryJournal()
    writer = Writer(in_memory(journal))
    writer.write(5)
    journal.commit(4)  # The identity and three commands.
    writer.sync()
    assert writer.acknowledged == 3
    again = in_memory(MemoryJournal(journal.crash()))
    assert (again.index, again.durable(), replayed(again).digest()) == (3, 0, writer.digests[3])
    assert again.identity == IDENTITY


def test_an_index_is_never_skipped_nor_given_twice() -> None:
    from embedbk.errors import InvariantError

    store = in_memory(MemoryJournal())
    for index in (0, 2):
        with pytest.raises(InvariantError):
            append(store, index, b"")


def test_a_snapshot_stands_for_what_was_before_it_and_the_log_is_trimmed_up_to_the_one_before() -> None:
    """I80: the state by applying 1 to n; the log stays behind the older of the two that are kept."""
    journal, disk = MemoryJournal(), MemoryDisk()
    writer = Writer(in_memory(journal, disk))
    ends: list[int] = []
    for turn in range(3):
        while not writer.store.is_snapshot_due():
            writer.write(1)
        ends.append(writer.store.index)
        writer.snapshot_if_due()
        assert not writer.store.is_snapshot_due()
        writer.write(3)  # Not in the snapshot; not yet durable.
        for _ in range(3):
            journal.commit()
            writer.sync()
        assert writer.store.snapshots is not None
        assert [each.index for each in writer.store.snapshots.kept] == ends[-2:]
        first = next(record.ledger_id for record in journal.records if record.kind == KIND_STEP)
        assert first == (1 if turn == 0 else ends[-2] + 1)
    assert writer.acknowledged == writer.store.index
    again = in_memory(MemoryJournal(journal.crash()), disk)
    assert (again.index, replayed(again).digest()) == (writer.store.index, writer.catalog.digest())
    assert again.identity == IDENTITY
    assert again._marks.token_of(ends[-1] + 1, 1 << 50) == next(
        record.token
        for record in journal.records
        if (record.kind, record.ledger_id) == (KIND_STEP, ends[-1] + 1)
    )


@pytest.mark.parametrize("count", range(60))
def test_a_crash_amid_a_snapshot_leaves_the_old_one_or_the_new_one(count: int) -> None:
    """I80: snapshots in slices and the commands between them, cut off after each record."""
    journal, disk = MemoryJournal(), MemoryDisk()
    writer = Writer(in_memory(journal, disk, 1500))
    for _ in range(8):
        writer.write(2)
        writer.snapshot_if_due(2)
        left = count - (journal.records[-1].token if journal.records else 0)
        journal.commit(max(0, left))
        writer.sync()
    disk.crash(count + 1)
    again = in_memory(MemoryJournal(journal.crash()), disk)
    assert again.index >= writer.acknowledged
    assert replayed(again).digest() == writer.digests[again.index]
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
    assert writers[-1].store.snapshots.kept  # type: ignore[union-attr]
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
            assert replayed(again).digest() == digests[again.index]
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
    assert len(disk.files(stable=False)) <= 12
    assert sum(path.endswith(".snap") for path in disk.files(stable=False)) == 2
    writer.store.close()
    again = on_disk(disk)
    assert replayed(again).digest() == writer.catalog.digest()
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
    with pytest.raises(StorageError, match="follows entry 3, and the log ends with 2"):
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
    assert (
        replayed(store).digest() == Catalog(SMALL).digest() == replayed(in_memory(MemoryJournal())).digest()
    )
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
