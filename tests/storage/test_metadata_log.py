"""Steps of a member of a quorum on its disk: terms, votes, entries that are taken back, and what a trim leaves (I61,
I65, I77, I80)."""

from __future__ import annotations

import copy
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from embedbk.codec.kernels import crc32c
from embedbk.codec.metadata_messages import Put, Txn
from embedbk.errors import InvariantError, StorageError
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import Run, StartSession, decode_command, encode_command
from embedbk.metadata.log_records import encode_configuration
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_vocabulary import Boot, Entry, Persist
from embedbk.storage import log_marks, metadata_log
from embedbk.storage.log_marks import MARKS_MAX, LogMarks
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_log import IDENTITY, KIND_IDENTITY, KIND_STEP, encode_identity
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import FETCHED_SUFFIX, SnapshotHeader, snapshot_name
from embedbk.storage.snapshot_writer import SnapshotWriter
from tests.storage.older_metadata import OlderWriter

M1, M2, M3 = (MemberId(f"m{number}", bytes([number]) * 16) for number in (1, 2, 3))
IDENTITY_1 = MemberIdentity(b"t" * 16, M1.incarnation)
ALONE = IDENTITY_1.first_configuration
THREE = Configuration((M1, M2, M3))
CANDIDATE = Boot(M2, b"n" * 8)


def opened(
    journal: MemoryJournal, disk: MemoryDisk | None = None, snapshot_due_bytes: int = 1500
) -> MetadataStore:
    return MetadataStore(
        journal,
        journal.first_token(),
        new_identity=IDENTITY_1,
        snapshots=SnapshotFiles("snapshots", io=disk) if disk is not None else None,
        snapshot_due_bytes=snapshot_due_bytes,
    )


def command(index: int, size: int = 40) -> bytes:
    if index == 1:
        return encode_command(StartSession(1, 1000, "w"))
    return encode_command(
        Run(1, index, index, Txn([], [Put(f"/k/{index % 7}", b"%d" % index + bytes(size))]))
    )


def again(journal: MemoryJournal) -> MetadataStore:
    return opened(MemoryJournal(journal.crash()))


# --- Directed --------------------------------------------------------------------------------------------


def test_term_vote_and_entries_are_there_at_the_next_start() -> None:
    """I61: who voted knows it after every crash from that sync on."""
    journal = MemoryJournal()
    store = opened(journal)
    store.persist(Persist(1, 4, CANDIDATE, 0, ()))
    store.persist(Persist(2, 4, CANDIDATE, 0, (Entry(1, 4, None), Entry(2, 4, command(1)))))
    journal.commit(2)
    assert (store.durable(), store.index) == (1, 2)
    beginning = opened(MemoryJournal(journal.records)).beginning
    assert (beginning.term, beginning.vote, beginning.log.last_index) == (4, CANDIDATE, 0)
    journal.commit()
    assert store.durable() == 2
    beginning = again(journal).beginning
    assert (beginning.term, beginning.vote, beginning.doubt) == (4, CANDIDATE, None)
    assert beginning.log.between(1, 2) == (Entry(1, 4, None), Entry(2, 4, command(1)))
    assert (beginning.log.configuration, beginning.catalog.revision) == (ALONE, 0)


def test_what_a_later_record_takes_back_is_gone_with_its_configuration() -> None:
    """I77: the configuration before it holds again."""
    journal = MemoryJournal()
    store = opened(journal)
    store.persist(Persist(1, 1, None, 0, (Entry(1, 1, command(1)), Entry(2, 1, THREE), Entry(3, 1, None))))
    store.persist(Persist(2, 3, None, 1, (Entry(2, 3, None),)))
    journal.commit()
    log = again(journal).beginning.log
    assert log.between(1, 2) == (Entry(1, 1, command(1)), Entry(2, 3, None))
    assert (log.last_index, log.configuration, log.last_term) == (2, ALONE, 3)


def test_a_record_behind_the_end_or_below_a_snapshot_is_an_error() -> None:
    """I65: snapshots are of applied entries, and these are never taken back."""
    journal, disk = MemoryJournal(), MemoryDisk()
    store = opened(journal, disk)
    with pytest.raises(InvariantError, match="does not follow"):
        store.persist(Persist(1, 1, None, 1, ()))
    store.persist(Persist(1, 1, None, 0, (Entry(1, 1, command(1)), Entry(2, 1, None))))
    journal.commit()
    store.durable()
    with pytest.raises(InvariantError, match=r"snapshot of entry 3; it must be in 1\.\.2"):
        store.begin_snapshot(3, 1, ALONE, 0, 0, 0, 0)
    store.begin_snapshot(2, 1, ALONE, 0, 0, 0, 0)
    store.abandon_snapshot()
    store.begin_snapshot(2, 1, ALONE, 0, 0, 0, 0)
    with pytest.raises(InvariantError, match="never taken back"):
        store.persist(Persist(2, 2, None, 1, (Entry(2, 2, None),)))


def test_a_step_with_more_than_a_record_holds_is_several_and_told_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each adds to the one before: a crash between them leaves a prefix, which nobody was told of."""
    monkeypatch.setattr(metadata_log, "RECORD_BYTES_MAX", 200)
    journal = MemoryJournal()
    store = opened(journal)
    store.persist(Persist(1, 1, None, 0, tuple(Entry(index, 1, command(1)) for index in range(1, 5))))
    entries = tuple(Entry(index, 2, command(2)) for index in range(3, 9))
    store.persist(Persist(2, 2, CANDIDATE, 2, entries))
    assert len(journal.pending) == 5
    journal.commit()
    assert store.durable() == 2
    beginning = again(journal).beginning
    assert beginning.log.between(3, 8) == entries
    assert beginning.vote == CANDIDATE
    cut = MemoryJournal(journal.records[:-1])
    log = opened(cut).beginning.log
    assert log.between(3, log.last_index) == entries[: log.last_index - 2]


def test_a_member_is_known_by_its_name_and_each_start_is_counted() -> None:
    """P10.3: the incarnation is that of the log; P7.9: the start is another each time."""
    journal = MemoryJournal()
    identity = MemberIdentity(b"t" * 16, b"i" * 16, "m2", is_founder=False)
    store = MetadataStore(journal, 0, new_identity=identity)
    assert store.beginning.log.configuration == Configuration(())
    journal.commit()
    later = opened(journal)
    assert (later.identity, later.start.count) == (identity, 2)
    assert later.boot.member == MemberId("m2", b"i" * 16)
    assert later.boot.nonce != store.boot.nonce
    for harm in (b"\x02" + bytes(60), encode_identity(identity, later.start)[:-1], b"\x03" + bytes(50), b""):
        strange = MemoryJournal()
        strange.append(KIND_IDENTITY, 0, harm)
        strange.commit()
        with pytest.raises(StorageError, match="record 1"):
            opened(strange)
    assert len(encode_identity(identity, later.start)) == IDENTITY.size + 2


def test_a_founder_of_an_older_build_is_m1_and_its_commands_are_entries_of_term_one() -> None:
    """METADATA.md, 2: taken over in place, with commands of version 1, too."""
    journal = MemoryJournal()
    older = OlderWriter(journal, IDENTITY_1)
    for index in range(1, 6):
        older.write(decode_command(command(index)))
    journal.append(1, 6, b"\x01" + command(6)[1:])
    journal.commit()
    store = opened(journal)
    beginning = store.beginning
    assert (store.identity, store.start.count) == (IDENTITY_1, 1)
    assert (beginning.term, beginning.vote, beginning.log.configuration) == (1, None, ALONE)
    assert [entry.term for entry in beginning.log.between(1, 6)] == [1] * 6
    store.persist(Persist(1, 2, store.boot, 6, (Entry(7, 2, None),)))
    journal.commit()
    beginning = again(journal).beginning
    assert (beginning.term, beginning.log.last_index) == (2, 7)
    journal = MemoryJournal(journal.records)
    journal.append(1, 8, command(8))
    journal.commit()
    with pytest.raises(StorageError, match="entry 8 is of term 1"):
        again(journal)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (Persist(0, 2, None, 3, ()), "term 2"),
        (Persist(0, 3, Boot(M3, b"o"), 3, ()), "with the vote"),
        (Persist(0, 3, None, 3, ()), "with the vote None"),
        (Persist(0, 4, None, 5, ()), "follows entry 5, and the log ends with 3"),
        (Persist(0, 4, None, 3, (Entry(4, 2, None),)), "entry 4 is of term 2; allowed are 3 to 4"),
    ],
)
def test_a_record_that_no_step_wrote_is_refused(record: Persist, said: str) -> None:
    """I61: a term falls nowhere in a log, and a vote in it does not change."""
    journal = MemoryJournal()
    store = opened(journal)
    entries = tuple(Entry(index, 3, None) for index in (1, 2, 3))
    store.persist(Persist(1, 3, CANDIDATE, 0, entries))
    store._append_step(record)
    journal.commit()
    with pytest.raises(StorageError, match=said):
        again(journal)


def test_a_record_whose_number_is_anothers_is_refused() -> None:
    journal = MemoryJournal()
    opened(journal).persist(Persist(1, 3, CANDIDATE, 0, (Entry(1, 1, None),)))
    journal.commit()
    records = [
        replace(record, ledger_id=7) if record.kind == KIND_STEP else record for record in journal.records
    ]
    with pytest.raises(StorageError, match="ends with entry 7, and ends with 1"):
        opened(MemoryJournal(records))


def test_marks_are_few_and_never_say_too_much() -> None:
    """A mark (index, token): no record up to it holds what stands behind the index."""
    chance = random.Random(5)
    marks, stands = LogMarks(), dict[int, int]()  # Token of each entry that stands.
    last = floor = 0
    for token in range(1, 3 * MARKS_MAX):
        keep = chance.randint(max(floor, last - 3), last) if chance.random() < 0.2 else last
        added = chance.randint(0, 3)
        for index in [index for index in stands if index > keep]:
            del stands[index]
        stands.update(dict.fromkeys(range(keep + 1, keep + added + 1), token))
        last = keep + added
        marks.note(keep, last, token)
        assert len(marks._marks) <= MARKS_MAX
        if token % 500 == 0:
            floor = chance.randint(floor, last)
            trimmed = marks.token_of(floor, token)
            assert all(held > trimmed for index, held in stands.items() if index > floor)
            assert all(earlier < later for earlier, later in pairwise(marks._marks))
            stands = {index: held for index, held in stands.items() if index > floor}


@pytest.mark.parametrize("marks_max", [4, 5, 8, 9])
def test_a_trimmed_log_goes_on_from_its_snapshot_however_many_marks_were_let_go(
    marks_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I80: the first record that is left follows the snapshot, or a start refuses the log ("its first command is ...,
    and the snapshot before it ends with ..."). It may be any record up to the next one, as files are removed as wholes.
    The newest mark went, and the next record took entries back."""
    monkeypatch.setattr(log_marks, "MARKS_MAX", marks_max)
    for seed in range(500):
        chance = random.Random(seed)
        marks, follows = LogMarks(), list[tuple[int, int]]()  # (token, index that the record follows).
        last = committed = 0
        for token in range(1, 60):
            keep = last if chance.random() < 0.7 else chance.randint(committed, last)
            last = keep + chance.choice((0, 1, 1, 2, 5))
            marks.note(keep, last, token)
            assert len(marks._marks) <= marks_max
            follows.append((token, keep))
            committed = chance.randint(committed, last)
            trimmed = copy.deepcopy(marks).token_of(committed, token + 1)
            first = [index for each, index in follows if each <= trimmed + 1]
            assert not trimmed or max(first) <= committed, f"seed {seed}, record {token}"


# --- Snapshots of other members --------------------------------------------------------------------------


def finished(slices: Generator[None, None, Catalog]) -> Catalog:
    while True:
        try:
            next(slices)
        except StopIteration as whole:
            catalog: Catalog = whole.value
            return catalog


def fetch(
    disk: MemoryDisk,
    entries: Sequence[Entry],
    index: int,
    catalog: Catalog,
    applied: int,
    configuration: tuple[int, Configuration],
) -> Catalog:
    """Another member's snapshot of these entries stands under its name, as a fetch leaves it. catalog: as of
    applied."""
    catalog = copy.deepcopy(catalog)
    for entry in entries[applied:index]:
        if isinstance(entry.body, bytes):
            catalog.apply(decode_command(entry.body), entry.index, entry.term)
    cut = catalog.cut()
    header = SnapshotHeader(
        *(IDENTITY_1.cluster_token, M2.incarnation, index, entries[index - 1].term),
        *(cut.head.revision, cut.head.records, cut.head.sessions),
        *(encode_configuration(configuration[1]), configuration[0]),
    )
    files = SnapshotFiles("snapshots", io=disk)
    writer = SnapshotWriter(files, header, lambda: None)
    for piece in iter(cut.next_piece, None):
        writer.add(piece)
    writer.finish()
    catalog.end_cut()
    assert writer.written is not None
    files.rename(writer.name, writer.name + FETCHED_SUFFIX)
    return catalog


class Follower:
    """A member with three entries of term 1 and a snapshot of nine entries of term 3 that it fetched."""

    def __init__(self) -> None:
        self.journal, self.disk = MemoryJournal(), MemoryDisk()
        self.store = opened(self.journal, self.disk)
        entries = tuple(Entry(index, 1, command(index)) for index in (1, 2, 3))
        self.store.persist(Persist(1, 1, None, 0, entries))
        self.journal.commit()
        self.store.durable()
        theirs = [
            *entries[:2],
            *(Entry(index, 3, command(index)) for index in range(3, 9)),
            Entry(9, 3, THREE),
        ]
        self.catalog = fetch(self.disk, theirs, 9, Catalog(), 0, (9, THREE))

    def again(self) -> MetadataStore:
        self.disk.crash(3)
        self.journal = MemoryJournal(self.journal.crash())
        return opened(self.journal, self.disk)


def test_a_snapshot_that_takes_the_place_of_the_log_is_what_the_next_start_begins_with() -> None:
    """I80: with its term and configuration; what stood here and did not agree is gone."""
    follower = Follower()
    store = follower.store
    store.install(9, 3, keeps_entries=False)
    store.persist(Persist(2, 4, CANDIDATE, 9, (Entry(10, 4, None),)))
    assert store.index == 10
    follower.journal.commit()
    assert store.durable() == 2
    assert store.saved() is None, "the core knows of it"
    assert finished(store.load(9, 3)).digest() == follower.catalog.digest()
    beginning = follower.again().beginning
    log = beginning.log
    assert (log.snapshot_index, log.term_at(9), log.last_index, log.term_at(10)) == (9, 3, 10, 4)
    assert (log.configuration, log.configuration_index) == (THREE, 9)
    assert beginning.catalog.digest() == follower.catalog.digest()
    assert (beginning.term, beginning.vote) == (4, CANDIDATE)


def test_until_it_is_named_durably_the_log_is_what_it_was_and_the_file_goes() -> None:
    """I80: a crash between any two of its records leaves the one or the other."""
    for records in range(4):
        follower = Follower()
        follower.store.install(9, 3, keeps_entries=False)
        follower.store.persist(Persist(2, 4, None, 9, ()))
        follower.journal.commit(records)
        store = follower.again()
        beginning = store.beginning
        if records < 3:  # Who it is, term and vote, the name.
            assert (beginning.log.snapshot_index, beginning.log.last_index) == (0, 3)
            assert follower.disk.files(stable=False) == {}
        else:
            assert (beginning.log.snapshot_index, beginning.log.last_index, beginning.term) == (9, 9, 3)


def test_a_trim_behind_snapshots_of_others_alone_leaves_term_and_vote() -> None:
    """I61: two crashes, each right behind a snapshot's name and before its step's record: the vote was in what is
    trimmed then."""
    follower = Follower()
    follower.store.persist(Persist(2, 4, CANDIDATE, 3, ()))
    follower.journal.commit()
    follower.store.durable()
    for index in (9, 19):
        entries = [Entry(number, 3, command(number)) for number in range(1, index + 1)]
        fetch(follower.disk, entries, index, Catalog(), 0, (0, THREE))
        follower.store.install(index, 3, keeps_entries=False)
        follower.journal.commit()
        follower.store.durable()
        assert (follower.journal.records[0].token == 1) == (index == 9)
        follower.store = follower.again()
    beginning = follower.store.beginning
    assert (beginning.term, beginning.vote, beginning.log.snapshot_index) == (4, CANDIDATE, 19)


def test_a_log_whose_beginning_is_damaged_is_refused_with_the_file_and_the_way_out() -> None:
    """I81: nothing older is taken for the state, as there is nothing between."""
    follower = Follower()
    follower.store.install(9, 3, keeps_entries=False)
    follower.store.persist(Persist(2, 4, None, 9, ()))
    follower.journal.commit()
    path = "snapshots/" + snapshot_name(9, 3)
    content = bytearray(follower.disk.read(path))
    content[4100] ^= 1
    for harm in (bytes(content), None):
        disk = MemoryDisk({path: harm} if harm is not None else {})
        with pytest.raises(StorageError, match=snapshot_name(9, 3)) as refused:
            opened(MemoryJournal(follower.journal.records), disk)
        assert "join again" in refused.value.hint


def test_what_is_no_such_snapshot_is_not_installed() -> None:
    """P10.3: nothing of another cluster, and nothing older than what is here."""
    follower = Follower()
    store, disk = follower.store, follower.disk
    queued = len(follower.journal.pending)
    with pytest.raises(StorageError, match="cannot be read"):
        store.install(8, 3, keeps_entries=False)
    path = "snapshots/" + snapshot_name(9, 3) + FETCHED_SUFFIX
    content = disk.read(path)
    for place in (16, 48, 56):
        changed = bytearray(content)
        changed[place] ^= 1
        changed[:4] = crc32c(bytes(changed[4:4096])).to_bytes(4, "little")
        disk.put(path, bytes(changed))
        with pytest.raises(StorageError, match="stands for entry"):
            store.install(9, 3, keeps_entries=False)
    assert len(follower.journal.pending) == queued
    disk.put(path, content)
    store.install(9, 3, keeps_entries=False)
    with pytest.raises(InvariantError, match="older than what is here"):
        store.install(9, 3, keeps_entries=False)
    with pytest.raises(InvariantError, match="never taken back"):
        store.persist(Persist(2, 4, None, 8, ()))


def test_a_snapshot_that_is_cut_here_meanwhile_is_given_up() -> None:
    """What it is cut from is another's state from then on."""
    follower = Follower()
    store = follower.store
    snapshots = store.begin_snapshot(3, 1, ALONE, 0, 0, 0, 0)
    store.install(9, 3, keeps_entries=False)
    assert not snapshots.is_under_way
    store.persist(Persist(2, 4, None, 9, ()))
    follower.journal.commit()
    store.durable()
    assert [each.index for each in snapshots.kept] == [9]


# --- By chance -------------------------------------------------------------------------------------------


@dataclass
class Truth:
    """What a disk must give back behind a record."""

    term: int = 0
    vote: Boot | None = None
    entries: list[Entry] = field(default_factory=list)

    def copy(self) -> Truth:
        return Truth(self.term, self.vote, list(self.entries))

    def configuration(self, index: int) -> tuple[int, Configuration]:
        found = [
            (entry.index, entry.body)
            for entry in self.entries[:index]
            if isinstance(entry.body, Configuration)
        ]
        return found[-1] if found else (0, ALONE)


class Life:
    """A member's disk under random steps: what is committed is applied and may be in a snapshot; what is not may be
    taken back by a later term."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = MemoryDisk()
        self.journal = MemoryJournal()
        self.truth = Truth()
        self.commit_index = 0
        self.digests: dict[int, bytes] = {0: Catalog().digest()}
        self.written: list[tuple[int, Truth]] = [(0, self.truth.copy())]  # By the token of their record.
        self.sequences: dict[int, int] = {}
        self.sequence = 0
        self.met: set[str] = set()
        self.installs: list[tuple[int, int]] = []  # (token, what was committed before) in this process.
        self.begin()

    def begin(self) -> None:
        self.store = opened(self.journal, self.disk)
        beginning = self.store.beginning
        self.catalog, self.log = beginning.catalog, beginning.log
        self.applied = self.log.snapshot_index
        self.cut = None
        self.sequence = 0
        self.sequences = {}

    def step(self) -> None:
        chance, truth = self.chance, self.truth
        last = len(truth.entries)
        keep, entries = last, list[Entry]()
        kind = chance.random()
        if kind < 0.1:
            truth.term, truth.vote = truth.term + 1, None
        elif kind < 0.2:
            truth.vote = truth.vote or CANDIDATE
        elif kind < 0.35 and truth.term:
            truth.term, truth.vote = truth.term + 1, None
            keep = chance.randint(self.commit_index, last)
            self.met.add("taken back" if keep < last else "kept")
        truth.term = max(1, truth.term)
        for index in range(keep + 1, keep + chance.randint(0, 3) + 1):
            body = chance.choice([None, THREE, ALONE]) if chance.random() < 0.2 else command(index)
            entries.append(Entry(index, truth.term, body if index > 1 else command(1)))
        truth.entries = [*truth.entries[:keep], *entries]
        self.sequence += 1
        self.store.persist(Persist(self.sequence, truth.term, truth.vote, keep, tuple(entries)))
        token = self.journal.next_token() - 1
        self.written.append((token, truth.copy()))
        self.sequences[self.sequence] = token

    def sync(self) -> None:
        self.journal.commit(self.chance.choice([0, 1, 2, None]))
        sequence = self.store.durable()
        told = [number for number, token in self.sequences.items() if token <= self.journal._durable]
        assert sequence == max(told, default=0)
        durable = self.at(self.journal._durable)
        end = 0
        for ours, theirs in zip(self.truth.entries, durable.entries, strict=False):
            if ours != theirs:
                break
            end = ours.index
        if end > self.commit_index and self.chance.random() < 0.7:
            self.commit_index = self.chance.randint(self.commit_index, end)
        while self.applied < min(self.commit_index, end):
            entry = self.truth.entries[self.applied]
            if isinstance(entry.body, bytes):
                self.catalog.apply(decode_command(entry.body), entry.index, entry.term)
            self.applied = entry.index
            self.digests.setdefault(entry.index, self.catalog.digest())
            assert self.digests[entry.index] == self.catalog.digest()
        saved = self.store.saved()
        if saved is not None:
            assert 0 <= saved[1] - 1 <= saved[0] <= self.applied
            self.met.add("saved")

    def snapshot(self) -> None:
        snapshots = self.store.snapshots
        assert snapshots is not None
        if self.store.is_snapshot_due() and self.applied > snapshots.newest_index:
            self.cut = self.catalog.cut()
            head = self.cut.head
            index, configuration = self.truth.configuration(self.applied)
            term = self.truth.entries[self.applied - 1].term
            counts = head.revision, head.records, head.sessions
            self.store.begin_snapshot(self.applied, term, configuration, index, *counts)
        for _ in range(self.chance.randint(0, 3)):
            if self.cut is not None:
                piece = self.cut.next_piece()
                if piece is not None:
                    snapshots.add(piece)
                else:
                    self.cut = None
                    self.catalog.end_cut()
                    snapshots.end()

    def install(self) -> None:
        """Another member's snapshot, of entries that are committed there: some of what is here agrees with it, or
        nothing does."""
        truth, chance, store = self.truth, self.chance, self.store
        assert store.snapshots is not None
        least = max(self.commit_index, store.snapshots.newest_index) + 1
        keeps = chance.random() < 0.5 and least <= len(truth.entries)
        if keeps:
            index = chance.randint(least, len(truth.entries))
        else:
            index = least + chance.randint(0, 9)
            truth.term += 1
            truth.vote = None
            new = [
                Entry(number, truth.term, command(number))
                for number in range(self.commit_index + 1, index + 1)
            ]
            truth.entries = [*truth.entries[: self.commit_index], *new]
        catalog = fetch(
            self.disk, truth.entries, index, self.catalog, self.applied, truth.configuration(index)
        )
        self.cut = None
        self.digests[index] = catalog.digest()
        term = truth.entries[index - 1].term
        store.install(index, term, keeps_entries=keeps)
        named = self.journal.next_token() - 1
        before = self.written[-1][1].copy()
        vote = (
            before.vote if before.term >= term else None
        )  # A log may be newer than its last note of a term.
        self.written.append((named, Truth(max(before.term, term), vote, list(truth.entries))))
        self.sequence += 1
        store.persist(Persist(self.sequence, truth.term, truth.vote, len(truth.entries), ()))
        token = self.journal.next_token() - 1
        self.written.append((token, truth.copy()))
        self.sequences[self.sequence] = token
        self.installs.append((named, self.commit_index))
        self.commit_index = self.applied = index
        self.catalog = finished(store.load(index, term))
        self.met.add("installed beside" if keeps else "installed instead")

    def at(self, token: int) -> Truth:
        return next(truth for written, truth in reversed(self.written) if written <= token)

    def crash(self) -> None:
        if self.store.snapshots is not None and len(self.store.snapshots.kept) > 1:
            self.met.add("trimmed" if self.journal.records[0].token > 1 else "whole")
        self.disk.crash(self.chance.getrandbits(30) | 1)
        durable = self.journal._durable
        lost = [commit_index for token, commit_index in self.installs if token > durable]
        if lost:  # What was committed by it is known to others only.
            self.commit_index = lost[0]
            self.digests = {index: digest for index, digest in self.digests.items() if index <= lost[0]}
        self.installs.clear()
        self.journal = MemoryJournal(self.journal.crash())
        expected = self.at(durable)
        self.written = [(0, expected.copy())]
        self.truth = expected
        self.begin()
        begin, log = self.store.beginning, self.log
        assert (begin.term, begin.vote) == (expected.term, expected.vote)
        assert log.last_index == len(expected.entries)
        assert log.between(log.first_index, log.last_index) == tuple(expected.entries[log.first_index - 1 :])
        assert (log.configuration_index, log.configuration) == expected.configuration(log.last_index)
        base = log.snapshot_index
        assert log.term_at(base) == (expected.entries[base - 1].term if base else 0)
        assert base <= self.commit_index, "a snapshot is of what is committed"
        self.commit_index = min(self.commit_index, log.last_index)
        assert self.catalog.digest() == self.digests[base]
        self.met.add("from a snapshot" if base else "from the log")


@pytest.mark.parametrize("seed", [*range(40), 595])
def test_a_start_finds_what_was_durable_whatever_was_taken_back(seed: int) -> None:
    """I61, I65, I77, I80: term, vote, entries and configuration, behind any crash, trim and snapshot. 595: trimmed
    between a record and the one that took back what it goes on from, no start was possible."""
    life = Life(seed)
    for _ in range(12):
        for _ in range(life.chance.randint(1, 40)):
            life.step()
            if life.chance.random() < 0.03:
                life.install()
            life.snapshot()
            life.sync()
        life.crash()
    if seed == 0:
        assert life.met >= {"taken back", "saved", "trimmed", "from a snapshot", "installed instead"}
