"""Frames that leave from where they stand: to many links at once, unchanged whatever becomes of their packer."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from embedbk.codec.packer import Packer, pool_bytes_used
from embedbk.config import FRAME_BLOCK_BYTES
from embedbk.transports import zmq as our_zmq
from embedbk.transports.conformance import Arena, Node
from embedbk.transports.zmq_ends import FRAME_BYTES_MIN
from embedbk.transports.zmq_send import frame_address
from tests.transports.arenas import TcpArena

HEAD = b"header, control, frame header"


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = TcpArena()
    yield arena
    arena.close()


def sealed(packer: Packer, byte: int, size: int = 100_000) -> memoryview:
    packer.append(bytes([byte]) * size)
    frame = packer.seal()
    assert frame is not None
    return frame.body


def links_to(arena: Arena, client: Node, count: int) -> tuple[list[Node], list[int]]:
    listeners = [arena.node(f"b{number}") for number in range(count)]
    links = [client.transport.connect(each.transport.listen(arena.endpoint())) for each in listeners]
    arena.run([client, *listeners], lambda: len(client.ups()) == count)
    return listeners, links


def test_one_frame_goes_to_all_its_members(arena: Arena) -> None:
    """P3.7: unstriped, the one frame is shared by all members; each has a head of its own."""
    client = arena.node("a")
    listeners, links = links_to(arena, client, 3)
    body = sealed(Packer(1), 7)
    for link in links:
        assert client.transport.send(link, [HEAD, b"%d" % link, body])
    arena.run([client, *listeners], lambda: all(each.bodies(each.ups()[0].link) for each in listeners))
    for link, each in zip(links, listeners, strict=True):
        assert each.bodies(each.ups()[0].link) == [HEAD + b"%d" % link + bytes(body)]


def test_a_frame_on_its_way_stays_as_it_is(arena: Arena) -> None:
    """P3.7: the block is held by the transport too. The writer released the frame (its seat was replaced)
    and appends on, while the link to a bookie that does not read still has it in its queue."""
    client = arena.node("a")
    (listener,), (link,) = links_to(arena, client, 1)
    packer, sent = Packer(1, bytes_max=1 << 30), []
    for number in range(
        120
    ):  # 12 MB: more than sockets and ZeroMQ take from a link whose other end stands still.
        body = sealed(packer, number)
        sent.append(HEAD + bytes(body))
        assert client.transport.send(link, [HEAD, body])
        body.release()
    assert (
        packer.unreleased_bytes == 0
    )  # The packer counts it no more; what is under way is not its business.
    for number in range(120):
        sealed(packer, 255 - number).release()
    far = listener.ups()[0].link
    arena.run([client, listener], lambda: len(listener.bodies(far)) == 120)
    assert listener.bodies(far) == sent


def test_what_was_sent_gives_its_block_back(arena: Arena) -> None:
    """Blocks of the pool are bounded: sent, refused or lost with its link, a frame's block comes back."""
    gc.collect()  # Blocks of the tests before this one are not what is asked about.
    before = pool_bytes_used()
    client = arena.node("a")
    (listener,), (link,) = links_to(arena, client, 1)
    packer = Packer(1)
    far = listener.ups()[0].link
    assert client.transport.send(link, [HEAD, sealed(packer, 1)])
    arena.run([client, listener], lambda: bool(listener.bodies(far)))
    window = 0
    while client.transport.send(link, [HEAD, sealed(packer, 2)]):
        window += 1
    assert 100 < window < 1000
    assert pool_bytes_used() > before + FRAME_BLOCK_BYTES
    del packer
    arena.kill(client.transport)  # With all that it had queued.
    gc.collect()
    assert pool_bytes_used() == before


def test_only_whole_frames_of_a_packer_have_an_address() -> None:
    """A note stands in front of a frame's body and of nothing else: any other view is copied."""
    body = sealed(Packer(1), 3)
    assert frame_address(body) != 0
    assert frame_address(memoryview(body)) == frame_address(body)
    for other in (body[1:], body[:-1], body[::2], bytes(body), bytearray(body), memoryview(bytes(body)), b""):
        assert frame_address(other) == 0


def test_without_the_library_frames_are_joined(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRANSPORTS, zmq: where a build of pyzmq hides its libzmq, the same body arrives."""
    monkeypatch.setattr(our_zmq, "can_send_frames", lambda socket: False)
    client = arena.node("a")
    (listener,), (link,) = links_to(arena, client, 1)
    body = sealed(Packer(1), 9, FRAME_BYTES_MIN)
    assert client.transport.send(link, [HEAD, body])
    far = listener.ups()[0].link
    arena.run([client, listener], lambda: bool(listener.bodies(far)))
    assert listener.bodies(far) == [HEAD + bytes(body)]
