"""A client's links to bookies: dialled on demand, with the messages of a turn gathered, and what a link does not take
yet kept in order (RP34).

Decides where a bookie is dialled and when again, which messages leave together, and when a link that does not get on
takes nothing more. A link is to one bookie in one incarnation, and knows whose requests are unanswered on it.
Leaves to `bookie_requests` which requests are sent and their outcomes, and to `listed_bookies` the list of bookies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embedbk.codec.lac_messages import EXPLICIT_LACS_MAX, ExplicitLacRequest, pack_explicit_lacs
from embedbk.codec.messages import MESSAGES_PER_BUNDLE_MAX, encode_bundle, encode_message
from embedbk.codec.registration import Registration
from embedbk.core.client_words import SendFailed
from embedbk.core.machine import Event
from embedbk.core.vocabulary import Tag
from embedbk.errors import UsageError
from embedbk.host.kept_lacs import KeptLacs
from embedbk.host.operations import Operation
from embedbk.ids import Member
from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport

__all__ = ["REGISTERED_ELSEWHERE", "BookieLink", "BookieLinks"]

# Requests to a bookie that could not be reached this recently fail at once. A link that was up and is lost is dialled
# again for the next request: after a stop of this very process all are lost, and every bookie is there.
REDIAL_NS = 50_000_000
BUNDLED_BYTES_MAX = (
    64 << 10
)  # A message up to this size leaves together with others; a longer one leaves alone.
# So much is gathered for one bookie before it leaves, at the latest with the turn.
BUNDLE_BYTES_MAX = 256 << 10
REGISTERED_ELSEWHERE = "registered in another incarnation"
_LOCAL_SCHEME = "local://"


@dataclass(slots=True)
class BookieLink:
    """The link to one bookie in one incarnation."""

    member: Member
    endpoint: str
    link: int
    is_up: bool = False
    # Request id -> its owner. In the order of sending, so that failures are delivered in that order.
    outstanding: dict[int, tuple[Operation, Tag]] = field(default_factory=dict)
    # (request id, pieces, bytes) that the link did not take: it is not up yet, or its queue is full. Slowness is not
    # failure; a bookie that does not get on is found by its unanswered requests.
    waiting: deque[tuple[int, list[Any], int]] = field(default_factory=deque)
    waiting_bytes: int = 0
    # Messages of this turn: several leave as one. Empty between turns.
    outbox: list[tuple[int, list[Any], int]] = field(default_factory=list)
    outbox_bytes: int = 0
    # LACs of idle writers, and hints of those that pause: each kind leaves together.
    lacs: list[ExplicitLacRequest] = field(default_factory=list)
    hints: list[ExplicitLacRequest] = field(default_factory=list)


class BookieLinks:
    """The links of one client, by bookie. Called on the host's thread only."""

    def __init__(
        self,
        transport: Transport,
        registrations: Mapping[str, Registration],
        tell: Callable[[Operation, Event], None],
        kept_lacs: KeptLacs,
        *,
        slow_bookie_bytes_max: int,
    ) -> None:
        """registrations: of the bookies, by id, as they are listed at any time.

        tell: told the failure of a request for which its link has no room.

        kept_lacs: told which LACs leave, and when they may be lost.

        slow_bookie_bytes_max: requests to one bookie that its link does not take yet; more fail at once.
        """
        self._transport = transport
        self._registrations = registrations
        self._tell = tell
        self._kept_lacs = kept_lacs
        self.slow_bookie_bytes_max = slow_bookie_bytes_max
        self.cluster_token = b""
        self.beside: frozenset[Member] = frozenset()  # Bookies on the loop of this node.
        self.by_member: dict[Member, BookieLink] = {}
        self.by_link: dict[int, BookieLink] = {}
        self.slow: dict[int, BookieLink] = {}  # By link: those with requests waiting.
        self.outboxes: dict[Member, BookieLink] = {}  # Those with messages of this turn.
        self._dial_after: dict[Member, int] = {}
        self._heard_of: dict[Member, tuple[str, ...]] = {}

    # Dialling.

    def hear_of(self, member: Member, endpoints: tuple[str, ...]) -> None:
        """It is dialled there, too, while it is not registered: somebody asks whether it answers."""
        self._heard_of[member] = endpoints

    def forget(self, member: Member) -> None:
        self._heard_of.pop(member, None)

    def dial(self, now_ns: int, member: Member) -> BookieLink | str:
        """A link to the bookie in this incarnation, begun; or why there is none."""
        registration = self._registrations.get(member.bookie_id)
        endpoints = self._heard_of.get(member, ()) if registration is None else registration.endpoints
        if registration is None and not endpoints:
            return "not registered"
        if registration is not None and registration.incarnation != member.incarnation:
            return REGISTERED_ELSEWHERE
        if now_ns < self._dial_after.get(member, 0):
            return "link lost"
        self._dial_after.pop(member, None)
        endpoint = self._endpoint_of(member, endpoints)
        try:
            link = self._connect(endpoint, member)
        except UsageError as refused:  # Another machine's address, say, or no link left to have.
            self._dial_after[member] = now_ns + REDIAL_NS
            return f"cannot be dialled: {refused}"
        peer = self.by_member[member] = self.by_link[link] = BookieLink(member, endpoint, link)
        return peer

    def dial_elsewhere(self, now_ns: int) -> None:
        """Dial the place where a bookie is registered now, for requests that wait for a link that is not up yet:
        nothing of it was sent, so nothing can be done twice."""
        for peer in [peer for peer in self.by_member.values() if not peer.is_up]:
            registration = self._registrations.get(peer.member.bookie_id)
            if registration is None or registration.incarnation != peer.member.incarnation:
                continue
            endpoint = self._endpoint_of(peer.member, registration.endpoints)
            if endpoint == peer.endpoint:
                continue
            try:
                link = self._connect(endpoint, peer.member)
            except UsageError:
                continue  # The old one may still come up.
            del self.by_link[peer.link]
            is_slow = self.slow.pop(peer.link, None) is not None
            self._transport.drop(peer.link, "it is registered at another endpoint now")
            peer.endpoint, peer.link = endpoint, link
            self.by_link[link] = peer
            if is_slow:
                self.slow[link] = peer
        self._dial_after = {member: at for member, at in self._dial_after.items() if at > now_ns}

    def lose(self, now_ns: int, peer: BookieLink) -> None:
        """Note that the link is down. One that never came up is not dialled again at once."""
        self._kept_lacs.lose(now_ns, peer.member)
        del self.by_link[peer.link]
        del self.by_member[peer.member]
        self.slow.pop(peer.link, None)
        if not peer.is_up:
            self._dial_after[peer.member] = now_ns + REDIAL_NS

    def _endpoint_of(self, member: Member, endpoints: Sequence[str]) -> str:
        """The first endpoint, which every process reaches; for a bookie on this loop the one inside the process, if it
        has one."""
        inside = [each for each in endpoints if each.startswith(_LOCAL_SCHEME)]
        if inside and member in self.beside:
            return inside[0]
        return endpoints[0] if endpoints else ""

    def _connect(self, endpoint: str, member: Member) -> int:
        expect = Identity("bookie", member.bookie_id, member.incarnation, self.cluster_token)
        return self._transport.connect(endpoint, expect)

    # Sending.

    def put(self, now_ns: int, peer: BookieLink, request_id: int, pieces: list[Any]) -> None:
        """Have a message leave with this turn, or as soon as the link takes it."""
        size = sum(map(len, pieces))
        if not peer.outbox:
            self.outboxes[peer.member] = peer
        elif peer.outbox_bytes + size > BUNDLE_BYTES_MAX or len(peer.outbox) >= MESSAGES_PER_BUNDLE_MAX:
            self._empty_outbox(now_ns, peer)
        peer.outbox.append((request_id, pieces, size))
        peer.outbox_bytes += size
        if size > BUNDLED_BYTES_MAX:
            self._empty_outbox(now_ns, peer)

    def put_lac(self, now_ns: int, member: Member, lac: ExplicitLacRequest) -> None:
        """Have a LAC that waits for no answer leave with this turn, together with others of its kind; one that is no
        hint again later, if the bookie may not get or not take it now (P6.2)."""
        if not lac.is_hint:
            self._kept_lacs.note(now_ns, member, lac)
        peer = self.by_member.get(member) or self.dial(now_ns, member)
        if isinstance(peer, BookieLink):
            (peer.hints if lac.is_hint else peer.lacs).append(lac)
            self.outboxes[member] = peer
        if not lac.is_hint and (isinstance(peer, str) or self._kept_lacs.may_start(now_ns, member)):
            self._kept_lacs.doubt(now_ns, member)

    def send_gathered(self, now_ns: int) -> None:
        """Have the messages of this turn leave."""
        for peer in self.outboxes.values():
            self._pack_lacs(now_ns, peer, peer.hints)
            self._pack_lacs(now_ns, peer, peer.lacs)
            self._empty_outbox(now_ns, peer)
        self.outboxes.clear()

    def send_waiting(self) -> None:
        """Go on with the links that took no more, in order, as far as they take now."""
        for peer in list(self.slow.values()):
            while peer.is_up and peer.waiting and self._transport.send(peer.link, peer.waiting[0][1]):
                peer.waiting_bytes -= peer.waiting.popleft()[2]
            if not peer.waiting:
                del self.slow[peer.link]

    def _pack_lacs(self, now_ns: int, peer: BookieLink, lacs: list[ExplicitLacRequest]) -> None:
        """Put the LACs of many writers for one bookie into as few messages as can be."""
        for begin in range(0, len(lacs), EXPLICIT_LACS_MAX):
            pieces = encode_message(0, pack_explicit_lacs(lacs[begin : begin + EXPLICIT_LACS_MAX]))
            if len(peer.outbox) >= MESSAGES_PER_BUNDLE_MAX:
                self._empty_outbox(now_ns, peer)
            peer.outbox.append((0, pieces, sum(map(len, pieces))))
        lacs.clear()

    def _empty_outbox(self, now_ns: int, peer: BookieLink) -> None:
        """Hand what this turn has for a bookie to its link, or have it wait for the link, in order."""
        outbox, peer.outbox, peer.outbox_bytes = peer.outbox, [], 0
        if not outbox:
            return
        if peer.is_up and not peer.waiting:
            bundle = outbox[0][1] if len(outbox) == 1 else encode_bundle([pieces for _, pieces, _ in outbox])
            if self._transport.send(peer.link, bundle):
                return
        for request_id, pieces, size in outbox:
            if peer.waiting_bytes + size > self.slow_bookie_bytes_max:
                asked = peer.outstanding.pop(request_id, None)
                if asked is not None:
                    self._tell(asked[0], SendFailed(now_ns, asked[1], peer.member, "its queue is full"))
                else:
                    self._kept_lacs.doubt(now_ns, peer.member)
                continue
            peer.waiting.append((request_id, pieces, size))
            peer.waiting_bytes += size
            self.slow[peer.link] = peer

    # Adds that are sent from C (native/SHORTCUTS.md, "Adds in C").

    def free_link(self, member: Member) -> int | None:
        """The link to a bookie, if it is up and nothing waits for it."""
        peer = self.by_member.get(member)
        is_ready = peer is not None and peer.is_up and not peer.waiting
        return peer.link if peer is not None and is_ready else None

    def note_asked(self, member: Member, request_id: int, operation: Operation, tag: Tag) -> None:
        """Note a request that is on its way already; this keeps the order of asking, since no request of this handle
        follows it yet."""
        peer = self.by_member.get(member)
        # Where the link went the operation learns of that.
        if peer is not None:
            peer.outstanding[request_id] = (operation, tag)
