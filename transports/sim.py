"""A network in virtual time: seeded delay and chance, faults by hand, the same run again from the same seed.

Decides when a body arrives, whether at all, and how often. Nothing here waits or reads a clock: the driver of the
world asks `next_event_ns`, moves time with `advance`, and lets the nodes that have events `receive` them.

Links keep the contract of embedbk.ports (in order, at most once, or down) unless `Faults` or a rule breaks it: the
protocol above has to survive single bodies lost, doubled and late, also where real links never do that. Hello and the
end of a link always travel as on a real connection: in order, delayed, held back by a partition.

A node has a place, by which faults and watchers know it, beside its id, which is what it says of itself in Hello: two
places may claim one id, as two processes on copies of one directory do.

The order of everything follows from the seed and the calls: no sets, no hashes, one generator drawn in one order.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any

from embedbk.errors import UsageError
from embedbk.ports.links import Identity, LinkDown, LinkUp, Received
from embedbk.transports.envelope import PROTOCOL_VERSIONS, Hello, check_settings, objection, stranger
from embedbk.transports.sim_faults import CALM, MILLISECOND, Faults, Rule, Treatment
from embedbk.transports.sim_transport import Arrival, LinkEnds, SimTransport

__all__ = ["SimNetwork"]


class SimNetwork:
    """All nodes, all links, one time.

    Args:
        seed: of everything that is left to chance.
        faults: what chance does to bodies; CALM keeps the contract of real links. May be set again at any time.
        timeout_ns: an end to which nothing could come for so long goes down, as heartbeats would make it.
        detection_ns: from a crash to the moment at which reachable peers see their links end.
        connect_timeout_ns: from `connect` to LinkUp, when no peer answers.
        window_bytes: on the way on one link and not yet received; `send` says False beyond it.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults = CALM,
        *,
        timeout_ns: int = 500 * MILLISECOND,
        detection_ns: int = MILLISECOND,
        connect_timeout_ns: int = 2000 * MILLISECOND,
        window_bytes: int = 16 << 20,
    ) -> None:
        self.faults = faults
        self.now_ns = 0
        self.window_bytes = window_bytes
        self.lost_bodies = 0
        self._random = random.Random(seed)
        self._timeout_ns = timeout_ns
        self._detection_ns = detection_ns
        self._connect_timeout_ns = connect_timeout_ns
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._queued_count = 0  # Ever: breaks ties in the order of scheduling.
        self._sent_count = 0  # Ever: the order of sending, which a partition keeps.
        self._listeners: dict[str, SimTransport] = {}
        self._nodes: dict[str, SimTransport] = {}
        self._links: dict[LinkEnds, None] = {}
        self._rules: dict[Rule, None] = {}
        self._blocked: dict[tuple[str, str], None] = {}
        self._paused: dict[str, None] = {}
        self.narrow: dict[
            str, int
        ] = {}  # Fault: windows of links that lead to this node; one body always fits.
        self.ready: dict[str, None] = {}  # Nodes to which something came since they were last asked for.
        self.delivered_bodies = 0
        # Clients may send adds from C (sim_adds.py); an observer of their cores has to watch that, too.
        self.has_adds = False
        # Called with each body that is sent so, before the network handles it: (sender, receiver, body).
        self.on_add_sent: Callable[[str, str, bytes], None] | None = None
        # Called with each body that arrives: (now_ns, sender, receiver, body).
        self.on_delivery: Callable[[int, str, str, bytes], None] | None = None

    # --- Time ----------------------------------------------------------------------------------------

    def next_event_ns(self) -> int | None:
        """When `advance` will next do something; None when nothing is on its way."""
        return self._queue[0][0] if self._queue else None

    def advance(self, to_ns: int) -> None:
        """Move time to to_ns, delivering on the way; nodes with events then say so by `deadline_ns`."""
        if to_ns < self.now_ns:
            raise UsageError(
                f"advance({to_ns}): it is {self.now_ns} already, and time does not run backwards"
            )
        while self._queue and self._queue[0][0] <= to_ns:
            self.now_ns, _, happen = heapq.heappop(self._queue)
            happen()
        self.now_ns = to_ns

    def take_ready(self) -> list[str]:
        """The nodes that have events to receive since the last call, in the order in which the first came."""
        if not self.ready:
            return []
        names, self.ready = self.ready, {}
        return list(names)

    def at(self, when_ns: int, happen: Callable[[], None]) -> None:
        self._queued_count += 1
        heapq.heappush(self._queue, (when_ns, self._queued_count, happen))

    # --- Nodes ---------------------------------------------------------------------------------------

    def transport(
        self, identity: Identity, protocols: tuple[int, int] = PROTOCOL_VERSIONS, place: str = ""
    ) -> SimTransport:
        """A node's transport; its place is its id, if none is given. A place may come back once its former transport
        has crashed or closed."""
        check_settings(identity, protocols, self.window_bytes)
        place = place or identity.node_id
        if place in self._nodes:
            raise UsageError(f"node {place} is running", hint="crash it first")
        node = self._nodes[place] = SimTransport(self, identity, protocols, place)
        return node

    def change_places(self, one: str, other: str) -> None:
        """Exchange two places: each node is known by the other's name from now on; blocks stay with the names."""
        _exchange(self._nodes, one, other)
        _exchange(self._paused, one, other)
        for place in (one, other):
            if place in self._nodes:
                self._nodes[place].place = place
                self.ready[place] = None
        for link in self._links:
            link.names = [end.place if end is not None else "" for end in link.ends]
        self._look_for_silence()

    def crash(self, node_id: str) -> None:
        """The node stops without a word: its transport is dead, and peers that can be reached see their links end."""
        node = self._nodes.get(node_id)
        if node is None:
            raise UsageError(f"node {node_id!r} is not running")
        self.resume(node_id)
        self.remove(node, "the peer's connection ended", self._detection_ns)

    def pause(self, node_id: str) -> None:
        """The node stands still (SIGSTOP): nothing leaves or reaches it; the driver must not step it either."""
        self._paused[node_id] = None
        self._look_for_silence()

    def resume(self, node_id: str) -> None:
        self._paused.pop(node_id, None)
        self._look_for_silence()

    def remove(self, node: SimTransport, reason: str, delay_ns: int) -> None:
        del self._nodes[node.place]
        node.is_open = False
        node.inbox.clear()
        for endpoint in [name for name, who in self._listeners.items() if who is node]:
            del self._listeners[endpoint]
        for link in list(self._links):
            for side in (0, 1):
                if link.ends[side] is node:
                    self.end(link, side, None, reason, delay_ns)

    # --- Faults by hand --------------------------------------------------------------------------------

    def add_rule(self, rule: Rule) -> None:
        """Ask this rule about every body; the first rule that gives a verdict decides."""
        self._rules[rule] = None

    def remove_rule(self, rule: Rule) -> None:
        self._rules.pop(rule, None)

    def block(self, sender: str, receiver: str) -> None:
        """Nothing passes from sender to receiver until `unblock`; it is held back as a real connection would."""
        self._blocked[sender, receiver] = None
        self._look_for_silence()

    def unblock(self, sender: str, receiver: str) -> None:
        self._blocked.pop((sender, receiver), None)
        self._look_for_silence()

    def partition(self, some: Sequence[str], others: Sequence[str]) -> None:
        """Nothing passes between the two groups, in either direction."""
        for one in some:
            for other in others:
                self._blocked[one, other] = self._blocked[other, one] = None
        self._look_for_silence()

    def heal(self) -> None:
        """Every block and partition ends; paused nodes stay paused."""
        self._blocked.clear()
        self._look_for_silence()

    def cut(self, one: str, other: str) -> None:
        """End every link between two nodes now, on both sides, with all that is on its way."""
        for link in list(self._links):
            if sorted((link.node(0), link.node(1))) == sorted((one, other)):
                for side in (0, 1):
                    self._down(link, side, "the connection was reset")
                self._links.pop(link, None)

    def _is_blocked(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._blocked or sender in self._paused or receiver in self._paused

    def _look_for_silence(self) -> None:
        """Start and stop the clocks of silence, and let go what was held back, wherever a direction has changed."""
        for link in list(self._links):
            for side in (0, 1):  # The direction that leads to this side.
                is_blocked = self._is_blocked(link.node(1 - side), link.node(side))
                since = link.silent_since[side]
                if is_blocked and since is None:
                    link.silent_since[side] = self.now_ns
                    self._watch_silence(link, side, self.now_ns)
                elif not is_blocked and since is not None:
                    link.silent_since[side] = None
                    held, link.held[side] = link.held[side], []
                    for order, late_ns, arrival in sorted(held, key=lambda each: each[0]):
                        self._schedule(order, arrival, late_ns, self._random_delay())

    def _watch_silence(self, link: LinkEnds, side: int, since_ns: int) -> None:
        def look() -> None:
            if link.silent_since[side] != since_ns or not link.is_up[side]:
                return
            if link.node(side) in self._paused:
                self._watch_silence(link, side, since_ns)  # Its own clock stands still: it judges no peer.
                return
            reason = f"nothing heard for {(self.now_ns - since_ns) // MILLISECOND} ms"
            self.end(link, side, reason, f"the peer ended the link: {reason}", 0)

        self.at(self.now_ns + self._timeout_ns, look)

    # --- Links ---------------------------------------------------------------------------------------

    def listen(self, endpoint: str, node: SimTransport) -> str:
        if not endpoint.startswith("sim://") or endpoint == "sim://":
            raise UsageError(f"endpoint {endpoint!r} is not understood: sim://NAME")
        if endpoint == "sim://*":
            self._queued_count += 1
            endpoint = f"sim://any-{self._queued_count}"
        if endpoint in self._listeners:
            raise UsageError(f"endpoint {endpoint!r} is in use")
        self._listeners[endpoint] = node
        return endpoint

    def connect(self, endpoint: str, dialler: SimTransport, expect: Identity | None) -> LinkEnds:
        if not endpoint.startswith("sim://"):
            raise UsageError(f"endpoint {endpoint!r} is not understood: sim://NAME")
        listener = self._listeners.get(endpoint)
        link = LinkEnds((dialler, listener))
        self._links[link] = None
        if listener is None:
            self.at(self.now_ns + self._random_delay(), lambda: self._down(link, 0, f"nobody at {endpoint}"))
            return link
        for side in (0, 1):
            if self._is_blocked(link.node(1 - side), link.node(side)):
                link.silent_since[side] = (
                    self.now_ns
                )  # Not watched: until it is up, connect_timeout_ns counts.
        hello = dialler.hello()
        self._transmit(Arrival(link, 1, lambda: self._on_hello(link, hello, expect)))
        give_up = f"no Hello from {endpoint} in {self._connect_timeout_ns // MILLISECOND} ms"
        self.at(
            self.now_ns + self._connect_timeout_ns,
            lambda: None if link.is_up[0] else self.end(link, 0, give_up, give_up, 0),
        )
        return link

    def _on_hello(self, link: LinkEnds, hello: Hello, expect: Identity | None) -> None:
        listener = link.ends[1]
        if listener is None or link.is_over[1]:
            return
        own = listener.hello()
        why = objection(own, hello)
        if why is not None:
            self._transmit(Arrival(link, 0, lambda: self._down(link, 0, f"refused: {why}")))
            return
        link.numbers[1] = listener.add_link(link, 1)
        self._up(link, 1, hello.identity)
        self._transmit(Arrival(link, 0, lambda: self._on_hello_ack(link, own, expect)))

    def _on_hello_ack(self, link: LinkEnds, hello: Hello, expect: Identity | None) -> None:
        if link.is_over[0]:
            return
        why = stranger(expect, hello.identity)
        if why is not None:
            self.end(link, 0, why, "the peer's connection ended", 0)
            return
        self._up(link, 0, hello.identity)

    def _up(self, link: LinkEnds, side: int, peer: Identity) -> None:
        end = link.ends[side]
        assert end is not None
        link.is_up[side] = True
        end.tell(LinkUp(link.numbers[side], peer))
        since_ns = link.silent_since[side]
        if since_ns is not None:
            self._watch_silence(link, side, since_ns)

    def _down(self, link: LinkEnds, side: int, reason: str) -> None:
        """Take one end down, as it sees it; the link is gone when both ends are down."""
        if link.is_over[side]:
            return
        link.is_over[side], link.is_up[side] = True, False
        end = link.ends[side]
        if end is not None and end.is_open and end.links.pop(link.numbers[side], None) is not None:
            end.tell(LinkDown(link.numbers[side], reason))
        if all(link.is_over) or link.ends[1] is None:
            self._links.pop(link, None)

    def end(self, link: LinkEnds, side: int, own: str | None, peers: str, delay_ns: int) -> None:
        """Take one end down now; the other learns of it if it can be reached."""
        if link.is_over[side]:
            return
        self._down(link, side, own or "")
        if link.ends[1 - side] is not None:
            self._transmit(Arrival(link, 1 - side, lambda: self._down(link, 1 - side, peers)), delay_ns)

    # --- Bodies --------------------------------------------------------------------------------------

    def has_room(self, link: LinkEnds, side: int, size: int) -> bool:
        queued = link.queued_bytes[1 - side]
        if queued + size > self.window_bytes:
            return False
        return not 0 < queued > self._narrow(link, side) - size  # One body always fits.

    def _narrow(self, link: LinkEnds, side: int) -> int:
        return self.narrow.get(link.node(1 - side), self.window_bytes) if self.narrow else self.window_bytes

    def rooms(self, link: LinkEnds, side: int) -> tuple[int, int]:
        """What the end `side` may send now: by the window, and as a fault narrowed it."""
        queued = link.queued_bytes[1 - side]
        return max(0, self.window_bytes - queued), max(0, self._narrow(link, side) - queued)

    def send(self, link: LinkEnds, side: int, body: bytes) -> bool:
        """Send from the end `side`. False: the window is full."""
        to = 1 - side
        if not self.has_room(link, side, len(body)):
            return False
        verdict = self._judge(link.node(side), link.node(to), body)
        if verdict.drop:
            self.lost_bodies += 1
            return True
        body = body if verdict.body is None else verdict.body
        faults = self.faults
        late_ns = verdict.delay_ns
        if faults.loss and self._random.random() < faults.loss:
            self.lost_bodies += 1
            return True
        if faults.corruption and body and self._random.random() < faults.corruption:
            flipped = bytearray(body)
            flipped[self._random.randrange(len(flipped))] ^= 1 << self._random.randrange(8)
            body = bytes(flipped)
        if faults.reordering and self._random.random() < faults.reordering:
            late_ns += self._random.randint(1, faults.late_ns_max)
        link.queued_bytes[to] += len(body)
        self._transmit(Arrival(link, to, None, body, is_counted=True), late_ns)
        copies = verdict.copies - 1
        if faults.duplication and self._random.random() < faults.duplication:
            copies += 1
        for _ in range(copies):
            late_ns = self._random.randint(0, faults.late_ns_max)
            self._transmit(Arrival(link, to, None, body), max(1, late_ns))
        return True

    def _judge(self, sender: str, receiver: str, body: bytes) -> Treatment:
        for rule in self._rules:
            verdict = rule(sender, receiver, body)
            if verdict is not None:
                return verdict
        return Treatment()

    def _transmit(self, arrival: Arrival, late_ns: int = 0) -> None:
        """late_ns: beside the usual delay. What is late for a reason of its own does not hold up what follows."""
        link, side = arrival.link, arrival.side
        # Drawn also when held back: a partition changes the chance of nothing else.
        delay_ns = self._random_delay()
        self._sent_count += 1
        if self._is_blocked(link.node(1 - side), link.node(side)):
            link.held[side].append((self._sent_count, late_ns, arrival))
            return
        self._schedule(self._sent_count, arrival, late_ns, delay_ns)

    def _schedule(self, order: int, arrival: Arrival, late_ns: int, delay_ns: int) -> None:
        link, side = arrival.link, arrival.side
        when_ns = max(self.now_ns + delay_ns, link.arrival_ns[side])
        if late_ns and arrival.what is None:
            when_ns += late_ns
        else:
            when_ns = max(when_ns, self.now_ns + delay_ns + late_ns)
            link.arrival_ns[side] = when_ns
        self.at(when_ns, lambda: self._arrive(order, arrival))

    def _arrive(self, order: int, arrival: Arrival) -> None:
        link, side = arrival.link, arrival.side
        if link.silent_since[side] is not None:
            link.held[side].append((order, 0, arrival))  # On its way when the partition came.
            return
        if arrival.what is not None:
            arrival.what()
            return
        end = link.ends[side]
        if not link.is_up[side] or end is None or not end.is_open:
            return  # Its link is over here, as if the nonce differed.
        self.delivered_bodies += 1
        if self.on_delivery is not None:
            self.on_delivery(self.now_ns, link.node(1 - side), link.node(side), arrival.body)
        end.tell(Received(link.numbers[side], memoryview(arrival.body)))
        if arrival.is_counted:
            end.counted.append((link, side, len(arrival.body)))

    def _random_delay(self) -> int:
        return self._random.randint(self.faults.delay_ns_min, self.faults.delay_ns_max)


def _exchange(by_place: dict[str, Any], one: str, other: str) -> None:
    found = {place: by_place.pop(place) for place in (one, other) if place in by_place}
    by_place.update({other if place == one else one: what for place, what in found.items()})
