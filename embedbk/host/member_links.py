"""All that a metadata member exchanges with the others: messages, snapshots that it pulls, snapshots that it hands out.

Decides only which part a link or a message belongs to; its host passes all of them, and steps the core with the
results.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.host.fetching import Fetching
from embedbk.host.handing_out import HandingOut
from embedbk.host.peers import PeerLinks
from embedbk.member_ports import SnapshotStore
from embedbk.metadata.quorum import Configuration
from embedbk.metadata.raft_messages import MemberMessage, SnapshotPiece, SnapshotPull
from embedbk.metadata.raft_vocabulary import (
    Boot,
    FetchSnapshot,
    Message,
    PeerLost,
    Received,
    SnapshotFetched,
    SnapshotGivenUp,
)
from embedbk.ports.links import LinkDown, LinkUp
from embedbk.ports.transport import Transport

__all__ = ["FromMembers", "MemberLinks"]

FromMembers = Received | PeerLost | SnapshotFetched | SnapshotGivenUp


class MemberLinks:
    """The links of one member. Its identity on the transport is `own`; seeds are as `PeerLinks` takes them. snapshots
    None: it keeps and fetches none."""

    def __init__(
        self,
        transport: Transport,
        own: Boot,
        cluster_token: bytes,
        snapshots: SnapshotStore | None,
        seeds: Sequence[str] = (),
    ) -> None:
        self.peers = PeerLinks(transport, own, cluster_token, seeds)
        self.fetching: Fetching | None = None
        if snapshots is not None:
            self.fetching = Fetching(transport, own, cluster_token, snapshots, self.peers.way_from, seeds)
        self.handing_out = HandingOut(transport, snapshots, own)
        self._cannot_fetch = False

    # --- Called by its host -----------------------------------------------------------------------------

    def on_link_up(self, now_ns: int, event: LinkUp) -> bool:
        """Whether the link was a member's, so that no client is behind it."""
        if self._pulls_over(event.link):
            assert self.fetching is not None
            self.fetching.on_link_up(now_ns, event)
            return True
        return self.peers.on_link_up(now_ns, event)

    def on_link_down(self, now_ns: int, event: LinkDown) -> PeerLost | None:
        """Called for any link that goes down."""
        self.handing_out.on_link_down(event.link)
        if self.fetching is not None:
            self.fetching.on_link_down(now_ns, event)
        return self.peers.on_link_down(now_ns, event)

    def hears(self, link: int) -> bool:
        """Whether the link has a member at its other end whose messages still count."""
        return self._pulls_over(link) or self.peers.hears(link)

    def drop(self, link: int, reason: str) -> None:
        """End a link of any kind: nothing more is received over a member's."""
        self.peers.drop(link, reason)

    def end(self, reason: str) -> None:
        """This member has failed: send the others nothing more."""
        self.peers.end(reason)
        self.close()

    @staticmethod
    def takes(control: object) -> bool:
        """Whether this is a message between members."""
        return isinstance(control, MemberMessage | SnapshotPull | SnapshotPiece)

    def on_control(self, now_ns: int, link: int, control: object) -> Received | None:
        """Handle a message that `takes` accepts, from any link."""
        if isinstance(control, SnapshotPiece):
            if self.fetching is not None:
                self.fetching.on_piece(now_ns, link, control)
            return None
        if self._pulls_over(link):
            return None  # It is for pieces, and its other end may not know yet.
        if isinstance(control, MemberMessage):
            return self.peers.on_message(now_ns, link, control)
        if isinstance(control, SnapshotPull) and self.peers.is_theirs(link, control.sender, control.receiver):
            self.peers.leave_to_pulls(link)
            self.handing_out.on_pull(now_ns, link, control)
        return None

    # --- What its core asks for -------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        self.peers.send(message)

    def fetch(self, now_ns: int, wanted: FetchSnapshot) -> None:
        if self.fetching is None:
            self._cannot_fetch = True
        else:
            self.fetching.fetch(now_ns, wanted)

    # --- Turns ------------------------------------------------------------------------------------------

    def step(self, now_ns: int, configuration: Configuration, commit_index: int) -> Sequence[FromMembers]:
        """Called once in each turn of the loop: does what is due, and returns what came of fetching."""
        self.peers.follow(now_ns, configuration)
        self.peers.tick(now_ns)
        self.handing_out.step(now_ns)
        if self._cannot_fetch:
            self._cannot_fetch = False
            return [SnapshotGivenUp(now_ns)]
        found = self.fetching.step(now_ns, configuration, commit_index) if self.fetching is not None else None
        return [found] if found is not None else []

    def deadline_ns(self) -> int | None:
        if self._cannot_fetch:
            return 0
        due_ns = self.peers.deadline_ns()
        fetching_ns = self.fetching.deadline_ns() if self.fetching is not None else None
        for each in (self.handing_out.deadline_ns(), fetching_ns):
            if each is not None and (due_ns is None or each < due_ns):
                due_ns = each
        return due_ns

    def close(self) -> None:
        """Called after the transport closed: what is here of a snapshot stays for the next start."""
        if self.fetching is not None:
            self.fetching.close()

    def _pulls_over(self, link: int) -> bool:
        return self.fetching is not None and self.fetching.owns(link)
