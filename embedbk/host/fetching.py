"""A snapshot of another member is pulled over a link of its own, piece by piece (RAFT.md, section 8; METADATA.md, 2).

Decides which member to ask for which bytes and when again: by offset, continuing with the bytes at hand after a lost
link or a restart, as long as it takes. Only a stall ends an attempt, and only attempts that bring nothing end the
whole. storage/fetched_file.py checks the file; the core decides whether it counts once it is here, however late that
is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from embedbk.codec.messages import encode_message
from embedbk.errors import StorageError, UsageError
from embedbk.member_ports import FetchedSnapshot, SnapshotHead, SnapshotStore
from embedbk.metadata.log_records import decode_configuration
from embedbk.metadata.patience import Patience
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_messages import PIECE_BYTES_MAX, PullStatus, SnapshotPiece, SnapshotPull
from embedbk.metadata.raft_vocabulary import Boot, FetchSnapshot, SnapshotFetched, SnapshotGivenUp
from embedbk.ports.links import Identity, LinkDown, LinkUp
from embedbk.ports.transport import Transport

__all__ = ["ATTEMPTS_MAX", "PAUSE_NS_MAX", "PAUSE_NS_MIN", "Fetching"]

logger = logging.getLogger(__name__)

PAUSE_NS_MIN = 100_000_000  # Between two attempts; doubled while they bring nothing.
PAUSE_NS_MAX = 30_000_000_000
ATTEMPTS_MAX = 8  # Attempts in a row that brought nothing: then the leader may offer another snapshot.


@dataclass(slots=True)
class _Task:
    """The snapshot that is fetched now."""

    wanted: FetchSnapshot
    patience: Patience = field(default_factory=Patience)
    file: FetchedSnapshot | None = None
    link: int | None = None
    peer: Boot | None = None  # Behind the link, when it is up.
    is_shared: bool = False  # The link is that of the messages.
    turn: int = 0  # Which of the source's endpoints is next.
    due_ns: int = 0  # Without a link: when it is dialled. With one: when what was asked for is late.
    asked_ns: int | None = None  # The piece at the file's offset; None: nothing is asked for.
    asked_size: int = 0
    is_late: bool = False  # It was asked for more than once.
    is_checked: bool = False  # All of it was given to the file, and is looked at.
    pause_ns: int = PAUSE_NS_MIN
    attempts: int = 0  # Attempts in a row that brought nothing.
    begin_offset: int = 0  # Where this attempt began.
    file_bytes: int = 0
    digest: bytes = b""


class Fetching:
    """The fetching of one member; one snapshot at a time, the last that the core wanted. All calls from the host's
    thread."""

    def __init__(
        self,
        transport: Transport,
        own: Boot,
        cluster_token: bytes,
        snapshots: SnapshotStore,
        shared: Callable[[MemberId], tuple[int, Boot] | None],
        seeds: Sequence[str] = (),
    ) -> None:
        """shared: a link that a member made to speak to this one, and its process, for one that is at no address known
        here: a learner has no configuration before it has the snapshot. One piece at a time goes there, too. seeds:
        where members may be, beside that."""
        self.trouble = ""  # Why the last attempt ended.
        self._shared = shared
        self._seeds = tuple(seeds)
        self._transport = transport
        self._own = own
        self._token = cluster_token
        self._snapshots = snapshots
        self._task: _Task | None = None
        self._last: Patience | None = None
        self._links: dict[int, None] = {}  # All of ours that are not down yet.
        self._configuration = Configuration(())
        # A file at hand that belongs to no task: of an earlier start, or never taken.
        self._left = snapshots.newest_fetched()

    @property
    def wanted(self) -> FetchSnapshot | None:
        return self._task.wanted if self._task is not None else None

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes that are here, of how many; 0, 0: nothing is known yet."""
        task = self._task
        return (task.file.offset, task.file_bytes) if task is not None and task.file is not None else (0, 0)

    @property
    def patience(self) -> Patience | None:
        """Measurements of the transfer that is under way, or of the last one that brought a snapshot."""
        return self._task.patience if self._task is not None else self._last

    def fetch(self, now_ns: int, wanted: FetchSnapshot) -> None:
        """Pull this one; drop the bytes that were pulled under another name, or from another source."""
        task = self._task
        if task is not None:
            if (task.wanted.index, task.wanted.term) == (wanted.index, wanted.term):
                if task.wanted.source.member != wanted.source.member:
                    self._end_attempt(now_ns, task, "another member offers it", is_failure=False)
                task.wanted = wanted
                return
            self._let_go()
        self._task = _Task(wanted, due_ns=now_ns)

    def step(
        self, now_ns: int, configuration: Configuration, commit_index: int
    ) -> SnapshotFetched | SnapshotGivenUp | None:
        """Go on with it. configuration: where its source listens. An event for the core ends it."""
        self._configuration = configuration
        task = self._task
        if task is None:
            if self._left is not None and self._left <= commit_index:
                self._left = None  # It was installed, or is needed no more.
                self._snapshots.remove_fetched()
            return None
        if task.wanted.index <= commit_index and not task.is_checked:
            self._let_go()  # It came by other ways.
            return SnapshotGivenUp(now_ns)
        if task.file is not None and (task.file.damage or task.file.failure is not None):
            self._end_attempt(now_ns, task, task.file.damage or str(task.file.failure))
        elif task.file is not None and task.file.whole is not None:
            return self._finish(now_ns, task.file.whole)
        if task.attempts >= ATTEMPTS_MAX:
            logger.warning(
                "metadata snapshot %d is not to be had of %s: %s",
                *(task.wanted.index, task.wanted.source.member.name, self.trouble),
            )
            self._task, self._left = None, task.wanted.index
            return SnapshotGivenUp(now_ns)
        if task.is_checked:
            return None
        if task.link is None:
            if now_ns >= task.due_ns:
                self._dial(now_ns, task)
        elif task.peer is not None:
            self._ask_in_time(now_ns, task)
        return None

    def deadline_ns(self) -> int | None:
        """The thread that writes wakes the host by the snapshots' descriptor."""
        task = self._task
        if task is None:
            return None
        if task.file is not None and (task.file.whole or task.file.damage or task.file.failure):
            return 0
        if task.is_checked or (task.link is not None and task.asked_ns is None):
            return None
        return task.due_ns

    def close(self) -> None:
        """Keep the bytes at hand for the next start."""
        if self._task is not None and self._task.file is not None:
            self._task.file.stop()
        self._task = None

    # --- The link ---------------------------------------------------------------------------------------

    def owns(self, link: int) -> bool:
        return link in self._links

    def on_link_up(self, now_ns: int, event: LinkUp) -> None:
        task, peer = self._task, event.peer
        if task is None or task.link != event.link:
            self._transport.drop(event.link, "nothing is pulled over it any more")
            return
        if peer.cluster_token != self._token:
            self._transport.drop(event.link, f"{peer.node_id} belongs to another cluster")
            return
        self._begin_attempt(now_ns, task, Boot(MemberId(peer.node_id, peer.incarnation), peer.start))

    def _begin_attempt(self, now_ns: int, task: _Task, peer: Boot) -> None:
        task.peer = peer
        try:
            if task.file is None:
                task.file = self._snapshots.fetch(task.wanted.index, task.wanted.term)
        except (OSError, UsageError) as refused:
            self._end_attempt(now_ns, task, str(refused))
            return
        if task.file.offset:
            name, offset = task.file.name, task.file.offset
            logger.info("metadata snapshot %s is gone on with at byte %d", name, offset)
        task.begin_offset = task.file.offset
        self._ask(now_ns, task)

    def on_link_down(self, now_ns: int, event: LinkDown) -> None:
        """Called for any link that goes down."""
        self._links.pop(event.link, None)
        task = self._task
        if task is not None and task.link == event.link:
            task.link = None
            if not task.is_checked:
                self._end_attempt(now_ns, task, event.reason)

    def _dial(self, now_ns: int, task: _Task) -> None:
        member = task.wanted.source.member
        endpoints: list[str | None] = [*self._configuration.endpoints_of(member)]
        # A member may be reached by a link that it made, also where it is not any more at an address known here: which
        # one it has now may stand behind the snapshot.
        found = self._shared(member)
        if found is not None:
            endpoints.append(None)
        endpoints += [seed for seed in self._seeds if seed not in endpoints]
        if not endpoints:
            self._end_attempt(now_ns, task, f"nobody knows where {member.name} listens, and it is not linked")
            return
        endpoint = endpoints[task.turn % len(endpoints)]
        task.is_shared = endpoint is None
        if endpoint is None:
            assert found is not None
            task.link, task.asked_ns = found[0], None
            self._begin_attempt(now_ns, task, found[1])
            return
        try:
            link = self._transport.connect(
                endpoint, Identity("metadata", member.name, member.incarnation, b"")
            )
        except UsageError as refused:
            self._end_attempt(now_ns, task, str(refused))
            return
        task.link, task.peer, task.asked_ns = link, None, None
        self._links[link] = None

    def _end_attempt(self, now_ns: int, task: _Task, reason: str, *, is_failure: bool = True) -> None:
        """Keep the bytes at hand, and continue after a pause."""
        self.trouble = reason
        logger.info("metadata snapshot %d: %s", task.wanted.index, reason)
        link, task.link, task.peer, task.asked_ns = task.link, None, None, None
        if link is not None and not task.is_shared:
            self._transport.drop(link, f"an attempt to pull a snapshot ended: {reason}"[:200])
        has_come = task.file is not None and task.file.offset > task.begin_offset
        is_lost = task.file is not None and bool(task.file.damage or task.file.failure)
        if task.file is not None:
            task.file.stop()
            task.file, task.is_checked = None, False
        if has_come and not is_lost:
            task.attempts, task.pause_ns = 0, PAUSE_NS_MIN
        elif is_failure:
            task.attempts += 1
        task.turn += 1
        task.due_ns = now_ns + task.pause_ns
        task.pause_ns = min(2 * task.pause_ns, PAUSE_NS_MAX)

    # --- Pieces -----------------------------------------------------------------------------------------

    def _ask_in_time(self, now_ns: int, task: _Task) -> None:
        if task.asked_ns is None:
            self._ask(now_ns, task)
        elif now_ns >= task.due_ns:
            if task.patience.note_stall():
                self._end_attempt(now_ns, task, f"{task.wanted.source.member.name} gives nothing more of it")
                return
            task.is_late = True
            self._ask(now_ns, task)

    def _ask(self, now_ns: int, task: _Task) -> None:
        """For the next piece, once this disk has room for it."""
        file, peer, link = task.file, task.peer, task.link
        assert file is not None
        assert peer is not None
        assert link is not None
        if not file.has_room():
            return  # Its thread wakes the host.
        wanted = task.wanted
        pull = SnapshotPull(self._own, peer.member, wanted.index, wanted.term, file.offset, PIECE_BYTES_MAX)
        self._transport.send(link, encode_message(0, pull))  # Not taken: it is late, and asked for again.
        if task.asked_ns is None:
            task.asked_ns = now_ns
        task.asked_size = min(PIECE_BYTES_MAX, task.file_bytes - file.offset) if task.file_bytes else 0
        task.due_ns = now_ns + task.patience.limit_ns(task.asked_size or PIECE_BYTES_MAX)

    def on_piece(self, now_ns: int, link: int, piece: SnapshotPiece) -> None:
        """For any link. A piece that does not answer the present request came twice, or too late."""
        task = self._task
        if (
            task is None
            or link != task.link
            or task.peer is None
            or task.file is None
            or task.asked_ns is None
        ):
            return
        wanted, file = task.wanted, task.file
        if (piece.sender, piece.receiver) != (task.peer, self._own.member):
            self._end_attempt(
                now_ns, task, f"a piece of {piece.sender.member.name} for {piece.receiver.name}"
            )
            return
        if (piece.index, piece.term, piece.offset) != (wanted.index, wanted.term, file.offset):
            return
        if piece.status is PullStatus.GONE:
            logger.info("metadata snapshot %d is no more at %s", wanted.index, wanted.source.member.name)
            self._give_up(task)
        elif piece.status is PullStatus.LATER:
            self._end_attempt(now_ns, task, f"{wanted.source.member.name} cannot give it now")
        elif self._fits(now_ns, task, piece):
            task.file_bytes, task.digest = piece.file_bytes, piece.digest
            if not task.is_late or task.patience.stalls:
                task.patience.note_piece(len(piece.data), now_ns - task.asked_ns)
            task.asked_ns, task.is_late = None, False
            if piece.data:
                file.add(piece.data)
            if file.offset == piece.file_bytes:
                task.is_checked = True
                file.finish()
            else:
                self._ask(now_ns, task)

    def _fits(self, now_ns: int, task: _Task, piece: SnapshotPiece) -> bool:
        """Whether it is of the file of which the rest is here, and within it."""
        file = task.file
        assert file is not None
        known = (file.header.file_bytes, file.header.digest) if file.header is not None else None
        named = (task.file_bytes, task.digest) if task.file_bytes else known
        if named is not None and named != (piece.file_bytes, piece.digest):
            # The same entries in other bytes: of another source, or cut anew.
            file.stop(keep=False)
            task.file_bytes, task.digest = 0, b""
            self._end_attempt(now_ns, task, "what is here of it is of another file", is_failure=False)
            return False
        left = piece.file_bytes - file.offset
        if len(piece.data) > min(left, PIECE_BYTES_MAX) or (left and not piece.data):
            self._end_attempt(now_ns, task, f"a piece of {len(piece.data)} bytes where {left} are left")
            return False
        return True

    def _give_up(self, task: _Task) -> None:
        self.trouble = "it is gone there"
        task.attempts = ATTEMPTS_MAX
        self._close(task, keep=False)

    def _let_go(self) -> None:
        if self._task is not None:
            self._close(self._task, keep=False)
        self._task = None

    def _close(self, task: _Task, *, keep: bool) -> None:
        link, peer, task.link, task.peer = task.link, task.peer, None, None
        if link is not None and not task.is_shared:
            self._transport.drop(link, "no more is pulled")
        elif link is not None and peer is not None:
            wanted = task.wanted
            last = SnapshotPull(self._own, peer.member, wanted.index, wanted.term, 0, 0)
            # Not taken: it is dropped some minutes later.
            self._transport.send(link, encode_message(0, last))
        if task.file is not None:
            task.file.stop(keep=keep)
            task.file = None

    def _finish(self, now_ns: int, header: SnapshotHead) -> SnapshotFetched | SnapshotGivenUp:
        task = self._task
        assert task is not None
        named = task.file_bytes, task.digest
        self._last = task.patience
        self._close(task, keep=True)
        self._task = None
        try:
            if named != (header.file_bytes, header.digest):
                raise StorageError("it is whole, and not what its source's log names")
            configuration = _configuration_of(header)
        except StorageError as refused:
            self.trouble = str(refused)
            self._snapshots.remove_fetched()
            logger.warning("metadata snapshot %d was fetched in vain: %s", header.index, refused)
            return SnapshotGivenUp(now_ns)
        self._left = header.index
        logger.info("metadata snapshot %d of term %d is here", header.index, header.term)
        return SnapshotFetched(now_ns, header.index, header.term, configuration)


def _configuration_of(header: SnapshotHead) -> Configuration:
    """Raises StorageError. One of before there were configurations was cut by the only voter, whose name is m1."""
    if header.config:
        return decode_configuration(header.config)
    return Configuration((MemberId("m1", header.incarnation),))
