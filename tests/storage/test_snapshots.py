"""Snapshots of the metadata as files: which count, which stay, and what a damaged one costs (I80, I81)."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from embedbk.codec.metadata_messages import Put, Txn
from embedbk.errors import StorageError, UsageError
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import Run, StartSession
from embedbk.storage.checking import check_metadata
from embedbk.storage.findings import Findings
from embedbk.storage.member_notes import MEMBER_FILE
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal, MemoryRecord
from embedbk.storage.metadata_log import KIND_STEP
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MetadataStore
from embedbk.storage.raw_files import DiskDirectory, PictureDirectory
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import SnapshotHeader, read_header, read_pieces, snapshot_name
from embedbk.storage.snapshot_writer import SnapshotWriter
from embedbk.storage.snapshots import KIND_NAMED, Named
from tests.storage.older_metadata import OlderWriter
from tests.storage.solo import replayed
from tests.storage.test_metadata_store import IDENTITY, Writer, in_memory


class Member:
    """A store on a journal and a disk in memory that live through its restarts."""

    def __init__(self) -> None:
        self.journal, self.disk = MemoryJournal(), MemoryDisk()
        self.writer = Writer(in_memory(self.journal, self.disk))

    @property
    def store(self) -> MetadataStore:
        return self.writer.store

    @property
    def kept(self) -> list[Named]:
        assert self.store.snapshots is not None
        return self.store.snapshots.kept

    def settle(self) -> None:
        for _ in range(3):
            self.journal.commit()
            self.writer.sync()

    def snapshot(self) -> Named:
        """Work until one is due, and make it."""
        while not self.store.is_snapshot_due():
            self.writer.write(1)
        self.writer.snapshot_if_due()
        self.writer.write(2)
        self.settle()
        return self.kept[-1]

    def restart(self) -> None:
        """Power off and on."""
        self.disk.crash(7)
        self.journal = MemoryJournal(self.journal.crash())
        self.writer = Writer(in_memory(self.journal, self.disk))

    def files(self) -> list[str]:
        return sorted(path.removeprefix("snapshots/") for path in self.disk.files(stable=False))

    def flip(self, name: str, offset: int) -> None:
        content = bytearray(self.disk.read(f"snapshots/{name}"))
        content[offset] ^= 1
        self.disk.put(f"snapshots/{name}", bytes(content))


@pytest.fixture
def member() -> Member:
    return Member()


def digest(member: Member) -> str:
    return member.writer.catalog.digest().hex()


# --- What counts, what stays ------------------------------------------------------------------------------


def test_the_two_newest_stay_and_older_ones_go(member: Member) -> None:
    """I80: a valid one is deleted behind two newer ones that count."""
    made = [member.snapshot() for _ in range(4)]
    assert member.kept == made[-2:]
    assert member.files() == [each.name for each in made[-2:]]
    expected = digest(member)
    member.restart()
    assert member.kept == made[-2:]
    assert digest(member) == expected


def test_a_snapshot_counts_when_the_log_names_it_durably_and_nothing_goes_before(member: Member) -> None:
    """I80, 73: until then the one before is what counts, and the whole log behind the one before that is there."""
    made = [member.snapshot(), member.snapshot()]
    first_token = member.journal.first_token()
    while not member.store.is_snapshot_due():
        member.writer.write(1)
    member.writer.snapshot_if_due()
    member.journal.commit()
    member.writer.sync()  # The file stands under its name; its record is queued.
    assert len(member.files()) == 3
    assert (member.kept, member.journal.first_token()) == (made, first_token)
    expected = member.writer.digests[member.store.durable()]
    member.restart()
    assert member.kept == made
    assert member.writer.catalog.digest() == expected
    assert member.files() == [each.name for each in made], "its commands are in the log: it is removed"


def test_a_file_of_commands_that_are_not_durable_is_not_finished(member: Member) -> None:
    """A crash would leave a whole file of what the log does not have."""
    member.journal.commit()
    while not member.store.is_snapshot_due():
        member.writer.write(1)
    member.writer.snapshot_if_due()
    member.writer.sync()
    assert all(name.endswith(".part") for name in member.files())
    member.restart()
    assert member.files() == []


def test_what_is_pinned_stays_until_it_is_unpinned_as_often(member: Member) -> None:
    """METADATA.md, 2: a transfer that takes long goes on with the snapshot that it began with."""
    first = member.snapshot()
    snapshots = member.store.snapshots
    assert snapshots is not None
    snapshots.pin(first.name)
    snapshots.pin(first.name)
    made = [member.snapshot() for _ in range(3)]
    assert member.files() == [first.name, made[-2].name, made[-1].name]
    snapshots.unpin(first.name)
    assert first.name in member.files()
    snapshots.unpin(first.name)
    assert member.files() == [made[-2].name, made[-1].name]
    with pytest.raises(UsageError, match="is not kept; there are"):
        snapshots.pin(first.name)


def test_a_pin_ends_with_the_process(member: Member) -> None:
    first = member.snapshot()
    assert member.store.snapshots is not None
    member.store.snapshots.pin(first.name)
    made = [member.snapshot() for _ in range(3)]
    member.restart()
    assert member.files() == [each.name for each in made[-2:]]


# --- Damage -----------------------------------------------------------------------------------------------


def harms(content: bytes) -> Iterator[bytes]:
    """A bit of header, first chunk, middle, index and closing record; cut off, grown, empty."""
    for offset in (0, 9, 50, 100, 4096, 4100, 4112, len(content) // 2, len(content) - 40, len(content) - 1):
        yield content[:offset] + bytes([content[offset] ^ 4]) + content[offset + 1 :]
    yield from (content[:-1], content[:5000], content[:100], b"", content + b"\0")


def test_a_damaged_newest_snapshot_costs_nothing_and_is_set_aside(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    """Story 9, scenarios 73 and 75: the start takes the one before it, replays the log, says so, and keeps the
    damaged file for a person."""
    made = [member.snapshot() for _ in range(3)]
    path = f"snapshots/{made[-1].name}"
    whole = member.disk.read(path)
    records, files = member.journal.crash(), member.disk.files()
    expected = digest(member)
    for content in harms(whole):
        member.disk = MemoryDisk(files)
        member.disk.put(path, content)
        member.journal = MemoryJournal(records)
        caplog.clear()
        member.restart()
        assert digest(member) == expected
        assert member.kept == [made[-2]]
        assert member.files() == [made[-2].name, made[-1].name + ".aside"]
        assert f"starts from snapshot {made[-2].name}: {made[-1].name}: " in caplog.text
        member.restart()
        assert member.kept == [made[-2]], "what was set aside is never counted again"
        newer = [member.snapshot() for _ in range(3)]
        assert member.files() == [made[-1].name + ".aside", *(each.name for each in newer[-2:])]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_one_behind_which_the_log_was_trimmed_counts_no_more(member: Member, is_damaged: bool) -> None:
    """Scenario 75, I80: a crash puts back the file of one that was let go, and the log still names it, as its record
    stands behind the last entry that was trimmed. What it stands for leads nowhere: it is left over, and no second one
    beside the one that the start takes (seed 15006135)."""
    made = [member.snapshot(), member.snapshot()]
    oldest = member.disk.read(f"snapshots/{made[0].name}")
    made.append(member.snapshot())
    expected = digest(member)
    records = member.journal.crash()
    named = MemoryRecord(records[0].token - 1, KIND_NAMED, made[0].index, made[0].encode())
    member.disk = MemoryDisk({**member.disk.files(), f"snapshots/{made[0].name}": oldest})
    if is_damaged:
        member.flip(made[2].name, 5000)
    member.journal = MemoryJournal((named, *records))
    member.restart()
    assert digest(member) == expected
    assert member.kept == (made[1:2] if is_damaged else made[1:])
    assert member.files() == [made[1].name, made[2].name + ".aside" * is_damaged]


def test_the_one_before_a_damaged_one_stays_beside_the_next(member: Member) -> None:
    """Scenario 75: A, then B that is damaged, then C: the log stands behind A, so A stays, and a
    damaged C costs nothing."""
    made = [member.snapshot() for _ in range(3)]
    member.flip(made[-1].name, 4113)
    member.restart()
    third = member.snapshot()
    assert member.kept == [made[1], third]
    member.restart()
    assert member.kept == [made[1], third]
    expected = digest(member)
    member.flip(third.name, 4113)
    member.restart()
    assert (digest(member), member.kept) == (expected, [made[1]])


def test_a_snapshot_that_is_named_twice_is_one(member: Member) -> None:
    """75, I81 (seed 17011828): the newest is damaged and set aside, and the same entry is where the next is cut: two
    records name one file. Counted as two, it would be all that is kept, and the next one would remove it."""
    made = [member.snapshot() for _ in range(2)]
    snapshots = member.store.snapshots
    assert snapshots is not None
    again = replace(made[-1], token=member.journal.append(KIND_NAMED, made[-1].index, made[-1].encode()))
    member.settle()
    member.restart()
    assert member.kept == [made[0], again]
    assert member.kept[-1].token == again.token
    third = member.snapshot()
    assert member.kept == [again, third]
    assert member.files() == [again.name, third.name]
    expected = digest(member)
    member.flip(third.name, 4113)
    member.restart()
    assert (digest(member), member.kept) == (expected, [again])


def test_two_damaged_snapshots_behind_a_trimmed_log_are_refused_with_their_names(member: Member) -> None:
    """74: replay or refuse, never an empty database; on disk nothing changes."""
    made = [member.snapshot() for _ in range(3)]
    for each in made[-2:]:
        member.flip(each.name, 4113)
    before = [member.disk.read(f"snapshots/{each.name}") for each in made[-2:]]
    for _ in range(2):
        with pytest.raises(StorageError, match="no whole snapshot") as refused:
            member.restart()
        assert all(f"{each.name}: chunk 0" in str(refused.value) for each in made[-2:])
        assert "from a copy" in refused.value.hint
        assert [member.disk.read(f"snapshots/{each.name}") for each in made[-2:]] == before


def test_snapshots_that_are_gone_are_refused_with_their_names_or_replayed(member: Member) -> None:
    """Scenario 74: one by one; without all of them a trimmed log does not start, a whole one
    does."""
    whole = Member()
    made = [whole.snapshot()]
    whole.disk.drop(f"snapshots/{made[0].name}")
    expected = digest(whole)
    whole.restart()
    assert digest(whole) == expected
    made = [member.snapshot() for _ in range(3)]
    expected = digest(member)
    member.disk.drop(f"snapshots/{made[-1].name}")
    member.restart()
    assert digest(member) == expected
    assert member.kept == [made[-2]]
    member.disk.drop(f"snapshots/{made[-2].name}")
    with pytest.raises(StorageError, match="the file is missing"):
        member.restart()


def test_a_foreign_file_under_a_right_name_is_not_taken(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    """Another cluster's, or another state's of the same index: told with what differs, and set aside."""
    made = [member.snapshot() for _ in range(2)]
    expected = digest(member)
    records, files = member.journal.crash(), member.disk.files()
    other = Catalog()
    other.apply(StartSession(5, 1000, "other"), 1, FIRST_TERM)
    for token, said in [(b"o" * 16, "it is of the cluster 6f6f"), (IDENTITY.cluster_token, "with digest")]:
        member.disk = MemoryDisk(files)
        member.disk.drop(f"snapshots/{made[-1].name}")
        header = SnapshotHeader(token, IDENTITY.incarnation, made[-1].index, 1, 5, 0, 1)
        writer = SnapshotWriter(SnapshotFiles("snapshots", io=member.disk), header, lambda: None)
        for piece in iter(other.cut().next_piece, None):
            writer.add(piece)
            break
        writer.finish()
        member.journal = MemoryJournal(records)
        caplog.clear()
        member.restart()
        assert digest(member) == expected
        assert said in caplog.text
        assert made[-1].name + ".aside" in member.files()


def test_a_log_that_ends_before_its_snapshot_is_refused(member: Member) -> None:
    """I81: log and snapshots of two copies."""
    member.snapshot()
    records = list(member.journal.crash())
    named = next(record for record in records if record.kind == 4)
    few = [record for record in records if record.kind != KIND_STEP or record.ledger_id < named.ledger_id - 1]
    with pytest.raises(StorageError, match="stands for more"):
        in_memory(MemoryJournal(few), member.disk)


def test_files_of_others_and_left_over_ones(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    """What a crash left goes; what the log does not know is told and stays; what is beyond the log is set aside."""
    made = member.snapshot()
    whole = member.disk.read(f"snapshots/{made.name}")
    with SnapshotFiles("snapshots", io=member.disk).open(made.name) as file:
        header = read_header(file)
    strange = replace(header, cluster_token=b"o" * 16).encode()
    beyond = replace(header, index=10_000).encode()
    for name, content in {
        snapshot_name(3, 1) + ".part": b"half",
        snapshot_name(2, 1): replace(header, index=2).encode() + whole[4096:],
        snapshot_name(4, 1): strange,
        snapshot_name(5, 1): b"short",
        snapshot_name(10_000, 1): beyond,
        "notes.txt": b"mine",
    }.items():
        member.disk.put(f"snapshots/{name}", content)
    member.restart()
    assert member.files() == sorted(
        [
            snapshot_name(4, 1),
            snapshot_name(5, 1),
            snapshot_name(10_000, 1) + ".aside",
            made.name,
            "notes.txt",
        ]
    )
    assert f"{snapshot_name(4, 1)} is not named by the log and left alone: it is of the member" in caplog.text
    assert f"{snapshot_name(5, 1)} is not named by the log and left alone: it has 5 bytes" in caplog.text


# --- Refusals of the disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["open", "write", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_a_snapshot_changes_nothing_else(member: Member, call: str, code: int) -> None:
    """I53: the one before stays, the log is not trimmed, commands go on, and what was written of it goes."""
    made = [member.snapshot(), member.snapshot()]
    member.disk.fail(call, error=code)
    while not member.store.is_snapshot_due():
        member.writer.write(1)
    snapshots = member.store.snapshots
    assert snapshots is not None
    member.writer.snapshot_if_due()
    member.settle()
    assert snapshots.failure()
    assert member.kept == made
    member.store.abandon_snapshot()
    assert member.store.is_snapshot_due(), "as due as before"
    member.writer.write(5)
    member.settle()
    assert member.writer.acknowledged == member.store.index
    assert not any(name.endswith(".part") for name in member.files())
    assert member.snapshot().index > made[-1].index
    expected = digest(member)
    member.restart()
    assert digest(member) == expected


# --- Older builds -----------------------------------------------------------------------------------------


def put(index: int, size: int = 50) -> Run:
    return Run(1, index, index, Txn([], [Put(f"/k/{index % 9}", b"%d" % index + bytes(size))]))


@pytest.mark.parametrize("is_trimmed", [True, False])
@pytest.mark.parametrize("behind", [0, 5])
def test_a_log_of_an_older_build_is_taken_over_in_place(is_trimmed: bool, behind: int) -> None:
    """Kinds 1 to 3, a snapshot inside: the next snapshot is a file, and the old one goes behind two that count."""
    member = Member()
    member.journal = MemoryJournal()
    older = OlderWriter(member.journal, IDENTITY)
    older.write(StartSession(1, 1000, "w"))
    for index in range(2, 30):
        older.write(put(index))
    older.save_snapshot(is_trimmed=is_trimmed)
    for index in range(30, 30 + behind):
        older.write(put(index))
    member.journal.commit()
    member.restart()
    assert (member.store.index, digest(member)) == (older.index, older.catalog.digest().hex())
    assert (member.store.identity, member.kept) == (IDENTITY, [])
    first = member.snapshot()
    assert any(record.kind == 2 for record in member.journal.records), (
        "the older of two is still the one inside"
    )
    expected = digest(member)
    records, files = member.journal.crash(), member.disk.files()
    member.flip(first.name, 4300)
    member.restart()
    assert (member.kept, digest(member)) == ([], expected), "from the one inside, and the log"
    member.journal, member.disk = MemoryJournal(records), MemoryDisk(files)
    member.restart()
    member.snapshot()
    assert not any(record.kind == 2 for record in member.journal.records)
    expected = digest(member)
    member.restart()
    assert digest(member) == expected


def test_a_catalog_in_the_bytes_of_older_builds_is_read() -> None:
    """As the builds before wrote it, byte for byte."""
    data = bytes.fromhex(
        "9901cf0001000000000000cf0000000100000006ce01000002929607cd03e8a177029292029321c30192039321c201c406736563726574"
        "9608cd01f4a1780190c4009295a22f61c4013101010795a22f62c4023232010100019193c4106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e00"
        "01919201cf0000000100000006"
    )
    catalog = Catalog.restore(data)
    assert catalog.digest().hex() == "5ba48aeb607049a9b966d16e60e21a02"
    assert (catalog.next_id, catalog.descent.start_count, sorted(catalog.sessions)) == (4294967302, 1, [7, 8])


# --- On a real disk ---------------------------------------------------------------------------------------


def test_a_thread_writes_the_file_and_wakes_the_loop(tmp_path: Path) -> None:
    """filenos(): the member's loop hears when there is room for the next piece and when the file is whole."""
    store = open_metadata_store(tmp_path / "m", snapshot_due_bytes=5000, new_identity=IDENTITY)
    writer = Writer(store)
    for _ in range(3):
        while not store.is_snapshot_due():
            writer.write(1)
        writer.snapshot_if_due()
        kept = len(store.snapshots.kept), store.snapshots.kept[-1:]  # type: ignore[union-attr]
        while (len(store.snapshots.kept), store.snapshots.kept[-1:]) == kept:  # type: ignore[union-attr]
            store._journal.wait(store._journal.next_token() - 1)
            writer.sync()
    names = [each.name for each in store.snapshots.kept]  # type: ignore[union-attr]
    assert len(store.filenos()) == 2
    store.close()
    assert sorted(path.name for path in (tmp_path / "m" / "snapshots").iterdir()) == names
    again = open_metadata_store(tmp_path / "m")
    assert replayed(again).digest() == writer.catalog.digest()
    again.close()
    sound = Findings()
    check_metadata(DiskDirectory(tmp_path / "m"), sound)
    assert [each.what for each in sound.found] == []
    path = tmp_path / "m" / "snapshots" / names[0]
    path.write_bytes(path.read_bytes()[:-1])
    findings = Findings()
    check_metadata(DiskDirectory(tmp_path / "m"), findings)
    assert [each.is_damage for each in findings.found] == [True]


def until_woken(store: MetadataStore) -> None:
    """Wait as the member's loop does."""
    assert store.snapshots is not None
    ready, _, _ = select.select(store.snapshots.filenos(), [], [], 60)
    assert ready


def test_a_thread_that_the_system_refuses_is_a_snapshot_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I53: the member's loop goes on, the log grows, and the snapshot is tried again."""
    store = open_metadata_store(tmp_path / "m", snapshot_due_bytes=5000, new_identity=IDENTITY)
    assert store.snapshots is not None
    store.snapshots.filenos()
    writer = Writer(store)
    while not store.is_snapshot_due():
        writer.write(1)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", refuse)
        writer.snapshot_if_due()
    until_woken(store)
    assert "can't start new thread" in store.snapshots.failure()
    store.abandon_snapshot()
    assert store.is_snapshot_due(), "as due as before"
    writer.snapshot_if_due()
    while not store.snapshots.kept:
        store._journal.wait(store._journal.next_token() - 1)
        writer.sync()
    store.close()


def test_a_snapshot_that_is_given_up_as_it_gets_its_name_leaves_no_file(tmp_path: Path) -> None:
    """I80: no record names it, so nothing of it counts, and it must not stay for as long as the member runs."""
    store = open_metadata_store(tmp_path / "m", snapshot_due_bytes=5000, new_identity=IDENTITY)
    assert store.snapshots is not None
    store.snapshots.filenos()
    writer = Writer(store)
    while not store.is_snapshot_due():
        writer.write(1)
    store._journal.wait(store._journal.next_token() - 1)
    writer.sync()
    writer.snapshot_if_due()
    under_way = store.snapshots._writer
    assert under_way is not None
    while under_way.written is None:
        until_woken(store)
    assert [path.name for path in (tmp_path / "m" / "snapshots").iterdir()] == [under_way.name]
    store.abandon_snapshot()
    assert not any((tmp_path / "m" / "snapshots").iterdir())
    store.close()


@pytest.mark.parametrize("call", ["rename", "sync_directory"])
def test_nothing_stays_of_a_snapshot_whose_name_is_not_durable(call: str) -> None:
    """I53: "what was written of it goes". Else: each try leaves a whole file, which no log names."""
    disk = MemoryDisk()
    files = SnapshotFiles("snapshots", io=disk)
    for index in (7, 8):
        header = SnapshotHeader(b"t" * 16, b"i" * 16, index, 1, 2, 0, 1)
        writer = SnapshotWriter(files, header, lambda: None)
        writer.add(b"some records")
        disk.fail(call)
        writer.finish()
        assert writer.failure is not None
        writer.stop()
        assert disk.files(stable=False) == {}
    writer = SnapshotWriter(files, header, lambda: None)
    writer.add(b"some records")
    writer.finish()
    writer.stop()
    assert writer.written is not None
    assert list(disk.files()) == [f"snapshots/{writer.name}"]


def test_whatever_ends_the_writing_of_a_snapshot_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """I53: a thread that ended in silence was waited for for ever, and no snapshot was made any more."""
    store = open_metadata_store(tmp_path / "m", new_identity=IDENTITY)
    assert store.snapshots is not None
    store.snapshots.filenos()
    writer = SnapshotWriter(
        SnapshotFiles(tmp_path / "snapshots", threaded=True),
        SnapshotHeader(b"t" * 16, b"i" * 16, 7, 1, 2, 0, 1),
        store.snapshots.wake,
    )
    writer.add("no bytes")  # type: ignore[arg-type]
    writer.finish()
    until_woken(store)
    assert "TypeError" in str(writer.failure)
    writer.stop()
    assert "cannot be written" in caplog.text
    assert not any((tmp_path / "snapshots").iterdir())
    store.close()


def test_snapshots_that_are_no_directory_are_damage_and_end_no_check(tmp_path: Path) -> None:
    """CHECKING.md: what cannot be read is a finding of this member; the others are checked."""
    store = open_metadata_store(tmp_path / "m", new_identity=IDENTITY)
    Writer(store).write(3)
    store.close()
    (tmp_path / "m" / "snapshots").write_bytes(b"a file")
    findings = Findings()
    check_metadata(DiskDirectory(tmp_path / "m"), findings)
    assert ["cannot be read" in each.what for each in findings.found if each.is_damage] == [True]


def test_a_start_that_is_refused_leaves_no_descriptor(tmp_path: Path) -> None:
    """Whoever tries again and again must not run out of them."""
    (tmp_path / "m" / (MEMBER_FILE + ".new")).mkdir(parents=True)  # Nothing can be noted.
    counts: list[int] = []
    for _ in range(3):
        with pytest.raises(StorageError, match="nothing can be noted"):
            open_metadata_store(tmp_path / "m")
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[0] == counts[-1]


def test_a_header_may_carry_a_configuration() -> None:
    """Opaque today, of any size up to its bound: the pieces stand behind it."""
    disk = MemoryDisk()
    files = SnapshotFiles("snapshots", io=disk)
    catalog = Catalog()
    catalog.apply(StartSession(5, 1000, "s"), 1, FIRST_TERM)
    for number, size in enumerate((0, 1, 5000, 65535), 1):
        header = SnapshotHeader(b"t" * 16, b"i" * 16, number, 1, 2, 0, 1, b"c" * size, 9)
        writer = SnapshotWriter(files, header, lambda: None)
        pieces = list(iter(catalog.cut().next_piece, None))
        for piece in pieces:
            writer.add(piece)
        writer.finish()
        with files.open(snapshot_name(number, 1)) as file:
            found = read_header(file)
            assert found == writer.written
            assert (found.config, found.config_index) == (header.config, 9)
            assert list(read_pieces(file, found)) == pieces
    picture = PictureDirectory("snapshots", disk.files())
    with picture.open(snapshot_name(1, 1)) as raw:
        assert list(read_pieces(raw, read_header(raw))) == pieces
