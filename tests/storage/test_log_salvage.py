"""A metadata log that is damaged in its middle: what one of several members goes on with (METADATA.md, 2)."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections import Counter

import pytest

from embedbk.errors import EmbedbkError, StorageError
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_vocabulary import Boot, Doubt, Entry, Persist
from embedbk.storage.journal import DamagedJournal
from embedbk.storage.log_salvage import SALVAGED_FILE
from embedbk.storage.member_notes import MemoryNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.metadata_store import MetadataStore
from tests.storage.test_metadata_store import IDENTITY, on_disk

M2, M3 = MemberId("m2", b"2" * 16), MemberId("m3", b"3" * 16)
THREE = Configuration((IDENTITY.member, M2, M3))
Entries = tuple[Entry, ...]


class Life:
    """A member of three; after each step that is durable, what its log is."""

    def __init__(self, configuration: Configuration = THREE) -> None:
        self.disk, self.notes = MemoryDisk(), MemoryNotes()
        self.sequence = 0
        self.log: list[Entry] = []
        self.term = 0
        self.states: list[tuple[Entries, int]] = [((), 0)]
        self.snapshot_index = 0
        self.store = on_disk(self.disk, snapshot_due_bytes=1 << 20, notes=self.notes)
        self.step(1, None, 0, (1, configuration))

    def step(
        self, term: int, vote: Boot | None, keep: int, *entries: tuple[int, Configuration | None]
    ) -> None:
        added = tuple(Entry(keep + n, each, body) for n, (each, body) in enumerate(entries, 1))
        self.sequence += 1
        self.store.persist(Persist(self.sequence, term, vote, keep, added))
        self.commit()
        del self.log[keep:]
        self.log += added
        self.term = term
        self.states.append((tuple(self.log), term))

    def commit(self) -> None:
        while self.store._journal.step():  # type: ignore[attr-defined]
            pass
        self.store.durable()

    def snapshot(self) -> None:
        """Of all that is there."""
        last = self.log[-1]
        catalog = Catalog()
        catalog.revision = last.index
        cut = catalog.cut()
        counts = cut.head.revision, cut.head.records, cut.head.sessions
        snapshots = self.store.begin_snapshot(last.index, last.term, THREE, 1, *counts)
        while (piece := cut.next_piece()) is not None:
            snapshots.add(piece)
        snapshots.end()
        for _ in range(20):
            self.commit()
        assert self.store.saved()
        self.snapshot_index = last.index

    def restart(self) -> None:
        self.store.close()
        self.store, self.sequence = on_disk(self.disk, snapshot_due_bytes=1 << 20, notes=self.notes), 0

    def end(self) -> tuple[MemoryDisk, MemoryNotes]:
        self.store.close()
        return self.disk, self.notes

    def check(self, store: MetadataStore) -> tuple[int, Doubt | None]:
        """What it goes on with it was before; and it knows how much it may have had. Returns its last index."""
        beginning = store.beginning
        log, found = beginning.log, list[Entry]()
        if log.last_index > log.snapshot_index:
            found = list(log.between(log.snapshot_index + 1, log.last_index))
        assert log.snapshot_index in (0, self.snapshot_index)
        lawful = [
            list(entries[log.snapshot_index :])
            for entries, _ in self.states
            if len(entries) >= log.snapshot_index
        ]
        assert found in lawful, "a log that it never had"
        if (found, beginning.term) != (list(self.log[log.snapshot_index :]), self.term):
            assert beginning.doubt is not None, "it forgot, and does not know"
        if beginning.doubt is not None:
            assert beginning.doubt.term >= self.term
            assert beginning.doubt.acknowledged_index >= len(self.log)
        return log.last_index, beginning.doubt


def plain() -> Life:
    """Votes, entries, and others in their place, over two starts."""
    life = Life()
    life.step(1, Boot(M2, b"n"), 1, (1, None), (1, None))
    life.step(3, Boot(M3, b"n"), 3, (3, None), (3, None), (3, None))
    life.step(4, None, 3, (4, None))
    life.restart()
    life.step(4, Boot(M2, b"o"), 4, (4, None))
    life.step(6, None, 5, (6, None), (6, None))
    return life


def with_snapshot() -> Life:
    """What stands before the snapshot is not needed, and what stands behind it follows it."""
    life = plain()
    life.snapshot()
    life.step(6, None, 7, (6, None))
    life.step(7, None, 8, (7, None))
    return life


def journals(disk: MemoryDisk) -> list[str]:
    return sorted(path for path in disk.files() if "/journal-" in path)


def flipped(disk: MemoryDisk, path: str, at: int) -> MemoryDisk:
    files = disk.files()
    content = bytearray(files[path])
    content[at] ^= 0x40
    return MemoryDisk({**files, path: bytes(content)})


def open_again(disk: MemoryDisk, notes: MemoryNotes) -> MetadataStore:
    return on_disk(disk, snapshot_due_bytes=1 << 20, notes=notes)


@pytest.mark.parametrize("made", [plain, with_snapshot])
def test_every_byte_may_rot_and_it_goes_on_with_a_log_that_it_had(made: type[Life]) -> None:
    """Story 9, I81: never a log that it did not have at some time; and where that is less than it had,
    it is in doubt about all of it, also at the next start."""
    life = made()
    disk, notes = life.end()
    seen: Counter[str] = Counter()
    for path in journals(disk):
        content = disk.read(path)
        for at in [n for n, byte in enumerate(content) if byte][::3]:
            harmed, noted = flipped(disk, path, at), copy.deepcopy(notes)
            try:
                store = open_again(harmed, noted)
            except StorageError:
                seen["refused"] += 1
                continue
            first = life.check(store)
            seen["in doubt" if first[1] is not None else "as it was"] += 1
            store.close()
            store = open_again(harmed, noted)
            assert life.check(store) == first
            store.close()
    assert seen["in doubt"] > 100, seen
    assert seen["refused"] < sum(seen.values()) // 3, seen


def damaged(life: Life) -> tuple[MemoryDisk, MemoryNotes]:
    """In the middle: the step of term 3."""
    disk, notes = life.end()
    path = journals(disk)[0]
    return flipped(disk, path, third_group(disk.read(path))), notes


def third_group(content: bytes) -> int:
    return 4096 * 4 + 80


def test_it_goes_on_in_doubt_and_keeps_the_damaged_files(caplog: pytest.LogCaptureFixture) -> None:
    life = plain()
    disk, notes = damaged(life)
    with caplog.at_level(logging.ERROR):
        store = open_again(disk, notes)
    index, doubt = life.check(store)
    assert (0 < index < 7, doubt) == (True, Doubt(6, 7))
    assert any("votes for nobody" in record.getMessage() for record in caplog.records)
    assert any("damaged-" in path for path in disk.files())
    assert not any(path.endswith(SALVAGED_FILE) for path in disk.files())
    store.close()
    caplog.clear()
    again = open_again(disk, notes)
    assert life.check(again) == (index, doubt)
    assert not any(record.levelno >= logging.ERROR for record in caplog.records), "said once"
    again.end_doubt()
    life.disk, life.notes, life.store, life.sequence = disk, notes, again, 0
    life.step(6, None, index, *[(6, None)] * 3)
    life.restart()
    assert life.store.beginning.doubt is None, "what a later start noted counts"


def test_the_only_member_refuses_with_the_command_that_helps() -> None:
    life = Life(Configuration((IDENTITY.member,)))
    for number in range(1, 9):
        life.step(1, None, number, (1, None))
    disk, notes = damaged(life)
    before = disk.files()
    with pytest.raises(DamagedJournal) as refused:
        open_again(disk, notes)
    assert "--may-have-lost" in refused.value.hint
    assert disk.files() == before


def test_who_cannot_tell_what_it_acknowledged_refuses() -> None:
    """Its note is gone, too: nothing bounds the doubt."""
    disk, _ = damaged(plain())
    with pytest.raises(DamagedJournal, match="how much it acknowledged cannot be told") as refused:
        open_again(disk, MemoryNotes())
    assert "join again" in refused.value.hint


@pytest.mark.parametrize("made", [plain, with_snapshot])
def test_the_power_may_go_before_every_call_of_a_salvage(made: type[Life]) -> None:
    """The next start goes on with the same records, and the same doubt."""
    life = made()
    disk, notes = damaged(life)
    whole = MemoryDisk(disk.files())
    noted = copy.deepcopy(notes)
    store = open_again(whole, noted)
    count, expected = whole.calls(), life.check(store)
    store.close()
    assert count > 20
    for call in range(1, count + 1):
        harmed, noted = MemoryDisk(disk.files()), copy.deepcopy(notes)
        harmed.halt(call)
        cut_off = None
        with contextlib.suppress(EmbedbkError):
            cut_off = open_again(harmed, noted)
        harmed.crash(call)
        with contextlib.suppress(EmbedbkError):
            if cut_off is not None:
                cut_off.close()
        store = open_again(harmed, noted)
        assert life.check(store) == expected, call
        store.close()
