"""A metadata member's snapshots, handed to members that lack the log behind them (RAFT.md, section 8; METADATA.md, 2).

Decides which snapshot is pinned for which member and how long, and that a pull costs a turn no more than one piece. The
puller (fetching.py) decides what is pulled, and when again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from embedbk.codec.messages import encode_message
from embedbk.errors import EmbedbkError
from embedbk.member_ports import KeptSnapshot, SnapshotStore
from embedbk.metadata.raft_messages import PIECE_BYTES_MAX, PullStatus, SnapshotPiece, SnapshotPull
from embedbk.metadata.raft_vocabulary import Boot
from embedbk.ports.transport import Transport

__all__ = ["IDLE_NS_MAX", "PULLERS_MAX", "HandingOut"]

logger = logging.getLogger(__name__)

PULLERS_MAX = 8  # Links over which something is pulled at a time.
IDLE_NS_MAX = 600_000_000_000  # A puller that asks for nothing so long has it pinned no more.


@dataclass(slots=True)
class _Puller:
    named: KeptSnapshot
    asked_ns: int


class HandingOut:
    """The snapshots that one member hands out. snapshots None: it keeps none."""

    def __init__(self, transport: Transport, snapshots: SnapshotStore | None, own: Boot) -> None:
        self._transport = transport
        self._snapshots = snapshots
        self._own = own
        self._pullers: dict[int, _Puller] = {}

    def on_pull(self, now_ns: int, link: int, pull: SnapshotPull) -> None:
        """Answer a pull. The caller has checked that its sender has this link and means this member."""
        if pull.bytes_max == 0:
            self.on_link_down(link)
            return
        head = (self._own, pull.sender.member, pull.index, pull.term, pull.offset)
        status, named = self._begin(now_ns, link, pull)
        piece = SnapshotPiece(*head, status)
        if named is not None and self._snapshots is not None:
            try:
                size = min(pull.bytes_max, PIECE_BYTES_MAX)
                data = self._snapshots.read_kept(named.index, named.term, pull.offset, size)
                piece = SnapshotPiece(*head, PullStatus.OK, named.file_bytes, named.digest, data)
            except (EmbedbkError, OSError) as refused:
                logger.warning("metadata snapshot %s cannot be handed out: %s", named.name, refused)
                piece = SnapshotPiece(*head, PullStatus.LATER)
        self._transport.send(link, encode_message(0, piece))  # Not taken: it will be asked for again.

    def _begin(self, now_ns: int, link: int, pull: SnapshotPull) -> tuple[PullStatus, KeptSnapshot | None]:
        kept = self._snapshots.kept if self._snapshots is not None else []
        named = next((each for each in kept if (each.index, each.term) == (pull.index, pull.term)), None)
        if named is None:
            return PullStatus.GONE, None
        puller = self._pullers.get(link)
        if puller is None and len(self._pullers) >= PULLERS_MAX:
            return PullStatus.LATER, None
        if puller is None or puller.named != named:
            assert self._snapshots is not None
            self._snapshots.pin(named.name)
            self.on_link_down(link)
            self._pullers[link] = puller = _Puller(named, now_ns)
        puller.asked_ns = now_ns
        return PullStatus.OK, named

    def on_link_down(self, link: int) -> None:
        """Called when a link is down, or nothing is pulled over it any more."""
        puller = self._pullers.pop(link, None)
        if puller is not None and self._snapshots is not None:
            self._snapshots.unpin(puller.named.name)

    def step(self, now_ns: int) -> None:
        if not self._pullers:
            return
        for link in [link for link, each in self._pullers.items() if now_ns - each.asked_ns >= IDLE_NS_MAX]:
            self.on_link_down(link)

    def deadline_ns(self) -> int | None:
        if not self._pullers:
            return None
        return min(each.asked_ns for each in self._pullers.values()) + IDLE_NS_MAX
