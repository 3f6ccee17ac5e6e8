"""Two processes on copies of one metadata member's directory: the one that is linked to the quorum stays (P7.9).

The copy runs beside its member, at a place and endpoint of its own. The plan decides when, and for which member. Kept
inside the promise (RAFT.md, 4): under a policy that does not tolerate an older image the copy reaches a member only
while that one is linked to the first process, so that it must be refused there; else it would not be known what the
copy lacks. Where the policy tolerates one, it goes where it can, and may be counted in its member's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from embedbk.metadata.member import Member
from embedbk.metadata.raft_vocabulary import AppendReply, HeartbeatReply, PreVoteReply, Send, VoteReply
from embedbk.testing.process_names import bookie_of, twin_of
from embedbk.testing.violation import Violation
from embedbk.transports.sim_faults import DROP, Treatment

if TYPE_CHECKING:
    from embedbk.testing.world import World

__all__ = ["COPY_COUNTED", "COPY_REFUSED", "MemberCopies"]

COPY_REFUSED = "copy of a metadata member refused"
COPY_COUNTED = "copy of a metadata member counted"


@dataclass(slots=True)
class _Copy:
    is_borne: bool  # The policy tolerates it: it may be linked.
    nonce: bytes = b""  # The nonce of its process.
    was_refused: bool = False
    was_counted: bool = False


class MemberCopies:
    """The copies of one world, by the member's name: one at a time. The directories belong to the members
    (members.py)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._copies: dict[str, _Copy] = {}

    def __contains__(self, member: str) -> bool:
        return member in self._copies

    def any(self) -> bool:
        return bool(self._copies)

    def start(self, member: str, *, is_borne: bool) -> None:
        """A process on a copy of the member's directory as it is on its disk now."""
        world, name = self._world, twin_of(member)
        copy = self._copies[member] = _Copy(is_borne)
        world.members.lay_copy(member, name)
        if is_borne and world.members.watch is not None:
            world.members.watch.forgetful.update((member, name))
        if not self._is_ruled():
            world.network.add_rule(self._rule)
        world.members.start(name)
        copy.nonce = world.nodes[name].store.boot.nonce

    def end(self, member: str) -> None:
        """It is killed, and its directory goes."""
        if member not in self._copies:
            return
        name = twin_of(member)
        self._look_for_refusal(member)
        del self._copies[member]
        if name in self._world.nodes:
            self._world.crash(name)
        self._world.members.drop_copy(name)

    def end_all(self) -> None:
        for member in list(self._copies):
            self.end(member)

    # Called by the world.

    def on_step(self, name: str, core: Member, effects: Sequence[Any]) -> None:
        """The step of any member of this world, or of a copy of one."""
        if bookie_of(name) != name:
            self._look_at_copy(bookie_of(name), effects)
            return
        for member, copy in list(self._copies.items()):
            if name == member:
                continue
            heard = self._heard_by(name, member)
            if heard != copy.nonce:
                if heard and self._is_let_in(name, copy.nonce):
                    raise Violation("P7.9", f"{name} hears {member}, and lets a copy of it in beside it")
                continue
            if copy.is_borne:
                self._world.sometimes[COPY_COUNTED] += not copy.was_counted
                copy.was_counted = True
            else:
                self.end(member)  # Where it came first by chance: the first process is linked there again.

    def _look_at_copy(self, member: str, effects: Sequence[Any]) -> None:
        copy = self._copies.get(member)
        if copy is None or copy.is_borne:
            return
        self._look_for_refusal(member)
        for effect in effects:
            if type(effect) is Send and _promises(effect.message.body):
                what = type(effect.message.body).__name__
                raise Violation("P7.9", f"a copy of {member}, which is heard, promises something: {what}")

    def _look_for_refusal(self, member: str) -> None:
        copy, node = self._copies[member], self._world.nodes.get(twin_of(member))
        if node is None or copy.was_refused:
            return
        troubles = [node.members.peers.trouble(each) for each in node.log.raft.configuration.members]
        if any("another process" in trouble and "P7.9" in trouble for trouble in troubles):
            copy.was_refused = True
            self._world.sometimes[COPY_REFUSED] += 1

    # Which messages may pass.

    def _rule(self, sender: str, receiver: str, body: bytes) -> Treatment | None:
        """No message of a copy passes to a member that is not linked to the first process, or has not processed what
        came before."""
        copy = self._copies.get(bookie_of(sender)) if bookie_of(sender) != sender else None
        node = self._world.nodes.get(receiver)
        if copy is None or copy.is_borne or node is None or receiver not in self._world.members:
            return None
        heard = self._heard_by(receiver, bookie_of(sender))
        is_first = heard not in (b"", copy.nonce)
        return None if is_first and not node.transport.has_events() else DROP

    def _is_ruled(self) -> bool:
        return self._rule in self._world.network._rules

    def _heard_by(self, name: str, member: str) -> bytes:
        """The nonce of the process of this member that is linked there; empty: none is."""
        node = self._world.nodes[name]
        incarnation = self._world.members.incarnation(member)
        heard = [
            boot.nonce
            for boot in node.members.peers.linked()
            if (boot.member.name, boot.member.incarnation) == (member, incarnation)
        ]
        return heard[0] if heard else b""

    def _is_let_in(self, name: str, nonce: bytes) -> bool:
        links = self._world.nodes[name].members.peers._links.values()
        return any(each.boot.nonce == nonce and not each.is_over for each in links)


def _promises(body: Any) -> bool:
    """A vote, or that something is durable."""
    match body:
        case VoteReply() | PreVoteReply():
            return body.is_granted
        case AppendReply():
            return body.is_accepted
        case HeartbeatReply():
            return True
    return False
