"""A production member whose disk lost what it had acknowledged, among others that did not (P10.3; METADATA.md, 2)."""

from __future__ import annotations

from embedbk.codec.metadata_messages import Put, Txn, TxnDone
from embedbk.storage.memory_journal import MemoryJournal
from tests.host.test_several_members import House, Place


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
