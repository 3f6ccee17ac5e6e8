"""The wait of a writing client in C: what it counts meanwhile, and every way out of it.

native/SHORTCUTS.md, "Answers".

Sockets are real; a wait whose time is over already looks once, so nothing here depends on how fast anything is.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswer
from embedbk.codec.answers import Answers, Asked
from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacAnswer
from embedbk.codec.messages import encode_message
from embedbk.ports.links import LinkDown, Received
from embedbk.transports.conformance import PATIENCE_NS, Arena
from tests.transports.arenas import QuietTcpArena

NOW, LONG_NS = 0, PATIENCE_NS


def clock_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Client:
    """A client's transport that counts, linked to two bookies."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.node = arena.node("client")
        self.transport: Any = self.node.transport
        self.answers = Answers()
        self.transport.count(self.answers)
        self.bookies = [arena.node("b1"), arena.node("b2")]
        self.links = [
            self.transport.connect(bookie.transport.listen(arena.endpoint())) for bookie in self.bookies
        ]
        self.other = os.eventfd(0, os.EFD_NONBLOCK)
        self.filenos = (*self.transport.filenos(), self.other)
        arena.run(
            [self.node, *self.bookies],
            lambda: len(self.node.ups()) == 2 and all(bookie.ups() for bookie in self.bookies),
        )
        self.number = 0
        self.receive()

    def receive(self) -> list[Any]:
        events = self.transport.receive(self.arena.now_ns())
        self.transport.deadline_ns()
        return list(events)

    def expect(self, seat: int, **changes: Any) -> Asked:
        self.number += 1
        usual = Asked(self.links[seat], self.number, self.number, 1, 5, seat + 1, 7, self.number, self.number)
        asked = usual._replace(**changes)
        self.answers.expect(asked)
        return asked

    def say(self, seat: int, control: Any, request_id: int = 1) -> None:
        bookie = self.bookies[seat]
        assert bookie.transport.send(bookie.ups()[0].link, encode_message(request_id, control))

    def answer(self, asked: Asked) -> None:
        _, request_id, _, _, nonce, seating, ledger_id, first, last = asked
        self.say(seating - 1, AddAnswer(Status.OK, nonce, seating, False, ledger_id, first, last), request_id)

    def wait(self, until_ns: int = NOW, untold_ns: int = LONG_NS) -> Sequence[int]:
        ready: Sequence[int] | None = self.transport.listen_for(self.filenos, until_ns, untold_ns)
        assert ready is not None
        return ready

    def wait_long(self, untold_ns: int = LONG_NS) -> Sequence[int]:
        """A wait that something ends long before its time is over."""
        until_ns = clock_ns() + LONG_NS
        ready = self.wait(until_ns, untold_ns)
        assert clock_ns() < until_ns, "nothing ended it"
        return ready

    def until(self, is_reached: Callable[[], bool]) -> None:
        give_up_ns = self.arena.now_ns() + PATIENCE_NS
        while not is_reached():
            self.wait()
            assert self.arena.now_ns() < give_up_ns, "never came"

    def bodies(self) -> list[bytes]:
        return [bytes(event.body) for event in self.receive() if isinstance(event, Received)]


@pytest.fixture
def client() -> Iterator[Client]:
    arena = QuietTcpArena()
    made = Client(arena)
    yield made
    arena.close()
    os.close(made.other)


def test_a_closed_client_leaves_no_descriptor_of_its_wait() -> None:
    """ports.Transport.close: nothing waits for the collector of cycles, which may come late or never."""

    def use_once() -> int:
        arena = QuietTcpArena()
        client = Client(arena)
        assert client.wait() == []
        arena.close()
        os.close(client.other)
        return len(os.listdir("/proc/self/fd"))

    use_once()  # What pyzmq keeps for the process, it starts now.
    gc.collect()
    gc.disable()
    try:
        assert use_once() == use_once() == use_once()
    finally:
        gc.enable()


def test_news_end_it_and_need_no_turn_before(client: Client) -> None:
    """P3.3: an answer that makes no quorum is counted without ending the wait; the one that makes it ends it."""
    first = client.expect(0, needed=2)
    second = client.expect(1, needed=2, group=first.group)
    client.answer(first)
    client.until(lambda: client.answers.untold == 1)
    assert not client.answers.is_due
    client.answer(second)
    assert client.wait_long() == []
    assert client.answers.is_due
    assert client.receive() == []
    assert client.answers.tell() == [
        (first.link, first.request_id, False),
        (second.link, second.request_id, False),
    ]


def test_what_is_untold_bounds_it(client: Client) -> None:
    """It frees the memory of a frame: it is told soon, though nobody needs it."""
    asked = client.expect(0, needed=2)
    client.answer(asked)
    while not client.answers.untold:
        assert client.wait_long(untold_ns=1) == []
    assert not client.answers.is_due


def test_a_link_dialled_meanwhile_is_waited_for_too(client: Client) -> None:
    """P7.2: the answer to a Hello is heard by a client that waits already, and that lost and dialled since."""
    assert client.wait() == []
    late = client.arena.node("b3")
    number = client.transport.connect(late.transport.listen(client.arena.endpoint()))
    link = client.transport._links[number]

    def go_on() -> None:
        if client.transport.deadline_ns() > client.arena.now_ns():
            client.wait_long()
        client.transport.receive(client.arena.now_ns())

    client.transport.receive(client.arena.now_ns())

    while not link.has_greeted:
        go_on()
    client.arena.run([late], lambda: bool(late.ups()))
    while not link.is_up:
        go_on()


def test_its_time_ends_it(client: Client) -> None:
    until_ns = clock_ns() + 2_000_000
    while clock_ns() < until_ns:
        assert client.wait(until_ns) == []
    assert client.receive() == []


def test_other_bodies_end_it_and_come_in_order(client: Client) -> None:
    """What is not counted is the host's, and what came behind it on its link comes behind it."""
    asked = client.expect(0)
    client.say(0, LacAnswer(Status.OK, 7), 70)
    client.answer(asked)
    client.say(0, LacAnswer(Status.OK, 8), 80)
    found: list[bytes] = []
    while len(found) < 3 - client.answers.untold:
        client.wait_long()
        found += client.bodies()
    wanted = [b"".join(encode_message(number * 10, LacAnswer(Status.OK, number))) for number in (7, 8)]
    assert [body for body in found if body in wanted] == wanted


def test_what_ended_it_is_told_alone_every_other_time(client: Client) -> None:
    """Whoever waits for a body has it before other links are asked; but no link hides another for longer than that."""

    def has_come(seat: int, number: int) -> bytes:
        client.say(seat, LacAnswer(Status.OK, number), number * 10)
        assert client.transport._links[client.links[seat]].port.socket.poll(PATIENCE_NS // 1_000_000)
        return b"".join(encode_message(number * 10, LacAnswer(Status.OK, number)))

    first, beside = has_come(0, 7), has_come(1, 8)
    client.wait_long()
    assert client.bodies() == [first]
    second = has_come(0, 9)
    client.wait_long()
    assert client.bodies() == [second, beside]


def test_other_descriptors_end_it(client: Client) -> None:
    """A call from another thread, another node: whose it is, is told."""
    os.eventfd_write(client.other, 1)
    assert client.wait_long() == [client.other]
    os.eventfd_read(client.other)
    assert client.wait() == []


def test_news_hide_no_descriptor(client: Client) -> None:
    """Answers may come without a pause: a connection that begins or ends is seen nevertheless."""
    os.eventfd_write(client.other, 1)
    client.answer(client.expect(0))
    give_up_ns = client.arena.now_ns() + PATIENCE_NS
    ready: Sequence[int] = ()
    while not client.answers.is_due:
        ready = client.wait()
        assert client.arena.now_ns() < give_up_ns, "never came"
    assert ready == [client.other]


def test_the_end_of_a_link_ends_it(client: Client) -> None:
    client.bookies[1].transport.close()
    downs: list[Any] = []
    while not downs:
        client.wait_long()
        downs = [event for event in client.receive() if isinstance(event, LinkDown)]
    assert downs[0].link == client.links[1]
    asked = client.expect(0)
    client.answer(asked)
    client.until(lambda: client.answers.is_due)


def test_a_signal_ends_it(client: Client) -> None:
    """Ctrl-C waits for nobody."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: heard.append(number))
    try:
        main = threading.get_ident()
        kicker = threading.Timer(0.01, lambda: signal.pthread_kill(main, signal.SIGUSR2))
        kicker.start()
        while not heard:
            client.wait_long()
        kicker.join()
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_nothing_is_lost_between_sends_and_waits(client: Client) -> None:
    """A send may swallow what a descriptor would tell of: sockets are asked again before anybody sleeps."""
    for turn in range(300):
        asked = client.expect(turn % 2)
        client.answer(asked)
        for link in client.links:
            assert client.transport.send(link, [b"x" * 100])
        while not client.answers.is_due:
            client.wait_long()
            client.receive()
        assert client.answers.tell() == [(asked.link, asked.request_id, False)]


def test_a_peer_learns_how_much_came(client: Client) -> None:
    """Back pressure: what is counted in C is credited to whoever sent it, or its window would close."""
    transport: Any = client.bookies[0].transport
    (end,) = transport._links.values()
    for each in [client.expect(0) for _ in range(500)]:
        client.answer(each)
    client.until(lambda: client.answers.counted == 500)
    assert client.transport._links[client.links[0]].received_bytes == end.sent_bytes


def test_it_is_the_hosts_while_there_is_more_to_do(client: Client) -> None:
    """Events that were not taken yet, or nobody who counts."""
    client.transport.drop(client.links[0], "away")
    assert client.transport.listen_for(client.filenos, NOW, LONG_NS) is None
    assert isinstance(client.receive()[0], LinkDown)
    plain: Any = client.arena.node("plain").transport
    assert plain.listen_for(plain.filenos(), NOW, LONG_NS) is None
