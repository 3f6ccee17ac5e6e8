"""ZeroMQ where it differs: hostile bytes, other processes that die or stand still, addresses, what is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import UsageError
from embedbk.ports.links import Received
from embedbk.transports import zmq_before_hello, zmq_ends, zmq_intake, zmq_turns
from embedbk.transports.conformance import PATIENCE_NS, Arena, Node, identity_of
from embedbk.transports.envelope import (
    ENVELOPE_BYTES,
    LINK_BYTES_MAX,
    NONCE_BYTES,
    Envelope,
    Hello,
    Kind,
    decode_envelope,
    decode_reason,
    encode_hello,
    envelope_prefix,
    seal,
)
from embedbk.transports.zmq import ZmqTransport
from tests.transports.arenas import TcpArena
from tests.transports.offering import OfferingZmq

PROJECT = Path(__file__).resolve().parent.parent.parent
MILLISECOND = 1_000_000
NO_NONCE = bytes(NONCE_BYTES)
ANYWHERE = "tcp://127.0.0.1:0"


@pytest.fixture(params=[ZmqTransport, OfferingZmq], ids=["", "with an add path"])
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Also with parts received in C, which all come back: what is hostile is as hostile there."""
    arena = TcpArena()
    arena.opens = request.param
    yield arena
    arena.close()


class Raw:
    """A peer that says whatever it likes, over a DEALER of its own."""

    def __init__(self, endpoint: str, nonce: bytes = b"mynonce.") -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(endpoint)
        self.nonce = nonce

    def say(self, kind: int, body: bytes = b"", listener_nonce: bytes = NO_NONCE, nonce: bytes = b"") -> None:
        prefix = envelope_prefix(kind, nonce or self.nonce, listener_nonce)  # type: ignore[arg-type]
        self.socket.send(seal(prefix, len(body)) + body)

    def hello(self, node_id: str = "raw") -> None:
        self.say(Kind.HELLO, encode_hello(Hello(identity_of(node_id))))

    def heard(self) -> Envelope | None:
        if not self.socket.poll(0):
            return None
        return decode_envelope(memoryview(self.socket.recv()))

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def raw() -> Iterator[Callable[[str], Raw]]:
    opened: list[Raw] = []

    def open_raw(endpoint: str) -> Raw:
        opened.append(Raw(endpoint))
        return opened[-1]

    yield open_raw
    for each in opened:
        each.close()


def answer(arena: Arena, node: Node, peer: Raw) -> Envelope:
    """The next thing that the peer hears while the node runs, but for pings: a busy machine makes them due."""
    found: list[Envelope] = []

    def has_answer() -> bool:
        if (envelope := peer.heard()) is not None and envelope.kind != Kind.PING:
            found.append(envelope)
        return bool(found)

    run_often(arena, [node], has_answer)
    return found[0]


def run_often(arena: Arena, nodes: list[Node], until: Callable[[], bool]) -> None:
    """For conditions that no descriptor of the nodes tells of: look again and again, within the arena's patience."""
    give_up_ns = time.monotonic_ns() + 20 * 10**9
    while not until():
        for node in nodes:
            node.events += node.transport.receive(time.monotonic_ns())
        assert time.monotonic_ns() < give_up_ns, [node.events for node in nodes]


def listening(arena: Arena, **settings: int) -> tuple[Node, ZmqTransport, str]:
    node = arena.node("b", **settings)
    assert isinstance(node.transport, ZmqTransport)
    return node, node.transport, node.transport.listen(ANYWHERE)


def still_serves(arena: Arena, node: Node, endpoint: str) -> None:
    """Somebody well-behaved gets a link and an echo."""
    friend = arena.node(f"friend-{len(arena.opened)}")
    link = friend.transport.connect(endpoint)
    arena.run([node, friend], lambda: bool(friend.ups()))
    assert friend.transport.send(link, [b"hello"])
    arena.run(
        [node, friend],
        lambda: any(event.body == b"hello" for event in node.events if isinstance(event, Received)),
    )
    friend.transport.close()


# --- Hostile bytes -----------------------------------------------------------------------------------------


def garbage() -> list[bytes]:
    chance = random.Random(20)
    whole = seal(envelope_prefix(Kind.DATA, NO_NONCE, NO_NONCE), 4) + b"body"
    hello = encode_hello(Hello(identity_of("raw")))
    flipped = [bytes(b ^ (at == place) << 3 for at, b in enumerate(whole)) for place in range(ENVELOPE_BYTES)]
    crooked = [
        hello[:-1],
        hello[:10],
        b"",
        struct.pack("<HHBBH16s", 1, 1, 9, 1, 0, b"") + b"x",  # No such role.
        struct.pack("<HHBBH16s", 2, 1, 1, 1, 0, b"") + b"x",  # Versions the wrong way round.
        struct.pack("<HHBBH16s", 1, 1, 1, 255, 65535, b""),  # Sizes that are not there.
        struct.pack("<HHBBH16s", 1, 1, 1, 3, 0, b"") + b"../",  # No name.
        struct.pack("<HHBBH16s", 1, 1, 1, 2, 0, b"") + b"\xff\x00",
    ]
    hellos = [seal(envelope_prefix(Kind.HELLO, b"12345678", NO_NONCE), len(body)) + body for body in crooked]
    noise = [chance.randbytes(chance.randrange(200)) for _ in range(200)]
    return [b"", b"EBKL", whole[:-1], whole + b"+", *flipped, *hellos, *noise]


def test_garbage_is_counted_and_nobody_else_notices(arena: Arena, raw: Callable[[str], Raw]) -> None:
    node, transport, endpoint = listening(arena)
    peer = raw(endpoint)
    for block in garbage():
        peer.socket.send(block)
    run_often(arena, [node], lambda: transport.counters.garbage + transport.counters.stale == len(garbage()))
    assert node.events == []
    still_serves(arena, node, endpoint)


def test_garbage_from_a_linked_peer_ends_its_link(arena: Arena, raw: Callable[[str], Raw]) -> None:
    node, _, endpoint = listening(arena)
    for block in garbage()[:4]:
        peer = raw(endpoint)
        peer.hello()
        assert answer(arena, node, peer).kind == Kind.HELLO_ACK
        link = node.ups()[-1].link
        peer.socket.send(block)
        arena.run([node], lambda link=link: node.is_down(link))  # type: ignore[misc]
    still_serves(arena, node, endpoint)


def test_the_wrong_kind_at_the_wrong_time_ends_the_link(arena: Arena, raw: Callable[[str], Raw]) -> None:
    node, _, endpoint = listening(arena)
    said = [
        (Kind.HELLO_ACK, b""),
        (Kind.HELLO, b""),
        (99, b""),
        (Kind.PONG, b"short"),
        (Kind.PONG, b"\xff" * 8),
    ]
    for kind, body in said:
        peer = raw(endpoint)
        peer.hello()
        ack = answer(arena, node, peer)
        link = node.ups()[-1].link
        peer.say(kind, body, ack.listener_nonce)
        arena.run([node], lambda link=link: node.is_down(link))  # type: ignore[misc]
        assert answer(arena, node, peer).kind == Kind.BYE
    still_serves(arena, node, endpoint)


def test_many_parts_are_never_joined(arena: Arena, raw: Callable[[str], Raw]) -> None:
    """T10: with a link or without, a message of a thousand parts is skipped."""
    node, transport, endpoint = listening(arena)
    peer = raw(endpoint)
    peer.socket.send_multipart([b"part"] * 1000)
    peer.hello()
    assert answer(arena, node, peer).kind == Kind.HELLO_ACK
    assert transport.counters.garbage == 1
    peer.socket.send_multipart([seal(envelope_prefix(Kind.DATA, peer.nonce, NO_NONCE), 0)] * 3)
    arena.run([node], lambda: bool(node.downs()))
    assert "too many parts" in node.downs()[0].reason
    still_serves(arena, node, endpoint)


def raw_link(arena: Arena, node: Node, peer: Raw) -> tuple[bytes, int]:
    """What stands before a body of the peer's new link, without its length; and the link."""
    peer.hello()
    ack = answer(arena, node, peer)
    return envelope_prefix(Kind.DATA, peer.nonce, ack.listener_nonce), node.ups()[-1].link


def test_a_body_may_go_on_in_a_second_part(arena: Arena, raw: Callable[[str], Raw]) -> None:
    """TRANSPORTS, the bytes on a link: wherever the body is cut, it is the same body."""
    node, transport, endpoint = listening(arena)
    peer = raw(endpoint)
    prefix, link = raw_link(arena, node, peer)
    body = b"the body of a frame"
    whole = seal(prefix, len(body)) + body
    cuts = [*range(len(whole) + 1)]
    for cut in cuts:
        peer.socket.send_multipart([whole[:cut], whole[cut:]])
    arena.run([node], lambda: len(node.bodies(link)) == len(cuts))
    assert set(node.bodies(link)) == {body}
    assert transport.counters.garbage == 0


def with_a_flipped_bit(sealed: bytes) -> bytes:
    """Never the same bytes: the nonces are by chance, so a fixed last byte is at times the right one."""
    return sealed[:-1] + bytes([sealed[-1] ^ 1])


def test_what_is_wrong_in_one_part_is_wrong_in_two(arena: Arena, raw: Callable[[str], Raw]) -> None:
    """T10, P7.2: parts that do not add up end their link; those of another link are dropped."""
    node, transport, endpoint = listening(arena)
    for head, tail in (
        (lambda prefix: seal(prefix, 5), b"1234"),
        (lambda prefix: seal(prefix, 5), b"123456"),
        (lambda prefix: with_a_flipped_bit(seal(prefix, 5)), b"12345"),
        (lambda prefix: seal(prefix, 0), b"1"),
        (lambda prefix: b"", b""),
    ):
        peer = raw(endpoint)
        prefix, link = raw_link(arena, node, peer)
        peer.socket.send_multipart([head(prefix), tail])
        arena.run([node], lambda link=link: node.is_down(link))  # type: ignore[misc]
        assert node.bodies(link) == []
    one, other = raw(endpoint), raw(endpoint)
    foreign, _ = raw_link(arena, node, one)
    own, link = raw_link(arena, node, other)
    other.socket.send_multipart([seal(foreign, 4), b"lost"])
    other.socket.send_multipart([seal(own, 4), b"mine"])
    arena.run([node], lambda: bool(node.bodies(link)))
    assert node.bodies(link) == [b"mine"]
    assert transport.counters.stale == 1


def test_two_parts_are_together_no_longer_than_one_may_be(arena: Arena, raw: Callable[[str], Raw]) -> None:
    """T10: they are not joined; the largest body in two parts passes."""
    node, transport, endpoint = listening(arena)
    peer = raw(endpoint)
    prefix, link = raw_link(arena, node, peer)
    largest = bytes(MESSAGE_BYTES_MAX)
    peer.socket.send_multipart([seal(prefix, len(largest)), largest])
    arena.run([node], lambda: bool(node.bodies(link)))
    assert node.bodies(link) == [largest]
    peer.socket.send_multipart([seal(prefix, len(largest) + 1) + b"1", largest])
    arena.run([node], lambda: node.is_down(link))
    assert "too long" in node.reason(link)
    assert transport.counters.garbage == 1
    still_serves(arena, node, endpoint)


def test_a_message_over_the_bound_ends_the_connection_unread(arena: Arena, raw: Callable[[str], Raw]) -> None:
    """T10: ZeroMQ hangs up at the announced length, before it makes room for it."""
    node, _, endpoint = listening(arena)
    peer = raw(endpoint)
    peer.hello()
    assert answer(arena, node, peer).kind == Kind.HELLO_ACK
    peer.socket.send(bytes(LINK_BYTES_MAX + 1))
    arena.run([node], lambda: bool(node.downs()))
    assert [type(event).__name__ for event in node.events] == ["LinkUp", "LinkDown"]
    still_serves(arena, node, endpoint)


def test_bytes_that_are_not_zeromq(arena: Arena) -> None:
    node, _, endpoint = listening(arena)
    port = int(endpoint.rsplit(":", 1)[1])
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"", b"\xff" * 100, bytes(5000)):
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(said)
            still_serves(arena, node, endpoint)
    assert not [up for up in node.ups() if not up.peer.node_id.startswith("friend")]


def shake_hands(endpoint: str) -> socket.socket:
    """A connection that ZeroMQ takes for one of its own; nothing of ours was said on it."""
    caller = socket.create_connection(("127.0.0.1", int(endpoint.rsplit(":", 1)[1])))
    caller.setblocking(False)
    caller.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    ready = b"\x05READY" + b"\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"
    caller.sendall(bytes([4, len(ready)]) + ready)
    return caller


def has_ended(caller: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        while part := caller.recv(4096):
            assert part
        return True
    return False


def test_a_connection_that_never_says_hello_is_hung_up_on(arena: Arena, raw: Callable[[str], Raw]) -> None:
    """T11: ZeroMQ's handshake is all that it ever said. Who has said Hello is not among them."""
    node, transport, endpoint = listening(arena)
    with shake_hands(endpoint) as caller, shake_hands(endpoint) as other:
        peer = raw(endpoint)
        peer.hello()
        assert answer(arena, node, peer).kind == Kind.HELLO_ACK
        arena.run([node], lambda: len(transport._before_hello.silent) == 2)
        # By when each was taken for silent: how long ago that is, is the machine's business.
        since = [each.since_ns for each in transport._before_hello.silent.values()]
        now_ns = time.monotonic_ns()
        while now_ns < min(since) + 4_400 * MILLISECOND:
            node.events += transport.receive(now_ns)
            now_ns += 100 * MILLISECOND
        assert not has_ended(caller) and transport.counters.silent == 0
        while now_ns < max(since) + 5_600 * MILLISECOND:
            node.events += transport.receive(now_ns)
            now_ns += 100 * MILLISECOND
        assert transport.counters.silent == 2
        arena.run([], lambda: has_ended(caller) and has_ended(other))
    still_serves(arena, node, endpoint)


def test_a_peer_whose_link_was_ended_is_hung_up_on(arena: Arena) -> None:
    """T11, T13: it was told BYE; a connection that stays all the same has as long as a new one."""
    node, transport, endpoint = listening(arena)
    a = arena.node("a")
    a.transport.connect(endpoint)
    arena.run([a, node], lambda: bool(a.ups() and node.ups()))
    assert not transport._before_hello.silent
    transport.drop(node.ups()[0].link, "enough")
    assert len(transport._before_hello.silent) == 1
    begin_ns = time.monotonic_ns()
    for step in range(1, 56):
        transport.receive(begin_ns + step * 100 * MILLISECOND)
    assert transport.counters.silent == 1 and not transport._before_hello.silent
    still_serves(arena, node, endpoint)


def test_of_many_silent_connections_only_the_newest_stay(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 91, T11: who opens one after the other costs a bounded number of descriptors, and the others are
    served."""
    monkeypatch.setattr(zmq_before_hello, "SILENT_MAX", 3)
    node, transport, endpoint = listening(arena)
    with contextlib.ExitStack() as opened:
        callers = [opened.enter_context(shake_hands(endpoint)) for _ in range(10)]
        arena.run([node], lambda: transport.counters.silent == 7)
        arena.run([node], lambda: sum(has_ended(caller) for caller in callers) == 7)
        still_serves(arena, node, endpoint)
        assert len(transport._before_hello.silent) <= 3


def test_a_body_under_another_nonce_is_dropped(arena: Arena, raw: Callable[[str], Raw]) -> None:
    """P7.2: what belongs to an earlier link, or was overheard from another, reaches nobody."""
    node, transport, endpoint = listening(arena)
    one, other = raw(endpoint), raw(endpoint)
    one.hello("one")
    first = answer(arena, node, one)
    other.hello("other")
    second = answer(arena, node, other)
    one.say(Kind.DATA, b"another link's", second.listener_nonce)
    one.say(Kind.DATA, b"another dialler's", first.listener_nonce, nonce=b"yournonc")
    one.say(Kind.DATA, b"mine", first.listener_nonce)
    arena.run([node], lambda: bool(node.bodies(node.ups()[0].link)))
    assert node.bodies(node.ups()[0].link) == [b"mine"]
    assert node.bodies(node.ups()[1].link) == []
    assert transport.counters.stale == 2
    assert not node.downs()


def test_what_comes_for_a_link_that_is_over_is_answered_with_bye(
    arena: Arena, raw: Callable[[str], Raw]
) -> None:
    node, transport, endpoint = listening(arena)
    peer = raw(endpoint)
    peer.hello()
    ack = answer(arena, node, peer)
    transport.drop(node.ups()[0].link, "broke a rule\x1b[31m")
    bye = answer(arena, node, peer)
    assert bye.kind == Kind.BYE
    assert decode_reason(bye.body) == "broke a rule\\x1b[31m"  # T25: nothing that a terminal obeys.
    peer.say(Kind.DATA, b"more", ack.listener_nonce)
    bye = answer(arena, node, peer)
    assert bye.kind == Kind.BYE
    assert bytes(bye.body) == b"this link is over"
    assert not [event for event in node.events if isinstance(event, Received)]


def test_an_unknown_envelope_version_is_refused_with_both_numbers(
    arena: Arena, raw: Callable[[str], Raw]
) -> None:
    node, _, endpoint = listening(arena)
    peer = raw(endpoint)
    block = bytearray(seal(envelope_prefix(Kind.HELLO, peer.nonce, NO_NONCE), 0))
    block[4] = 7
    peer.socket.send(block)
    bye = answer(arena, node, peer)
    assert (bye.kind, bye.dialler_nonce) == (Kind.BYE, peer.nonce)
    assert decode_reason(bye.body) == "envelope version 7 of the peer; this node knows 1"


def test_a_peer_that_names_its_route_gets_no_link(arena: Arena, raw: Callable[[str], Raw]) -> None:
    """T4: routing ids are the client's word. Nobody has a link under one, so there is none to take over; whoever sends
    under another's name gets nothing of that one's."""
    node, transport, endpoint = listening(arena)
    named = Raw(endpoint)
    try:
        named.socket.disconnect(endpoint)
        named.socket.setsockopt(zmq.ROUTING_ID, b"same")
        named.socket.connect(endpoint)
        named.hello()
        run_often(arena, [node], lambda: transport.counters.refused == 1)
        assert not node.ups()
        assert named.heard() is None
    finally:
        named.close()
    still_serves(arena, node, endpoint)


def test_there_is_a_last_link(
    arena: Arena, raw: Callable[[str], Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq_ends, "LINKS_MAX", 2)
    node, transport, endpoint = listening(arena)
    peers = [raw(endpoint) for _ in range(3)]
    answers = []
    for peer in peers:
        peer.hello()
        answers.append(answer(arena, node, peer))
    assert [each.kind for each in answers] == [Kind.HELLO_ACK, Kind.HELLO_ACK, Kind.BYE]
    assert (
        decode_reason(answers[2].body) == "b has 2 links already, allowed are 2: end clients or other peers"
    )
    with pytest.raises(UsageError, match="2 links"):
        transport.connect(endpoint)
    peers[0].close()
    arena.run([node], lambda: len(node.downs()) == 1)
    still_serves(arena, node, endpoint)


def test_a_peer_that_never_reports_fills_its_window_and_no_more(
    arena: Arena, raw: Callable[[str], Raw]
) -> None:
    """T13: it reads slowly or not at all; what waits for it is bounded in bytes, and its link ends by silence."""
    node, transport, endpoint = listening(arena, timeout_ns=60_000 * MILLISECOND)
    peer = raw(endpoint)
    peer.hello()
    answer(arena, node, peer)
    link = node.ups()[0].link
    taken = 0
    while transport.send(link, [bytes(MESSAGE_BYTES_MAX)]):
        taken += 1
    assert taken == 4
    now_ns = time.monotonic_ns()
    for second in range(62):
        node.events += transport.receive(now_ns + second * 1000 * MILLISECOND)
    assert "nothing heard" in node.reason(link)


# --- Time --------------------------------------------------------------------------------------------------


def test_an_idle_link_stays_up(arena: Arena) -> None:
    """Pings go out and pongs come back, several timeouts long; each heartbeat lasts until both have heard."""
    a = arena.node("a")
    b, _, endpoint = listening(arena)
    a.transport.connect(endpoint)
    arena.run([a, b], lambda: bool(a.ups() and b.ups()))
    transports = []
    for node in (a, b):
        assert isinstance(node.transport, ZmqTransport)
        transports.append(node.transport)
        # Each looks again within a heartbeat, however long the dialling might have taken.
        assert (node.transport.deadline_ns() or 0) <= time.monotonic_ns() + 250 * MILLISECOND
    now_ns = time.monotonic_ns()

    def have_heard() -> bool:
        for node in (a, b):
            node.events += node.transport.receive(now_ns)
        assert not a.downs()
        assert not b.downs()
        return all(link.heard_ns == now_ns for each in transports for link in each._links.values())

    for _ in range(80):
        now_ns += (
            250 * MILLISECOND
        )  # Even where the dialler's answer is on its way still, the listener asks by now.
        run_often(arena, [], have_heard)


class Quiet(TcpArena):
    """Nodes on which nothing happens, in a time that goes on when all that was sent has arrived. Counts what that
    costs."""

    def __init__(self) -> None:
        super().__init__()
        self.time_ns = 10**12
        self.give_up_ns = time.monotonic_ns() + PATIENCE_NS
        self.turns: dict[str, int] = {}  # By node: those that its time asked for.
        self.pings: dict[str, int] = {}

    def now_ns(self) -> int:
        return self.time_ns

    def wait(self, transports: list[Any]) -> None:
        """Everything that is on its way comes at once; whoever is due anyhow waits for the next `pass_time`."""
        poll = select.poll()
        for transport in transports:
            transport.deadline_ns()
            for fileno in transport.filenos():
                poll.register(fileno, select.POLLIN)
        poll.poll(1)
        assert time.monotonic_ns() < self.give_up_ns, "what was sent does not arrive"

    def pass_time(self, nodes: list[Node], until_ns: int) -> None:
        links = {node.node_id: node.transport._links for node in nodes}  # type: ignore[attr-defined]
        everywhere = [link for each in links.values() for link in each.values()]
        while True:
            self.run(nodes, lambda: all(link.heard_ns >= link.pinged_ns for link in everywhere))
            due = {node.node_id: node.transport.deadline_ns() for node in nodes}
            self.time_ns = min(each for each in due.values() if each is not None)
            if self.time_ns >= until_ns:
                return
            for node in nodes:
                due_ns = due[node.node_id]
                if due_ns is not None and due_ns <= self.time_ns:
                    node.events += node.transport.receive(self.time_ns)
                    asked = [link.pinged_ns for link in links[node.node_id].values()]
                    self.turns[node.node_id] = self.turns.get(node.node_id, 0) + 1
                    self.pings[node.node_id] = self.pings.get(node.node_id, 0) + asked.count(self.time_ns)


def test_quiet_links_are_asked_together_and_by_one_end_alone() -> None:
    """What links cost on which nothing happens: however their beginnings lie, a heartbeat is one turn of who dialled
    them and one question a link, and the other ends ask nothing."""
    arena = Quiet()
    try:
        a = arena.node("a")
        listeners = [arena.node(f"b{number}") for number in range(4)]
        nodes = [a, *listeners]
        for listener in listeners:
            a.transport.connect(listener.transport.listen(ANYWHERE))
            count = len(a.ups()) + 1
            arena.run(nodes, lambda count=count: len(a.ups()) == count)
            arena.pass_time(nodes, arena.time_ns + 41 * MILLISECOND)
        arena.pass_time(nodes, arena.time_ns + 1_000 * MILLISECOND)
        arena.turns, arena.pings = {}, {}
        arena.pass_time(nodes, arena.time_ns + 4_000 * MILLISECOND)
        assert not a.downs()
        assert arena.turns["a"] <= 21
        assert arena.pings == {"a": 4 * arena.turns["a"], **{f"b{number}": 0 for number in range(4)}}
        # They look whether they were asked in time.
        assert all(arena.turns[node.node_id] <= 21 for node in nodes)
    finally:
        arena.close()


def test_who_is_asked_by_many_wakes_twice_a_heartbeat_at_most() -> None:
    """What it costs to be asked in time: not one turn for each link, to see that."""
    arena = Quiet()
    try:
        b = arena.node("b")
        endpoint = b.transport.listen(ANYWHERE)
        nodes = [b]
        for number in range(6):
            nodes.append(arena.node(f"a{number}"))
            nodes[-1].transport.connect(endpoint)
            arena.run(nodes, lambda: len(b.ups()) == len(nodes) - 1 and all(each.ups() for each in nodes))
            arena.pass_time(nodes, arena.time_ns + 31 * MILLISECOND)
        arena.turns, arena.pings = {}, {}
        arena.pass_time(nodes, arena.time_ns + 4_000 * MILLISECOND)
        assert not b.downs()
        assert arena.pings.pop("b") == 0
        assert len(arena.pings) == 6 and set(arena.pings.values()) <= {19, 20, 21}
        assert arena.turns["b"] <= 41
    finally:
        arena.close()


def test_an_end_that_was_dialled_asks_where_the_dialler_does_not() -> None:
    """A dialler that stands still is noticed after `timeout_ns`, as one that was asked all the time."""
    arena = Quiet()
    try:
        a, b = arena.node("a"), arena.node("b")
        a.transport.connect(b.transport.listen(ANYWHERE))
        arena.run([a, b], lambda: bool(a.ups() and b.ups()))
        transport: Any = b.transport
        (link,) = transport._links.values()
        began_ns, asked = arena.time_ns, list[int]()
        b.events += transport.receive(began_ns)
        while not b.downs():
            arena.time_ns = transport.deadline_ns()
            b.events += transport.receive(arena.time_ns)
            if link.pinged_ns == arena.time_ns:
                asked.append((arena.time_ns - began_ns) // MILLISECOND)
        assert asked[:3] == [250, 350, 450]
        assert arena.time_ns == began_ns + 2_000 * MILLISECOND
        assert "nothing heard for 2000 ms" in b.reason(b.ups()[0].link)
    finally:
        arena.close()


def test_a_host_that_was_stopped_does_not_blame_its_peers(arena: Arena) -> None:
    """An hour passes between two looks: the peer gets its chance to answer before it is called dead."""
    a = arena.node("a")
    b, _, endpoint = listening(arena)
    link = a.transport.connect(endpoint)
    arena.run([a, b], lambda: bool(a.ups() and b.ups()))
    later_ns = time.monotonic_ns() + 3600 * 10**9
    a.events += a.transport.receive(later_ns)
    assert not a.downs()
    for step in range(1, 25):  # But from now on its own silence counts: b is not stepped here.
        a.events += a.transport.receive(later_ns + step * 100 * MILLISECOND)
    assert "nothing heard" in a.reason(link)


def test_who_waits_to_be_received_has_not_gone_silent(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """P4.1: of one endpoint only so much is received in a turn. Who is behind that is heard late for no fault of his,
    and lives until nothing of that endpoint is left; then silence counts again."""
    for place in (zmq_intake, zmq_turns):
        monkeypatch.setattr(place, "BODIES_PER_RECEIVE_MAX", 1)
    b, _, endpoint = listening(arena)
    others = [arena.node(name) for name in ("a1", "a2", "a3")]
    links = [other.transport.connect(endpoint) for other in others]
    arena.run([b, *others], lambda: len(b.ups()) == len(others) and all(other.ups() for other in others))
    for other, link in zip(others, links, strict=True):
        for _ in range(4):
            assert other.transport.send(link, [b"body"])
    transport: Any = b.transport
    (port,) = {link.port for link in transport._links.values()}
    give_up_ns = time.monotonic_ns() + PATIENCE_NS
    while not port.has_backlog:
        b.events += b.transport.receive(time.monotonic_ns())
        b.transport.deadline_ns()
        assert time.monotonic_ns() < give_up_ns, "nobody is behind"
    timeout_ns = 2_000 * MILLISECOND
    for link in transport._links.values():
        link.heard_ns -= 2 * timeout_ns
    transport._ends.now_ns = time.monotonic_ns()
    transport._ends.keep_time()
    assert not b.downs() and len(transport._links) == len(others)
    port.has_backlog = False
    transport._ends.keep_time()
    assert not transport._links


def test_dialling_somebody_who_never_says_hello(arena: Arena) -> None:
    a = arena.node("a", connect_timeout_ns=50 * MILLISECOND)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        link = a.transport.connect(f"tcp://127.0.0.1:{mute.getsockname()[1]}")
        arena.run([a], lambda: a.is_down(link))
    assert "no Hello" in a.reason(link)


# --- Other processes -----------------------------------------------------------------------------------------

ECHO = """
import select, sys, time
from embedbk.ports import Received
from embedbk.transports.conformance import identity_of
from embedbk.transports.zmq import ZmqTransport
transport = ZmqTransport(identity_of("child"), timeout_ns=60_000_000_000)
print(transport.listen(sys.argv[1]), flush=True)
poll = select.poll()
poll.register(transport.filenos()[0], select.POLLIN)
poll.register(0, select.POLLIN)
while True:
    for event in transport.receive(time.monotonic_ns()):
        if isinstance(event, Received):
            transport.send(event.link, [event.body])
    due = transport.deadline_ns()
    ready = poll.poll(None if due is None else max(0, due - time.monotonic_ns()) / 1e6)
    if any(fileno == 0 for fileno, _ in ready):
        break
transport.close()
"""


@pytest.fixture(params=["tcp", "ipc"])
def child(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    endpoint = ANYWHERE if request.param == "tcp" else f"ipc://{tmp_path}/child"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", ECHO, endpoint]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().decode().strip()
        process.kill()


def linked(arena: Arena, endpoint: str, **settings: int) -> tuple[Node, int]:
    node = arena.node("parent", **settings)
    link = node.transport.connect(endpoint)
    arena.run([node], lambda: bool(node.ups()))
    return node, link


def test_a_killed_peer_is_noticed_at_once(arena: Arena, child: tuple[subprocess.Popen[bytes], str]) -> None:
    """By the connection's end, not by silence: that would take longer than the arena's patience."""
    process, endpoint = child
    node, link = linked(arena, endpoint, timeout_ns=60_000 * MILLISECOND)
    assert node.transport.send(link, [b"there?"])
    arena.run([node], lambda: node.bodies(link) == [b"there?"])
    process.kill()
    process.wait()
    arena.run([node], lambda: node.is_down(link))
    assert node.reason(link) == "the peer's connection ended"
    again = node.transport.connect(endpoint)
    arena.run([node], lambda: node.is_down(again))
    assert "nobody at" in node.reason(again)


def test_a_stopped_peer_is_noticed_by_its_silence(
    arena: TcpArena, child: tuple[subprocess.Popen[bytes], str]
) -> None:
    """N8: sends succeed, nothing comes back. When it goes on, it serves again, on new links."""
    process, endpoint = child
    node, link = linked(arena, endpoint)
    process.send_signal(signal.SIGSTOP)
    try:
        assert node.transport.send(link, [b"there?"])

        def is_down() -> bool:
            arena.skipped_ns += 100 * MILLISECOND
            return node.is_down(link)

        arena.run([node], is_down)
        assert "nothing heard" in node.reason(link)
    finally:
        process.send_signal(signal.SIGCONT)
    again = node.transport.connect(endpoint)
    arena.run([node], lambda: any(up.link == again for up in node.ups()))
    assert node.transport.send(again, [b"again"])
    arena.run([node], lambda: node.bodies(again) == [b"again"])
    assert node.bodies(link) == []


def test_a_killed_dialler_is_noticed_at_once(arena: Arena) -> None:
    """As above."""
    node, _, endpoint = listening(arena, timeout_ns=60_000 * MILLISECOND)
    code = f"""
import select, time
from embedbk.transports.conformance import identity_of
from embedbk.transports.zmq import ZmqTransport
transport = ZmqTransport(identity_of("child"))
transport.connect({endpoint!r})
while True:
    transport.receive(time.monotonic_ns())
    select.select(transport.filenos(), [], [], 0.05)
"""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as process:
        arena.run([node], lambda: bool(node.ups()))
        process.kill()
        process.wait()
        arena.run([node], lambda: bool(node.downs()))
    assert node.downs()[0].reason == "the peer's connection ended"


# --- Addresses and what is left behind -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.0.2.1:4000", "tcp://example.org:1", "tcp://[2001:db8::1]:1"],
)
def test_leaving_the_machine_has_to_be_asked_for(arena: Arena, endpoint: str) -> None:
    """T3: links are not encrypted."""
    node = arena.node("b")
    for call in (node.transport.listen, node.transport.connect):
        with pytest.raises(
            UsageError, match=r"allow_non_loopback|more than a listener|leave its port"
        ) as refused:
            call(endpoint if call == node.transport.listen else endpoint.replace(":0", ":1"))
        assert endpoint.rsplit(":", 1)[0] in str(refused.value)


def test_whoever_asks_may_listen_everywhere(arena: Arena) -> None:
    node = arena.node("b", allow_non_loopback=True)
    assert node.transport.listen("tcp://0.0.0.0:0").startswith("tcp://0.0.0.0:")


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:65536",
        "tcp://127.0.0.1:x",
        "ipc://",
        "ipc://relative",
        f"ipc:///{'x' * 200}",
        "ipc:///tmp/\udcff",
    ],
)
def test_endpoints_that_are_not_understood(arena: Arena, endpoint: str) -> None:
    node = arena.node("b")
    for call in (node.transport.listen, node.transport.connect):
        with pytest.raises(UsageError) as refused:
            call(endpoint)
        assert repr(endpoint) in str(refused.value)


def test_a_path_that_is_a_file_is_left_alone(arena: Arena, tmp_path: Path) -> None:
    """ZeroMQ would unlink whatever stands there."""
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(UsageError, match="not a socket"):
        arena.node("b").transport.listen(f"ipc://{path}")
    assert path.read_text() == "data"


def test_a_file_with_the_name_of_a_socket_without_one_is_left_alone(
    arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZeroMQ would unlink it in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"@{tmp_path.name}-{os.getpid()}"
    path.write_text("data")
    with pytest.raises(UsageError, match="would remove"):
        arena.node("b").transport.listen(f"ipc://{path.name}")
    assert path.read_text() == "data"
    path.unlink()
    node = arena.node("c")
    still_serves(arena, node, node.transport.listen(f"ipc://{path.name}"))


@pytest.mark.parametrize("name", ["a,b", "a ", "a/"])
def test_a_path_that_no_address_can_name_is_no_place_to_listen(
    arena: Arena, tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError, match="no address can name"):
        arena.node("b").transport.listen(f"ipc://{tmp_path}/{name}")


def test_a_path_that_cannot_be_bound_hints_at_no_port(arena: Arena, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be bound") as refused:
        arena.node("b").transport.listen(f"ipc://{tmp_path}/missing/a")
    assert "port" not in str(refused.value) and "directory" in refused.value.hint


def test_a_socket_of_a_killed_process_is_taken_over(arena: Arena, tmp_path: Path) -> None:
    path = tmp_path / "left"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert path.is_socket()
    node = arena.node("b")
    endpoint = node.transport.listen(f"ipc://{path}")
    still_serves(arena, node, endpoint)


def connect_often(transport: Any, endpoint: str, times: int) -> None:
    for _ in range(times):
        transport.connect(endpoint)


@pytest.mark.parametrize("left", range(5))
def test_who_has_no_descriptor_left_is_refused_a_link_and_gets_it_later(arena: Arena, left: int) -> None:
    """The contract of `Transport.connect`: what the system refuses for a while ends no host. left: descriptors; a link
    takes several, and what was made before the one that is refused is closed again."""
    a, b = arena.node("a"), arena.node("b")
    endpoint = b.transport.listen(ANYWHERE)
    a.transport.connect(endpoint)
    arena.run([a, b], lambda: bool(a.ups()))
    bounds, held = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    open_now = len(os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 64, bounds[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(left):
            os.close(held.pop())
        with pytest.raises(UsageError, match="Too many open files"):
            connect_often(a.transport, endpoint, left + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)
        for each in held:
            os.close(each)
    link = a.transport.connect(endpoint)
    arena.run([a, b], lambda: any(up.link == link for up in a.ups()))


_FIRST_LINK = """
import contextlib, os, resource, sys
from embedbk.errors import UsageError
from embedbk.ports import Identity
from embedbk.transports import open_transport
from embedbk.transports.widened import WidenedTransport

bounds, open_now = resource.getrlimit(resource.RLIMIT_NOFILE), len(os.listdir("/proc/self/fd")) - 1
transport, held = WidenedTransport(Identity("client", "c", bytes(16), bytes(16)), open_transport), []
resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 64, bounds[1]))
with contextlib.suppress(OSError):
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
refused = 0
while True:
    try:
        transport.connect("tcp://127.0.0.1:9")
        break
    except UsageError as error:
        assert "Too many open files" in str(error), error
        refused += 1
        os.close(held.pop())
transport.close()
for each in held:
    os.close(each)
assert refused and len(os.listdir("/proc/self/fd")) - 1 == open_now, (refused, open_now)
"""


def test_who_has_no_descriptor_left_gets_the_first_link_later() -> None:
    """As for the next ones: neither the import of a transport, nor what it is made of, nor the threads of libzmq, which
    ends the process where one of them finds no descriptor, end anything."""
    done = subprocess.run([sys.executable, "-c", _FIRST_LINK], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_closing_leaves_no_descriptor_and_no_thread(arena: Arena, tmp_path: Path) -> None:
    def resources() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def use_once(number: int) -> None:
        a, b = arena.node("a"), arena.node("b")
        b.transport.listen(f"ipc://{tmp_path}/{number}")
        link = a.transport.connect(f"ipc://{tmp_path}/{number}")
        arena.run([a, b], lambda: bool(a.ups() and b.ups()))
        assert a.transport.send(link, [bytes(1 << 20)])
        arena.run([a, b], lambda: bool(b.bodies(b.ups()[0].link)))
        a.transport.close()
        b.transport.close()

    use_once(0)  # What pyzmq keeps for the process, it starts now.
    gc.collect()  # What tests before this one have left behind must not go while this one counts.
    before = resources()
    for number in range(1, 5):
        use_once(number)
    assert resources() == before
    assert list(tmp_path.iterdir()) == []


def test_settings_are_checked() -> None:
    who = identity_of("b")
    for settings in (
        {"timeout_ns": 100, "heartbeat_ns": 50},
        {"heartbeat_ns": 0},
        {"connect_timeout_ns": 0},
        {"window_bytes": MESSAGE_BYTES_MAX},
        {"protocols": (2, 1)},
    ):
        with pytest.raises(UsageError) as refused:
            ZmqTransport(who, **settings)  # type: ignore[arg-type]
        assert all(
            name in str(refused.value) or "protocol versions" in str(refused.value) for name in settings
        )
