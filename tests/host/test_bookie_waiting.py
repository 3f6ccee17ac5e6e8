"""A bookie that waits in C beside one that does not: the same requests, the same answers (native/SHORTCUTS.md).

Real sockets and a real disk, and a metadata member on the same loop, as `embedbk.open(..., listen=...)` has it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswers, is_final
from embedbk.codec.messages import decode_message
from embedbk.host.bookie_node import BookieNode
from embedbk.host.loop import Loop
from embedbk.host.metadata_node import MetadataNode
from embedbk.metadata.client import Client
from embedbk.ports.add_path import WaitEnd, WaitTerms
from embedbk.ports.links import Identity, Received
from embedbk.ports.transport import Transport
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.transports.conformance import Node
from embedbk.transports.zmq import ZmqTransport
from tests.host.place import SESSION_MS, TOKEN
from tests.host.test_add_path import INCARNATION, Twice
from tests.transports.arenas import TcpArena

MIB = 1 << 20
TRIES_MAX = (
    20  # Beside other processes a machine may stand still for longer than a session's keep-alives allow.
)


class Arena(TcpArena):
    """Who meets here is a client of this cluster."""

    def make(self, identity: Identity, **settings: Any) -> Transport:
        return super().make(Identity("client", identity.node_id, bytes(16), TOKEN), **settings)


class Watched(ZmqTransport):
    """Counts the waits, or refuses them."""

    may_wait = True
    waits = 0

    def wait(self, terms: WaitTerms) -> WaitEnd | None:
        end = super().wait(terms) if self.may_wait else None
        self.waits += end is not None
        return end


class CommittedMetadata(MetadataNode):
    """On a journal in memory, which is synced behind each of its steps."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.journal = MemoryJournal()
        store = MetadataStore(self.journal, 0, new_identity=MemberIdentity(TOKEN, b"m" * 16))
        super().__init__(store, *arguments, **settings)

    def step(self, now_ns: int) -> None:
        super().step(now_ns)
        self.journal.commit()

    def has_news(self) -> bool:
        return self.journal.queued_bytes() > 0 or super().has_news()


class House:
    """A loop with a metadata member and a bookie, and a client's link to the bookie."""

    def __init__(self, arena: Arena, name: str, *, may_wait: bool) -> None:
        self.loop = Loop(name)
        transport = ZmqTransport(Identity("metadata", "metadata", b"m" * 16, TOKEN))
        metadata = CommittedMetadata(transport, ["tcp://127.0.0.1:0"], now_ns=self.loop.now_ns())
        self.storage = BookieStorage(
            "d", "b1", TOKEN, flush_bytes=64 << 10, cache_bytes_max=4 * MIB, journal_file_bytes=2 * MIB,
            ledgers_max=64, io=MemoryDisk(), incarnation=INCARNATION,
        )  # fmt: skip
        self.transport = Watched(Identity("bookie", "b1", INCARNATION, TOKEN))
        self.transport.may_wait = may_wait
        client = Client(ttl_ms=SESSION_MS, label="b1", cluster_token=TOKEN)
        self.bookie = BookieNode(
            "b1", self.storage, self.transport, ["tcp://127.0.0.1:0"], metadata.endpoints, client
        )
        self.loop.add(metadata)
        self.loop.add(self.bookie)
        self.loop.start()
        self.arena = arena
        self.node: Node = arena.node(name)
        self.link = self.node.transport.connect(self.bookie.endpoints[0])
        self._looked_at = 0  # Events of the node, of which this was told:
        self._told: list[Any] = []
        arena.run([self.node], lambda: bool(self.node.ups()) and self.bookie.is_registered)

    def answers(self, bodies: list[bytes], count: int) -> list[Any]:
        """What was said to these requests and those before, so many in all, by request."""
        for body in bodies:
            assert self.node.transport.send(self.link, [body])
        self.arena.run([self.node], lambda: len(self.told()) >= count)
        return sorted(self.told(), key=lambda told: (told[0], repr(told)))

    def told(self) -> list[Any]:
        """All that is final: that a deferred add was received is told when it suits."""
        told, events = self._told, self.node.events
        fresh, self._looked_at = events[self._looked_at :], len(events)
        for event in fresh:
            if not isinstance(event, Received) or event.link != self.link:
                continue
            message = decode_message(event.body)
            if isinstance(message.control, AddAnswers):
                told += [(asked, answer, []) for asked, answer in message.control.unpack()]
            else:
                frames = [(header, bytes(frame)) for header, frame in message.frames]
                told.append((message.request_id, message.control, frames))
        return [each for each in told if is_final(each[1])]


class Story(Twice):
    """The requests of `Twice`, written down."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.next_entry = dict.fromkeys(range(5), 0)
        self.length = dict.fromkeys(range(5), 0)
        self.sides = []
        self.sent: list[bytes] = []
        self.request_id = 100
        self.bodies: list[bytes] = []

    def send(self, link: int, body: bytes) -> None:
        self.bodies.append(body)


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena()
    yield arena
    arena.close()


@pytest.mark.parametrize("seed", range(3))
def test_the_same_requests_have_the_same_answers(arena: Arena, seed: int) -> None:
    """P3.2, P3.4, P5.2f: in the C wait or by turns of the loop, on one link what is asked has one answer."""
    story = Story(random.Random(f"waiting {seed}"))
    acts: list[tuple[int, Callable[[], None]]] = [
        (60, story.add), (5, story.strange), (5, story.again), (3, story.conflict), (1, story.fence),
        (2, story.explicit_lac),
    ]  # fmt: skip
    weights, chosen = zip(*acts, strict=True)
    for act in story.chance.choices(chosen, weights, k=300):
        act()
    houses = [House(arena, "waiting", may_wait=True), House(arena, "turning", may_wait=False)]
    try:
        ours, theirs = (house.answers(story.bodies, len(story.bodies)) for house in houses)
        assert ours == theirs
        assert len(ours) == len(story.bodies)
        assert houses[0].transport.waits > 0
        assert houses[1].transport.waits == 0
        path = houses[0].storage.add_path
        assert path is not None
        assert path.taken() > 60, "the story hardly used the add path"
    finally:
        for house in houses:
            house.loop.stop()
    for house in houses:
        assert house.loop.failure is None


def test_a_waiting_bookie_keeps_its_session_and_its_neighbour(arena: Arena) -> None:
    """P7.2, METADATA sessions: deadlines of the loop hold under a stream of adds that never lets the wait sleep."""
    tries = (keep_adding(arena, f"waiting-{number}") for number in range(TRIES_MAX))
    assert any(tries), f"this machine gave no whole session its time, {TRIES_MAX} times"


def keep_adding(arena: Arena, name: str) -> bool:
    """For longer than a session lives. False: the machine took so much time away that nothing follows from it."""
    house = House(arena, name, may_wait=True)
    try:
        arena.run([house.node], lambda: house.bookie.is_registered)
        session = house.bookie.metadata.session
        story, until_ns, count = Story(random.Random("session")), arena.now_ns() + 1_200_000 * SESSION_MS, 0
        longest_ns, last_ns = 0, arena.now_ns()
        while last_ns < until_ns:
            begin = len(story.bodies)
            for _ in range(20):
                story.add()
            count += 20
            house.answers(story.bodies[begin:], count)
            longest_ns, last_ns = max(longest_ns, arena.now_ns() - last_ns), arena.now_ns()
        if longest_ns > SESSION_MS * 1_000_000 // 8:
            return False
        assert house.bookie.is_registered
        assert house.bookie.metadata.session == session
        assert not house.node.downs()
        assert house.transport.waits > 0
        return True
    finally:
        house.loop.stop()
