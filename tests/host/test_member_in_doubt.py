"""A production member whose disk lost what it had acknowledged, among others that did not (P10.3; METADATA.md, 2)."""

from __future__ import annotations

import pytest

from embedbk.codec.metadata_messages import Put, Txn, TxnDone
from embedbk.errors import StorageError
from embedbk.metadata.raft_vocabulary import TransferRequested
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from tests.host.test_several_members import TOKEN, House, Place, member_of
from tests.storage.test_metadata_store import FILE_BYTES, SMALL


def lose_newest(place: Place, count: int) -> None:
    """Power off; the newest records are gone, though they were synced, as with files of an older copy."""
    place.crash()
    records = place.journal.records
    place.journal = MemoryJournal(records[: len(records) - count])


def put(house: House, number: int) -> None:
    reply = house.ask(Txn([], [Put(f"/{number}", b"value")]))
    assert isinstance(reply.result, TxnDone)


def is_doubted(place: Place) -> tuple[bool, bool]:
    """By the core, and in the note."""
    assert place.node is not None
    assert place.notes.used is not None
    return place.node.log.raft.has_doubt, place.notes.used.has_doubt


def test_a_member_that_lost_acknowledged_entries_elects_nobody_before_it_has_them_again() -> None:
    """I64, P10.3: the two that are there could elect one without a committed change, and do not; with the third the
    cluster goes on, the doubt ends, is noted as over, and the member votes again."""
    house = House()
    for place in house.places.values():
        place.start()
    house.open()
    for number in range(6):
        put(house, number)
    house.run(500)
    leader = house.leader()
    harmed, behind = (place for place in house.places.values() if place is not leader)
    behind.crash()
    for number in range(6, 12):
        put(house, number)  # Acknowledged by the leader and by the one that is harmed.
    leader.crash()
    lose_newest(harmed, 8)
    harmed.start()
    behind.start()
    house.run(8_000)
    assert is_doubted(harmed) == (True, True)
    assert not any(place.node is not None and place.node.log.term for place in house.places.values())
    lose_newest(harmed, 0)
    harmed.start()
    house.run(10)
    assert is_doubted(harmed) == (True, True), "over its starts"
    leader.start()
    assert house.leader() is leader, "of three only it has everything that was acknowledged"
    house.session, house.sequence = None, 0
    house.open()
    for number in range(12, 15):
        put(house, number)
    house.run(2_000)
    assert is_doubted(harmed) == (False, False)
    leader.crash()
    newest = house.leader()
    house.run(2_000)
    assert newest in (harmed, behind)
    assert newest.node is not None
    for number in range(15):
        assert newest.node.core.catalog.get(f"/{number}").record is not None, number


class OnDisk(Place):
    """Its log is the real journal."""

    def _open(self) -> MetadataStore:
        self.starts += 1
        incarnation = member_of(self.name).incarnation
        store = open_metadata_store(
            self.name,
            io=self.disk,
            file_bytes=FILE_BYTES,
            limits=SMALL,
            threaded=False,
            new_identity=MemberIdentity(TOKEN, incarnation, self.name, is_founder=False),
            notes=self.notes,
        )
        self.store, self.journal = store, Stepped(store)  # type: ignore[assignment]
        self.journal.commit()
        return store

    def crash(self) -> None:
        assert self.node is not None
        self.house.network.crash(self.name)
        self.node = None
        self.disk.halt(1)
        self.store.close()
        self.disk.crash()


class Stepped:
    """Of a real journal what a place asks of its own: a sync of all that is queued."""

    records = ()

    def __init__(self, store: MetadataStore) -> None:
        self._journal = store._journal

    def commit(self) -> None:
        while self._journal.step():  # type: ignore[attr-defined]
            pass


@pytest.mark.parametrize("part", range(6))
def test_a_bit_that_flips_in_the_log_of_one_voter_takes_nothing_that_was_committed(part: int) -> None:
    """Scenario 88, I81: PAR. Anywhere in its log, also in entries that only it and one that is away hold: it goes on in
    doubt, or refuses; it elects nobody without them, and has every entry again from whoever has it."""
    house = House()
    harmed = house.places["m2"] = OnDisk(house, "m2")
    for place in house.places.values():
        place.start()
    house.open()
    for number in range(4):
        put(house, number)
    if house.leader() is harmed:
        assert harmed.node is not None
        harmed.node._step_core(TransferRequested(house.now_ns, member_of("m1")))
    house.run(500)
    leader = house.leader()
    behind = next(place for place in house.places.values() if place not in (leader, harmed))
    behind.crash()
    for number in range(4, 8):
        put(house, number)
    house.run(500)
    leader.crash()
    harmed.crash()
    files = harmed.disk.files()
    path = min(path for path in files if "/journal-" in path)
    written = [at for at, byte in enumerate(files[path]) if byte]
    at = written[len(written) * (2 * part + 1) // 12]
    content = bytearray(files[path])
    content[at] ^= 1 << part
    harmed.disk = MemoryDisk({**files, path: bytes(content)})
    try:
        harmed.start()
    except StorageError:
        harmed.node = None
    behind.start()
    house.run(8_000)
    assert not any(place.node is not None and place.node.log.term for place in house.places.values())
    leader.start()
    house.session, house.sequence = None, 0
    house.open()
    put(house, 8)
    house.run(2_000)
    if harmed.node is not None:
        assert is_doubted(harmed) == (False, False)
        assert len(house.digests()) == 1
        leader.crash()
    newest = house.leader()
    house.run(2_000)
    assert newest.node is not None
    for number in range(9):
        assert newest.node.core.catalog.get(f"/{number}").record is not None, number
