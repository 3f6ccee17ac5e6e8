"""P7.8, L13: a bookie that is busy says so. It is not dead, not read-only, and never too busy to fence."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import ExplicitLacRequest, LacAnswer, LacRequest, pack_explicit_lacs
from embedbk.codec.messages import Control
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.core.backlog import FRAME_PRICE
from embedbk.core.client_words import Answered
from embedbk.core.seating import BUSY_FIRST_NS
from embedbk.core.writer_options import WriterOptions
from embedbk.host.client_node import ClientNode
from embedbk.host.writing import Writing
from embedbk.ids import NO_ENTRY
from embedbk.storage.journal import SLOT_COUNT
from embedbk.storage.memory_disk import MemoryDisk
from tests.host.place import KEY, MS, SECOND, DiskStorage, Peer, Place, add, frame
from tests.rules.world import Pen, World

KEPT = 4 << 10  # Of what waits: a few adds of a kilobyte.
KILOBYTE = [bytes(1000)]


def busy(place: Place, name: str, *, is_busy: bool = True) -> None:
    """From now on the bookie has no room for normal adds, or has it again."""
    node = place.bookie(name)
    node.waiting.has_room = (lambda is_urgent: is_urgent) if is_busy else node.has_room


def statuses(peer: Peer) -> dict[int, Status]:
    """Of the adds that were answered, by entry."""
    peer.look()
    adds = [message.control for message in peer.messages if isinstance(message.control, AddAnswer)]
    return {answer.first_entry: answer.status for answer in adds}


def status(answer: Control) -> Status:
    assert isinstance(answer, AddAnswer | FenceAnswer | LacAnswer | ReadAnswer)
    return answer.status


# --- The bookie ------------------------------------------------------------------------------------------


def test_fences_reads_and_recovery_pass_the_adds_that_wait() -> None:
    """Rule P7.8, P3.4a, P5.2f: they are answered while adds wait; an add that waits was not accepted, so a fence that
    overtakes it makes it fail, and a fenced read says that its entry is not there."""
    place = Place(bookies=1)
    incarnation = place.bookie("b1").storage.incarnation
    peer = place.peer("b1")
    for ledger_id in (7, 8):
        assert status(peer.ask(*add(incarnation, frame(ledger_id, 0, [b"zero"])))) == Status.OK
    busy(place, "b1")
    peer.send(*add(incarnation, frame(7, 1, [b"one"], 4)))
    peer.send(*add(incarnation, frame(8, 1, [b"one"], 4)))
    place.turns()
    assert statuses(peer) == {}
    assert status(peer.ask(LacRequest(incarnation, 8))) == Status.OK
    assert status(peer.ask(ReadRequest(incarnation, 8, 0, 0, 1000))) == Status.OK
    assert status(peer.ask(FenceRequest(incarnation, 7, KEY))) == Status.OK
    read = peer.ask(ReadRequest(incarnation, 7, 1, 1, 1000, True, KEY))
    assert isinstance(read, ReadAnswer) and read.absent == [(1, 1)]
    again = frame(7, 0, [b"zero"])
    assert status(peer.ask(*add(incarnation, again, recovery=True, nonce=2))) == Status.OK
    busy(place, "b1", is_busy=False)
    place.turns()
    peer.look()
    told = {message.control.ledger_id: status(message.control) for message in peer.messages}
    assert told == {7: Status.FENCED, 8: Status.OK}
    place.close()


def test_what_waits_is_bounded_and_the_rest_is_told_busy() -> None:
    """L13, RP34: a bound in bytes; beyond it an add is answered BUSY, nothing of it is done, and the link stays. What
    waits keeps its order and is taken when there is room."""
    place = Place(bookies=0)
    place.waiting_bytes_max = KEPT
    node = place.start_bookie("b1")
    place.until(lambda: node.is_registered)
    incarnation = node.storage.incarnation
    peer = place.peer("b1")
    assert status(peer.ask(*add(incarnation, frame(7, 0, [b"zero"])))) == Status.OK
    busy(place, "b1")
    for entry_id in range(1, 11):
        peer.send(*add(incarnation, frame(7, entry_id, KILOBYTE)))
    place.turns()
    told = statuses(peer)
    assert set(told.values()) == {Status.BUSY} and list(told) == list(range(3, 11))
    assert node.storage.table.get(7).last_entry == 0
    busy(place, "b1", is_busy=False)
    place.turns()
    told = statuses(peer)
    assert [told[entry_id] for entry_id in range(1, 3)] == [Status.OK] * 2
    assert peer.down is None
    assert status(peer.ask(*add(incarnation, frame(7, 4, KILOBYTE)))) == Status.OK
    assert status(peer.ask(ReadRequest(incarnation, 7, 9, 9, 1000))) == Status.OK
    assert node.storage.read(7, 9, 9, 1000).absent == [(9, 9)]
    place.close()


@pytest.mark.parametrize("count", [1, 3])
def test_lacs_wait_with_the_adds_and_beyond_the_bound_they_are_hints(count: int) -> None:
    """P7.8, P6.2: what idle writers tell for good takes nothing of what is kept for fences. Beyond the bound it is
    known in memory, for readers; nobody was promised more, and the link stays."""
    place = Place(bookies=0)
    place.waiting_bytes_max = KEPT
    node = place.start_bookie("b1")
    place.until(lambda: node.is_registered)
    incarnation, table = node.storage.incarnation, node.storage.table
    peer = place.peer("b1")
    assert status(peer.ask(*add(incarnation, frame(7, 0, [b"zero"])))) == Status.OK
    busy(place, "b1")
    begin = node.storage.next_token()

    def tell(lac: int) -> None:
        lacs = [ExplicitLacRequest(incarnation, 7, KEY, lac, 4, wants_answer=False)] * count
        peer.send(lacs[0] if count == 1 else pack_explicit_lacs(lacs))
        place.turns()

    tell(0)
    assert (table.get(7).lac, node.storage.next_token()) == (NO_ENTRY, begin)
    for lac in range(1, 100):
        tell(lac)
    assert (table.get(7).lac, node.storage.next_token()) == (99, begin)
    assert peer.down is None
    busy(place, "b1", is_busy=False)
    place.turns()
    tell(100)
    assert table.get(7).lac == 100 and node.storage.next_token() > begin
    place.close()


@pytest.mark.parametrize("ask", ["read-only", "fenced", "wrong key"])
def test_busy_is_said_only_to_adds_that_would_be_taken(ask: str) -> None:
    """P3.4a, P3.5, P7.8: who is refused for good is not told to come again."""
    place = Place(bookies=0)
    place.waiting_bytes_max = 0
    node = place.start_bookie("b1")
    place.until(lambda: node.is_registered)
    incarnation = node.storage.incarnation
    peer = place.peer("b1")
    assert status(peer.ask(*add(incarnation, frame(7, 0, [b"zero"])))) == Status.OK
    busy(place, "b1")
    request = add(incarnation, frame(7, 1, [b"one"], 4))
    assert status(peer.ask(*request)) == Status.BUSY
    expected = {"read-only": Status.READ_ONLY, "fenced": Status.FENCED, "wrong key": Status.WRONG_KEY}[ask]
    if ask == "read-only":
        node.spacing.set_read_only(place.now_ns, True)
    elif ask == "fenced":
        peer.ask(FenceRequest(incarnation, 7, KEY))
    else:
        row = node.storage.table.get(7)
        node.storage.table.set_key(row, b"another ledger k")
    assert status(peer.ask(*request)) == expected
    place.close()


def test_recovery_has_a_part_of_the_write_cache_to_itself() -> None:
    """Rule P7.8, RP34: with the write cache full of normal adds, and no flush that ends, an add of a recovery and a
    fence are still taken, and nothing of it waits inside a turn; one too many waits for its turn as well."""
    place = Place(bookies=0)
    node = place.start_bookie("b1", storage=DiskStorage(MemoryDisk()))
    place.until(lambda: node.is_registered)
    incarnation = node.storage.incarnation
    peer = place.peer("b1")
    place.held.add("b1")
    size, entry_id = 500_000, 0
    while node.storage.has_room():
        peer.send(*add(incarnation, frame(7, entry_id, [bytes(size)])))
        entry_id += 1
        place.turn()
    before = node.storage.cached_bytes()
    for number in range(8):
        peer.send(*add(incarnation, frame(8, number, [bytes(size)]), recovery=True))
        place.turns(2)
    taken = node.storage.cached_bytes() - before
    assert size <= taken < 8 * size
    assert not node.storage.has_room(is_urgent=True)
    place.held.clear()
    place.until(lambda: (peer.look(), len(peer.messages) == entry_id + 8)[1])
    assert {status(message.control) for message in peer.messages} == {Status.OK}
    place.close()


def test_fences_have_a_part_of_the_journal_to_themselves() -> None:
    """Rule P7.8: normal adds, taken by the add path or by the core, never use up the journal's queue."""
    place = Place(bookies=0)
    node = place.start_bookie("b1", storage=DiskStorage(MemoryDisk()))
    place.until(lambda: node.is_registered)
    incarnation = node.storage.incarnation
    peer = place.peer("b1")
    assert status(peer.ask(*add(incarnation, frame(7, 0, [b"x"])))) == Status.OK
    place.held.add("b1")
    begin = node.storage.next_token()
    for entry_id in range(1, SLOT_COUNT + 100):
        peer.send(*add(incarnation, frame(7, entry_id, [b"x"], entry_id)))
        if entry_id % 1000 == 0:
            place.turn()
    place.turns(2)
    assert node.storage.next_token() - begin < SLOT_COUNT
    peer.send(FenceRequest(incarnation, 99, KEY))
    place.turns(2)
    was_taken = node.storage.table.get(99) is not None
    place.held.clear()
    place.until(lambda: (peer.look(), len(peer.messages) == SLOT_COUNT + 100)[1])
    place.close()
    assert was_taken


# --- Who writes ------------------------------------------------------------------------------------------


def writing_beside_one_that_is_busy(
    options: WriterOptions | None = None,
) -> tuple[Place, ClientNode, Writing]:
    place = Place(bookies=0)
    place.waiting_bytes_max = 0
    for name in ("b1", "b2", "b3"):
        place.start_bookie(name)
    place.until(lambda: all(place.bookie(name).is_registered for name in ("b1", "b2", "b3")))
    client = place.start_client()
    writing = place.write(client, options=options or WriterOptions())
    write(place, client, writing, [b"zero"])
    place.until(lambda: writing.lac == 0)
    return place, client, writing


def write(place: Place, client: ClientNode, writing: Writing, payloads: list[bytes]) -> None:
    for payload in payloads:
        writing.packer.append_many([payload])
        client.wake_writing(writing)
        place.turns(3)


def test_a_writer_waits_for_a_bookie_that_is_busy() -> None:
    """P7.8, L13: nobody is replaced, put into quarantine or failed for it; what the others have acknowledged meanwhile
    is sent to it again, so that it holds every entry in the end, as was asked for (Qw)."""
    place, client, writing = writing_beside_one_that_is_busy()
    place.until(lambda: place.bookie("b3").storage.table.get(writing.core.ledger_id) is not None)
    busy(place, "b3")
    write(place, client, writing, [b"x%d" % number for number in range(200)])
    place.run_for(1 * SECOND)
    assert writing.lac == 200
    # What is kept counts as what an append waits for, too (RP33).
    kept = writing.core.in_flight
    assert writing.packer.unreleased_bytes >= kept.behind_bytes - len(kept.behind) * FRAME_PRICE > 0
    busy(place, "b3", is_busy=False)
    place.run_for(1 * SECOND)
    found = place.bookie("b3").storage.read(writing.core.ledger_id, 0, 200, 1 << 20)
    assert found.frame is not None and found.frame.entry_count == 201
    assert writing.ensemble_changes == 0 and writing.error is None
    assert client.listed.quarantine.is_idle and not client.listed.quarantine.errors
    core = writing.core.in_flight
    assert (core.behind_bytes, core.behind, core.has_busy) == (0, {}, False)
    del found
    assert writing.packer.unreleased_bytes == 0
    place.close()


def test_two_that_are_busy_hold_the_writer_back_and_nothing_more() -> None:
    """L13: without Qa the LAC stands; it goes on when they do."""
    place, client, writing = writing_beside_one_that_is_busy()
    for name in ("b2", "b3"):
        busy(place, name)
    write(place, client, writing, [b"x%d" % number for number in range(50)])
    place.run_for(3 * SECOND)
    assert writing.lac == 0 and writing.error is None
    for name in ("b2", "b3"):
        busy(place, name, is_busy=False)
    place.until(lambda: writing.lac == 50)
    assert writing.ensemble_changes == 0
    place.close()


def test_being_busy_is_bounded_by_a_time_limit_of_its_own() -> None:
    """Rule P7.8, RP33: the limit counts from the first time that the add was sent; then it is a failure like silence,
    and no sooner: who says BUSY lives, however short the time limit of an add is."""
    options = WriterOptions(add_timeout_ns=300 * MS, busy_timeout_ns=2 * SECOND)
    place, client, writing = writing_beside_one_that_is_busy(options)
    place.start_bookie("b4")
    place.until(lambda: len(client.bookies) == 4)
    busy(place, "b3")
    why: list[str] = []

    def watch(core: Any, event: Any, effects: list[Any]) -> None:
        if core is writing.core:
            why.extend(seating.failure for seating in core.in_flight.seatings if seating.failure)

    client.on_step = watch
    write(place, client, writing, [b"one"])
    place.run_for(1500 * MS)
    assert writing.ensemble_changes == 0
    place.run_for(1 * SECOND)
    assert writing.ensemble_changes == 1
    assert "busy" in why[0]
    assert "b4" in {member.bookie_id for member in writing.core.in_flight.members}
    place.close()


def test_one_that_was_busy_and_says_nothing_more_has_failed() -> None:
    """Rule P7.8, P4.1: being busy is said again and again; silence is a failure after the time limit of an add."""
    options = WriterOptions(add_timeout_ns=500 * MS)
    place, client, writing = writing_beside_one_that_is_busy(options)
    place.start_bookie("b4")
    place.until(lambda: len(client.bookies) == 4)
    busy(place, "b3")
    write(place, client, writing, [b"one"])
    place.run_for(1 * SECOND)
    assert writing.ensemble_changes == 0
    place.held.add("b3")  # It takes the add again, and never has it durable.
    busy(place, "b3", is_busy=False)
    place.run_for(400 * MS)
    assert writing.ensemble_changes == 0
    place.run_for(400 * MS)
    assert writing.ensemble_changes == 1
    place.close()


def test_a_busy_bookie_is_asked_carefully_and_not_in_every_turn() -> None:
    """L13: no collapse that feeds on its own retries: one frame at a time, ever later, and more when it takes them."""
    place, client, writing = writing_beside_one_that_is_busy()
    asked: list[int] = []
    busy(place, "b3")
    node = place.bookie("b3")

    def watch(core: Any, event: Any, effects: list[Any]) -> None:
        if isinstance(getattr(event, "control", None), AddRequest):
            asked.append(place.now_ns)

    node.on_step = watch
    write(place, client, writing, [b"x%d" % number for number in range(100)])
    sent = len(asked)
    place.run_for(2 * SECOND, step_ns=MS)
    assert sent <= 3 and 10 <= len(asked) - sent <= 20
    del asked[:]
    busy(place, "b3", is_busy=False)
    place.run_for(300 * MS, step_ns=MS)
    assert len(asked) == 100
    assert len(set(asked)) < 20
    place.close()


def test_what_is_kept_for_a_slow_copy_is_bounded() -> None:
    """RP33, RP34 (pulsar 14861): acknowledged entries are kept for a bookie that is busy up to a bound; then the
    writer seals nothing more until that bookie gets on. It says something, so it has not failed (P4.5, P7.8)."""
    bound = 10 * (1000 + FRAME_PRICE)
    world = World()
    metadata, revision = world.create()
    writer = world.writer(metadata, revision, options=WriterOptions(behind_bytes_max=bound))
    pen = Pen(metadata.ledger_id)
    answers = []
    held = writer.core.in_flight
    while not held.is_pressed():
        assert writer.core.wants_frame(is_full=True)
        world.add(writer, pen, bytes(1000))
        world.settle(hold=lambda packet: packet.bookie_id == "b3" and not packet.is_request)
        answers.append(world.packets(kind=AddAnswer)[-1])
    assert len(answers) == 10 and writer.confirmed == 9
    for late in answers:
        world.lose(late)
        said = [getattr(late.control, name) for name in late.control.__struct_fields__[1:]]
        writer.step(Answered(world.now_ns, late.tag, late.member, AddAnswer(Status.BUSY, *said)))
    assert not writer.core.wants_frame(is_full=True)
    world.run(seconds=2, hold=lambda packet: packet.bookie_id == "b3")
    assert held.has_busy and held.is_pressed() and held.seatings[2].failure is None
    world.run(seconds=3)
    assert held.behind_bytes == 0 and not held.has_busy and writer.core.wants_frame(is_full=True)
    world.close(writer)
    world.settle()


def test_a_recovery_waits_for_a_bookie_that_is_busy() -> None:
    """P5.2d, P7.8: a write-back that is told BUSY is sent again, and no other bookie takes the seat for it."""
    world = World(bookie_count=4)
    metadata, revision = world.create()
    writer = world.writer(metadata, revision)
    world.add(writer, Pen(metadata.ledger_id), b"zero")
    world.settle()
    recovery = world.recovery(metadata.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: packet.is_request and isinstance(packet.control, AddRequest))
    told_busy = []
    for packet in world.packets(recovery, kind=AddRequest):
        if packet.bookie_id != "b1":
            world.wire.remove(packet)
            told_busy.append(packet)
    for packet in told_busy:
        first, last = packet.frames[0][0].first_entry, packet.frames[0][0].last_entry
        asked = packet.control
        assert isinstance(asked, AddRequest)
        answer = AddAnswer(
            Status.BUSY, asked.nonce, asked.seating, asked.recovery, metadata.ledger_id, first, last
        )
        assert recovery.step(Answered(world.now_ns, packet.tag, packet.member, answer)) == []
    world.settle()
    assert not recovery.has_ended
    deadline = recovery.core.deadline_ns
    assert deadline is not None and deadline - world.now_ns <= BUSY_FIRST_NS
    world.run(until=lambda: recovery.has_ended)
    closed = world.check_end(metadata.ledger_id)
    assert closed.last_entry == 0
    assert [found for found, _ in closed.fragments[0].ensemble] == ["b1", "b2", "b3"]
