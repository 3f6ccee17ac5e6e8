"""Adds over links that are sealed and sent while the loop waits: what users hear, what bookies hold, who decides.

Real sockets and nodes in one thread, disks in memory that sync when they are told to. Two clusters live through the
same story, one whose client seals and sends in C and one whose client does not; the core is the definition. No test
depends on how fast anything is: each goes on until something holds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswer, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry import read_entry
from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.packer import Packer
from embedbk.core.backlog import FRAME_PRICE
from embedbk.core.client_words import Answered
from embedbk.core.creation import Creation
from embedbk.core.quarantine import ERRORS_MAX, GOOD_ANSWERS
from embedbk.core.writer import Writer
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import LedgerFenced, StorageError
from embedbk.host.bookie_node import BookieNode
from embedbk.host.client_node import ClientNode
from embedbk.host.courses import SILENT_NS, _Pause
from embedbk.host.link_adds import LinkAdds
from embedbk.host.loop import clock_ns
from embedbk.host.metadata_node import MetadataNode
from embedbk.host.operations import OneResult
from embedbk.host.writing import Writing
from embedbk.metadata.client import Client
from embedbk.ports.links import Identity, LinkUp, Received
from embedbk.storage.memory import MemoryBookieStorage, Survivors
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.transports.in_flight import SharedBacklog, table_in_c
from embedbk.transports.zmq import ZmqTransport
from tests.host.place import KEY, SECOND, THREE, TOKEN

PATIENCE_NS = 20 * SECOND
ANYWHERE = "tcp://127.0.0.1:0"
NAMES = ("b1", "b2", "b3", "b4")
# By which the nodes' time moves with each turn: less than a turn takes, or a slow machine would look like silence.
TURN_NS = 20_000
OPTIONS = WriterOptions(add_timeout_ns=PATIENCE_NS)


class Side:
    """A metadata member, four bookies and a client, over ZeroMQ. sends: its client seals and sends in C."""

    def __init__(self, *, sends: bool) -> None:
        self.now_ns = clock_ns()
        journal = MemoryJournal()
        store = MetadataStore(journal, 0, new_identity=MemberIdentity(TOKEN, b"m" * 16))
        self.metadata = MetadataNode(
            store, ZmqTransport(Identity("metadata", "metadata", b"m" * 16, TOKEN)), [ANYWHERE],
            now_ns=self.now_ns, chance=random.Random(1),
        )  # fmt: skip
        self.nodes: dict[str, Any] = {"metadata": self.metadata}
        self.disks: dict[str, Any] = {"metadata": journal}
        self.held: set[str] = set()  # Names whose disks do not sync.
        for name in NAMES:
            storage = MemoryBookieStorage(Survivors(name.encode() * 8))
            transport = ZmqTransport(Identity("bookie", name, storage.incarnation, TOKEN))
            session = Client(ttl_ms=60_000, label=name, cluster_token=TOKEN)
            self.nodes[name] = BookieNode(
                name, storage, transport, [ANYWHERE], self.metadata.endpoints, session, waiting_bytes_max=0
            )
            self.disks[name] = storage
        session = Client(ttl_ms=60_000, label="c1", cluster_token=TOKEN)
        self.transport = ZmqTransport(Identity("client", "c1", b"c" * 16, TOKEN))
        self.client = self.nodes["client"] = ClientNode(
            self.transport, self.metadata.endpoints, session, table_of=table_in_c
        )
        if not sends:
            self.client.courses = None
        self.filenos = tuple(self.client.filenos())
        self.until(lambda: len(self.client.bookies) == len(NAMES))

    @property
    def courses(self) -> LinkAdds:
        assert isinstance(self.client.courses, LinkAdds)
        return self.client.courses

    def bookie(self, name: str) -> BookieNode:
        node = self.nodes[name]
        assert isinstance(node, BookieNode)
        return node

    def turn(self) -> None:
        self.now_ns += TURN_NS
        for node in self.nodes.values():
            node.step(self.now_ns)
            node.transport.deadline_ns()
        self.client.wait(self.filenos, 0)  # Its time is over: it looks once.
        for name, disk in self.disks.items():
            if name not in self.held:
                disk.commit()

    def until(self, is_reached: Callable[[], bool]) -> None:
        give_up_ns = clock_ns() + PATIENCE_NS
        while not is_reached():
            self.turn()
            assert clock_ns() < give_up_ns, "never came"

    def write(self) -> Writing:
        three = tuple(sorted(self.client.bookies))[:3]
        creation = OneResult(Creation(THREE, b"", 0, {}, three, random.Random(1)))
        self.client.run(self.now_ns, creation)
        self.until(creation.future.done)
        metadata, revision = creation.future.result()
        core = Writer(metadata, revision, KEY, 7, self.client.bookies, random.Random(1), OPTIONS)
        writing = Writing(core, Packer(metadata.ledger_id), self.client.wake_writing)
        self.client.run(self.now_ns, writing)
        return writing

    def append(self, writing: Writing, *sizes: int) -> int:
        for size in sizes or (100,):
            writing.try_append(writing.packer.next_entry.to_bytes(4, "big") * (size // 4))
        return writing.packer.last_entry

    def add(self, writing: Writing, *sizes: int) -> None:
        """Appended and acknowledged."""
        last = self.append(writing, *sizes)
        self.until(lambda: writing.lac >= last)

    def course(self) -> Writing:
        """A writer whose frames are sent from C by now, and of which no bookie owes an answer."""
        writing = self.write()
        self.until(lambda: self.add(writing) or self.courses.wake(writing))
        adds = self.courses._courses[writing].adds
        self.until(lambda: adds.tell(self.now_ns).oldest_sent_ns is None)
        return writing

    def begun(self, held: set[str]) -> Writing:
        """A writer whose core has sent the first frame by itself, as in a pause of its courses, while some bookies
        write nothing; behind that frames are sent from C."""
        writing = self.write()
        self.held = held
        self.courses._pauses[writing] = _Pause(self.now_ns + 5 * TURN_NS, 1)
        self.until(lambda: self.add(writing) or self.courses.wake(writing))
        return writing

    def stored(self, name: str, writing: Writing) -> dict[int, bytes]:
        """What a bookie holds of a ledger: the bytes by entry id."""
        return dict(self.disks[name].store.entries.get(writing.core.ledger_id, {}))

    def fence(self, name: str, writing: Writing) -> None:
        """As another client's recovery does."""
        peer = ZmqTransport(Identity("client", "other", b"o" * 16, TOKEN))
        link = peer.connect(self.bookie(name).endpoints[0])
        request = FenceRequest(self.disks[name].incarnation, writing.core.ledger_id, KEY)
        answers: list[Any] = []

        def has_answered() -> bool:
            for event in peer.receive(self.now_ns):
                if isinstance(event, LinkUp):
                    assert peer.send(link, encode_message(1, request))
                elif isinstance(event, Received):
                    answers.append(decode_message(event.body).control)
            peer.deadline_ns()
            return bool(answers)

        self.until(has_answered)
        assert isinstance(answers[0], FenceAnswer)
        peer.close()

    def close(self) -> None:
        for node in reversed(self.nodes.values()):
            node.close()


@pytest.fixture
def side() -> Iterator[Side]:
    side = Side(sends=True)
    yield side
    side.close()


@pytest.mark.parametrize("refusal", [MemoryError, StorageError])
def test_a_course_without_memory_is_none_and_ends_no_client(
    side: Side, monkeypatch: pytest.MonkeyPatch, refusal: type[Exception]
) -> None:
    """What the system refuses costs speed, and nothing else: the core sends what the course would have sent. Also where
    it has no memory for one more turn (`Turns.begin`)."""

    def refuse(*_: object) -> None:
        raise refusal("no memory for the adds of a handle")

    monkeypatch.setattr(LinkAdds, "open", refuse)
    writing = side.write()
    last = side.append(writing, 100, 70_000, 100)
    side.until(lambda: writing.lac == last)
    assert not side.courses._courses
    monkeypatch.undo()
    last = side.append(writing)
    side.until(lambda: bool(side.courses._courses) and writing.lac == last)


def test_no_core_hears_of_a_frame_that_goes_this_way(side: Side) -> None:
    """The shortcut is one: hundreds of entries later the core has sealed none of them, and is at rest. It hears only of
    late answers to what it had sent before."""
    writing = side.course()
    lap = writing.packer.last_entry
    told: list[str] = []
    core_step = writing.core.step

    def step(event: Any) -> Any:
        told.append(type(event).__name__)
        return core_step(event)

    writing.core.step = step  # type: ignore[method-assign]
    for _ in range(100):
        side.add(writing, 100, 2000, 40_000)
    # And of time: where messages take long, a writer that waits for them gives its LAC.
    assert set(told) <= {"AddedNearby", "BookiesChanged", "Tick", "HintDue", "Answered", "AddsAnswered"}
    side.until(lambda: writing.core.lap == lap + 300)
    side.until(lambda: writing.core.in_flight.is_at_rest)  # The third copy of the last may come late.
    side.until(lambda: all(len(side.stored(name, writing)) == lap + 301 for name in NAMES[:3]))


def test_what_an_ack_quorum_has_is_acknowledged_and_the_third_is_kept_for(side: Side) -> None:
    """Rules P3.2, RP33: two disks suffice; who is silent for long is the core's to judge, and gets its entry."""
    writing = side.course()
    side.held = {"b2", "b3"}
    entry_id = side.append(writing)
    side.until(lambda: entry_id in side.stored("b2", writing) and entry_id in side.stored("b3", writing))
    assert writing.lac == entry_id - 1
    side.held = {"b3"}
    side.until(lambda: writing.lac == entry_id)
    assert side.courses.wake(writing)
    side.now_ns = clock_ns() + SILENT_NS
    side.until(lambda: not side.courses.wake(writing))
    in_flight = writing.core.in_flight
    assert writing.core.lac == writing.core.lap == entry_id
    owed = {each.member.bookie_id: list(each.owed) for each in in_flight.seatings}
    assert owed == {"b1": [], "b2": [], "b3": [entry_id]}
    assert list(in_flight.behind) == [entry_id]
    side.held = set()
    side.until(lambda: writing.core.in_flight.is_at_rest)
    assert not writing.core.in_flight.behind
    assert writing.error is None


def test_where_a_reader_waits_nothing_is_told_late(side: Side) -> None:
    """P6.2: the hint to who waits for a newer LAC is the core's, so the core hears of every acknowledgement at once."""
    writing = side.course()
    (course,) = side.courses._courses.values()
    side.turn()
    assert not course.adds.is_followed
    (seating, *_) = writing.core.in_flight.seatings
    seating.awaited_until_ns = side.now_ns + 1_000 * TURN_NS
    side.turn()
    assert course.adds.is_followed
    seating.awaited_until_ns = side.now_ns
    side.turn()
    assert not course.adds.is_followed


@pytest.mark.parametrize("name", ["b1", "b2", "b3"])
def test_who_waits_where_adds_go_past_the_core_is_told_at_once(side: Side, name: str) -> None:
    """P6.2: what an answer says of readers comes to the core, also behind the ack quorum, and a hint follows it."""
    writing = side.course()
    ledger_id = writing.core.ledger_id
    side.bookie(name).core.parked.note_asked(ledger_id, side.now_ns)
    side.held = {name}
    entry_id = side.append(writing)
    side.until(lambda: writing.core.lac == entry_id)
    row = side.disks[name].table.get(ledger_id)
    assert row.lac < entry_id
    side.held = set()
    side.until(lambda: side.disks[name].table.get(ledger_id).lac == entry_id)
    assert side.courses.wake(writing)
    side.add(writing)
    side.until(lambda: side.disks[name].table.get(ledger_id).lac == entry_id + 1)


def test_another_event_finds_the_core_as_if_it_had_sent_all(side: Side) -> None:
    """P3.7, P5.1: a close behind frames that nobody has answered asks no bookie twice, and waits for them."""
    writing = side.course()
    lac = writing.lac
    side.held = set(NAMES)
    first = side.append(writing, 100, 40_000)
    side.until(lambda: all(first in side.stored(name, writing) for name in NAMES[:3]))
    asked = side.client._requests._next_request()
    side.client.close_writing(side.now_ns, writing)
    assert not side.courses.wake(writing)
    assert writing.core.lap == first
    owed = [sorted(each.owed) for each in writing.core.in_flight.seatings]
    # One of three may owe what the other two had acknowledged before.
    assert [[entry_id for entry_id in each if entry_id > lac] for each in owed] == [[first - 1]] * 3
    assert side.client._requests._next_request() == asked + 1, "something was sent again"
    side.held = set()
    side.until(lambda: writing.closed.done())
    assert writing.closed.result() == first


def test_a_fence_ends_it(side: Side) -> None:
    """Rule P3.6: the writer is told by the first bookie that says so; what was acknowledged stays."""
    writing = side.course()
    lac = writing.lac
    for name in NAMES[:3]:
        side.fence(name, writing)
    side.append(writing)
    side.until(lambda: writing.error is not None)
    assert isinstance(writing.error, LedgerFenced)
    assert writing.lac == writing.core.lac == lac


def test_a_lost_link_is_the_cores(side: Side) -> None:
    """Rules P4.1, P4.4: a seat whose link goes with frames unanswered is given to another bookie, with all of them."""
    writing = side.course()
    side.held = {"b2", "b3"}
    first = side.append(writing)
    side.until(lambda: all(first in side.stored(name, writing) for name in NAMES[:3]))
    side.bookie("b3").transport.close()
    del side.nodes["b3"]
    last = side.append(writing)
    # With b2 still held nothing is acknowledged but by the new seat, so it gets both, however late the loss is seen.
    # What an ack quorum had before that would stay in the old fragment.
    side.until(lambda: writing.lac == last)
    assert writing.ensemble_changes == 1
    assert writing.error is None
    assert set(side.stored("b4", writing)) >= {first, last}
    side.held = set()
    side.until(lambda: last in side.stored("b2", writing))


def test_who_is_busy_is_given_it_again_by_the_core(side: Side) -> None:
    """P7.8, RP33: BUSY is no acknowledgement and no failure: two of three acknowledge, the core keeps what the third
    was not given until it takes it, nobody is replaced, and then the writer goes this way again."""
    writing = side.course()
    busy = side.bookie("b3")
    before = set(side.stored("b3", writing))
    busy.waiting.has_room = lambda is_urgent: is_urgent
    last = side.append(writing, 100, 40_000, 100)
    side.until(lambda: writing.lac == last)
    side.until(lambda: not side.courses.wake(writing))
    in_flight = writing.core.in_flight
    side.until(lambda: in_flight.has_busy)
    owed = {each.member.bookie_id: sorted(each.owed) for each in in_flight.seatings}
    assert owed.pop("b3") == sorted(in_flight.behind) != []
    assert owed == {"b1": [], "b2": []}
    last = side.append(writing, 2000, 40_000)
    side.until(lambda: writing.lac == last)
    assert set(side.stored("b3", writing)) == before, "it has no room, and took something"
    busy.waiting.has_room = busy.has_room
    side.until(lambda: len(side.stored("b3", writing)) == last + 1 and writing.core.in_flight.is_at_rest)
    assert writing.ensemble_changes == 0
    assert writing.error is None
    assert not writing.core.in_flight.behind
    side.until(lambda: side.add(writing) or side.courses.wake(writing))


def test_a_course_begins_beside_what_a_seat_owes(side: Side) -> None:
    """P4.5: what an ack quorum has waits for nobody else, so what the core had sent may be owed still. Its answer ends
    nothing; the core that was told of both keeps neither longer than is owed."""
    writing = side.begun({"b3"})
    in_flight = writing.core.in_flight
    owed = list(in_flight.behind)
    assert owed and not in_flight.pending
    side.add(writing, 100, 40_000)
    assert side.courses.wake(writing)
    side.held = set()
    side.until(lambda: not in_flight.behind)
    assert side.courses.wake(writing), "an answer to what the core had sent ended it"
    side.until(lambda: len(side.stored("b3", writing)) == writing.packer.last_entry + 1)


def test_a_course_begins_beside_what_waits_for_its_ack_quorum(side: Side) -> None:
    """P3.3: what the core has sent is in the same table, so nobody waits until it is answered: whoever counts its
    answers, it is confirmed in order with what the course has sent."""
    writing = side.course()
    side.held = set(NAMES)
    first = side.append(writing)
    side.until(lambda: all(first in side.stored(name, writing) for name in NAMES[:3]))
    side.courses.end(side.now_ns, writing)
    side.until(lambda: bool(side.append(writing)) and side.courses.wake(writing))
    assert writing.lac == first - 1 and next(iter(writing.core.in_flight.pending)) == first
    last = side.append(writing, 2000, 40_000)
    side.held = set()
    side.until(lambda: writing.lac == last)
    assert writing.error is None and writing.ensemble_changes == 0
    side.until(lambda: all(len(side.stored(name, writing)) == last + 1 for name in NAMES[:3]))


def test_an_answer_from_before_leaves_a_course_alone(side: Side) -> None:
    """P4.5: an OK to what the core had sent changes only what a seat owes it, counted beside it or told by itself; any
    other answer is the core's, with all that is on its way."""
    writing = side.begun({"b3"})
    (third,) = (each for each in writing.core.in_flight.seatings if each.member.bookie_id == "b3")
    entry_id = next(iter(writing.core.in_flight.behind))

    def tell(status: Status) -> None:
        said = AddAnswer(status, 7, third.number, False, writing.core.ledger_id, entry_id, entry_id)
        side.client.tell(writing, Answered(side.now_ns, ("add", third.number, entry_id), third.member, said))

    tell(Status.OK)
    assert side.courses.wake(writing)
    side.turn()
    assert entry_id not in writing.core.in_flight.behind
    tell(Status.BUSY)
    assert not side.courses.wake(writing)


def test_who_owes_for_long_keeps_the_core_at_work(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """P4.7: it judges who is late, so a course does not begin that would end for this at once, and nothing is gathered:
    the core seals what is appended without a pause."""
    # Nobody is replaced for it: after how many answers that begins, the machine would say.
    monkeypatch.setattr(sys.modules[__name__], "OPTIONS", replace(OPTIONS, late=None))
    writing = side.course()
    side.held = {"b3"}
    entry_id = side.append(writing)
    side.until(lambda: writing.lac == entry_id)
    side.now_ns = clock_ns() + SILENT_NS
    side.until(lambda: not side.courses.wake(writing))
    for _ in range(20):
        side.now_ns += SECOND // 50  # Beyond every pause between two attempts.
        entry_id = side.append(writing)
        side.turn()
        assert writing.packer.open_count() == 0, "not sealed at once"
        side.until(lambda: writing.lac == entry_id)  # noqa: B023
    assert not side.courses.wake(writing)
    side.held = set()
    side.until(lambda: side.add(writing) or side.courses.wake(writing))


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Side]:
    """Its writers keep five small frames for who is behind."""
    options = WriterOptions(add_timeout_ns=PATIENCE_NS, behind_bytes_max=5 * FRAME_PRICE, late=None)
    monkeypatch.setattr(sys.modules[__name__], "OPTIONS", options)
    side = Side(sends=True)
    yield side
    side.close()


def test_at_the_bound_who_is_silent_is_gone_on_without(bounded: Side) -> None:
    """P4.5: the core hears that the seat has failed, which another bookie takes; what was acknowledged is not sent to
    that one, and no append waits for longer than the two looks."""
    side = bounded
    writing = side.course()
    (course,) = side.courses._courses.values()
    side.held = {"b3"}
    while not course.adds.tell(side.now_ns).is_pressed:
        side.add(writing)
    last = side.append(writing)
    began_ns = side.now_ns = clock_ns()
    side.turn()
    assert writing.lac < last
    while writing.core.changes.proposal is None:
        side.now_ns += SECOND // 200
        side.turn()
        assert side.now_ns - began_ns < 300_000_000
    # What is sent for that takes the machine's time, and waits for nothing.
    side.until(lambda: writing.lac == last and writing.ensemble_changes == 1)
    assert {member.bookie_id for member in writing.core.in_flight.members} == {"b1", "b2", "b4"}
    assert writing.ensemble_changes == 1
    assert writing.error is None
    side.until(lambda: writing.core.in_flight.is_at_rest)


def test_at_the_bound_who_answers_is_waited_for(bounded: Side) -> None:
    """RP33: its answers make room, and nobody is replaced."""
    side = bounded
    writing = side.course()
    (course,) = side.courses._courses.values()
    side.held = {"b3"}
    while not course.adds.tell(side.now_ns).is_pressed:
        side.add(writing)
    last = side.append(writing)
    side.turn()
    assert writing.lac < last
    side.held = set()
    side.until(lambda: writing.lac == last)
    assert side.courses.wake(writing) and writing.ensemble_changes == 0


def test_the_bound_of_a_handle_is_one_for_the_core_and_for_what_goes_past_it(bounded: Side) -> None:
    """P4.5, RP33: what the core keeps for a bookie that is behind counts beside what is kept here; as it gets less,
    there is room here again."""
    side = bounded
    backlog = side.client.backlog = SharedBacklog(1 << 30)
    writing = side.begun({"b3"})
    in_flight, (course,) = writing.core.in_flight, side.courses._courses.values()
    assert in_flight.behind_bytes > 0, "the core keeps nothing"
    while not course.adds.tell(side.now_ns).is_pressed:
        side.add(writing)
    assert backlog.kept_bytes < OPTIONS.behind_bytes_max + FRAME_PRICE + 200, (
        "more than one frame beyond the bound"
    )
    (third,) = (each for each in in_flight.seatings if each.member.bookie_id == "b3")
    for entry_id in list(in_flight.behind):
        said = AddAnswer(Status.OK, 7, third.number, False, writing.core.ledger_id, entry_id, entry_id)
        side.client.tell(writing, Answered(side.now_ns, ("add", third.number, entry_id), third.member, said))
    side.until(lambda: not in_flight.behind)
    side.turn()
    assert not course.adds.tell(side.now_ns).is_pressed
    assert side.courses.wake(writing)


def test_at_the_bound_who_answers_what_the_core_had_sent_is_not_silent(bounded: Side) -> None:
    """P4.5: who has answered nothing for 200 ms counts as failed, and an answer to an older frame is one."""
    side = bounded
    writing = side.begun({"b3"})
    in_flight, (course,) = writing.core.in_flight, side.courses._courses.values()
    (third,) = (each for each in in_flight.seatings if each.member.bookie_id == "b3")
    entry_id = next(iter(in_flight.behind))
    while not course.adds.tell(side.now_ns).is_pressed:
        side.add(writing)
    heard_ns = side.now_ns = clock_ns() + 190_000_000  # So long it owes what was sent here.
    said = AddAnswer(Status.OK, 7, third.number, False, writing.core.ledger_id, entry_id, entry_id)
    side.client.tell(writing, Answered(heard_ns, ("add", third.number, entry_id), third.member, said))
    side.append(writing)
    while side.now_ns < heard_ns + 190_000_000:
        side.now_ns += SECOND // 200
        side.turn()
        assert writing.core.changes.proposal is None and not in_flight.has_failed, "it had answered"
    while writing.core.changes.proposal is None:
        side.now_ns += SECOND // 200
        side.turn()
        assert side.now_ns < heard_ns + 300_000_000


def test_at_the_bound_who_answers_counted_frames_is_not_silent(bounded: Side) -> None:
    """P4.5: as above, where the answer was counted beside the core."""
    side = bounded
    writing = side.begun({"b3"})
    (course,) = side.courses._courses.values()
    (third,) = (each for each in writing.core.in_flight.members if each.bookie_id == "b3")
    assert not course.heard_ns and writing.core.in_flight.behind
    assert side.client._answers is not None
    counted = side.client._answers.counted
    side.held = set()
    side.until(lambda: third in course.heard_ns)
    assert side.client._answers.counted > counted
    assert side.courses.wake(writing)


def test_who_answers_well_here_is_let_out_of_quarantine(side: Side) -> None:
    """RP45: who fails often gets no new seat until it answers well; answers that no core hears of count, too."""
    writing = side.course()
    for _ in range(ERRORS_MAX):
        side.client.listed.quarantine.note_error("b1", side.now_ns)
        side.client.listed.quarantine.note_error("b4", side.now_ns)
    assert set(side.client.listed.quarantine.held) == {"b1", "b4"}
    for _ in range(2 * GOOD_ANSWERS):
        side.add(writing)
        side.turn()
    assert side.courses.wake(writing), "the core was told of the answers by themselves"
    assert set(side.client.listed.quarantine.held) == {"b4"}, "b4 has no seat, and answered nothing"
    assert {info.member.bookie_id for info in side.client.bookies if info.is_quarantined} == {"b4"}


def test_at_the_bound_only_who_is_not_needed_is_gone_on_without(bounded: Side) -> None:
    """P4.5: two of three are silent, and an add has one answer: the one that is silent for longest has failed, the
    other is waited for, since without it there is no ack quorum."""
    side = bounded
    backlog = side.client.backlog = SharedBacklog(1 << 20)
    writing = side.course()
    in_flight, (course,) = writing.core.in_flight, side.courses._courses.values()
    side.held = {"b3"}
    side.add(writing)
    side.held = {"b2", "b3"}
    last = side.append(writing)
    side.until(lambda: course.adds.tell(side.now_ns).pending == 1)
    backlog.add(backlog.bytes_max)  # Of the process's other handles.
    side.now_ns = clock_ns() + SECOND // 4  # Long for both.
    until_ns = side.now_ns + SECOND
    while writing.core.changes.proposal is None:
        side.now_ns += SECOND // 200
        side.turn()
        assert side.now_ns < until_ns
    side.until(lambda: writing.ensemble_changes == 1)  # As above.
    assert sorted(each.member.bookie_id for each in in_flight.seatings) == ["b1", "b2", "b4"]
    assert not in_flight.has_failed
    backlog.add(-backlog.bytes_max)
    side.held = set()
    side.until(lambda: writing.lac == last)
    assert writing.ensemble_changes == 1


# --- With and without ------------------------------------------------------------------------------------


class Twice:
    """The same story where frames are sent from C, and where they are not."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.sides = [Side(sends=True), Side(sends=False)]
        self.writings = [[side.write() for _ in range(2)] for side in self.sides]
        self.courses = 0

    def both(self, act: Callable[[Side, list[Writing]], None]) -> None:
        for side, writings in zip(self.sides, self.writings, strict=True):
            act(side, writings)

    def append(self) -> None:
        number = self.chance.randrange(2)
        sizes = [self.chance.choice([4, 100, 2000, 40_000]) for _ in range(self.chance.randint(1, 8))]
        self.both(lambda side, writings: writings[number].error or side.append(writings[number], *sizes))

    def hold(self) -> None:
        """Fewer than an ack quorum waits: so at rest both sides have acknowledged all."""
        held = set(self.chance.sample(NAMES[:3], self.chance.randrange(2)))
        self.both(lambda side, _: setattr(side, "held", held))

    def turn(self) -> None:
        self.both(lambda side, _: side.turn())

    def rest(self) -> None:
        def act(side: Side, writings: list[Writing]) -> None:
            side.until(lambda: all(each.error or each.lac == each.packer.last_entry for each in writings))

        self.both(act)
        ours, core = (
            [(each.lac, each.length, type(each.error)) for each in writings] for writings in self.writings
        )
        assert ours == core
        self.courses += sum(self.sides[0].courses.wake(each) for each in self.writings[0])


@pytest.mark.parametrize("seed", range(3))
def test_the_same_story_has_the_same_acknowledgements(seed: int, request: pytest.FixtureRequest) -> None:
    """P3.1, P3.2, P3.3: with the shortcut and without, at rest the same entries are acknowledged, every bookie
    holds the same payloads, and no writer has changed its ensemble."""
    chance = random.Random(f"link adds {seed}")
    twice = Twice(chance)
    request.addfinalizer(lambda: twice.both(lambda side, _: side.close()))
    story: list[tuple[int, Callable[[], None]]] = [
        (40, twice.append), (6, twice.hold), (50, twice.turn), (10, twice.rest),
    ]  # fmt: skip
    weights, acts = zip(*story, strict=True)
    # Where answers take many turns because the machine is busy, courses end for silence, and begin less and less often.
    for _ in range(20):
        for act in chance.choices(acts, weights, k=120):
            act()
        twice.both(lambda side, _: setattr(side, "held", set()))
        twice.rest()
        if twice.courses > 3:
            break
    assert twice.courses > 3, "the story hardly went this way"
    held: list[Any] = []
    for side, writings in zip(twice.sides, twice.writings, strict=True):
        lasts = [each.packer.last_entry + 1 for each in writings]
        side.until(
            lambda side=side, writings=writings, lasts=lasts: all(  # type: ignore[misc]
                len(side.stored(name, each)) == last
                for name in NAMES[:3]
                for each, last in zip(writings, lasts, strict=True)
            )
        )
        held.append([{name: payloads(side.stored(name, each)) for name in NAMES[:3]} for each in writings])
        assert [each.ensemble_changes for each in writings] == [0, 0]
    assert held[0] == held[1]


def payloads(entries: dict[int, bytes]) -> dict[int, bytes]:
    return {entry_id: bytes(read_entry(memoryview(raw)).data) for entry_id, raw in entries.items()}
