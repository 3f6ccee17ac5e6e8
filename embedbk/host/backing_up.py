"""A metadata member's snapshots, read by clients that keep a copy elsewhere (METADATA.md, 10).

Decides when a snapshot satisfies a request: when it holds everything that was acknowledged before the request, so only
a leader can tell, once a quorum has confirmed that it still led then. It is cut, written, named and durable like every
other (snapshotting.py), and read from its file by offset, so a copy may take any time. Nothing is pinned: a snapshot
that is gone meanwhile is refused, and requested again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from embedbk.codec.metadata_messages import MetadataReply, MetadataRequest, NotLeader, Refusal, Result
from embedbk.codec.quorum_messages import SNAPSHOT_BYTES_MAX, Backup, CutSnapshot, SnapshotBytes, SnapshotCut
from embedbk.errors import UsageError
from embedbk.member_ports import SnapshotStore
from embedbk.metadata.governing import REFUSED
from embedbk.metadata.vocabulary import Reply

__all__ = ["ASKED_MAX", "BackingUp"]

ASKED_MAX = 16  # Copies that wait for their snapshot.


class _Asked(NamedTuple):
    link: int
    request: MetadataRequest
    up_to: int  # The snapshot must stand for everything up to here, at least.
    at_ns: int  # When it was asked for.


class BackingUp:
    """The backups of one member. snapshots None: it keeps none."""

    def __init__(self, snapshots: SnapshotStore | None) -> None:
        self._snapshots = snapshots
        self._asked: list[_Asked] = []

    @property
    def is_asked(self) -> bool:
        return bool(self._asked)

    @property
    def wanted_index(self) -> int:
        """A backup waits for a snapshot up to this index; 0: none does."""
        return max(asked.up_to for asked in self._asked) if self._asked else 0

    def ask(self, now_ns: int, link: int, request: MetadataRequest, promised_index: int) -> Reply | None:
        """An answer, or None: it comes when the snapshot counts. promised_index: of what a leader has promised."""
        operation = request.operation
        assert isinstance(operation, Backup)
        snapshots = self._snapshots
        if snapshots is None:
            return _reply(link, request, Refusal("BAD_REQUEST", "this metadata member keeps no snapshots"))
        if not isinstance(operation, CutSnapshot):
            return _reply(
                link, request, self._read(snapshots, operation.index, operation.term, operation.offset)
            )
        if len(self._asked) >= ASKED_MAX:
            text = f"{ASKED_MAX} snapshots are asked for already: try again later"
            return _reply(link, request, Refusal(REFUSED, text))
        self._asked.append(_Asked(link, request, promised_index, now_ns))
        return None

    def end_link(self, link: int) -> None:
        self._asked = [asked for asked in self._asked if asked.link != link]

    def step(
        self, failure: str, is_confirmed: Callable[[int], bool], not_leader: NotLeader | None
    ) -> list[Reply]:
        """The requests that are answered now.

        failure: why the last snapshot could not be written; empty: it could. is_confirmed: whether this member led at a
        time for certain. not_leader: it does not lead.
        """
        if not self._asked or self._snapshots is None:
            return []
        newest = self._snapshots.kept[-1] if self._snapshots.kept else None
        waiting, replies = self._asked, list[Reply]()
        self._asked = []
        for asked in waiting:
            result: Result | None = None
            if not_leader is not None:
                result = not_leader
            elif newest is not None and newest.index >= asked.up_to and is_confirmed(asked.at_ns):
                result = SnapshotCut(newest.index, newest.term, newest.file_bytes, newest.digest)
            elif failure:
                result = Refusal(REFUSED, f"no snapshot can be written: {failure}")
            if result is None:
                self._asked.append(asked)
            else:
                replies.append(_reply(asked.link, asked.request, result))
        return replies

    @staticmethod
    def _read(snapshots: SnapshotStore, index: int, term: int, offset: int) -> Result:
        named = next((each for each in snapshots.kept if (each.index, each.term) == (index, term)), None)
        if named is None:
            text = f"snapshot {index} of term {term} is not kept any more: newer ones took its place; ask for another"
            return Refusal(REFUSED, text)
        try:
            return SnapshotBytes(snapshots.read_kept(index, term, offset, SNAPSHOT_BYTES_MAX))
        except (OSError, UsageError) as refused:
            return Refusal(REFUSED, f"snapshot {named.name} cannot be read: {refused}")


def _reply(link: int, request: MetadataRequest, result: Result) -> Reply:
    return Reply(link, MetadataReply(request.session, request.sequence, result))
