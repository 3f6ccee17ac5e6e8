"""A transport that is offered an add path: what it takes is no event, all else is as without (TRANSPORTS.md, "zmq")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.frame import encode_frame_header
from embedbk.codec.lac_messages import LacRequest
from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.packer import Packer
from embedbk.codec.packer_twin import TwinPacker
from embedbk.ports.links import Received
from embedbk.transports import zmq_turns
from embedbk.transports.conformance import Node, RealTimeArena
from embedbk.transports.envelope import WINDOW_BYTES_MIN
from tests.transports.offering import INCARNATION, KEY, OfferingLocal, OfferingZmq


class Arena(RealTimeArena):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.is_in_python = kind == "zmq in Python"

    def make(self, identity: Any, **settings: Any) -> Any:
        return (
            OfferingLocal(identity, **settings) if self.kind == "local" else OfferingZmq(identity, **settings)
        )

    def endpoint(self) -> str:
        return "local://*" if self.kind == "local" else "tcp://127.0.0.1:0"

    def nowhere(self) -> str:
        return "local://nobody" if self.kind == "local" else "tcp://127.0.0.1:1"


@pytest.fixture(params=["local", "zmq", "zmq in Python"])
def arena(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    if request.param == "zmq in Python":  # As with a pyzmq that hides its libzmq.
        monkeypatch.setattr(zmq_turns, "open_accepted", lambda socket: None)
    arena = Arena(request.param)
    yield arena
    arena.close()


def add(number: int, first: int, payloads: list[bytes], length: int) -> list[Any]:
    packer = TwinPacker(7, next_entry=first, length=length)
    packer.append_many(payloads)
    frame = packer.seal()
    assert frame is not None
    return encode_message(
        number, AddRequest(INCARNATION, 1, 1, False), [(encode_frame_header(frame, KEY), frame)]
    )


def test_a_frame_of_its_own_is_taken_from_where_it_came(arena: Arena) -> None:
    """TRANSPORTS, zmq: a long frame travels as a part of its own, and the add path takes head and body as they are."""
    bookie, client, link = joined(arena)
    packer, sent = Packer(7), []
    for number in range(6):
        packer.append_many([bytes([number]) * 60_000] * 2)
        frame = packer.seal()
        assert frame is not None
        pieces = encode_message(
            number, AddRequest(INCARNATION, 1, 1, False), [(encode_frame_header(frame, KEY), frame)]
        )
        sent.append(b"".join(pieces))
        assert client.transport.send(link, pieces)
    del frame, pieces
    arena.run([bookie, client], lambda: taken(bookie) + len(bodies(bookie)) == 6)
    if arena.is_in_python:
        assert bodies(bookie) == sent
    else:
        assert taken(bookie) == 6
    client.transport.close()
    bookie.events.clear()
    assert packer.unreleased_bytes == 0


def joined(arena: Arena, **settings: Any) -> tuple[Node, Node, int]:
    """A bookie that knows ledger 7 and is offered its add path, and a client's link to it."""
    bookie, client = arena.node("bookie"), arena.node("client", **settings)
    bookie.transport.know(7)  # type: ignore[attr-defined]
    link = client.transport.connect(bookie.transport.listen(arena.endpoint()))
    arena.run([bookie, client], lambda: bool(client.ups()) and bool(bookie.ups()))
    return bookie, client, link


def taken(bookie: Node) -> int:
    path = bookie.transport.storage.add_path  # type: ignore[attr-defined]
    return int(path.taken())


def bodies(bookie: Node) -> list[bytes]:
    return [bytes(event.body) for event in bookie.events if isinstance(event, Received)]


def test_what_is_taken_is_no_event(arena: Arena) -> None:
    """P3.7: bodies are taken in the order of their link, and nothing behind an event before the host has seen that."""
    bookie, client, link = joined(arena)
    for number in range(20):
        if number == 10:
            assert client.transport.send(link, encode_message(99, LacRequest(INCARNATION, 7)))
        assert client.transport.send(link, add(number, number, [b"x" * 1000], number * 1000))
    arena.run([bookie, client], lambda: taken(bookie) + len(bodies(bookie)) == 21)
    seen = [decode_message(body).request_id for body in bodies(bookie)]
    if arena.is_in_python:
        assert (taken(bookie), seen) == (0, [*range(10), 99, *range(10, 20)])
    else:
        assert seen[0] == 99
        # Of what came with that body everything behind it is the host's to offer, once it has seen it.
        assert taken(bookie) >= 10
        assert seen[1:] == list(range(10, 10 + len(seen) - 1))


def test_what_is_taken_counts_for_the_window(arena: Arena) -> None:
    """TRANSPORTS 3: room comes back for what was taken as for what was delivered; who only adds is not silent."""
    bookie, client, link = joined(arena, window_bytes=WINDOW_BYTES_MIN)
    storage: Any = bookie.transport.storage  # type: ignore[attr-defined]
    sent, payload = 0, bytes(500_000)
    while sent < 40:
        if client.transport.send(link, add(sent, sent, [payload], sent * len(payload))):
            sent += 1
            continue
        arena.run([bookie, client], iter([False, True]).__next__)
        while storage.step():
            pass
        storage.durable()
        storage.begin_flush_if_due()
        storage.finish_flush()
    arena.run([bookie, client], lambda: taken(bookie) + len(bodies(bookie)) == 40)
    assert (taken(bookie) > 20) != arena.is_in_python
    assert not client.downs()
    assert not bookie.downs()
