"""A ZeroMQ transport against sockets of any framing, that name any route, or never come to an end (T4, T10, T11)."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from embedbk.errors import PeerError
from embedbk.ports.links import LinkUp
from embedbk.transports import zmq_before_hello
from embedbk.transports.conformance import Arena, Node, identity_of
from embedbk.transports.envelope import (
    Hello,
    Kind,
    decode_envelope,
    decode_reason,
    encode_hello,
    envelope_prefix,
    seal,
)
from embedbk.transports.zmq import ZmqTransport
from embedbk.transports.zmq_ends import UNFINISHED_BYTES_MAX
from tests.transports.arenas import TcpArena
from tests.transports.offering import OfferingZmq
from tests.transports.test_zmq import MILLISECOND, PROJECT, Raw, answer, listening, run_often, still_serves
from tests.transports.zmtp import VERSIONS, Stranger, frame, has_ended, hello, play

PIECE = b"x" * 60_000


@pytest.fixture(params=[ZmqTransport, OfferingZmq], ids=["", "with an add path"])
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Also with parts received in C."""
    arena = TcpArena()
    arena.opens = request.param
    yield arena
    arena.close()


def hear_bye(stranger: Stranger) -> str:
    """The reason of the only message that came, whatever ZeroMQ put around it."""
    at = stranger.heard.find(b"EBKL")
    if at < 0:
        return ""
    (size,) = struct.unpack_from("<I", stranger.heard, at + 24)
    block = stranger.heard[at : at + 32 + size]
    try:
        envelope = decode_envelope(memoryview(block))
    except PeerError:
        return ""
    assert envelope.kind == Kind.BYE
    return decode_reason(envelope.body)


def number_of_route(endpoint: str, node: Node, arena: Arena) -> int:
    """The number that this listener gave to a peer just now."""
    raw = Raw(endpoint)
    try:
        raw.hello("probe")
        answer(arena, node, raw)
        transport = node.transport
        assert isinstance(transport, ZmqTransport)
        link = next(reversed(transport._links.values()))
        assert link.route is not None
        return int.from_bytes(link.route[1:], "big")
    finally:
        raw.close()


def pour(arena: Arena, node: Node, stranger: Stranger) -> None:
    """Parts of one message until the link ends."""
    sent = 0

    def is_over() -> bool:
        nonlocal sent
        if stranger.send() and sent < 64 * UNFINISHED_BYTES_MAX:
            stranger.send(frame(3, PIECE, more=True))
            sent += len(PIECE)
        return bool(node.downs())

    run_often(arena, [node], is_over)
    run_often(arena, [node], lambda: has_ended(stranger))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_no_part_of_any_framing_raises(arena: Arena, version: int, parts: int) -> None:
    """T10: parts of framings before 3.0 have no descriptor; asking for it raised, and eight bytes ended a member."""
    node, transport, endpoint = listening(arena)
    with Stranger(endpoint, version) as stranger:
        stranger.say(*[b"x"] * parts)
        run_often(arena, [node], lambda: transport.counters.garbage == 1)
        assert node.events == []
        still_serves(arena, node, endpoint)


@pytest.mark.parametrize("version", [1, 2])
def test_a_hello_in_an_old_framing_is_refused_with_its_reason(arena: Arena, version: int) -> None:
    """T10: nobody is told when such a connection ends, so no link can be tied to it."""
    node, transport, endpoint = listening(arena)
    with Stranger(endpoint, version) as stranger:
        stranger.say(hello()[:20], hello()[20:]) if version == 2 else stranger.say(hello())
        run_often(arena, [node], lambda: stranger.listen() and hear_bye(stranger) != "")
        assert "older than 3.0" in hear_bye(stranger)
        assert transport.counters.refused == 1
        assert not node.ups()
        still_serves(arena, node, endpoint)


@pytest.mark.parametrize("size", [1, 5, 255, 256, 257, 3000, 60_000])
def test_who_names_its_route_gets_no_link(arena: Arena, size: int) -> None:
    """T4: names may be longer than a route of ours has room for; whoever names itself is hung up on."""
    node, transport, endpoint = listening(arena)
    with Stranger(endpoint, 3, b"R" * size) as stranger:
        stranger.say(b"noise")
        run_often(arena, [node], lambda: transport.counters.garbage == 1)
        stranger.say(hello())
        run_often(arena, [node], lambda: has_ended(stranger))
        assert transport.counters.refused == 1
        assert not node.ups()
        still_serves(arena, node, endpoint)


def test_who_names_a_number_of_ours_gets_no_link(arena: Arena) -> None:
    """T4: libzmq ends the process when a peer has named the number that it gives next; who tries is hung up on."""
    node, transport, endpoint = listening(arena)
    number = number_of_route(endpoint, node, arena)
    with Stranger(endpoint, 3, b"\0" + struct.pack(">I", (number + 1000) % 2**32)) as stranger:
        stranger.say(hello())
        run_often(arena, [node], lambda: has_ended(stranger))
        assert transport.counters.refused == 1
    still_serves(arena, node, endpoint)
    assert number_of_route(endpoint, node, arena) == (number + 2) % 2**32


def test_where_routes_begin_is_chance() -> None:
    """T4: unseeded, each process gave 1804289383 first, so that a stranger knew which number ends it."""
    code = """
from embedbk.transports.conformance import identity_of
from embedbk.transports.zmq import ZmqTransport
transport = ZmqTransport(identity_of("b"))
for _ in range(2):
    transport.listen("tcp://127.0.0.1:0")
print([port.numbers._first for port in transport._sockets.ports()])
transport.close()
"""
    command = [sys.executable, "-c", code]
    said = [
        subprocess.run(command, capture_output=True, check=True, cwd=PROJECT, text=True).stdout
        for _ in range(2)
    ]
    numbers = [number for line in said for number in json.loads(line)]
    assert len(set(numbers)) == 4
    assert 1804289383 not in numbers


def test_a_multipart_without_end_is_ended_by_its_bytes(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """T10: ZeroMQ keeps the parts of a message until its last one came, without a bound of its own."""
    monkeypatch.setattr(
        zmq_before_hello, "HELLO_NS_MAX", 60_000 * MILLISECOND
    )  # Its time is not what ends it.
    node, transport, endpoint = listening(arena)
    strangers = [Stranger(endpoint, version) for version in VERSIONS]
    sent = 0

    def is_over() -> bool:
        nonlocal sent
        for stranger in strangers:
            if (
                stranger.listen()
                and sent < 16 << 20
                and stranger.send(frame(stranger.version, PIECE, more=True))
            ):
                sent += len(PIECE)
        return all(stranger.has_ended for stranger in strangers)

    run_often(arena, [node], is_over)
    assert transport.counters.silent == 3
    for stranger in strangers:
        stranger.close()
    still_serves(arena, node, endpoint)


def test_a_linked_peer_cannot_send_a_body_without_end(arena: Arena) -> None:
    """T10: after its Hello, too; also a body of which each part is as it should be."""
    node, _, endpoint = listening(arena, timeout_ns=60_000 * MILLISECOND)
    with Stranger(endpoint) as stranger:
        stranger.say(hello())
        arena.run([node], lambda: bool(node.ups()))
        pour(arena, node, stranger)
        assert has_ended(stranger)
        assert "no body of them is whole" in node.downs()[0].reason
    still_serves(arena, node, endpoint)


def test_a_dialled_peer_cannot_either(arena: Arena) -> None:
    """T10: a registration that a stranger wrote may lead to its own listener."""
    node = arena.node("a", timeout_ns=60_000 * MILLISECOND)
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        link = node.transport.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        stranger = Stranger.accepted(listener)
        opened.callback(stranger.close)
        run_often(arena, [node], lambda: stranger.listen() and b"EBKL" in stranger.heard)
        at = stranger.heard.index(b"EBKL")
        body = encode_hello(Hello(identity_of("b")))
        prefix = envelope_prefix(Kind.HELLO_ACK, stranger.heard[at + 8 : at + 16], b"listener")
        stranger.say(seal(prefix, len(body)) + body)
        arena.run([node], lambda: bool(node.ups()))
        pour(arena, node, stranger)
        assert "no body of them is whole" in node.reason(link)


def test_very_many_parts_stop_no_host(arena: Arena) -> None:
    """T10: of parts without a byte there are many in few bytes; they are skipped in C."""
    node, transport, endpoint = listening(arena)
    with Stranger(endpoint) as stranger:
        stranger.say(hello())
        arena.run([node], lambda: bool(node.ups()))
        left = [frame(3, b"", more=True) * 1000] * 300 + [frame(3, b"")]

        def is_sent() -> bool:
            while left and stranger.send():
                stranger.send(left.pop(0))
            return bool(node.downs())

        run_often(arena, [node], is_sent)
        assert "too many parts" in node.downs()[0].reason
        assert transport.counters.garbage == 1
    still_serves(arena, node, endpoint)


def test_what_is_silent_lasts_for_so_many_newer_ones_and_no_longer(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T4, T11: also where the newer ones end by themselves, and so do not wait beside it."""
    monkeypatch.setattr(zmq_before_hello, "SILENT_MAX", 3)
    node, transport, endpoint = listening(arena)
    with Stranger(endpoint) as first:
        run_often(arena, [node], lambda: len(transport._before_hello.silent) == 1)
        for number in range(4):
            assert first.listen()
            with Stranger(endpoint):
                run_often(arena, [node], lambda n=number: transport._before_hello._accepted_count == n + 2)
            run_often(arena, [node], lambda: len(transport._before_hello.silent) <= 1)
        run_often(arena, [node], lambda: has_ended(first))
    still_serves(arena, node, endpoint)


@pytest.mark.parametrize("seed", range(3))
def test_no_script_of_any_socket_raises(arena: Arena, seed: int) -> None:
    """T10: greetings of every version, parts, splits, ends in the middle; whoever is well-behaved is served beside."""
    node, transport, endpoint = listening(arena)
    chance = random.Random(seed)
    friend = arena.node("friend")
    link = friend.transport.connect(endpoint)
    arena.run([node, friend], lambda: bool(friend.ups()))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.ExitStack() as opened:
        for _ in range(120):
            stranger = play(endpoint, chance, [])
            if stranger is not None:
                opened.callback(stranger.close)
            for each in (node, friend):
                each.events += each.transport.receive(time.monotonic_ns())
        assert friend.transport.send(link, [b"still here"])
        arena.run([node, friend], lambda: any(b"still here" in node.bodies(up.link) for up in node.ups()))
    assert not friend.downs()
    assert all(isinstance(up, LinkUp) for up in node.ups())
    assert transport.counters.garbage > 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10
