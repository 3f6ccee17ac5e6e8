"""What every transport must do, as tests. For one of your own: an `Arena` around it, and one class of two lines.

    class TestMine(TransportConformance):
        arena_type = MyArena

Leaves faults to the transports' own tests: here links are calm, peers well-behaved, and nodes die only when told.
Plain asserts and no test tool is imported; pytest finds the methods by their names.
"""

from __future__ import annotations

import select
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import UsageError
from embedbk.ports.links import Identity, LinkDown, LinkUp, Received, TransportEvent
from embedbk.ports.transport import Transport
from embedbk.transports.envelope import WINDOW_BYTES_MIN

__all__ = ["Arena", "Node", "RealTimeArena", "TransportConformance", "identity_of"]

PATIENCE_NS = 20 * 10**9  # Until a test gives up on something that must happen.


def identity_of(node_id: str, *, role: str = "bookie", cluster_token: bytes = b"") -> Identity:
    return Identity(role, node_id, node_id.encode().ljust(16, b"."), cluster_token)


def complaint_of(call: Callable[[], object]) -> str:
    """What the UsageError says that this call must raise."""
    try:
        call()
    except UsageError as error:
        return str(error)
    raise AssertionError("nothing was refused")


class Arena(ABC):
    """Where the nodes of a test live: how one is opened, what endpoints look like, how time passes."""

    def __init__(self) -> None:
        self.opened: list[Transport] = []

    @abstractmethod
    def make(self, identity: Identity, **settings: Any) -> Transport:
        """A new transport. settings: `protocols` and `window_bytes`, as ours take them."""

    @abstractmethod
    def endpoint(self) -> str:
        """An endpoint to listen on; the transport may fill in the rest."""

    @abstractmethod
    def nowhere(self) -> str:
        """A well-formed endpoint where nothing listens."""

    @abstractmethod
    def now_ns(self) -> int: ...

    @abstractmethod
    def wait(self, transports: list[Transport]) -> None:
        """Let time pass until one of them may have something to do, as a host would."""

    def kill(self, transport: Transport) -> None:
        """End a node without its saying goodbye, as far as that can be done inside one process."""
        transport.close()

    def close(self) -> None:
        for transport in self.opened:
            transport.close()

    def node(self, node_id: str, *, cluster_token: bytes = b"", **settings: Any) -> Node:
        transport = self.make(identity_of(node_id, cluster_token=cluster_token), **settings)
        self.opened.append(transport)
        return Node(node_id, transport)

    def run(self, nodes: list[Node], until: Callable[[], bool]) -> None:
        """Step the nodes as a host does, until something holds; a host asks for the deadline before it sleeps."""
        give_up_ns = self.now_ns() + PATIENCE_NS
        while True:
            for node in nodes:
                node.events += node.transport.receive(self.now_ns())
            if until():
                return
            assert self.now_ns() < give_up_ns, f"never came: {[node.events[-3:] for node in nodes]}"
            self.wait([node.transport for node in nodes])


class RealTimeArena(Arena):
    """For transports that have descriptors: sleeps in poll, as long as `deadline_ns` allows."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wait(self, transports: list[Transport]) -> None:
        poll = select.poll()
        due_ns = self.now_ns() + 10**9
        for transport in transports:
            for fileno in transport.filenos():
                poll.register(fileno, select.POLLIN)
            deadline_ns = transport.deadline_ns()
            due_ns = due_ns if deadline_ns is None else min(due_ns, deadline_ns)
        poll.poll(max(0, due_ns - self.now_ns()) / 1e6)


class Node:
    """A transport and the events that it has returned so far."""

    def __init__(self, node_id: str, transport: Transport) -> None:
        self.node_id = node_id
        self.transport = transport
        self.events: list[TransportEvent] = []

    def ups(self) -> list[LinkUp]:
        return [event for event in self.events if isinstance(event, LinkUp)]

    def downs(self) -> list[LinkDown]:
        return [event for event in self.events if isinstance(event, LinkDown)]

    def reason(self, link: int) -> str:
        reasons = [event.reason for event in self.downs() if event.link == link]
        assert len(reasons) == 1, f"link {link} went down {len(reasons)} times"
        return reasons[0]

    def bodies(self, link: int) -> list[bytes]:
        return [
            bytes(event.body) for event in self.events if isinstance(event, Received) and event.link == link
        ]

    def is_down(self, link: int) -> bool:
        return any(event.link == link for event in self.downs())


class TransportConformance:
    """The suite. Each test has an arena of its own."""

    arena_type: ClassVar[Callable[[], Arena]]
    arena: Arena

    def setup_method(self) -> None:
        self.arena = type(self).arena_type()

    def teardown_method(self) -> None:
        self.arena.close()

    def pair(self, **settings: Any) -> tuple[Node, int, Node, int, str]:
        """A dialler and its link, a listener and its link, and where that listens."""
        a, b = self.arena.node("a", **settings), self.arena.node("b", **settings)
        endpoint = b.transport.listen(self.arena.endpoint())
        link = a.transport.connect(endpoint)
        self.arena.run([a, b], lambda: bool(a.ups() and b.ups()))
        return a, link, b, b.ups()[0].link, endpoint

    def refusal(self, a: Node, b: Node, expect: Identity | None = None) -> str:
        link = a.transport.connect(b.transport.listen(self.arena.endpoint()), expect)
        self.arena.run([a, b], lambda: a.is_down(link))
        assert not a.ups()
        return a.reason(link)

    # --- Hello -----------------------------------------------------------------------------------------

    def test_both_ends_learn_who_the_other_is(self) -> None:
        a, link, b, far, _ = self.pair(cluster_token=b"one cluster")
        assert a.events == [LinkUp(link, identity_of("b", cluster_token=b"one cluster"))]
        assert b.events == [LinkUp(far, identity_of("a", cluster_token=b"one cluster"))]

    def test_protocol_versions_that_do_not_meet_are_refused_with_both(self) -> None:
        a, b = self.arena.node("a", protocols=(2, 3)), self.arena.node("b", protocols=(1, 1))
        reason = self.refusal(a, b)
        assert "2..3" in reason, reason
        assert "1..1" in reason, reason
        assert not b.ups()

    def test_protocol_versions_that_overlap_are_enough(self) -> None:
        a, b = self.arena.node("a", protocols=(1, 2)), self.arena.node("b", protocols=(2, 3))
        a.transport.connect(b.transport.listen(self.arena.endpoint()))
        self.arena.run([a, b], lambda: bool(a.ups() and b.ups()))

    def test_another_cluster_is_refused_and_does_not_learn_the_right_token(self) -> None:
        a, b = self.arena.node("a", cluster_token=b"\x01"), self.arena.node("b", cluster_token=b"\x02")
        reason = self.refusal(a, b)
        assert "wrong cluster" in reason, reason
        assert "01" in reason, reason
        assert "02" not in reason, reason
        assert not b.ups()

    def test_who_has_not_learnt_its_cluster_yet_is_let_in(self) -> None:
        a, b = self.arena.node("a"), self.arena.node("b", cluster_token=b"\x02")
        a.transport.connect(b.transport.listen(self.arena.endpoint()))
        self.arena.run([a, b], lambda: bool(a.ups() and b.ups()))
        assert a.ups()[0].peer.cluster_token == b"\x02"

    def test_another_incarnation_than_expected_is_refused(self) -> None:
        """P7.2: a bookie that lost its disk is another member, under the same name at the same address."""
        expect = Identity("bookie", "b", b"x" * 16, b"")
        a, b = self.arena.node("a"), self.arena.node("b")
        reason = self.refusal(a, b, expect)
        assert "wrong incarnation" in reason
        assert LinkDown(0, reason).is_of_other_disk(
            "b"
        )  # A writer that tolerates failures learns of it so (P4.6).

    def test_another_node_than_expected_is_refused(self) -> None:
        a, b = self.arena.node("a"), self.arena.node("b")
        reason = self.refusal(a, b, Identity("bookie", "c", b"", b""))
        assert "wrong incarnation" in reason
        # That another process has its address says nothing about its disk.
        assert not LinkDown(0, reason).is_of_other_disk("c")

    def test_whoever_was_expected_is_taken_and_empty_fields_are_not_compared(self) -> None:
        a, b = self.arena.node("a"), self.arena.node("b")
        endpoint = b.transport.listen(self.arena.endpoint())
        for expect in (
            identity_of("b"),
            Identity("", "b", b"", b""),
            Identity("", "", identity_of("b").incarnation, b""),
        ):
            a.transport.connect(endpoint, expect)
        self.arena.run([a, b], lambda: len(a.ups()) == 3)
        assert not a.downs()

    def test_dialling_nobody_ends_the_link(self) -> None:
        a = self.arena.node("a")
        link = a.transport.connect(self.arena.nowhere())
        self.arena.run([a], lambda: a.is_down(link))
        assert not a.ups()
        assert a.reason(link)

    # --- Bodies ----------------------------------------------------------------------------------------

    def test_bodies_arrive_in_order_and_once_in_both_directions(self) -> None:
        a, link, b, far, _ = self.pair()
        sent = [b"%d" % number for number in range(700)]
        for body in sent:
            assert a.transport.send(link, [body])
            assert b.transport.send(far, [body, b" back"])
        self.arena.run([a, b], lambda: len(b.bodies(far)) >= 700 and len(a.bodies(link)) >= 700)
        assert b.bodies(far) == sent
        assert a.bodies(link) == [body + b" back" for body in sent]

    def test_pieces_of_any_kind_make_one_body(self) -> None:
        a, link, b, far, _ = self.pair()
        wide = memoryview(bytearray(b"abcdefgh")).cast("H")
        bodies: list[list[bytes | bytearray | memoryview]] = [
            [],
            [b""],
            [b"", b"x", b""],
            [b"x", bytearray(b"y"), memoryview(b"z")],
            [memoryview(b"alone")],
            [wide],
        ]
        for pieces in bodies:
            assert a.transport.send(link, pieces)
        self.arena.run([a, b], lambda: len(b.bodies(far)) == 6)
        assert b.bodies(far) == [b"", b"", b"x", b"xyz", b"alone", b"abcdefgh"]

    def test_a_bytearray_may_be_used_again_after_sending(self) -> None:
        a, link, b, far, _ = self.pair()
        piece = bytearray(b"first")
        assert a.transport.send(link, [piece])
        piece[:] = b"other"
        self.arena.run([a, b], lambda: bool(b.bodies(far)))
        assert b.bodies(far) == [b"first"]

    def test_the_largest_body_passes_and_a_larger_one_is_the_callers_fault(self) -> None:
        a, link, b, far, _ = self.pair()
        largest = bytes(range(256)) * (MESSAGE_BYTES_MAX // 256)
        assert a.transport.send(link, [largest])
        complaint = complaint_of(lambda: a.transport.send(link, [largest, b"1"]))
        assert str(MESSAGE_BYTES_MAX) in complaint
        self.arena.run([a, b], lambda: bool(b.bodies(far)))
        assert b.bodies(far) == [largest]

    def test_received_bodies_stay_as_they_are(self) -> None:
        """A view is good as long as it is held: during more traffic, and after the transport has closed."""
        a, link, b, far, _ = self.pair()
        sent = [bytes([number]) * (1 + 500 * number) for number in range(200)]
        for body in sent:
            assert a.transport.send(link, [body])
        self.arena.run(
            [a, b], lambda: len([event for event in b.events if isinstance(event, Received)]) == 200
        )
        a.transport.close()
        b.transport.close()
        assert b.bodies(far) == sent

    def test_an_answer_comes_soon_after_a_wait(self) -> None:
        """One body at a time, each waited for in poll: what a send swallows of readiness must not be lost."""
        a, link, b, far, _ = self.pair()
        for number in range(2, 300):
            assert a.transport.send(link, [b"ask"])
            self.arena.run([a, b], partial(self.has_events, b, number))
            assert b.transport.send(far, [b"tell"])
            self.arena.run([b, a], partial(self.has_events, a, number))

    @staticmethod
    def has_events(node: Node, count: int) -> bool:
        return len(node.events) == count

    # --- Links -----------------------------------------------------------------------------------------

    def test_many_links_are_kept_apart(self) -> None:
        listener = self.arena.node("b")
        endpoint = listener.transport.listen(self.arena.endpoint())
        diallers = [self.arena.node(f"a{number}") for number in range(12)]
        links = [[node.transport.connect(endpoint) for _ in range(3)] for node in diallers]
        everybody = [listener, *diallers]
        self.arena.run(
            everybody, lambda: all(len(node.ups()) == 3 for node in diallers) and len(listener.ups()) == 36
        )
        for node, own in zip(diallers, links, strict=True):
            for link in own:
                assert node.transport.send(link, [f"{node.node_id}/{link}".encode()])
        self.arena.run(everybody, lambda: len(listener.events) == 72)
        received = [event for event in listener.events if isinstance(event, Received)]
        names = {up.link: up.peer.node_id for up in listener.ups()}
        assert len(names) == 36
        for event in received:
            assert bytes(event.body).decode().split("/")[0] == names[event.link]
            assert listener.transport.send(event.link, [event.body])
        self.arena.run(everybody, lambda: all(len(node.events) == 6 for node in diallers))
        for node, own in zip(diallers, links, strict=True):
            for link in own:
                assert node.bodies(link) == [f"{node.node_id}/{link}".encode()]

    def test_a_peer_that_dies_ends_its_links(self) -> None:
        a, link, b, _, _ = self.pair()
        self.arena.kill(b.transport)
        self.arena.run([a], lambda: a.is_down(link))
        assert a.reason(link)
        assert not a.transport.send(link, [b"too late"])

    def test_a_dialler_that_dies_ends_its_links(self) -> None:
        a, _, b, far, _ = self.pair()
        self.arena.kill(a.transport)
        self.arena.run([b], lambda: b.is_down(far))
        assert not b.transport.send(far, [b"too late"])

    def test_nothing_of_a_link_is_sent_again_on_the_next(self) -> None:
        """A peer that comes back at its address gets a new link; what was queued for the old one died with it."""
        a, link, b, _, endpoint = self.pair()
        for _ in range(50):
            assert a.transport.send(link, [b"old"])
        self.arena.kill(b.transport)
        self.arena.run([a], lambda: a.is_down(link))
        again = self.arena.node("b")
        assert again.transport.listen(endpoint) == endpoint
        second = a.transport.connect(endpoint)
        assert second != link
        self.arena.run([a, again], lambda: any(up.link == second for up in a.ups()) and bool(again.ups()))
        assert a.transport.send(second, [b"new"])
        assert not a.transport.send(link, [b"old"])
        self.arena.run([a, again], lambda: bool(again.bodies(again.ups()[0].link)))
        assert again.bodies(again.ups()[0].link) == [b"new"]

    def test_dropping_ends_a_link_at_both_ends_and_no_other(self) -> None:
        a, link, b, far, endpoint = self.pair()
        other = a.transport.connect(endpoint)
        self.arena.run([a, b], lambda: len(a.ups()) == 2 and len(b.ups()) == 2)
        other_far = b.ups()[1].link
        assert not b.transport.has_events()
        b.transport.drop(far, "the peer broke a rule")
        assert b.transport.has_events(), "no descriptor tells of it"
        assert not b.transport.send(far, [b"too late"])
        self.arena.run([a, b], lambda: a.is_down(link) and b.is_down(far))
        assert b.reason(far) == "the peer broke a rule"
        a.transport.drop(other, "enough")
        b.transport.drop(far, "twice does nothing")
        self.arena.run([a, b], lambda: a.is_down(other) and b.is_down(other_far))
        assert a.reason(other) == "enough"

    def test_a_link_may_be_dropped_before_it_is_up(self) -> None:
        a, b = self.arena.node("a"), self.arena.node("b")
        link = a.transport.connect(b.transport.listen(self.arena.endpoint()))
        a.transport.drop(link, "changed my mind")
        self.arena.run([a, b], lambda: a.is_down(link))
        assert a.reason(link) == "changed my mind"
        assert not a.transport.send(link, [b"nothing"])

    # --- Bounds ----------------------------------------------------------------------------------------

    def test_a_full_link_says_so_loses_nothing_and_has_room_again(self) -> None:
        """The bound is in bytes and includes what the peer has not read, so memory at both ends is bounded."""
        a, link, b, far, _ = self.pair(window_bytes=WINDOW_BYTES_MIN)
        body = b"." * (100 << 10)
        taken = 0
        assert not a.transport.has_room(link + 1, 0)  # There is no such link.
        while a.transport.has_room(link, len(b"%d" % taken) + len(body)):
            assert a.transport.send(link, [b"%d" % taken, body])
            taken += 1
            assert taken * len(body) <= WINDOW_BYTES_MIN
        assert taken > 10
        assert not a.transport.send(link, [b"%d" % taken, body])  # It says what `send` will say.
        self.arena.run([a, b], lambda: len(b.bodies(far)) == taken)
        largest = b"!" * MESSAGE_BYTES_MAX
        self.arena.run([a, b], lambda: a.transport.send(link, [largest]))  # As soon as it takes one again.
        self.arena.run([a, b], lambda: len(b.bodies(far)) == taken + 1)
        assert [got.rstrip(b".") for got in b.bodies(far)[:-1]] == [b"%d" % number for number in range(taken)]

    # --- Endpoints and the end ---------------------------------------------------------------------------

    def test_an_endpoint_in_use_is_named(self) -> None:
        a, b = self.arena.node("a"), self.arena.node("b")
        endpoint = a.transport.listen(self.arena.endpoint())
        for _ in range(20):
            assert f"{endpoint!r} is in use" in complaint_of(lambda: b.transport.listen(endpoint))
        assert b.transport.listen(self.arena.endpoint())  # And it remains usable.

    def test_an_endpoint_of_another_kind_is_not_understood(self) -> None:
        a = self.arena.node("a")
        for endpoint in ("", "nonsense", "carrier-pigeon://roof"):
            assert repr(endpoint) in complaint_of(partial(a.transport.listen, endpoint))
            assert repr(endpoint) in complaint_of(partial(a.transport.connect, endpoint))

    def test_a_closed_transport_is_quiet_and_frees_its_endpoint(self) -> None:
        a, link, b, far, endpoint = self.pair()
        b.transport.close()
        b.transport.close()
        assert not b.transport.send(far, [b"too late"])
        b.transport.drop(far, "too late")
        assert b.transport.receive(self.arena.now_ns()) == []
        assert b.transport.deadline_ns() is None
        assert b.transport.filenos() == []
        assert "closed" in complaint_of(lambda: b.transport.listen(endpoint))
        assert "closed" in complaint_of(lambda: b.transport.connect(endpoint))
        self.arena.run([a], lambda: a.is_down(link))
        assert self.arena.node("c").transport.listen(endpoint) == endpoint
