"""Clients on one loop with bookies, whose writers' adds go past all messages (native/SHORTCUTS.md, "Near seats").

What a wait of such a loop does in production is done here between the steps of the client: the turns of its adds, in C.
Decides nothing of them. Cores hear of that later, so who watches cores is told as it happens: this frame was asked of
that seat and stored there under that token, and this seat has it durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import FrameHeader
from embedbk.core.bookie_words import JournalDurable, Reply, RequestReceived, StoreFrame
from embedbk.core.client_words import Send
from embedbk.host.bookie_node import BookieNode
from embedbk.host.client_node import ClientNode
from embedbk.host.writing import Writing
from embedbk.ids import Member
from embedbk.transports.adds import AddsInC, StoredNear, Turns
from embedbk.transports.near import NativeNear, NearPoll

__all__ = ["NearLoops"]

_NO_LINK = -1  # The link of an add that came by none; its token is its number.


class _Turns(Turns):
    """Taken one by one by the world, which tells what each has done."""

    def __init__(self) -> None:
        # With the place of the next frame that nobody was told of, by seat.
        self.adds: dict[AddsInC, list[int]] = {}

    def begin(self, adds: AddsInC) -> None:
        self.adds[adds] = [adds.begin_place] * adds.seat_count

    def end(self, adds: AddsInC) -> None:
        self.adds.pop(adds, None)


class _Poll(NearPoll):
    """The wait of a loop that a world drives: which writers' adds have turns, and which loop is woken for them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.turns: _Turns = _Turns()
        self.wake_adds = wake  # type: ignore[method-assign]


@dataclass(slots=True)
class _Stored:
    """One frame at one seat, not durable there yet."""

    client: str
    core: Any
    send: Send
    token: int


@dataclass(slots=True)
class _Loop:
    client: str
    node: ClientNode
    poll: _Poll
    opened: list[AddsInC] = field(default_factory=list)
    bookies: dict[Member, BookieNode] = field(default_factory=dict)
    untold: list[tuple[BookieNode, Any, list[Any]]] = field(default_factory=list)


class NearLoops:
    """The near loops of one world.

    Args:
        writings_of: the writing handles of a client.
        tell: a hook of the observers, with its arguments.
        now_of: what a node's clock shows.
        is_paused: whether a bookie stands still; then all of its loop does.
        wake: have a client take a turn now.
        kick: a bookie's disk has something to sync, without a step of its node.
        note: what was met, for the list in sometimes.py.
    """

    def __init__(
        self,
        writings_of: Callable[[str], Iterable[Writing]],
        tell: Callable[..., None],
        now_of: Callable[[str], int],
        is_paused: Callable[[str], bool],
        wake: Callable[[str], None],
        kick: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._writings_of = writings_of
        self._tell = tell
        self._now_of = now_of
        self._is_paused = is_paused
        self._wake = wake
        self._kick = kick
        self._note = note
        self._loops: dict[str, _Loop] = {}
        self._stored: dict[str, list[_Stored]] = {}  # By bookie, in the order of their tokens.

    def let_near(self, node: BookieNode) -> None:
        """Clients that start from now on may reach this bookie so."""
        path: Any = node.storage.add_path
        node.near = NativeNear(path)
        node.is_near_watched = True

    def join(self, client: str, node: ClientNode, bookies: Iterable[BookieNode]) -> None:
        """This client is on one loop with these bookies, as they run now."""
        loop = _Loop(client, node, _Poll(partial(self._wake, client)))
        nears: dict[Member, Any] = {}
        for bookie in bookies:
            member = Member(bookie.bookie_id, bookie.storage.incarnation)
            loop.bookies[member], nears[member] = bookie, bookie.near
        node.add_locally(loop.poll, nears)
        node.is_sending_watched = True
        self._loops[client] = loop

    def turn(self, client: str) -> bool:
        """The turns of a client's adds, and whether they stored anything; who watches bookies is told by `tell_stored`,
        behind what the client's core hears of in its step."""
        loop = self._loops.get(client)
        if loop is None or not loop.poll.turns.adds:
            return False
        if any(self._is_paused(member.bookie_id) for member in loop.bookies):
            return False
        for adds, places in list(loop.poll.turns.adds.items()):
            if adds not in loop.opened:
                loop.opened.append(adds)
            adds.turn(self._now_of(client))
            for seat in range(adds.seat_count):
                for stored in adds.stored_from(places[seat], seat):
                    places[seat] += 1
                    self._on_stored(loop, adds, seat, stored)
        return bool(loop.untold)

    def tell_stored(self, client: str) -> None:
        """Tell observers what bookies have taken from this client since the last time."""
        loop = self._loops.get(client)
        if loop is None or not loop.untold:
            return
        untold, loop.untold = loop.untold, []
        for node, event, effects in untold:
            _show(node, event, effects)

    def _on_stored(self, loop: _Loop, adds: AddsInC, seat: int, stored: StoredNear) -> None:
        core = next(each for each in self._writings_of(loop.client) if each.local is adds).core
        frame, token, seating = stored.frame, stored.token, core.in_flight.seatings[seat]
        header = FrameHeader(
            frame.ledger_id, frame.first_entry, frame.last_entry, frame.entry_count, len(frame.body), stored.lac,
            stored.lac_length, True, core.in_flight.ledger_key,
        )  # fmt: skip
        name = seating.member.bookie_id
        request = AddRequest(seating.member.incarnation, core.in_flight.nonce, seating.number, False)
        send = Send(seating.member, request, ("add", seating.number, frame.first_entry), [(b"", frame)])
        self._tell("on_add_sent", loop.client, core, frame, send)
        self._stored.setdefault(name, []).append(_Stored(loop.client, core, send, token))
        event = RequestReceived(self._now_of(name), _NO_LINK, token, request, [(header, frame.body)])
        loop.untold.append((loop.bookies[seating.member], event, [StoreFrame(token, frame)]))
        self._note("sent to bookies of its loop")
        self._kick(name)

    def on_durable(self, bookie: str, node: BookieNode, token: int) -> None:
        """Behind what was told of that."""
        waiting = self._stored.get(bookie)
        if not waiting:
            return
        now_ns = self._now_of(bookie)
        while waiting and waiting[0].token <= token:
            done = waiting.pop(0)
            request, frame = done.send.control, done.send.frames[0][1]
            assert isinstance(request, AddRequest)
            answer = AddAnswer(
                Status.OK, request.nonce, request.seating, False, frame.ledger_id, frame.first_entry,
                frame.last_entry,
            )  # fmt: skip
            _show(node, JournalDurable(now_ns, token), [Reply(_NO_LINK, done.token, answer)])
            self._tell("on_add_answered", done.client, done.core, done.send)
        for client in self._loops:
            self._wake(client)

    def leave_bookie(self, name: str, node: Any) -> None:
        """Its process ends: what is stored there becomes durable for nobody any more."""
        self._stored.pop(name, None)
        if getattr(node, "near", None) is not None:
            node.near.leave()

    def leave_client(self, client: str) -> None:
        loop = self._loops.pop(client, None)
        if loop is not None:
            for adds in loop.opened:
                adds.close()

    def close(self) -> None:
        for client in list(self._loops):
            self.leave_client(client)


def _show(node: BookieNode, event: Any, effects: list[Any]) -> None:
    if node.on_step is not None:
        node.on_step(node.core, event, effects)
