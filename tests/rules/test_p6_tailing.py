"""P6.2: a reader at the end of an open ledger. It waits at one bookie, and what becomes readable comes to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from embedbk.codec.add_messages import AddRequest, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import iter_entries
from embedbk.codec.lac_messages import ExplicitLacAnswer, ExplicitLacRequest, LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.config import Quorum
from embedbk.core import parked
from embedbk.core.client_words import Answered, HintDue
from embedbk.core.lac_reader import LacWait
from embedbk.core.parked import Parked, ParkedPolls, Poll
from embedbk.core.writer import Writer
from embedbk.ids import NO_ENTRY
from embedbk.storage.parked import NativeParked
from tests.rules.world import KEY, MS, THREE, Client, Pen, World

MANY = 1 << 20


class Scene(NamedTuple):
    world: World
    writer: Client
    pen: Pen
    metadata: LedgerMetadata

    def add(self, *payloads: bytes) -> None:
        self.world.add(self.writer, self.pen, *payloads)
        self.world.settle()

    def wait(self, after_lac: int, *, wait_ms: int = 1000, bytes_max: int = MANY) -> Client:
        core = LacWait(self.metadata, after_lac, wait_ms, 0, bytes_max=bytes_max)
        waiter = self.world.client("tail", core)
        waiter.start()
        self.world.settle()
        return waiter


def scene(quorum: Quorum = THREE, entries: int = 3) -> Scene:
    world = World(quorum.ensemble_size)
    metadata, revision = world.create(quorum)
    it = Scene(world, world.writer(metadata, revision), Pen(metadata.ledger_id), metadata)
    for number in range(entries):
        it.add(b"entry %d" % number)
    return it


def along(waiter: Client) -> list[tuple[int, bytes]] | None:
    core = waiter.core
    assert isinstance(core, LacWait)
    frame = core.frame
    return None if frame is None else [(entry.entry_id, bytes(entry.data)) for entry in iter_entries(frame)]


# The entries come along with the LAC.


def test_entries_come_along_with_the_lac_that_allows_them() -> None:
    """Rule P6.2: one answer tells the LAC and brings what it allows, and nothing above it."""
    it = scene(entries=3)
    waiter = it.wait(1)
    assert not waiter.has_ended
    it.add(b"entry 3")  # Carries LAC 2; entry 3 is here too, and may not be read yet.
    assert waiter.ended.result == (2, 21, False)
    assert along(waiter) == [(2, b"entry 2")]


def test_what_may_be_read_already_is_given_at_once() -> None:
    """Rule P6.2: as many as fit, a run from the first one on."""
    it = scene(entries=6)
    waiter = it.wait(0)
    assert along(waiter) == [(number, b"entry %d" % number) for number in range(1, 5)]
    few = it.wait(0, bytes_max=140)  # Two entries of 59 bytes.
    assert few.ended.result[0] == 4
    assert along(few) == [(1, b"entry 1"), (2, b"entry 2")]
    assert along(it.wait(0, bytes_max=0)) is None  # Nothing was asked for.


def test_no_entries_come_along_from_one_of_many_stripes() -> None:
    """Rule P6.2: no bookie of a striped ledger has a run of entries; the LAC is told all the same."""
    it = scene(Quorum(5, 3, 2), entries=6)
    waiter = it.wait(0)
    assert waiter.ended.result[0] == 4
    assert along(waiter) is None


def test_a_bookie_without_the_entry_tells_the_lac_alone() -> None:
    """Rule P6.1: what did not come along is not absent: it is read as ever, from whoever has it."""
    it = scene(entries=4)
    it.world.nodes["b1"].storage.make_unreadable(it.pen.ledger_id, 1)
    waiter = it.wait(0)
    assert waiter.ended.result[0] == 2
    assert along(waiter) is None


@pytest.mark.parametrize("fault", ["digest", "gap", "above", "other"])
def test_what_comes_along_is_checked_like_every_answer(fault: str) -> None:
    """Scenario 54, rule P6.1: never unverified bytes; a copy with a fault is left to the range read."""
    it = scene(entries=6)
    core = LacWait(it.metadata, 0, 1000, 0, bytes_max=MANY)
    waiter = it.world.client("tail", core)
    waiter.start()
    (packet,) = it.world.packets(waiter)
    it.world.deliver(packet)
    (answer,) = it.world.packets(waiter)
    control = answer.control
    assert isinstance(control, LacAnswer)
    header, body = answer.frames[0]
    size = len(body) // header.entry_count
    if fault == "digest":
        body = memoryview(bytes(body[:60]) + b"X" + bytes(body[61:]))
    elif fault == "gap":
        body = memoryview(bytes(body[:size]) + bytes(body[2 * size :]))
    elif fault == "above":
        control = LacAnswer(Status.OK, control.ledger_id, 2, 21)
    else:
        body = Pen(it.pen.ledger_id + 1).frame(b"entry 0", b"entry 1").body[size:]
    waiter.step(Answered(0, answer.tag, answer.member, control, [(header, body)]))
    assert waiter.ended.error is None
    assert along(waiter) is None


# Hints.


def told(it: Scene, *, is_hint: bool) -> list[str]:
    packets = it.world.packets(it.writer, kind=ExplicitLacRequest)
    return [packet.bookie_id for packet in packets if packet.control.is_hint is is_hint]


def acknowledge(it: Scene, *payloads: bytes) -> None:
    """Add, and hold back what the writer then says by itself."""
    it.world.add(it.writer, it.pen, *payloads)
    it.world.settle(hold=lambda packet: isinstance(packet.control, ExplicitLacRequest))


def test_where_a_reader_waits_the_lac_is_told_at_once() -> None:
    """Rule P6.2: the answer to an add says where the LAC is awaited, and there it is told without waiting for an
    idleness that lasts. Nobody waits for an answer to that."""
    it = scene()
    it.wait(1)
    waiter = it.wait(2)
    acknowledge(it, b"entry 3")
    assert told(it, is_hint=True) == ["b1"]
    it.world.settle()
    assert waiter.ended.result == (3, 28, False)
    assert along(waiter) == [(3, b"entry 3")]
    waiter = it.wait(3)
    acknowledge(it, b"entry 4")
    (hint,) = it.world.packets(it.writer, kind=ExplicitLacRequest)
    assert (hint.bookie_id, hint.control.is_hint) == ("b1", True)
    it.world.deliver(hint)
    assert not it.world.packets(it.writer)
    it.world.settle()
    assert waiter.ended.result[0] == 4


def test_who_says_behind_the_quorum_that_a_reader_waits_is_told_then() -> None:
    """Rule P6.2: the two that made the quorum knew of nobody."""
    it = scene()
    it.world.nodes["b3"].core.parked.note_asked(it.pen.ledger_id, it.world.now_ns)  # type: ignore[attr-defined]
    it.world.add(it.writer, it.pen, b"entry 3")
    it.world.settle(hold=lambda packet: packet.bookie_id == "b3")
    assert it.writer.confirmed == 3
    assert told(it, is_hint=True) == []
    it.world.settle(hold=lambda packet: isinstance(packet.control, ExplicitLacRequest))
    assert told(it, is_hint=True) == ["b3"]
    it.world.settle()
    row = it.world.nodes["b3"].storage.table.get(it.pen.ledger_id)
    assert row is not None
    assert row.lac == 3


def test_who_begins_to_wait_is_found_when_the_answer_leaves() -> None:
    """Rule P6.2: a reader that came while the add became durable is not told an idleness later."""
    it = scene()
    node = it.world.nodes["b1"]
    node.holds_syncs = True
    it.world.add(it.writer, it.pen, b"entry 3")
    it.world.settle()
    waiter = it.wait(2)
    node.holds_syncs = False
    it.world.settle()
    assert waiter.ended.result == (3, 28, False)


def test_nobody_is_told_where_nobody_waits() -> None:
    """Rule P6.2: without readers a writer that is never idle for long sends nothing beside its adds."""
    it = scene()
    options = it.writer.core.options  # type: ignore[attr-defined]
    for number in range(100):
        acknowledge(it, b"entry %d" % number)
        it.world.run(seconds=options.explicit_lac_ns / 1e9 / 50)
    assert told(it, is_hint=True) == told(it, is_hint=False) == []


def test_a_hint_that_wants_no_answer_is_refused_without_one() -> None:
    """Rule P3.5: whatever becomes of it, nothing comes back and nothing is learnt."""
    it = scene()
    node = it.world.nodes["b1"]
    for incarnation, key in ((node.member.incarnation, bytes(16)), (bytes(16), KEY)):
        it.world.ask("b1", ExplicitLacRequest(incarnation, it.pen.ledger_id, key, 2, 21, True, False))
    assert it.world.heard() == []
    row = node.storage.table.get(it.pen.ledger_id)
    assert row is not None
    assert row.lac == 1


def test_a_writer_at_its_own_pace_journals_no_lac_between_its_adds() -> None:
    """Rule P6.2: a sync at each bookie is for an idleness that lasts."""
    it = scene()
    node = it.world.nodes["b3"]
    row = node.storage.table.get(it.pen.ledger_id)
    assert row is not None
    for number in range(3, 6):
        records = len(node.storage.records)
        it.add(b"entry %d" % number)
        it.world.run(seconds=0.02)
        assert len(node.storage.records) == records + 1  # The add.
    assert row.lac == 4  # As the last add brought it.
    it.world.run(seconds=1)
    assert len(node.storage.records) == records + 2
    assert row.lac == 5


def test_a_hint_is_forgotten_some_time_after_the_reader_went() -> None:
    """Rule P6.2: who waited lately is told; who went is not told for ever."""
    it = scene()
    core = it.writer.core
    assert isinstance(core, Writer)
    seating = core.in_flight.seatings[0]
    seating.awaited_until_ns = 100 * MS
    acknowledge(it, b"one")
    assert told(it, is_hint=True) == ["b1"]
    it.world.now_ns = 100 * MS
    acknowledge(it, b"two")
    assert told(it, is_hint=True) == ["b1"]


def test_who_pauses_hints_all_its_bookies_once() -> None:
    """Rule P6.2: also where nobody waits, the LAC is known in memory soon; durably it is sent as ever."""
    it = scene(entries=1)
    assert told(it, is_hint=True) == []
    core = it.writer.core
    assert isinstance(core, Writer) and core.owes_hint
    it.writer.step(HintDue(it.world.now_ns))
    assert told(it, is_hint=True) == ["b1", "b2", "b3"]
    it.world.settle()
    it.writer.step(HintDue(it.world.now_ns))
    assert told(it, is_hint=True) == []
    assert core.owes_lac and not core.owes_hint
    it.world.tick(it.writer, 100 * MS)
    assert told(it, is_hint=False) == ["b1", "b2", "b3"]


def test_who_goes_on_hints_nobody() -> None:
    """Rule P6.2: what is under way carries the LAC."""
    it = scene(entries=1)
    it.world.add(it.writer, it.pen, b"under way")
    it.writer.step(HintDue(it.world.now_ns))
    assert told(it, is_hint=True) == []


def test_a_hint_is_no_publication() -> None:
    """Rule P6.2, scenario 13: what a hint told is made durable by the LAC that follows it."""
    it = scene()
    world, ledger_id = it.world, it.pen.ledger_id
    incarnation = world.nodes["b1"].member.incarnation
    row = world.nodes["b1"].storage.table.get(ledger_id)
    assert row is not None
    records = len(world.nodes["b1"].storage.records)
    world.ask("b1", ExplicitLacRequest(incarnation, ledger_id, KEY, 2, 21, is_hint=True))
    assert world.heard() == [ExplicitLacAnswer(Status.OK, ledger_id)]  # At once, and nothing was journaled.
    assert len(world.nodes["b1"].storage.records) == records
    assert (row.lac, row.lac_length) == (2, 21)
    world.run(seconds=1)  # The writer was idle all the while.
    world.nodes["b1"].crash()
    again = world.nodes["b1"].storage.table.get(ledger_id)
    assert again is not None
    assert (again.lac, again.lac_length) == (2, 21)


def test_a_hint_is_refused_like_the_lac_that_it_announces() -> None:
    """Rules P3.4a, P3.5: another key, another disk, a fence, an unknown ledger: nothing is learnt from it."""
    it = scene()
    world, ledger_id = it.world, it.pen.ledger_id
    node = world.nodes["b1"]
    incarnation = node.member.incarnation
    for request, status in (
        (ExplicitLacRequest(incarnation, ledger_id, bytes(16), 2, 21, True), Status.WRONG_KEY),
        (ExplicitLacRequest(bytes(16), ledger_id, KEY, 2, 21, True), Status.WRONG_INCARNATION),
        (ExplicitLacRequest(incarnation, 99, KEY, 2, 21, True), Status.NO_SUCH_LEDGER),
    ):
        world.ask("b1", request)
        assert [answer.status for answer in world.heard()] == [status]  # type: ignore[attr-defined]
    assert node.storage.table.get(99) is None
    world.ask("b1", FenceRequest(incarnation, ledger_id, KEY))
    world.settle()
    world.heard()
    world.ask("b1", ExplicitLacRequest(incarnation, ledger_id, KEY, 2, 21, True))
    assert [answer.status for answer in world.heard()] == [Status.FENCED]  # type: ignore[attr-defined]


def test_a_frame_goes_to_the_journal_before_those_who_wait_for_its_lac() -> None:
    """Rule P6.2: a slow lookup for readers keeps no add waiting."""
    it = scene()
    it.wait(1)
    node = it.world.nodes["b1"]
    node.holds_reads = True
    it.world.add(it.writer, it.pen, b"entry 3")
    (add,) = it.world.packets(it.writer, to="b1", kind=AddRequest)
    it.world.deliver(add)
    assert node.reads
    assert 3 in node.holds(it.pen.ledger_id)


def test_a_reader_that_is_busy_is_not_gone() -> None:
    """Rule P6.2: adds at some pace bring each LAC with the one behind it, and their reader is busy with that when the
    writer asks who waits; by the hint it would have had it one add earlier."""
    it = scene()
    it.wait(1)
    it.add(b"entry 3")  # Brings LAC 2, and the reader is busy.
    incarnation = it.world.nodes["b1"].member.incarnation
    for after_ms, is_awaited in ((900, True), (200, False)):
        it.world.now_ns += after_ms * MS
        it.world.ask("b1", ExplicitLacRequest(incarnation, it.pen.ledger_id, KEY, 2, 21, True))
        assert it.world.heard() == [ExplicitLacAnswer(Status.OK, it.pen.ledger_id, is_awaited)]


# Parked polls.


def poll(number: int, *, link: int = 1, ledger_id: int = 7, after_lac: int = 0, until_ns: int = 10) -> Poll:
    return Poll(link, number, ledger_id, after_lac, 0, until_ns)


# In Python, and in C, where a bookie's shortcut for readers uses it as well.
EITHER = pytest.mark.parametrize("make", [Parked, NativeParked])


@EITHER
def test_ledgers_that_were_followed_long_ago_take_no_room(make: Callable[[], ParkedPolls]) -> None:
    """Rule P6.2: costs grow with work, not with history."""
    here = make()
    for number in range(10_000):
        here.note_asked(number, number * 1_000_000)
    assert here.followed_count == 1000  # Of the last second.
    here.note_asked(9_500, 10_000_000_000)
    assert here.is_followed(9_500, 10_900_000_000)
    assert not here.is_followed(9_400, 10_400_000_001)


def test_a_link_parks_so_many_polls_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule P6.2, L12: the next one is answered at once with what is known; other links are not hurt."""
    monkeypatch.setattr(parked, "POLLS_PER_LINK_MAX", 3)
    it = scene()
    incarnation = it.world.nodes["b1"].member.incarnation
    request = LacRequest(incarnation, it.pen.ledger_id, 5, 1000)
    for _ in range(3):
        it.world.ask("b1", request)
    assert it.world.heard() == []
    it.world.ask("b1", request)
    assert it.world.heard() == [LacAnswer(Status.OK, it.pen.ledger_id, 1, 14, False)]
    node = it.world.nodes["b1"]
    node.core.parked.forget(1)
    it.world.ask("b1", request)
    assert it.world.heard() == []


@EITHER
def test_parked_polls_end_by_lac_fence_time_and_link(make: Callable[[], ParkedPolls]) -> None:
    """Rule P6.2: each of them ends those that it concerns, in the order in which they came."""
    here = make()
    polls = [poll(n, after_lac=n, link=n % 2, until_ns=10 * n) for n in range(1, 7)]
    assert all(here.park(each) for each in polls)
    assert here.park(poll(9, link=2, ledger_id=8, until_ns=99))
    assert here.deadline_ns == 10
    assert here.wake(7, 3, is_fenced=False) == polls[:2]
    assert here.wake(6, 3, is_fenced=True) == []
    assert here.expire(39) == polls[2:3]
    assert here.deadline_ns == 40
    here.forget(1)
    assert here.wake(7, NO_ENTRY, is_fenced=True) == [polls[3], polls[5]]
    assert not here.is_awaited(7)
    assert here.is_awaited(8)
    assert [here.count_of(link) for link in range(3)] == [0, 0, 1]
    assert [each.request_id for each in here.expire(10**9)] == [9]
    assert here.poll_count == 0


@EITHER
def test_no_poll_is_lost_or_answered_twice(make: Callable[[], ParkedPolls]) -> None:
    """Rule P6.2: whatever comes in whatever order, a poll ends once, and the counts of links stay true."""
    chance = random.Random(5)
    here, waiting = make(), {}
    for number in range(2000):
        now = number
        what = chance.randrange(6)
        if what < 3:
            each = poll(
                number,
                link=chance.randrange(1, 5),
                ledger_id=chance.randrange(4),
                after_lac=chance.randrange(20),
                until_ns=now + chance.randrange(1, 50),
            )
            assert here.park(each)
            waiting[number] = each
            continue
        if what == 3:
            ended = here.expire(now)
            assert all(each.until_ns <= now for each in ended)
            assert here.deadline_ns == min(
                (each.until_ns for i, each in waiting.items() if each not in ended), default=None
            )
        elif what == 4:
            ledger_id, lac = chance.randrange(4), chance.randrange(20)
            ended = here.wake(ledger_id, lac, is_fenced=False)
            assert all(each.ledger_id == ledger_id and each.after_lac < lac for each in ended)
        else:
            link = chance.randrange(1, 5)
            here.forget(link)
            ended = [each for each in waiting.values() if each.link == link]
        for each in ended:
            del waiting[each.request_id]
        counts: dict[int, int] = {}
        for each in waiting.values():
            counts[each.link] = counts.get(each.link, 0) + 1
        assert [here.count_of(link) for link in range(5)] == [counts.get(link, 0) for link in range(5)]
        assert here.poll_count == len(waiting)
        assert [here.is_awaited(ledger_id) for ledger_id in range(4)] == [
            any(each.ledger_id == ledger_id for each in waiting.values()) for ledger_id in range(4)
        ]
