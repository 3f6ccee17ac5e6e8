"""The links between members of a quorum: which members are dialled, over which link a message leaves, which process a
link speaks for.

Each member dials every other that its configuration has an address of, there and where its operator says that members
are, since all of them may have moved while none could be told. It takes the links of those that dial it. It
sends over the link that it dialled, else over one that it was dialled over, always the same while that is up: a
leader's heartbeats name what came before them, so they must not overtake it.

Decides that a link speaks for one process only (Hello's name, incarnation and number of the start), and that of two
processes of one member the one that is linked stays (P7.9). Nothing waits here: a message that a link cannot take now
is dropped, and the core sends it again. The core decides whether a process counts, and what for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from embedbk.errors import PeerError, UsageError
from embedbk.host.reminders import Reminders
from embedbk.metadata.levels import LEVEL_FIRST
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_messages import MemberMessage, checked, encode_member_message
from embedbk.metadata.raft_vocabulary import Boot, Message, PeerLost, Received
from embedbk.ports.links import Identity, LinkDown, LinkUp
from embedbk.ports.transport import Transport

__all__ = ["LINKS_PER_PEER_MAX", "REDIAL_NS_MAX", "REDIAL_NS_MIN", "STRANGERS_MAX", "PeerLink", "PeerLinks"]

logger = logging.getLogger(__name__)

REDIAL_NS_MIN = 50_000_000  # Pause before a member is dialled again; doubles while its links do not last.
REDIAL_NS_MAX = 1_000_000_000
# Links that one process may have dialled here: one for messages, one for a snapshot, and their successors.
LINKS_PER_PEER_MAX = 4
STRANGERS_MAX = 16  # Processes of members that are in no configuration here, linked at a time.


@dataclass(slots=True)
class PeerLink:
    """A link with one process that is up."""

    link: int
    boot: Boot
    is_dialled: bool
    since_ns: int
    is_bulk: bool = False  # A snapshot is pulled over it: no message waits behind that.
    is_over: bool = False  # Dropped here; its LinkDown is on the way.


@dataclass(slots=True)
class _Dialling:
    """A member that is to be linked."""

    endpoints: tuple[str, ...]
    at: str = ""  # Where it was dialled last.
    turn: int = 0
    due_ns: int = 0
    pause_ns: int = REDIAL_NS_MIN
    link: int | None = None
    trouble: str = ""  # Why there is no link.


@dataclass(slots=True)
class _Process:
    """The one process of a member that may be linked now."""

    boot: Boot
    level: int  # The newest level that its build knows, by its Hello (P10.8).
    links: list[PeerLink] = field(default_factory=list)

    def best(self) -> PeerLink | None:
        """The link that was dialled from here, else the oldest."""
        best: PeerLink | None = None
        for each in self.links:
            if not each.is_bulk and not each.is_over:
                if each.is_dialled:
                    return each
                best = best or each
        return best


class PeerLinks:
    """The links of one member. All calls from the host's thread.

    A host passes every LinkUp and LinkDown of its transport, and every MemberMessage; those that concern no member are
    ignored. Its identity on that transport is `own`: role "metadata", name, incarnation, the nonce as `start`, the
    token.
    """

    def __init__(
        self, transport: Transport, own: Boot, cluster_token: bytes, seeds: Sequence[str] = ()
    ) -> None:
        """seeds: where other members may listen, beside what the configuration says."""
        self.own = own
        self._seeds = tuple(seeds)
        # Messages that no link could take: the core sent, or will send, what replaces them.
        self.unsent_count = 0
        self._transport = transport
        self._token = cluster_token
        self._configuration: Configuration | None = None
        self._dialling: dict[MemberId, _Dialling] = {}
        self._dialled: dict[int, MemberId] = {}  # By link, up or not.
        self._links: dict[int, PeerLink] = {}
        self._processes: dict[MemberId, _Process] = {}
        self._reminders = Reminders(logger)
        self._end_reason = ""  # Why no member is linked any more.

    # --- Whom to dial -----------------------------------------------------------------------------------

    def follow(self, now_ns: int, configuration: Configuration) -> None:
        """Take the present members and their addresses. May be called as often as one likes."""
        if configuration is self._configuration or self._end_reason:
            return
        self._configuration = configuration
        wanted = {
            member: tuple(dict.fromkeys((*configuration.endpoints_of(member), *self._seeds)))
            for member in configuration.members
            if member != self.own.member and configuration.endpoints_of(member)
        }
        for member in [member for member in self._dialling if member not in wanted]:
            dialling = self._dialling.pop(member)
            if dialling.link is not None:
                self._transport.drop(dialling.link, f"{member.name} is no member any more")
        for member, endpoints in wanted.items():
            dialling = self._dialling.setdefault(member, _Dialling(endpoints, due_ns=now_ns))
            if dialling.endpoints != endpoints:
                dialling.endpoints, dialling.turn = endpoints, 0
                dialling.due_ns = min(dialling.due_ns, now_ns)

    def tick(self, now_ns: int) -> None:
        """Dial the members that are due."""
        for member, dialling in self._dialling.items():
            if dialling.link is not None:
                continue
            if now_ns >= dialling.due_ns:
                self._dial(now_ns, member, dialling)
            if member not in self._processes:
                why = dialling.trouble or "nobody answered yet"
                where = ", ".join(dialling.endpoints)
                text = f"metadata member {self.own.member.name} waits for {member.name} at {where}: {why}"
                self._reminders.lasts(now_ns, _key(member), text)

    def deadline_ns(self) -> int | None:
        due_ns: int | None = None
        for each in self._dialling.values():
            if each.link is None and (due_ns is None or each.due_ns < due_ns):
                due_ns = each.due_ns
        return due_ns

    def _dial(self, now_ns: int, member: MemberId, dialling: _Dialling) -> None:
        # Where another member answers, this one is not, whatever was so before.
        taken = {
            each.at
            for other, each in self._dialling.items()
            if other != member and each.link is not None and each.link in self._links
        }
        endpoints = [each for each in dialling.endpoints if each not in taken] or dialling.endpoints
        dialling.at = endpoint = endpoints[dialling.turn % len(endpoints)]
        expected = Identity("metadata", member.name, member.incarnation, b"")
        try:
            dialling.link = self._transport.connect(endpoint, expected)
        except UsageError as refused:  # An address that this transport may not dial, or no link left to have.
            self._dial_later(now_ns, dialling, str(refused))
            return
        self._dialled[dialling.link] = member

    def _dial_later(self, now_ns: int, dialling: _Dialling, reason: str) -> None:
        dialling.link, dialling.trouble = None, reason
        dialling.turn += 1
        dialling.due_ns = now_ns + dialling.pause_ns
        dialling.pause_ns = min(2 * dialling.pause_ns, REDIAL_NS_MAX)

    # --- Links ------------------------------------------------------------------------------------------

    def on_link_up(self, now_ns: int, event: LinkUp) -> bool:
        """True: the link is a member's, or claimed to be one's and is dropped; no client is behind it."""
        link, peer = event.link, event.peer
        if link not in self._dialled and (
            peer.role != "metadata" or not peer.cluster_token or not peer.start
        ):
            return False  # A member that belongs to no cluster yet may ask, as a client does, and is no peer.
        boot = Boot(MemberId(peer.node_id, peer.incarnation), peer.start)
        refusal = self._why_not(link, peer, boot)
        if refusal:
            text = f"metadata member {self.own.member.name} refuses links of {peer.node_id}: {refusal}"
            self._reminders.lasts(now_ns, f"refused {peer.node_id}", text)
            self._transport.drop(link, refusal)
            return True
        up = PeerLink(link, boot, link in self._dialled, now_ns)
        self._links[link] = up
        process = self._processes.setdefault(boot.member, _Process(boot, peer.level or LEVEL_FIRST))
        if not process.links:
            self._reminders.over(now_ns, _key(boot.member), f"metadata member {peer.node_id} is linked")
            logger.info("metadata member %s is linked with %s", self.own.member.name, _name(boot))
        process.links.append(up)
        accepted = [each for each in process.links if not each.is_dialled]
        if len(accepted) > LINKS_PER_PEER_MAX:
            self.drop(accepted[0].link, "newer links of this process took its place")
        return True

    def _why_not(self, link: int, peer: Identity, boot: Boot) -> str:
        member = boot.member
        if self._end_reason:
            return self._end_reason
        if peer.cluster_token != self._token:
            return f"{member.name} belongs to {'another' if peer.cluster_token else 'no'} cluster"
        if not peer.start:
            return f"{member.name} does not say which start of its directory it is"
        if member == self.own.member:
            return f"{member.name} is the member that was dialled: this is a copy of its directory, or itself"
        process = self._processes.get(member)
        if process is not None and process.boot != boot:
            return f"another process of {member.name} runs and is heard here (P7.9)"
        is_known = self._configuration is not None and member in self._configuration.members
        if process is None and not is_known and len(self._strangers()) >= STRANGERS_MAX:
            return f"{STRANGERS_MAX} processes are linked that are no members here"
        return ""

    def _strangers(self) -> list[MemberId]:
        members = self._configuration.members if self._configuration is not None else ()
        return [member for member in self._processes if member not in members]

    def on_link_down(self, now_ns: int, event: LinkDown) -> PeerLost | None:
        """The event for the core, when this was the last link with that process."""
        member = self._dialled.pop(event.link, None)
        up = self._links.pop(event.link, None)
        dialling = self._dialling.get(member) if member is not None else None
        if dialling is not None and dialling.link == event.link:
            if up is not None and now_ns - up.since_ns >= REDIAL_NS_MAX:
                dialling.pause_ns = REDIAL_NS_MIN  # It lasted: its end has a new cause.
            self._dial_later(now_ns, dialling, event.reason)
        if up is None:
            return None
        process = self._processes[up.boot.member]
        process.links = [each for each in process.links if each is not up]
        if process.links:
            return None
        del self._processes[up.boot.member]
        logger.info("metadata member %s lost %s: %s", self.own.member.name, up.boot.member.name, event.reason)
        return PeerLost(now_ns, up.boot)

    def end(self, reason: str) -> None:
        """This member has failed: it sends and receives nothing any more, so that the others elect without it."""
        self._end_reason = reason
        self._dialling.clear()
        for link in [*self._links, *self._dialled]:
            self.drop(link, reason)

    def hears(self, link: int) -> bool:
        """Whether the link's other end is a member's process, and the link was not dropped."""
        up = self._links.get(link)
        return up is not None and not up.is_over

    def way_from(self, member: MemberId) -> tuple[int, Boot] | None:
        """A link that a member made, and its process; None: it made none. Its messages go on over that one while pieces
        are asked for there."""
        process = self._processes.get(member)
        links = process.links if process is not None else []
        made = next(
            (each for each in links if not each.is_dialled and not each.is_bulk and not each.is_over), None
        )
        return (made.link, made.boot) if made is not None else None

    def leave_to_pulls(self, link: int) -> None:
        """Send no messages over a link that its dialler uses to pull a snapshot: they would wait behind that."""
        up = self._links[link]
        up.is_bulk = not up.is_dialled

    def drop(self, link: int, reason: str) -> None:
        """End a member's link: nothing more is sent or believed on it. Its LinkDown follows."""
        up = self._links.get(link)
        if up is not None:
            up.is_over = True
        self._transport.drop(link, reason)

    # --- Messages ---------------------------------------------------------------------------------------

    def send(self, message: Message) -> bool:
        """Send a message to a member. False: no link has room for it now, and it is dropped."""
        process = self._processes.get(message.receiver)
        best = process.best() if process is not None else None
        if best is not None and self._transport.send(best.link, encode_member_message(message)):
            return True
        self.unsent_count += 1
        return False

    def on_message(self, now_ns: int, link: int, control: MemberMessage) -> Received | None:
        """The event for the core. None: it is no peer's message, or its sender's claim is false; then its link was
        dropped."""
        if not self.is_theirs(link, control.sender, control.receiver):
            return None
        try:
            return Received(now_ns, checked(control))
        except PeerError as broken:
            self._drop_for(link, str(broken))
            return None

    def is_theirs(self, link: int, sender: Boot, receiver: MemberId) -> bool:
        """Whether this sender is the link's other end, and means this member; else the link was dropped."""
        up = self._links.get(link)
        if up is not None and up.is_over:
            return False  # This was on its way.
        if up is None:
            self._drop_for(link, "only a member of this cluster may speak to a member")
        elif sender != up.boot:
            self._drop_for(link, f"a message of {_name(sender)} over a link of {_name(up.boot)}")
        elif receiver != self.own.member:
            self._drop_for(link, f"a message for {_key(receiver)}, and here is {_key(self.own.member)}")
        else:
            return True
        return False

    def _drop_for(self, link: int, reason: str) -> None:
        logger.warning("metadata member %s drops a link: %s", self.own.member.name, reason)
        self.drop(link, reason)

    # --- For people -------------------------------------------------------------------------------------

    def linked(self) -> Sequence[Boot]:
        """The processes that are linked now."""
        return [process.boot for process in self._processes.values()]

    def levels(self) -> dict[MemberId, int]:
        """The newest levels that the builds of the linked members know."""
        return {member: process.level for member, process in self._processes.items()}

    def trouble(self, member: MemberId) -> str:
        """Why a member is not linked; empty: it is, or nothing was tried."""
        dialling = self._dialling.get(member)
        return dialling.trouble if dialling is not None and member not in self._processes else ""


def _key(member: MemberId) -> str:
    return f"{member.name}/{member.incarnation.hex()}"


def _name(boot: Boot) -> str:
    return f"{_key(boot.member)}/{boot.nonce.hex()}"
