"""The wait in C: what it does meanwhile, and every way out of it (native/SHORTCUTS.md, "The wait").

Sockets are real, the journal commits when the test says so, and a wait whose time is over already is one turn: so
nothing here depends on how fast anything is.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswer, AddAnswers, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import encode_frame_header
from embedbk.codec.lac_messages import ExplicitLacAnswer, ExplicitLacRequest, LacAnswer, LacRequest
from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.packer_twin import TwinPacker
from embedbk.config import READ_ROOM_BYTES
from embedbk.ids import NO_ENTRY
from embedbk.ports.add_path import WaitEnd, WaitTerms
from embedbk.ports.links import LinkDown
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.transports import zmq_turns
from embedbk.transports.conformance import PATIENCE_NS, Arena, Node
from embedbk.transports.envelope import CREDIT_BYTES, WINDOW_BYTES_MIN
from tests.transports.arenas import QuietTcpArena
from tests.transports.offering import INCARNATION, KEY

NOW, NEVER = 0, sys.maxsize
MIB = 1 << 20


class Bookie:
    """A transport, a storage whose ledger 7 is known, and a client that is linked to it."""

    def __init__(self, arena: Arena, **settings: Any) -> None:
        """settings: of both transports."""
        self.arena = arena
        self.disk = MemoryDisk()
        self.storage = BookieStorage(
            "/b", "b", b"T" * 16, io=self.disk, incarnation=INCARNATION, threaded=False, flush_bytes=16 * MIB,
            cache_bytes_max=32 * MIB, journal_file_bytes=8 * MIB,
        )  # fmt: skip
        self.storage.table.set_key(self.storage.table.create(7), KEY)
        settings.setdefault("window_bytes", 16 * MIB)
        self.node = arena.node("bookie", **settings)
        self.transport: Any = self.node.transport
        self.client = arena.node("client", **settings)
        self.link = self.client.transport.connect(self.transport.listen(arena.endpoint()))
        self.other = os.eventfd(0, os.EFD_NONBLOCK)
        self.filenos = (*self.transport.filenos(), self.other)
        self.first = self.length = 0
        arena.run([self.node, self.client], lambda: bool(self.client.ups() and self.node.ups()))
        self.end = self.node.ups()[0].link  # Of the client's link, here.
        self.receive()  # Shows its links to C.

    @property
    def path(self) -> Any:
        return self.storage.add_path

    def receive(self) -> list[Any]:
        self.transport.offer(self.path)
        events = self.transport.receive(self.arena.now_ns())
        self.transport.deadline_ns()
        return list(events)

    def add(self, payload: bytes = b"x" * 100) -> None:
        """From the client: the next entry."""
        packer = TwinPacker(7, next_entry=self.first, length=self.length)
        packer.append_many([payload])
        frame = packer.seal()
        assert frame is not None
        request = AddRequest(INCARNATION, 1, 1, False)
        pieces = encode_message(self.first, request, [(encode_frame_header(frame, KEY), frame)])
        assert self.client.transport.send(self.link, pieces)
        self.first += 1
        self.length += len(payload)

    def ask(self) -> None:
        """From the client: something that is not an add."""
        assert self.client.transport.send(self.link, encode_message(99, LacRequest(INCARNATION, 7)))

    def tell(self, control: Any, request_id: int) -> None:
        """From the client: a message without frames."""
        assert self.client.transport.send(self.link, encode_message(request_id, control))

    def wait(self, until_ns: int = NOW, **terms: Any) -> WaitEnd:
        """One turn, if nothing else is said."""
        assert not self.transport.has_events()
        given = {"duties_ns": NEVER, "durable": 0, "awaits_journal": False, "bytes_max": NEVER, **terms}
        end = self.transport.wait(WaitTerms(self.path, self.filenos, until_ns, **given))
        assert end is not None
        return end

    def wait_long(self, **terms: Any) -> WaitEnd:
        """A wait that something ends long before its time is over."""
        until_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + PATIENCE_NS
        end = self.wait(until_ns, **terms)
        assert time.clock_gettime_ns(time.CLOCK_BOOTTIME) < until_ns, "nothing ended it"
        return end

    def until(self, is_reached: Callable[[], bool], **terms: Any) -> WaitEnd:
        """Turns, until something holds that comes over the wire."""
        give_up_ns = self.arena.now_ns() + PATIENCE_NS
        while True:
            end = self.wait(**terms)
            if is_reached():
                return end
            assert self.arena.now_ns() < give_up_ns, "never came"
            self.client.events += self.client.transport.receive(self.arena.now_ns())
            self.client.transport.deadline_ns()

    def commit(self) -> None:
        while self.storage.step():
            pass

    def sent(self) -> int:
        """Bytes of answers that have left."""
        return int(self.transport._links[self.end].sent_bytes)

    def answered(self) -> list[int]:
        """Requests that the client was told the end of."""
        told = []
        for body in self.client.bodies(self.link):
            message = decode_message(body)
            control = message.control
            if isinstance(control, AddAnswers):
                told += [(asked, answer.status) for asked, answer in control.unpack()]
            else:
                assert isinstance(control, AddAnswer)
                told.append((message.request_id, control.status))
        assert all(status is Status.OK for _, status in told)
        return [asked for asked, _ in told]

    def close(self) -> None:
        self.storage.close()
        os.close(self.other)


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = QuietTcpArena()
    yield arena
    arena.close()


@pytest.fixture
def bookie(arena: Arena) -> Iterator[Bookie]:
    bookie = Bookie(arena)
    yield bookie
    bookie.close()


# --- What it does meanwhile ----------------------------------------------------------------------------------


def test_an_answer_leaves_when_its_record_is_durable_and_not_before(bookie: Bookie) -> None:
    """Rule P3.2, I40: taken in C, told in C, and between both the journal."""
    for _ in range(5):
        bookie.add()
    bookie.until(lambda: bookie.path.taken() == 5)
    for _ in range(3):
        assert bookie.wait() == WaitEnd([], None)
    assert bookie.sent() == 0
    bookie.commit()
    bookie.wait()
    assert bookie.sent() > 0
    bookie.until(lambda: bool(bookie.client.bodies(bookie.link)))
    assert bookie.answered() == [0, 1, 2, 3, 4]
    assert len(bookie.client.bodies(bookie.link)) == 1, "what one commit made durable is one message"


def test_what_is_durable_is_told_also_when_a_message_ends_the_wait(bookie: Bookie) -> None:
    """Rule P3.2: what ends a turn keeps no answer back that was due in it."""
    bookie.add()
    bookie.until(lambda: bookie.path.taken() == 1)
    bookie.commit()
    bookie.ask()
    bookie.until(bookie.transport.has_events)
    assert bookie.sent() > 0


def test_a_wait_that_lasts_takes_commits_and_tells(arena: Arena) -> None:
    """The journal's own thread is kicked and heard of inside one wait, which ends by its duties."""
    bookie = Bookie(arena)
    disk, storage = MemoryDisk(), bookie.storage
    bookie.storage = BookieStorage(
        "/b", "b", b"T" * 16, io=disk, incarnation=INCARNATION, flush_bytes=MIB, cache_bytes_max=4 * MIB,
        journal_file_bytes=4 * MIB,
    )  # fmt: skip
    storage.close()
    bookie.storage.table.set_key(bookie.storage.table.create(7), KEY)
    bookie.filenos = (*bookie.filenos, *bookie.storage.filenos())
    bookie.add()
    give_up_ns = arena.now_ns() + PATIENCE_NS
    while bookie.sent() == 0:  # Nobody but a wait takes or tells anything here.
        assert bookie.wait_long(duties_ns=100_000_000) == WaitEnd([], None)
        assert arena.now_ns() < give_up_ns, "never told"
    assert bookie.path.taken() == 1
    bookie.close()


def test_a_hint_answers_who_waits_within_one_wait(bookie: Bookie) -> None:
    """Rule P6.2: poll, hint and both answers, without a turn of the host; the entries come along."""
    bookie.path.begin(bookie.arena.now_ns(), takes_polls=True)
    bookie.add()
    bookie.until(lambda: bookie.path.taken() == 1)
    bookie.tell(LacRequest(INCARNATION, 7, NO_ENTRY, 30_000, 1000), 50)
    bookie.until(lambda: bookie.path.parked.poll_count == 1)
    assert bookie.sent() == 0
    bookie.tell(ExplicitLacRequest(INCARNATION, 7, KEY, 0, 100, True), 51)
    bookie.until(lambda: len(bookie.client.bodies(bookie.link)) == 2)
    assert not bookie.transport.has_events()
    polled, hinted = map(decode_message, bookie.client.bodies(bookie.link))
    assert (polled.request_id, polled.control) == (50, LacAnswer(Status.OK, 7, 0, 100, False))
    assert [header.entry_count for header, _ in polled.frames] == [1]
    assert (hinted.request_id, hinted.control) == (51, ExplicitLacAnswer(Status.OK, 7, True))


def test_who_is_woken_by_what_a_wait_received_is_told_before_it_goes_on(arena: Arena) -> None:
    """Rule P6.2: nothing else would end that wait, so an answer that it kept would come with its end."""
    bookie = Bookie(arena)
    bookie.path.begin(bookie.arena.now_ns(), takes_polls=True)
    bookie.tell(LacRequest(INCARNATION, 7, NO_ENTRY, 30_000, 1000), 50)
    bookie.until(lambda: bookie.path.parked.poll_count == 1)
    bookie.tell(ExplicitLacRequest(INCARNATION, 7, KEY, 0, 100, True, False), 51)

    def end_when_told() -> None:
        give_up_ns = bookie.arena.now_ns() + PATIENCE_NS // 2
        while not bookie.client.bodies(bookie.link) and bookie.arena.now_ns() < give_up_ns:
            bookie.client.events += bookie.client.transport.receive(bookie.arena.now_ns())
            bookie.client.transport.deadline_ns()
        os.eventfd_write(bookie.other, 1)

    reader = threading.Thread(target=end_when_told)
    reader.start()
    end = bookie.wait_long()
    while end.ready != [bookie.other]:  # The hint may come in a wait of its own.
        end = bookie.wait_long()
    is_told = bool(bookie.client.bodies(bookie.link))
    reader.join()
    bookie.close()
    assert is_told


def test_the_time_of_a_poll_that_was_parked_meanwhile_ends_it(bookie: Bookie) -> None:
    """Rule P6.2: a reader hears by its time that nothing came; the core says so."""
    bookie.path.begin(bookie.arena.now_ns(), takes_polls=True)
    bookie.tell(LacRequest(INCARNATION, 7, NO_ENTRY, 20, 1000), 50)
    bookie.until(lambda: bookie.path.parked.poll_count == 1)
    deadline = bookie.path.parked.deadline_ns
    while bookie.arena.now_ns() < deadline:
        bookie.wait_long()


def test_a_readers_answer_without_room_has_the_lac_alone(bookie: Bookie) -> None:
    """RP34: no entries are looked up for a link that cannot take a largest frame."""
    bookie.path.begin(bookie.arena.now_ns(), takes_polls=True)
    bookie.add()
    bookie.until(lambda: bookie.path.taken() == 1)
    bookie.transport._accepted.in_c.set_room(bookie.end, READ_ROOM_BYTES - 1)
    bookie.tell(LacRequest(INCARNATION, 7, NO_ENTRY, 30_000, 1000), 50)
    bookie.tell(ExplicitLacRequest(INCARNATION, 7, KEY, 0, 100, True, False), 51)
    bookie.until(lambda: bool(bookie.client.bodies(bookie.link)))
    (message,) = map(decode_message, bookie.client.bodies(bookie.link))
    assert (message.control, message.frames) == (LacAnswer(Status.OK, 7, 0, 100, False), [])


def test_what_was_taken_and_sent_counts_for_the_link(bookie: Bookie) -> None:
    """TRANSPORTS 3: who only adds is heard of, and its window and ours know of every byte."""
    link = bookie.transport._links[bookie.end]
    link.heard_ns = 0
    bookie.add()
    bookie.until(lambda: bookie.path.taken() == 1)
    assert link.received_bytes > 100
    assert link.heard_ns > 0
    bookie.commit()
    bookie.wait()
    bookie.until(lambda: bool(bookie.client.bodies(bookie.link)))
    assert link.sent_bytes == sum(map(len, bookie.client.bodies(bookie.link)))


# --- The ways out --------------------------------------------------------------------------------------------


def test_a_message_that_is_not_taken_is_the_next_event(bookie: Bookie) -> None:
    """TRANSPORTS 5: nothing behind an event is offered before the host has seen it; nothing is lost or overtaken."""
    bookie.add()
    bookie.ask()
    bookie.add()
    bookie.until(bookie.transport.has_events)
    assert bookie.path.taken() == 1
    assert bookie.transport.wait(WaitTerms(bookie.path, bookie.filenos, NOW, 0, 0, False, 1)) is None
    assert bookie.transport.deadline_ns() <= bookie.arena.now_ns(), "it is there already"
    socket = bookie.transport._accepted._wait_ports[0].socket
    assert socket.poll(PATIENCE_NS // 10**6), "the one behind it"
    found = [decode_message(event.body).request_id for event in bookie.receive()]
    assert (found, bookie.path.taken()) == ([99, 1], 1)


def test_a_part_beyond_the_bound_of_one_receive_is_its_last(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRANSPORTS 5: of one endpoint only so many bytes are received in a turn. The last part may go beyond them, and
    what is behind it comes with the next turns; a bookie that was stopped has more than that before it."""
    monkeypatch.setattr(zmq_turns, "BYTES_PER_RECEIVE_MAX", 1)
    for _ in range(3):
        bookie.ask()
    turns: list[int] = []
    give_up_ns = bookie.arena.now_ns() + PATIENCE_NS
    while sum(turns) < 3:
        turns.append(len(bookie.receive()))
        assert bookie.arena.now_ns() < give_up_ns, "never came"
    assert max(turns) == 1


def test_a_message_of_several_parts_ends_the_link(bookie: Bookie) -> None:
    """T10: what C holds is garbage by the same code as without, to its last part."""
    socket = bookie.client.transport._links[bookie.link].port.socket  # type: ignore[attr-defined]
    socket.send_multipart([b"one", b"two", b"three"])
    bookie.until(bookie.transport.has_events)
    assert [type(event) for event in bookie.receive()] == [LinkDown]


def test_another_descriptor_ends_it(bookie: Bookie) -> None:
    """Fair to the others on the loop: whose descriptor is ready is told at once, however long the wait may be."""
    os.eventfd_write(bookie.other, 1)
    assert bookie.wait_long() == WaitEnd([bookie.other], None)


def test_a_message_that_ends_it_hides_no_descriptor(bookie: Bookie) -> None:
    """Fair to the others on the loop, also beside a client whose every message is for Python."""
    os.eventfd_write(bookie.other, 1)
    bookie.ask()
    give_up_ns = bookie.arena.now_ns() + PATIENCE_NS
    ended: WaitEnd | None = None
    while not bookie.transport.has_events():
        ended = bookie.wait()
        assert bookie.arena.now_ns() < give_up_ns, "never came"
    assert ended == WaitEnd([bookie.other], None)


def test_a_connection_that_ends_ends_it(bookie: Bookie) -> None:
    """TRANSPORTS, death: the monitor's descriptor is none of the host's, so it ends the wait and no more is said."""
    bookie.client.transport.close()
    assert bookie.wait_long() == WaitEnd([], None)
    bookie.arena.run([bookie.node], lambda: bool(bookie.node.downs()))


def test_its_time_ends_it(bookie: Bookie) -> None:
    """Deadlines of the loop hold: a session is renewed, a silent peer asked."""
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert bookie.wait(now_ns + 3_000_000) == WaitEnd([], None)
    assert time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= now_ns + 3_000_000


def test_an_answer_without_room_is_the_hosts(arena: Arena) -> None:
    """TRANSPORTS 3: the window holds for what C sends; who may not send says so, and the host decides (a drop, P6)."""
    bookie = Bookie(arena, window_bytes=WINDOW_BYTES_MIN)
    link = bookie.transport._links[bookie.end]
    bookie.add()
    bookie.until(lambda: bookie.path.taken() == 1)
    bookie.commit()
    link.sent_bytes += WINDOW_BYTES_MIN
    bookie.transport._ends.room_changed[bookie.end] = link
    end = bookie.wait()
    assert end.unsent is not None
    assert (end.unsent[0], decode_message(end.unsent[1]).request_id) == (bookie.end, 0)
    assert link.sent_bytes == WINDOW_BYTES_MIN
    bookie.close()


def test_an_answer_for_a_link_that_is_gone_is_the_hosts_and_those_behind_it_wait(bookie: Bookie) -> None:
    """Rule P3.2: none is lost on the way out; what else is due stays with the add path until the host takes it."""
    bookie.add()
    bookie.until(lambda: bookie.path.taken() == 1)
    for number in (77, 78):  # Of links that C was never told of.
        packer = TwinPacker(7, next_entry=bookie.first, length=bookie.length)
        packer.append_many([b"more"])
        frame = packer.seal()
        assert frame is not None
        request = AddRequest(INCARNATION, 1, 1, False)
        pieces = encode_message(number, request, [(encode_frame_header(frame, KEY), frame)])
        assert bookie.path.take(number, b"".join(map(bytes, pieces)))
        bookie.first, bookie.length = bookie.first + 1, bookie.length + 4
    bookie.path.kick()
    bookie.commit()
    end = bookie.wait()
    assert bookie.sent() > 0
    assert end.unsent is not None
    assert end.unsent[0] == 77
    assert [link for link, _, _ in bookie.path.due()] == [78]


def test_durability_that_others_wait_for_ends_it(bookie: Bookie) -> None:
    """Rule P5.2f: a fence's answer waits for the journal, in the core."""
    bookie.add()
    bookie.until(lambda: bookie.path.taken() == 1)
    bookie.commit()
    token = bookie.storage.next_token() - 1
    assert bookie.wait_long(awaits_journal=True) == WaitEnd([], None)
    assert bookie.wait(NOW, awaits_journal=True, durable=token) == WaitEnd([], None)
    os.eventfd_write(bookie.other, 1)
    assert bookie.wait_long(awaits_journal=True, durable=token).ready == [bookie.other], "it knows of that"


def test_a_failed_journal_ends_it_and_nothing_is_answered(bookie: Bookie) -> None:
    """Rule P7.6: what is not durable then never is."""
    bookie.add()
    bookie.until(lambda: bookie.path.taken() == 1)
    bookie.disk.fail("write", error=errno.EIO, stays=True)
    bookie.storage.step()
    assert bookie.wait_long() == WaitEnd([], None)
    assert bookie.storage.failed()
    assert bookie.sent() == 0


def test_a_storage_that_has_something_to_do_ends_it(bookie: Bookie) -> None:
    """A flush begins when its bytes were taken, not when somebody happens to look."""
    for _ in range(4):
        bookie.add(bytes(10_000))
    bookie.until(lambda: bookie.path.taken() == 4)
    before = bookie.path.taken_bytes()
    for _ in range(4):
        bookie.add(bytes(10_000))
    give_up_ns = bookie.arena.now_ns() + PATIENCE_NS
    while bookie.path.taken_bytes() - before < 25_000 and bookie.arena.now_ns() < give_up_ns:
        bookie.wait_long(bytes_max=1)
    assert bookie.path.taken() >= 7


def test_credit_that_is_due_ends_it(bookie: Bookie) -> None:
    """TRANSPORTS 3: the peer is told of every 1 MiB received, or its window would close."""
    for _ in range(3):
        bookie.add(bytes(CREDIT_BYTES // 2))
    while bookie.transport._links[bookie.end].received_bytes < CREDIT_BYTES:
        bookie.wait_long()
    assert bookie.transport._links[bookie.end].reported_bytes >= CREDIT_BYTES
    end: Any = bookie.client.transport._links[bookie.link]  # type: ignore[attr-defined]
    bookie.arena.run([bookie.client], lambda: end.credited_bytes >= CREDIT_BYTES)


def test_a_signal_ends_it(bookie: Bookie) -> None:
    """Ctrl-C: Python's handlers run between its own instructions only, so a wait must not outlast the signal."""
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: heard.append(number))
    try:
        # Again and again: the first one may come before the wait.
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        assert bookie.wait_long() == WaitEnd([], None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard


def test_who_was_not_offered_an_add_path_waits_by_itself(arena: Arena) -> None:
    """TRANSPORTS 6: a transport that has no links in C does not wait for its host."""
    node: Node = arena.node("bookie")
    storage = BookieStorage(
        "/b", "b", b"T" * 16, io=MemoryDisk(), incarnation=INCARNATION, threaded=False, flush_bytes=MIB,
        cache_bytes_max=4 * MIB, journal_file_bytes=4 * MIB,
    )  # fmt: skip
    assert storage.add_path is not None
    terms = WaitTerms(storage.add_path, (), NOW, 0, 0, False, 1)
    node.transport.listen(arena.endpoint())
    assert node.transport.wait(terms) is None
    storage.close()
