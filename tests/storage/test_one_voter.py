"""Accidents of a quorum of one that other systems had, on the real journal (scenarios 63, 64, 67, 76 and 89)."""

from __future__ import annotations

import errno
import random

import pytest

from embedbk.codec.metadata_messages import AllocIds, Put, Txn
from embedbk.errors import StorageError
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import RULES, Run, StartSession, encode_command
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_vocabulary import Boot, Entry, Persist
from embedbk.storage.member_notes import MemoryNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.metadata_store import SNAPSHOT_DUE_BYTES_MAX
from tests.storage.solo import append, replayed
from tests.storage.test_metadata_store import IDENTITY, Writer, on_disk

IDS = 3  # In each command.


class Counter(Writer):
    """Each second command gives ids out, the others change the revision: one more or one less is seen for ever."""

    def give(self) -> None:
        index = self.store.index + 1
        operation = AllocIds(IDS) if index % 2 else Txn([], [Put("/k", b"%d" % index)])
        command = Run(1, index, index, operation, RULES) if index > 1 else StartSession(1, 1000, "w")
        append(self.store, index, encode_command(command))
        self.catalog.apply(command, index, FIRST_TERM)

    def turn(self) -> None:
        self.give()
        if self.store.index % 5 == 0:
            self.store._entry_bytes = SNAPSHOT_DUE_BYTES_MAX  # A snapshot is due, however little was written.
        self.snapshot_if_due(1)
        self.store._journal.step()  # type: ignore[attr-defined]
        self.sync()


def revision_at(index: int) -> int:
    return index // 2


def next_id_at(index: int) -> int:
    return 1 + IDS * max(0, (index - 1) // 2)


def live(disk: MemoryDisk, commands: int) -> int:
    """One process. How many commands its client was told of, and whether the power went."""
    told = 0
    try:
        counter = Counter(on_disk(disk))
        told = counter.acknowledged
        for _ in range(commands):
            counter.turn()
            told = counter.acknowledged
            if counter.store.failed():
                break
        counter.store.close()
    except StorageError:
        pass
    return told


def check(disk: MemoryDisk, told: int) -> int:
    """Up to which command it is there, each once."""
    store = on_disk(disk)
    catalog, index = replayed(store), store.index
    store.close()
    assert index >= told, "its client was told of more"
    assert (catalog.next_id, catalog.revision) == (next_id_at(index), revision_at(index))
    return index


def test_a_command_is_neither_skipped_nor_run_twice_wherever_the_power_goes() -> None:
    """Scenario 63, I72: etcd 13766. The state and up to which command it goes are one file, or neither is there: at a
    loss of power before every call of the disk, ids and revisions are those of the commands."""
    disk = MemoryDisk()
    assert live(disk, 40) == check(disk, 40) == 40
    assert sum(path.startswith("m/snapshots/") for path in disk.files()) >= 2, "no snapshots were cut"
    for call in range(1, 1_000):
        disk = MemoryDisk()
        disk.halt(call)
        told = live(disk, 40)
        disk.crash(seed=call)
        assert check(disk, told) <= 40
        if told == 40:
            assert call > 100
            return
    raise AssertionError("the power went at every call")


@pytest.mark.parametrize("seed", range(4))
def test_the_only_voter_keeps_what_it_answered_when_it_is_killed_behind_the_answer(seed: int) -> None:
    """Scenario 64: etcd 14370. Nothing that was not synced outlives the process; what was answered does."""
    disk = MemoryDisk()
    for life in range(12):
        counter = Counter(on_disk(disk))
        for _ in range(seed + 1):
            counter.turn()
        told = counter.acknowledged
        counter.give()  # On its way when the process ends.
        disk.halt(1)
        counter.store.close()
        disk.crash()
        assert told == check(disk, told) == (seed + 1) * (life + 1)


@pytest.mark.parametrize("seed", range(20))
def test_the_revision_never_falls_over_power_cuts_amid_snapshots_and_trimming(seed: int) -> None:
    """Scenario 67: etcd 17780, 14685. Each life goes on from the one before, cut off wherever chance has it."""
    chance, disk = random.Random(seed), MemoryDisk()
    index = 0
    for _ in range(8):
        disk.halt(chance.randint(1, 90))
        told = live(disk, 40)
        disk.crash(seed=chance.getrandbits(40) | 1)
        found = check(disk, max(told, index))
        assert revision_at(found) >= revision_at(index)
        index = found
    assert live(disk, 40) == check(disk, 0) == index + 40


OLD, NEW = (encode_command(StartSession(0, 1000, label)) for label in ("old", "new"))
M2, M3 = MemberId("m2", b"2" * 16), MemberId("m3", b"3" * 16)


@pytest.mark.parametrize("has_room_later", [False, True])
def test_who_must_forget_entries_and_finds_the_disk_full_waits_and_says_nothing(has_room_later: bool) -> None:
    """Scenario 76: ZK-3701. What takes entries back and what comes in their place are one record: while it has no room
    nobody is told of it, and at the next start the log is that of before or that of after, never one of both."""
    disk, notes = MemoryDisk(), MemoryNotes()
    store = on_disk(disk, notes=notes)
    journal = store._journal
    before = (Entry(1, 1, Configuration((IDENTITY.member, M2, M3))), Entry(2, 1, OLD), Entry(3, 1, OLD))
    after = (before[0], Entry(2, 2, NEW))
    store.persist(Persist(1, 1, None, 0, before))
    while journal.step():  # type: ignore[attr-defined]
        pass
    assert store.durable() == 1
    disk.fail("write", error=errno.ENOSPC, stays=True)
    store.persist(Persist(2, 2, Boot(M2, b"n"), 1, after[1:]))
    for _ in range(10):
        journal.step()  # type: ignore[attr-defined]
        assert store.durable() == 1
    if has_room_later:
        disk.fail("write", nth=0)
        journal.trim(0)  # Or time passes.
        while journal.step():  # type: ignore[attr-defined]
            pass
        assert store.durable() == 2
    store.close()
    disk.fail("write", nth=0)
    disk.crash()
    log = (again := on_disk(disk, notes=notes)).beginning.log
    assert tuple(log.between(1, log.last_index)) == (after if has_room_later else before)
    again.close()


def test_a_sync_that_failed_is_never_believed_again_though_the_next_one_succeeds() -> None:
    """Scenario 89, P7.6: fsyncgate. The pages of the failed sync count as clean and are gone; no later answer says that
    they are there."""
    disk = MemoryDisk()
    disk.refuse_direct()
    counter = Counter(on_disk(disk))
    counter.turn()
    disk.fail("sync", error=errno.EIO)
    counter.turn()
    assert "errno 5" in str(counter.store.failed())
    for _ in range(3):
        with pytest.raises(StorageError):
            counter.turn()
        counter.store._journal.step()  # type: ignore[attr-defined]
        assert counter.store.durable() == 1
    assert counter.acknowledged == 1
    counter.store.close()
    disk.crash()
    assert check(disk, 1) == 1
