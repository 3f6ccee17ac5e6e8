"""A metadata member whose log has less than it was used for (P2.1, P9.2): it refuses, until its owner says so."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from embedbk.codec.metadata_messages import AllocIds, Lineage, MetadataRequest, OpenSession, Put, Txn
from embedbk.errors import StorageError
from embedbk.host.loop import clock_ns
from embedbk.host.metadata_node import MetadataNode
from embedbk.metadata.catalog import GENERATION_BITS
from embedbk.metadata.levels import LEVEL
from embedbk.metadata.vocabulary import RequestReceived
from embedbk.ports.links import Identity
from embedbk.storage.checking import check_metadata
from embedbk.storage.findings import Findings
from embedbk.storage.layout import LOSS_FILE
from embedbk.storage.member_notes import MEMBER_FILE, FileNotes, MemoryNotes, Used, what_is_missing
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.storage.raw_files import DiskDirectory
from embedbk.transports.local import LocalTransport
from tests.storage.journal_pages import read_file
from tests.storage.solo import append

IDENTITY = MemberIdentity(b"t" * 16, b"i" * 16)
USED = Used(IDENTITY.cluster_token, IDENTITY.incarnation, 3, b"three", 90)


def _transport() -> LocalTransport:
    return LocalTransport(Identity("metadata", "m", b"i" * 16, b""))


class Life:
    """One process of a member in a directory."""

    def __init__(self, directory: Path, *, may_have_lost: bool = False) -> None:
        self.store = open_metadata_store(directory, new_identity=IDENTITY, may_have_lost=may_have_lost)
        self.transport = LocalTransport(Identity("metadata", "m", b"i" * 16, b""))
        self.node = MetadataNode(self.store, self.transport, ["local://*"], now_ns=clock_ns())
        self.catalog = self.node.core.catalog
        self.settle()

    def settle(self) -> None:
        """Everything is durable and applied."""
        self.node.step(clock_ns())
        while self.node.core.applied_index < self.store.index:
            self.store._journal.wait(self.store._journal.next_token() - 1)
            self.node.step(clock_ns())

    def work(self, count: int, size: int = 10) -> None:
        """Ids and keys, as a client makes ledgers."""
        self.ask(MetadataRequest(0, 1, 1, OpenSession(600_000, "", 0, LEVEL)))
        self.settle()
        session = next(reversed(self.catalog.sessions))
        for number in range(1, count + 1):
            operation = AllocIds(1) if number % 2 else Txn([], [Put(f"/{number}", bytes(size))])
            self.ask(MetadataRequest(session, number, number, operation))
            if number % 500 == 0:
                self.settle()
        self.settle()

    def ask(self, request: MetadataRequest) -> None:
        self.node._step_core(RequestReceived(clock_ns(), 1, request))

    def close(self) -> None:
        self.node.close()


def newest_file(directory: Path) -> Path:
    """The newest journal file with groups in it."""
    files = [path for path in directory.glob("journal-*") if any(path.read_bytes()[4096:8192])]
    return max(files, key=lambda path: int(path.name.rpartition("-")[2], 16))


def cut(directory: Path) -> None:
    """The second half of what stands in the newest file is zeros, as if it had not been written."""
    path = newest_file(directory)
    content = path.read_bytes()
    used = len(content.rstrip(b"\0"))
    keep = used // 2 // 4096 * 4096
    path.write_bytes(content[:keep] + bytes(len(content) - keep))


def lose_newest(directory: Path) -> None:
    newest_file(directory).unlink()


def lose_all(directory: Path) -> None:
    for path in directory.glob("journal-*"):
        path.unlink()


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize(
    ("harm", "said"),
    [(cut, "were durable"), (lose_newest, "were durable"), (lose_all, "nothing of it is left")],
)
def test_a_log_with_less_than_was_used_is_refused(
    tmp_path: Path, harm: Callable[[Path], None], said: str, is_killed: bool
) -> None:
    """P2.1, P9.2: 541 of 1,200 ledgers were opened without a word, and their ids and epochs given out again."""
    directory = tmp_path / "m"
    life = Life(directory)
    life.work(1500, size=3000)
    next_id, revision = life.catalog.next_id, life.catalog.revision
    if is_killed:
        shutil.copytree(directory, tmp_path / "left", ignore=shutil.ignore_patterns("LOCK", "next-*"))
        life.close()
        directory = tmp_path / "left"
    else:
        life.close()
    sound = Findings()
    check_metadata(DiskDirectory(directory), sound)
    assert not [each for each in sound.found if each.is_damage]
    harm(directory)
    findings = Findings()
    check_metadata(DiskDirectory(directory), findings)
    assert any(each.is_damage and "were durable" in each.what for each in findings.found)
    for _ in range(2):
        with pytest.raises(StorageError, match=said) as refused:
            open_metadata_store(directory)
        assert "--may-have-lost" in refused.value.hint
    if harm is lose_all:
        with pytest.raises(StorageError, match=said):
            open_metadata_store(directory, may_have_lost=True)
        return
    again = Life(directory, may_have_lost=True)
    assert again.catalog.next_id > next_id
    assert again.catalog.revision > revision
    assert again.catalog.revision >> GENERATION_BITS == 1
    again.close()
    later = Life(directory)
    assert later.catalog.revision >> GENERATION_BITS == 1, "the word was for one start"
    later.close()


def test_an_owners_word_in_the_directory_is_heeded_once(tmp_path: Path) -> None:
    """P9.2: where no command line starts the member, as in an embedded cluster."""
    life = Life(tmp_path / "m")
    for _ in range(12):
        life.work(10)  # A group of its own: half of them are cut off, and half are left.
    life.close()
    cut(tmp_path / "m")
    (tmp_path / "m" / LOSS_FILE).touch()
    for _ in range(2):
        again = Life(tmp_path / "m")
        assert again.catalog.revision >> GENERATION_BITS == 1
        again.close()
    assert not (tmp_path / "m" / LOSS_FILE).exists()


def test_a_log_of_another_copy_is_refused(tmp_path: Path) -> None:
    """P2.1: log and note were copied at two times, and the log has come as far again since."""
    directory, copy = tmp_path / "m", tmp_path / "copy"
    life = Life(directory)
    life.work(10)
    life.close()
    shutil.copytree(directory, copy)
    for place in (directory, copy):
        life = Life(place)
        life.work(10 if place is directory else 50)
        life.close()
    shutil.copy(directory / MEMBER_FILE, copy / MEMBER_FILE)
    with pytest.raises(StorageError, match="start number 2 is another"):
        open_metadata_store(copy)


def test_a_log_whose_note_is_gone_or_anothers_is_refused(tmp_path: Path) -> None:
    """P10.3: what was used cannot be told."""
    directory = tmp_path / "m"
    life = Life(directory)
    life.close()
    note = (directory / MEMBER_FILE).read_bytes()
    (directory / MEMBER_FILE).unlink()
    with pytest.raises(StorageError, match=f"{MEMBER_FILE} is missing"):
        open_metadata_store(directory)
    (directory / MEMBER_FILE).write_bytes(b"x" + note[1:])
    with pytest.raises(StorageError, match="damaged"):
        open_metadata_store(directory)
    FileNotes(directory).write(Used(b"t" * 16, b"j" * 16, 1, b"", 1), is_synced=True)
    with pytest.raises(StorageError, match=f"incarnation {(b'j' * 16).hex()}"):
        open_metadata_store(directory)
    FileNotes(directory).write(Used(b"o" * 16, b"i" * 16, 1, b"", 1), is_synced=True)
    with pytest.raises(StorageError, match=f"noted beside it of {(b'o' * 16).hex()}"):
        open_metadata_store(directory)
    (directory / MEMBER_FILE).unlink()
    Life(directory, may_have_lost=True).close()
    Life(directory).close()


@pytest.mark.parametrize("gives_up", [(), (Lineage(b"L" * 8, 3), Lineage(b"", 1))])
def test_an_owners_word_outlives_the_start_that_it_was_said_to(
    tmp_path: Path, gives_up: tuple[Lineage, ...]
) -> None:
    """P2.1, P9.2: the first record of that start filled the place of the one that was lost. So the log looked whole to
    the start behind its crash, which was not told anything, and gave out ids and epochs twice."""
    directory, left = tmp_path / "m", tmp_path / "left"
    life = Life(directory)
    life.work(7)
    life.close()
    revision = life.catalog.revision
    path = newest_file(directory)
    content, last = path.read_bytes(), read_file(path.read_bytes())[1][-1]
    path.write_bytes(content[: last.position] + bytes(last.end - last.position) + content[last.end :])
    with pytest.raises(StorageError, match="were durable"):
        open_metadata_store(directory)
    told = open_metadata_store(directory, may_have_lost=True, gives_up=gives_up)
    assert told.begins_generation
    shutil.copytree(directory, left, ignore=shutil.ignore_patterns("LOCK", "next-*"))  # As it is killed.
    told.close()
    untold = open_metadata_store(left)
    assert untold.begins_generation
    assert untold.gives_up == gives_up
    untold.close()
    again = Life(left)
    assert again.catalog.revision > revision
    assert again.catalog.revision >> GENERATION_BITS == 1 + max(
        (each.generation for each in gives_up), default=0
    )
    assert not (left / LOSS_FILE).exists()
    again.close()
    Life(left).close()


def test_an_owners_word_is_durable_before_a_start_acts_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I49: an editor does not sync what it writes; a start behind a loss of power must be told the same."""
    directory = tmp_path / "m"
    directory.mkdir()
    Life(directory).close()
    (directory / LOSS_FILE).write_text("")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    Life(directory).close()
    assert str(directory / LOSS_FILE) in synced


def test_a_first_start_that_was_cut_short_is_gone_on_with(tmp_path: Path) -> None:
    """P10.3: with the token that the note has; nobody heard of it, and nothing was used."""
    directory = tmp_path / "m"
    directory.mkdir()
    FileNotes(directory).write(Used(b"c" * 16, b"d" * 16, 0, b"", 0), is_synced=True)
    life = Life(directory)
    assert life.store.identity == MemberIdentity(b"c" * 16, b"d" * 16)
    life.close()


def test_what_is_noted_was_durable_and_is_noted_before_it_is_told() -> None:
    """P9.2: else a crash would be taken for a loss, or a loss for a crash."""

    class Notes:
        def __init__(self) -> None:
            self.used: Used | None = None

        def read(self) -> Used | None:
            return self.used

        def write(self, used: Used, *, is_synced: bool) -> None:
            assert used.last_token <= journal._durable
            self.used = used

    notes, journal = Notes(), MemoryJournal()
    store = MetadataStore(journal, 0, new_identity=IDENTITY, notes=notes)
    transport = _transport()
    MetadataNode(store, transport, ["local://*"], now_ns=0)
    # The second record of a new log has two entries, its start and its level; `append` numbers records as entries.
    for sequence in (0, 1, 2, 4, 5):
        journal.commit(1)
        assert notes.used is not None
        assert notes.used.last_token <= journal._durable
        assert store.durable() == sequence
        assert notes.used.last_token == journal._durable
        assert (notes.used.start_count, notes.used.nonce) == (1, store.start.nonce)
        append(store, store.index + 1, b"\x01\x92\x02" + bytes([sequence + 1]))
    transport.close()


@pytest.mark.parametrize("note", [Used(IDENTITY.cluster_token, IDENTITY.incarnation, 7, b"seven", 99), None])
def test_what_was_noted_stands_until_the_new_generation_is_durable(note: Used | None) -> None:
    """P9.2: a crash in between leaves a log that is refused as before, not one that opens without a word. The records
    are: who starts, the start in the metadata, the generation."""
    journal = MemoryJournal()
    first = MetadataStore(journal, 0, new_identity=IDENTITY)
    MetadataNode(first, _transport(), ["local://*"], now_ns=0).close()
    notes = MemoryNotes()
    notes.used = note
    for made_durable in (1, 2, 3):
        journal = MemoryJournal(journal.records)
        store = MetadataStore(journal, 1, notes=notes, may_have_lost=True)
        node = MetadataNode(store, _transport(), ["local://*"], now_ns=0, chance=random.Random(1))
        assert notes.used is note
        journal.commit(made_durable)
        store.durable()
        assert (notes.used is note) == (made_durable < 3)
        node.transport.close()
        if made_durable < 3:
            with pytest.raises(StorageError):
                MetadataStore(MemoryJournal(journal.records), 1, notes=notes)
    MetadataStore(MemoryJournal(journal.records), 1, notes=notes)


def test_a_note_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    """I53: a full device keeps no member from its start, and the note of it comes when there is room."""

    class Full(MemoryNotes):
        is_full = False
        synced: Used | None = None

        def write(self, used: Used, *, is_synced: bool) -> None:
            if self.is_full:
                raise StorageError("no room")
            self.used, self.synced = used, used if is_synced else self.synced

    notes, journal = Full(), MemoryJournal()
    store = MetadataStore(journal, 0, new_identity=IDENTITY, notes=notes)
    notes.is_full = True
    MetadataNode(store, _transport(), ["local://*"], now_ns=0)
    journal.commit()
    assert store.durable() == 2  # That it leads, and that it started.
    notes.is_full = False
    append(store, 2, b"\x01\x92\x02\x01")
    journal.commit()
    store.durable()
    assert notes.synced is not None
    assert notes.synced.start_count == 1
    full = Full()
    full.is_full = True
    with pytest.raises(StorageError, match="nothing can be noted"):
        MetadataStore(MemoryJournal(), 0, notes=full)


@pytest.mark.parametrize(
    ("used", "log", "said"),
    [
        (None, (5, 0, None), ""),
        (None, (5, 2, None), "MEMBER is missing"),
        (USED, (89, 3, b"three"), "ends with record 89, and 90"),
        (USED, (90, 2, None), "started 3 times, and 2 starts"),
        (USED, (95, 4, b"other"), "another than the one that was noted"),
        (USED, (90, 3, b"three"), ""),
        (USED, (99, 4, b"three"), ""),
        (USED, (99, 1 << 20, None), ""),
    ],
)
def test_each_kind_of_less_has_its_words(
    used: Used | None, log: tuple[int, int, bytes | None], said: str
) -> None:
    """P9.2: fewer records, fewer starts, another start under a number."""
    found = what_is_missing(used, *log)
    assert said in found
    assert bool(found) == bool(said)
