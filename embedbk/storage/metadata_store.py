"""The durable side of a metadata member: its log of commands, and its snapshots (METADATA.md).

Decides when a snapshot is due and what the catalog is at start. The log is the C journal in its own directory (never
the bookie's, whose bursts would delay it), or one in memory.

Snapshots are files beside it (snapshots.py): the start takes the newest that counts and replays what comes behind it.
In logs of older builds they lie *in* the log, as chunk records between the commands; one of these stands for every
command before its first chunk. They are read, and no longer written. Who the member is stands in the first record, and
again before each snapshot is named, so a log cannot be without it, and an emptied directory is another member of
another cluster (P10.3).

How far the log was used is noted beside it (member_notes.py), behind its durability and before anybody hears of it. A
log that has less is refused, until its owner says that something may be lost: then a new generation begins (P9.2).
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from embedbk.errors import StorageError, UsageError, ensure
from embedbk.ids import INCARNATION_BYTES
from embedbk.metadata.catalog import DEFAULT_LIMITS, Catalog, Limits
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import StartMember, decode_command
from embedbk.ports import Journal
from embedbk.storage.journal import FILE_BYTES, FIRST_FILE_BYTES, DamagedJournal
from embedbk.storage.journal import Journal as DiskJournal
from embedbk.storage.layout import LOSS_FILE
from embedbk.storage.member_notes import FileNotes, MemberNotes, Used, what_is_missing
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.probe import choose_sync
from embedbk.storage.raw_files import RawDirectory
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import SNAPSHOT_DIRECTORY
from embedbk.storage.snapshots import KIND_NAMED, Found, Named, Snapshots, look_for_base, names_of

__all__ = ["SNAPSHOT_DUE_BYTES", "MemberIdentity", "MetadataStore", "open_metadata_store"]

logger = logging.getLogger(__name__)

KIND_COMMAND = 1  # The record's ledger_id is the command's index, its body `encode_command`.
KIND_IDENTITY = 3  # The body is `_IDENTITY`.
KIND_SNAPSHOT = 2  # Of an older build: ledger_id is the index that the snapshot stands for; the body a chunk.

# number of the chunk, count of chunks, bytes of the whole snapshot
_CHUNK = struct.Struct("<IIQ")
# version, cluster token, incarnation
_IDENTITY = struct.Struct("<B16s16s")
IDENTITY_VERSION = 1

SNAPSHOT_DUE_BYTES = 16 << 20  # Commands since the last snapshot, at least.
SNAPSHOT_DUE_FACTOR = 4  # And at least so many times the last snapshot: about a fifth of what is written.
NOTE_SYNCED_BYTES = (
    4 << 20
)  # Of commands, behind which the note is synced again; each start and each stop does.
COMMAND_OVERHEAD_BYTES = 64  # What a record costs beside its body, for the sum above.


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """Whose log this is: minted with an empty one (P10.3)."""

    cluster_token: bytes
    incarnation: bytes

    @classmethod
    def mint(cls) -> MemberIdentity:
        return cls(os.urandom(INCARNATION_BYTES), os.urandom(INCARNATION_BYTES))


def open_metadata_store(
    directory: str | os.PathLike[str],
    *,
    io: MemoryDisk | None = None,
    file_bytes: int = FILE_BYTES,
    threaded: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    snapshot_due_bytes: int = SNAPSHOT_DUE_BYTES,
    new_identity: MemberIdentity | None = None,
    may_have_lost: bool = False,
    notes: MemberNotes | None = None,
) -> MetadataStore:
    """The store in a directory, made if its parent is there: a new cluster in an empty one.

    may_have_lost: its owner's word that the log may be older than what others have heard of it, or shorter than it was;
    so does an empty file MAY_HAVE_LOST in the directory, which is removed when it was heeded. notes: of a log that is
    not on a real disk; None: none are kept there.

    Raises:
        StorageError: the directory cannot be used, is in use, or holds a damaged log or another kind of journal, or one
            that has less than it was used for.
        UsageError: file_bytes cannot hold a transaction of the largest size; or the directory is a bookie's.
    """
    file_bytes_min = 2 * (limits.txn_bytes_max + limits.txn_operations_max * limits.key_bytes_max)
    if file_bytes < file_bytes_min:
        raise UsageError(f"file_bytes={file_bytes}: a metadata log needs at least {file_bytes_min}")
    if io is None:
        _refuse_a_bookies(directory)
    if io is None:
        directory = os.path.abspath(directory)  # Of a member that runs on, wherever its process works then.
    word: Path | None = None
    if io is None:
        notes, word = FileNotes(Path(directory)), Path(directory) / LOSS_FILE
        may_have_lost = may_have_lost or word.exists()
    sync_apart = io is None and choose_sync(os.path.dirname(directory)).is_apart
    with _hinting_at_copies():
        journal = DiskJournal(
            directory,
            io=io,
            file_bytes=file_bytes,
            first_file_bytes=max(FIRST_FILE_BYTES, -(-file_bytes_min // 4096) * 4096),
            threaded=threaded,
            sync_apart=sync_apart,
        )
    try:
        with _hinting_at_copies():
            store = MetadataStore(
                journal,
                journal.facts().first_token,
                limits=limits,
                snapshot_due_bytes=snapshot_due_bytes,
                snapshots=SnapshotFiles(
                    os.path.join(directory, SNAPSHOT_DIRECTORY), io=io, threaded=threaded and io is None
                ),
                new_identity=new_identity,
                notes=notes,
                may_have_lost=may_have_lost,
                word=word,
            )
        journal.wait(journal.next_token() - 1)  # Nobody may hear of an identity that a crash could take back.
        return store
    except BaseException:
        journal.close()
        raise


@contextmanager
def _hinting_at_copies() -> Iterator[None]:
    """Damage of this log is not healed by another node: nobody else has these records."""
    try:
        yield
    except DamagedJournal as damaged:
        raise DamagedJournal(
            damaged.args[0],
            hint="nobody else has this member's records: restore its directory from a copy and start it with "
            "--may-have-lost; without a copy, begin a new cluster in an empty directory",
        ) from damaged


def _refuse_a_bookies(directory: str | os.PathLike[str]) -> None:
    """A new cluster must not begin in the midst of a bookie's files, where nobody would tell them apart."""
    try:
        names = os.listdir(directory)
    except OSError:
        return  # Not there yet; or the journal says what is wrong with it.
    held = sorted({"IDENTITY", "entries", "journal"} & set(names))
    if held and not any(name.startswith("journal-") for name in names):  # It has no log of its own there yet.
        raise UsageError(
            f"directory {os.fspath(directory)} holds {', '.join(held)}: it is a bookie's, not a metadata member's",
            hint="give the member a directory of its own",
        )


class MetadataStore:
    """Log and snapshots of one member. Opening has replayed what is durable: take `catalog`, it is the caller's."""

    def __init__(
        self,
        journal: Journal,
        first_token: int,
        *,
        limits: Limits = DEFAULT_LIMITS,
        snapshot_due_bytes: int = SNAPSHOT_DUE_BYTES,
        snapshots: RawDirectory | None = None,
        new_identity: MemberIdentity | None = None,
        notes: MemberNotes | None = None,
        may_have_lost: bool = False,
        word: Path | None = None,
    ) -> None:
        """first_token: the journal's oldest record (0 or its next token when it is empty). snapshots: their directory;
        one that can only be read, or None, gets none. new_identity: for an empty log, minted if None. notes: where it
        is noted how far the log was used. word: the file by which its owner may have said that something may be lost.

        Raises:
            StorageError: the log is damaged, or begins after a trimmed part of which no snapshot is whole, or has less
                than it was used for, and its owner has not said so.
        """
        self._journal = journal
        self._snapshot_due_bytes = snapshot_due_bytes
        self._command_bytes = 0  # In the log since the last snapshot, or since the one under way was begun.
        self._command_bytes_before = 0  # What it was when the one under way was begun.
        self._snapshot_bytes = 0  # Of the last snapshot.
        # Records of commands have tokens in a row: (index of the first of a row, what its token is more).
        self._rows: deque[tuple[int, int]] = deque()
        self._queued: deque[tuple[int, int]] = deque()  # (journal token, index) of commands not yet durable.
        self._notes = notes
        self._word = word
        self._noted_token = 0
        self._note_failure = ""
        self._unsynced_bytes = 0  # Of commands since the note was synced.
        self._is_start_noted = False
        self._identity: MemberIdentity | None = None
        named = self._scan(first_token, snapshots)
        own = self._identity.cluster_token if self._identity is not None else b""
        found = self.snapshots_found = look_for_base(snapshots, named, own, limits)
        self.catalog, self._index = self._replay(first_token, limits, found)
        # Number and random bytes of the newest start in the log.
        self._start = self.catalog.start_count, self.catalog.starts[-1].nonce if self.catalog.starts else b""
        self._own_index = self._index + 1  # The first command of this process says that it started.
        self._durable_index = self._index
        # Whoever starts on it begins a new generation, above all that a lost part of it may have given out (P9.2).
        self.begins_generation = may_have_lost and self._index > 0
        # A start is one command, the beginning of a generation another: what comes behind is told to others.
        self._start_index = self._index + 1 + self.begins_generation
        used = self._check_used(may_have_lost)
        if self._identity is None:
            noted = MemberIdentity(used.cluster_token, used.incarnation) if used is not None else None
            self._identity = noted or new_identity or MemberIdentity.mint()
            self._append_identity()
        self.snapshots: Snapshots | None = None
        if isinstance(snapshots, SnapshotFiles):
            self.snapshots = Snapshots(
                snapshots,
                journal,
                found,
                cluster_token=self.identity.cluster_token,
                incarnation=self.identity.incarnation,
                token_of=self._token_of,
                identify=self._append_identity,
            )
            self.snapshots.tidy(found.refused, self._index)
        if notes is not None and used is None and not self.begins_generation:
            self._note(0, is_synced=True)  # From the first start on a log without a note has lost it.
            if self._note_failure:
                raise StorageError(f"metadata log: nothing can be noted beside it: {self._note_failure}")

    @property
    def identity(self) -> MemberIdentity:
        assert self._identity is not None
        return self._identity

    @property
    def index(self) -> int:
        """Index of the last command in the log; that of the first is 1."""
        return self._index

    def append(self, index: int, body: bytes) -> None:
        """Queue an encoded command.

        Raises:
            StorageError: the journal failed or is full.
        """
        ensure(index == self._index + 1, f"command {index} does not follow {self._index}")
        token = self._journal.append(KIND_COMMAND, index, body)
        self._note_row(index, token)
        self._index = index
        if index == self._own_index and isinstance(started := decode_command(body), StartMember):
            self._start = self._start[0] + 1, started.nonce
        self._queued.append((token, index))
        self._command_bytes += len(body) + COMMAND_OVERHEAD_BYTES
        self._unsynced_bytes += len(body) + COMMAND_OVERHEAD_BYTES

    def durable(self) -> int:
        """Every command up to this index is on the device. Never falls. Clears the descriptor's readiness."""
        token = self._journal.durable()
        while self._queued and self._queued[0][0] <= token:
            self._durable_index = self._queued.popleft()[1]
        if self._notes is not None and token > self._noted_token and self._durable_index >= self._start_index:
            self._note_use(token)
        if self.snapshots is not None and self.snapshots.step(token, self._durable_index):
            self._snapshot_bytes = self.snapshots.kept[-1].file_bytes
        return self._durable_index

    def failed(self) -> str | None:
        """Why the log stopped for good, or None (P7.6)."""
        return self._journal.failed()

    def filenos(self) -> list[int]:
        """Descriptors that become readable when `durable()` has something to tell."""
        fileno = self._journal.fileno()
        more = self.snapshots.filenos() if self.snapshots is not None else []
        return [*([fileno] if fileno >= 0 else []), *more]

    def is_snapshot_due(self) -> bool:
        """The log grew so far since the last snapshot that the next one pays for itself."""
        if self.snapshots is None or self.snapshots.is_under_way:
            return False
        return self._command_bytes >= max(
            self._snapshot_due_bytes, SNAPSHOT_DUE_FACTOR * self._snapshot_bytes
        )

    def begin_snapshot(self, index: int, revision: int, record_count: int, session_count: int) -> Snapshots:
        """Begin a snapshot of the catalog as it is behind command `index`. Its pieces are added to what this returns;
        `durable()` carries it on from there, and trims the log when it counts."""
        assert self.snapshots is not None
        self.snapshots.begin(index, revision, record_count, session_count)
        self._command_bytes_before, self._command_bytes = self._command_bytes, 0
        return self.snapshots

    def abandon_snapshot(self) -> None:
        """What is under way cannot be written: it is as due as it was."""
        assert self.snapshots is not None
        self.snapshots.abandon()
        self._command_bytes += self._command_bytes_before

    def close(self) -> None:
        """Make what is queued durable and release the directory."""
        if self._notes is not None and self._is_start_noted and self._journal.failed() is None:
            with contextlib.suppress(StorageError):
                last = self._journal.next_token() - 1
                self._journal.wait(last)
                self._note(last, is_synced=True)
        if self.snapshots is not None:
            self.snapshots.close()
        self._journal.close()

    def _append_identity(self) -> int:
        body = _IDENTITY.pack(IDENTITY_VERSION, self.identity.cluster_token, self.identity.incarnation)
        return self._journal.append(KIND_IDENTITY, 0, body)

    def _note_row(self, index: int, token: int) -> None:
        if not self._rows or self._rows[-1][1] != token - index:
            self._rows.append((index, token - index))

    def _token_of(self, index: int) -> int:
        """The record of a command that is in the log; 0: it is not there any more. What is before it is forgotten."""
        while len(self._rows) > 1 and self._rows[1][0] <= index:
            self._rows.popleft()
        return index + self._rows[0][1] if self._rows and self._rows[0][0] <= index else 0

    # --- How far it was used -----------------------------------------------------------------------------

    def _check_used(self, may_have_lost: bool) -> Used | None:
        """The note, or None where there is none yet, or none that counts by its owner's word."""
        if self._notes is None:
            return None
        last_token = self._journal.next_token() - 1
        try:
            used = self._notes.read()
        except StorageError:
            if not self.begins_generation:
                raise
            return None
        own = self._identity
        if (
            used is not None
            and own is not None
            and (used.cluster_token, used.incarnation)
            != (
                own.cluster_token,
                own.incarnation,
            )
        ):
            raise StorageError(
                f"metadata log: it is of the cluster {own.cluster_token.hex()}, and what was noted beside it of "
                f"{used.cluster_token.hex()}",
                hint="give the member its own directory back, whole",
            )
        known = self.catalog.tell(used.start_count if used is not None else 0, b"").asked
        missing = what_is_missing(
            used, last_token, self.catalog.start_count, known.nonce if known is not None else None
        )
        if missing and self._index == 0:
            raise StorageError(
                f"metadata log: {missing}; nothing of it is left",
                hint="put a copy of the whole directory in its place; an older one is started with --may-have-lost",
            )
        if missing and not may_have_lost:
            raise StorageError(
                f"metadata log: {missing}; who goes on from here gives out ids and epochs twice",
                hint="put the directory back whole; or, if there is no better copy, start it with --may-have-lost, or "
                f"with an empty file {LOSS_FILE} in its directory, which begins a new generation",
            )
        if missing:
            logger.warning("metadata log: %s; its owner says to go on", missing)
        return None if self.begins_generation else used

    def _note_use(self, token: int) -> None:
        """The log was used up to token, durably. With the first note of a start its owner's word was heeded."""
        is_first = not self._is_start_noted
        self._note(token, is_synced=is_first or self._unsynced_bytes >= NOTE_SYNCED_BYTES)
        self._is_start_noted = not is_first or not self._note_failure
        if is_first and self._is_start_noted and self._word is not None and self.begins_generation:
            try:
                self._word.unlink(missing_ok=True)
            except OSError as refused:
                logger.error(
                    "%s cannot be removed, and says to begin another generation: %s", self._word, refused
                )

    def _note(self, token: int, *, is_synced: bool) -> None:
        """A note that cannot be written changes nothing: less is known to whoever starts next."""
        assert self._notes is not None
        identity, (count, newest) = self.identity, self._start
        try:
            self._notes.write(
                Used(identity.cluster_token, identity.incarnation, count, newest, token), is_synced=is_synced
            )
        except StorageError as refused:
            if str(refused) != self._note_failure:
                logger.error("metadata member: %s", refused)
            self._note_failure = str(refused)
            return
        self._noted_token, self._note_failure = token, ""
        if is_synced:
            self._unsynced_bytes = 0

    # --- Start -------------------------------------------------------------------------------------------

    def _scan(self, first_token: int, snapshots: RawDirectory | None) -> list[Named]:
        """The snapshots that the log names, the oldest first; and whose it is. Where there are no files of any, what it
        holds is replayed without."""
        if snapshots is None or not names_of(snapshots):
            return []
        named: list[Named] = []
        for token, kind, number, body in self._journal.replay(max(0, first_token - 1)):
            if kind == KIND_NAMED:
                named.append(Named.decode(token, number, body))
            elif kind == KIND_IDENTITY:
                self._take_identity(token, body)
        return named

    def _replay(self, first_token: int, limits: Limits, found: Found) -> tuple[Catalog, int]:
        """The catalog as snapshot and log tell it, and the index of the last command.

        Behind a snapshot of its own file, what the log has beyond it is replayed. Without one, a log that still has its
        first record is replayed from there; any other begins, in a log of an older build, with what was left over when
        it was trimmed, then a snapshot in chunks: commands before that snapshot's first chunk are already in it.
        """
        if first_token == 0 and self._journal.next_token() > 1:
            raise StorageError(f"metadata log: all {self._journal.next_token() - 1} records of it are gone")
        catalog, index = found.catalog or Catalog(limits), found.index
        has_start = first_token <= 1 or found.catalog is not None
        part = _PartialSnapshot()
        previous = 0
        named: Named | None = None
        for token, kind, number, body in self._journal.replay(max(0, first_token - 1)):
            if kind == KIND_COMMAND:
                if previous and number != previous + 1:
                    raise StorageError(f"metadata log: command {number} in record {token} follows {previous}")
                if has_start and number > index + 1:
                    raise StorageError(
                        f"metadata log: its first command is {number}, and the snapshot before it ends with {index}"
                    )
                previous = number
                self._note_row(number, token)
                if has_start and number <= index:
                    continue  # The snapshot has it.
                self._command_bytes += len(body) + COMMAND_OVERHEAD_BYTES
                if has_start:
                    catalog.apply(decode_command(body), number, FIRST_TERM)
                    index = number
                else:
                    part.commands.append((number, bytes(body)))
            elif kind == KIND_SNAPSHOT:
                whole = part.take(number, body)
                if whole is None or part.index < found.index:
                    continue
                self._snapshot_bytes = len(whole)
                self._command_bytes = sum(
                    len(command) + COMMAND_OVERHEAD_BYTES for _, command in part.commands
                )
                if has_start:
                    continue
                catalog, index, has_start = Catalog.restore(whole, limits), part.index, True
                for command_index, command in part.commands:
                    catalog.apply(decode_command(command), command_index, FIRST_TERM)
                    index = command_index
                previous = index
            elif kind == KIND_IDENTITY:
                self._take_identity(token, body)
            elif kind == KIND_NAMED:
                named = Named.decode(token, number, body)
            else:
                raise StorageError(
                    f"metadata log: record {token} is of kind {kind}, known are 1 to {KIND_NAMED}"
                )
        if not has_start and (previous or part.index or named):
            why = found.why() or (f"{named.name}: the file is missing" if named else "it names none")
            raise StorageError(
                f"metadata log: it begins with record {first_token} and holds no whole snapshot of what came before "
                f"({why})",
                hint="put the files back from a copy, or restore the member's directory from one, or begin a new "
                "cluster in an empty directory",
            )
        if found.catalog is not None and previous < found.index:
            raise StorageError(
                f"metadata log: it ends with command {previous}, and {found.kept[-1].name} stands for more",
                hint="put the member's directory back whole",
            )
        if found.catalog is not None:
            self._snapshot_bytes = found.kept[-1].file_bytes
        if found.refused:
            logger.warning(
                "metadata member starts from %s: %s",
                f"snapshot {found.kept[-1].name}" if found.kept else "its log alone",
                found.why(),
            )
        if index and self._identity is None:
            raise StorageError("metadata log: it does not say whose it is")
        return catalog, index

    def _take_identity(self, token: int, body: memoryview) -> None:
        if len(body) != _IDENTITY.size or body[0] != IDENTITY_VERSION:
            raise StorageError(f"metadata log: record {token} is no identity of version {IDENTITY_VERSION}")
        _, cluster_token, incarnation = _IDENTITY.unpack(body)
        found = MemberIdentity(cluster_token, incarnation)
        if self._identity not in (None, found):
            raise StorageError(
                f"metadata log: record {token} names another member than the records before it"
            )
        self._identity = found


class _PartialSnapshot:
    """Chunks of a snapshot as they are found in the log, and the commands since its first one."""

    def __init__(self) -> None:
        self.index = 0
        self.chunks: list[bytes] = []
        self.commands: list[tuple[int, bytes]] = []

    def take(self, index: int, body: memoryview) -> bytes | None:
        """Take the next chunk; the whole snapshot when it was the last one."""
        number, count, size = _CHUNK.unpack_from(body)
        if number == 0:
            self.index = index
            self.chunks = []
            self.commands = []
        elif index != self.index or number != len(self.chunks):
            return None  # The rest of one whose beginning was trimmed, or that a crash cut off before.
        self.chunks.append(bytes(body[_CHUNK.size :]))
        if number + 1 < count:
            return None
        data = b"".join(self.chunks)
        if len(data) != size:
            raise StorageError(
                f"metadata log: the snapshot of command {index} has {len(data)} of {size} bytes"
            )
        return data
