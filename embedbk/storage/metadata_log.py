"""The records of a metadata member's log, and how a start reads them (METADATA.md, 2; I42, I80).

Decides which records there are, whether they are one log of one member, and the state at its end: a snapshot, the
entries behind it, term and vote. Changes nothing on disk. log_use.py decides whether that is less than the log was used
for; metadata_store.py has the log while the member runs.

Builds before members agreed wrote each command as a record of its own. These are entries of term 1.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from embedbk.codec.metadata_messages import Put, Tell, Txn
from embedbk.errors import StorageError, UsageError
from embedbk.ids import INCARNATION_BYTES, START_ID_BYTES, check_bookie_id
from embedbk.metadata.catalog import DEFAULT_LIMITS, Catalog, Limits
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import RaiseTo, Run, StartMember, decode_command
from embedbk.metadata.levels import LEVEL_FIRST
from embedbk.metadata.log_records import check_entries, decode_persist
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_log import entry_bytes
from embedbk.metadata.raft_vocabulary import Boot, Doubt, Entry, Persist
from embedbk.ports.journal import Journal
from embedbk.storage.log_marks import LogMarks
from embedbk.storage.older_snapshots import OlderSnapshots
from embedbk.storage.raw_files import RawDirectory
from embedbk.storage.snapshots import FIRST_MEMBER, KIND_NAMED, Found, Named, Origin, look_for_base, names_of

__all__ = [
    "ENTRY_OVERHEAD_BYTES",
    "FIRST_MEMBER",
    "IDENTITY",
    "KIND_COMMAND",
    "KIND_IDENTITY",
    "KIND_SALVAGED",
    "KIND_SNAPSHOT",
    "KIND_STEP",
    "OLDER_IDENTITY",
    "SALVAGED",
    "LogFound",
    "MemberIdentity",
    "Salvaged",
    "LogStart",
    "decode_identity",
    "encode_identity",
    "parts_of",
    "read_log",
]

logger = logging.getLogger(__name__)

KIND_COMMAND = (
    1  # From an older build: the record's ledger_id is the command's index, its body `encode_command`.
)
KIND_SNAPSHOT = 2  # From an older build: ledger_id is the index of the snapshot; the body a chunk.
KIND_IDENTITY = 3  # The body is `IDENTITY` and the member's name.
KIND_STEP = 5  # The body is `encode_persist`, ledger_id the index of the last entry behind it.
KIND_SALVAGED = (
    6  # The body is `SALVAGED`: the log begins here, behind one that was damaged (log_salvage.py).
)

# version, starts of the member until then, and its doubt: term, index
SALVAGED = struct.Struct("<BQQQ")
SALVAGED_VERSION = 1

# version, cluster token, incarnation, flags, start count, start nonce, bytes of the name that follows
IDENTITY = struct.Struct(f"<B16s16sBQ{START_ID_BYTES}sB")
IDENTITY_VERSION = 2
# version, cluster token, incarnation
OLDER_IDENTITY = struct.Struct("<B16s16s")
OLDER_IDENTITY_VERSION = 1
FOUNDER = 1  # Flag: it began the cluster, and is its only voter as long as the log names no other.

RECORD_BYTES_MAX = 1 << 20  # Bytes of several entries in one record: a journal bounds its records.
ENTRY_OVERHEAD_BYTES = 64  # Bytes of an entry beside its body, for the sum by which a snapshot is due.


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The owner of a log: minted with an empty one (P10.3). is_founder: it began the cluster, alone."""

    cluster_token: bytes
    incarnation: bytes
    name: str = FIRST_MEMBER
    is_founder: bool = True

    @classmethod
    def mint(cls, name: str = FIRST_MEMBER) -> MemberIdentity:
        """The identity of a member that begins a cluster."""
        return cls(os.urandom(INCARNATION_BYTES), os.urandom(INCARNATION_BYTES), name)

    @property
    def member(self) -> MemberId:
        return MemberId(self.name, self.incarnation)

    @property
    def first_configuration(self) -> Configuration:
        """The configuration until the log has another. A member that did not begin the cluster has no vote."""
        return Configuration((self.member,) if self.is_founder else ())


@dataclass(frozen=True, slots=True)
class Salvaged:
    """Facts about a damaged log beside the records that were taken over. doubt: what the member may have acknowledged;
    it is valid until a later start notes something else."""

    start_count: int
    doubt: Doubt

    def encode(self) -> bytes:
        return SALVAGED.pack(
            SALVAGED_VERSION, self.start_count, self.doubt.term, self.doubt.acknowledged_index
        )

    @classmethod
    def decode(cls, token: int, body: bytes | memoryview) -> Salvaged:
        """Raises StorageError for bytes of no version that this code knows."""
        if len(body) != SALVAGED.size or body[0] != SALVAGED_VERSION:
            raise StorageError(
                f"metadata log: record {token} tells of no salvage in version {SALVAGED_VERSION}"
            )
        _, start_count, term, index = SALVAGED.unpack(body)
        return cls(start_count, Doubt(term, index))


@dataclass(frozen=True, slots=True)
class LogStart:
    """One process of the member on its log."""

    count: int
    nonce: bytes


def encode_identity(identity: MemberIdentity, start: LogStart) -> bytes:
    name = identity.name.encode()
    flags = FOUNDER if identity.is_founder else 0
    fields = (identity.cluster_token, identity.incarnation, flags, start.count, start.nonce, len(name))
    return IDENTITY.pack(IDENTITY_VERSION, *fields) + name


def decode_identity(token: int, body: bytes | memoryview) -> tuple[MemberIdentity, LogStart | None]:
    """Raises StorageError for bytes of no version that this code knows."""
    version = body[0] if len(body) else None
    if version == OLDER_IDENTITY_VERSION and len(body) == OLDER_IDENTITY.size:
        _, cluster_token, incarnation = OLDER_IDENTITY.unpack(body)
        return MemberIdentity(cluster_token, incarnation), None
    if version != IDENTITY_VERSION or len(body) < IDENTITY.size:
        raise StorageError(
            f"metadata log: record {token} is no identity of version {OLDER_IDENTITY_VERSION} or {IDENTITY_VERSION}"
        )
    _, cluster_token, incarnation, flags, count, nonce, name_bytes = IDENTITY.unpack_from(body)
    name = bytes(body[IDENTITY.size : IDENTITY.size + name_bytes])
    try:
        if len(name) < name_bytes:
            raise UsageError(f"it has {len(name)} of {name_bytes} bytes")
        identity = MemberIdentity(
            cluster_token, incarnation, check_bookie_id(name.decode("ascii")), bool(flags & FOUNDER)
        )
    except (UsageError, UnicodeDecodeError) as broken:
        raise StorageError(f"metadata log: record {token} has no name of a member: {broken}") from broken
    return identity, LogStart(count, nonce)


@dataclass(slots=True)
class LogFound:
    """The content of a log and its snapshots."""

    catalog: Catalog
    index: int = 0  # The index that the catalog is as of, and its term.
    base_term: int = 0
    configuration: Configuration | None = None  # As of there; None: the first one.
    configuration_index: int = 0
    entries: list[Entry] = field(default_factory=list)  # All behind it.
    entry_bytes: int = 0
    snapshot_bytes: int = 0
    term: int = 0
    vote: Boot | None = None
    identity: MemberIdentity | None = None
    starts: dict[int, bytes] = field(
        default_factory=dict
    )  # Nonce by count, of those that are still in the log.
    snapshots: Found = field(default_factory=lambda: Found(None, [], []))
    marks: LogMarks = field(default_factory=LogMarks)
    salvaged: Salvaged | None = None  # It begins behind one that was damaged.

    @property
    def last_index(self) -> int:
        return self.index + len(self.entries)

    @property
    def is_alone(self) -> bool:
        """Whether the member is the whole quorum, as far as the log goes."""
        assert self.identity is not None
        held = [entry.body for entry in self.entries if isinstance(entry.body, Configuration)]
        newest = held[-1] if held else self.configuration or self.identity.first_configuration
        return newest.voters == (self.identity.member,) and not newest.is_joint

    @property
    def start_count(self) -> int:
        before = self.salvaged.start_count if self.salvaged is not None else 0
        return max(before, *self.starts, 0)

    def older_starts(self, count: int) -> tuple[int, bytes | None]:
        """Starts as notes of older builds count them: `StartMember` in the log, and the nonce of that number
        `count`."""
        nonces = [
            command.nonce
            for entry in self.entries
            if isinstance(entry.body, bytes)
            and isinstance(command := decode_command(entry.body), StartMember)
        ]
        before = self.catalog.descent.start_count
        if 0 < count - before <= len(nonces):
            return before + len(nonces), nonces[count - before - 1]
        asked = self.catalog.tell(Tell(count), b"").asked
        return before + len(nonces), asked.nonce if asked is not None else None

    @property
    def level(self) -> int:
        """The cluster's level, after the whole log."""
        raised = [
            command.level
            for entry in self.entries
            if isinstance(entry.body, bytes) and isinstance(command := decode_command(entry.body), RaiseTo)
        ]
        return max(self.catalog.level, *raised, LEVEL_FIRST)

    def replay(self) -> Catalog:
        """The catalog with all entries applied, in place: where whatever stands in the log counts."""
        for entry in self.entries:
            if isinstance(entry.body, bytes):
                self.catalog.apply(decode_command(entry.body), entry.index, entry.term)
        return self.catalog

    def keys(self, prefix: str) -> list[str]:
        """Keys under a prefix: those of the catalog and those that an entry would put; some of these may be gone."""
        found: dict[str, None] = {}
        after, has_more = "", True
        while has_more:
            page = self.catalog.page(prefix, after, 1000)
            found.update(dict.fromkeys(record.key for record in page.records))
            after, has_more = page.records[-1].key if page.records else "", page.has_more
        for entry in self.entries:
            command = decode_command(entry.body) if isinstance(entry.body, bytes) else None
            if isinstance(command, Run) and isinstance(command.operation, Txn):
                puts = (change for change in command.operation.then if isinstance(change, Put))
                found.update(dict.fromkeys(put.key for put in puts if put.key.startswith(prefix)))
        return sorted(found)


def read_log(
    journal: Journal, first_token: int, snapshots: RawDirectory | None, limits: Limits = DEFAULT_LIMITS
) -> LogFound:
    """first_token: of the journal's oldest record, or its next when it is empty. snapshots: their directory, if any.

    Raises:
        StorageError: the log is damaged, or not one log of one member, or begins behind a trimmed part of which no
            snapshot is whole.
    """
    if first_token == 0 and journal.next_token() > 1:
        raise StorageError(f"metadata log: all {journal.next_token() - 1} records of it are gone")
    reader = _Reader(first_token)
    if snapshots is not None and names_of(snapshots):
        reader.look_ahead(journal.replay(max(0, first_token - 1)))
        own = reader.found.identity.cluster_token if reader.found.identity is not None else b""
        reader.begin_with(look_for_base(snapshots, reader.named, own, limits), limits)
    else:
        reader.found.catalog = Catalog(limits)
    for record in journal.replay(max(0, first_token - 1)):
        reader.take(*record)
    return reader.end(limits)


class _Reader:
    """Takes the records in order. Entries up to the snapshot that is taken are checked and not kept."""

    def __init__(self, first_token: int) -> None:
        self.found = LogFound(Catalog())
        self.named: list[Named] = []
        self._first_token = first_token
        self._last: int | None = None  # Index of the last entry so far; None: there was none.
        self._base: Named | None = None
        self._is_behind_base = True  # The record that names it was passed.
        self._begins = 0  # The log stands behind this entry, and has nothing before it.
        self._older = OlderSnapshots()

    def look_ahead(self, records: Iterator[tuple[int, int, int, memoryview]]) -> None:
        """The snapshots that the log names, and its owner."""
        for token, kind, number, body in records:
            if kind == KIND_NAMED:
                self.named.append(Named.decode(token, number, body))
            elif kind == KIND_IDENTITY:
                self._take_identity(token, body)

    def begin_with(self, snapshots: Found, limits: Limits) -> None:
        found = self.found
        found.snapshots = snapshots
        found.catalog = snapshots.catalog or Catalog(limits)
        if snapshots.catalog is not None:
            self._base, self._is_behind_base = snapshots.kept[-1], False
            found.index, found.base_term = self._base.index, self._base.term
            found.configuration = snapshots.configuration
            found.configuration_index = snapshots.configuration_index
            found.snapshot_bytes = self._base.file_bytes

    def take(self, token: int, kind: int, number: int, body: memoryview) -> None:
        match kind:
            case _ if kind == KIND_STEP:
                self._take_step(token, number, body)
            case _ if kind == KIND_COMMAND:
                self._take_command(token, number, body)
            case _ if kind == KIND_IDENTITY:
                self._take_identity(token, body)
            case _ if kind == KIND_SALVAGED:
                self._take_salvaged(token, body)
            case _ if kind == KIND_NAMED:
                self._take_name(Named.decode(token, number, body))
            case _ if kind == KIND_SNAPSHOT:
                if self._older.take(token, number, body):
                    self.found.snapshot_bytes = len(self._older.data)
            case _:
                raise StorageError(
                    f"metadata log: record {token} is of kind {kind}, known are 1 to {KIND_SALVAGED}"
                )

    def _take_command(self, token: int, index: int, body: memoryview) -> None:
        if index < 1 or (self._last is not None and index != self._last + 1):
            raise StorageError(f"metadata log: command {index} in record {token} follows {self._last}")
        self._add(token, index - 1, (Entry(index, FIRST_TERM, bytes(body)),))

    def _take_step(self, token: int, last: int, body: memoryview) -> None:
        record, found = decode_persist(body), self.found
        if record.keep_index + len(record.entries) != last:
            raise StorageError(
                f"metadata log: record {token} says that it ends with entry {last}, and ends with "
                f"{record.keep_index + len(record.entries)}"
            )
        is_second_vote = record.term == found.term and found.vote not in (None, record.vote)
        if record.term < found.term or is_second_vote:
            raise StorageError(
                f"metadata log: record {token} is of term {record.term} with the vote {record.vote}, behind term "
                f"{found.term} with {found.vote}"
            )
        if self._last is not None and record.keep_index > self._last:
            raise StorageError(
                f"metadata log: record {token} follows entry {record.keep_index}, and the log ends with {self._last}"
            )
        if self._is_behind_base and record.keep_index < found.index:
            raise StorageError(
                f"metadata log: record {token} takes back what follows entry {record.keep_index}, and a snapshot "
                f"stands for everything up to {found.index}"
            )
        found.term, found.vote = record.term, record.vote
        self._add(token, record.keep_index, record.entries)

    def _add(self, token: int, keep_index: int, entries: tuple[Entry, ...]) -> None:
        found = self.found
        if self._last is None and keep_index > found.index and (self._base or self._is_first(found)):
            raise StorageError(
                f"metadata log: its first command is {keep_index + 1}, and the snapshot before it ends with "
                f"{found.index}"
            )
        if self._last is None:
            self._begins = keep_index
            if self._base is None:
                found.index = keep_index  # Entries up to here are in an older snapshot, or this is 0.
        del found.entries[max(0, keep_index - found.index) :]
        before = found.entries[-1].term if found.entries else 0
        check_entries(entries, keep_index, before, max(found.term, FIRST_TERM))
        found.entries += entries[max(0, found.index - keep_index) :]
        self._last = keep_index + len(entries)
        found.marks.note(keep_index, self._last, token)

    def _is_first(self, found: LogFound) -> bool:
        """Whether nothing of the log was trimmed before what is read."""
        return self._first_token <= 1 or found.salvaged is not None

    def _take_salvaged(self, token: int, body: memoryview) -> None:
        if token != self._first_token:
            raise StorageError(f"metadata log: record {token} says that the log begins with it")
        self.found.salvaged = Salvaged.decode(token, body)

    def _take_name(self, named: Named) -> None:
        if named == self._base:
            self._is_behind_base = True
        if named.origin is Origin.FETCHED_INSTEAD:
            self._begin_behind(named)
        if not self.named or self.named[-1].token < named.token:
            self.named.append(named)

    def _begin_behind(self, named: Named) -> None:
        """Begin behind another member's snapshot, which took the place of the log."""
        found = self.found
        if named.index > found.index:
            raise StorageError(
                f"metadata log: it begins behind {named.name}, of another member, and "
                f"{found.snapshots.why() or 'the file is not there'}",
                hint="put the file back from a copy, or let this member join again from an empty directory",
            )
        found.entries.clear()
        self._last = self._begins = named.index
        found.marks.note(named.index, named.index, named.token)

    def _take_identity(self, token: int, body: memoryview) -> None:
        identity, start = decode_identity(token, body)
        known = self.found.identity
        if known not in (None, identity):
            raise StorageError(
                f"metadata log: record {token} names another member than the records before it"
            )
        self.found.identity = identity
        if start is not None:
            self.found.starts[start.count] = start.nonce

    def end(self, limits: Limits) -> LogFound:
        found, last = self.found, self._last
        older, files = self._older, found.snapshots
        has_begin = self._is_first(found) or self._base is not None
        if not has_begin and older.index:
            self._begin_with_older(limits)
        elif not has_begin and (last or older.is_begun or self.named):
            why = files.why() or (
                f"{self.named[-1].name}: the file is missing" if self.named else "it names none"
            )
            raise StorageError(
                f"metadata log: it begins with record {self._first_token} and holds no whole snapshot of what came "
                f"before ({why})",
                hint="put the files back from a copy, or restore the member's directory from one, or begin a new "
                "cluster in an empty directory",
            )
        if self._base is not None and (last or 0) < found.index:
            raise StorageError(
                f"metadata log: it ends with command {last or 0}, and {self._base.name} stands for more",
                hint="put the member's directory back whole",
            )
        if found.entries and found.entries[0].term < found.base_term:
            raise StorageError(
                f"metadata log: entry {found.entries[0].index} is of term {found.entries[0].term}, and the snapshot "
                f"before it of term {found.base_term}"
            )
        # A crash may put the file of one back that was let go. The log does not go on behind it any more, so it is none
        # to start from if the next one is damaged.
        files.kept = [each for each in files.kept if each.index >= self._begins]
        if files.refused:
            logger.warning(
                "metadata member starts from %s: %s",
                f"snapshot {files.kept[-1].name}" if files.kept else "its log alone",
                files.why(),
            )
        if found.last_index and found.identity is None:
            raise StorageError("metadata log: it does not say whose it is")
        last_term = found.entries[-1].term if found.entries else found.base_term
        if last_term > found.term:  # A leader of that term wrote it; this member did not vote in it.
            found.term, found.vote = last_term, None
        for entry in found.entries:
            if isinstance(entry.body, bytes):
                decode_command(entry.body)
                found.entry_bytes += len(entry.body)
            found.entry_bytes += ENTRY_OVERHEAD_BYTES
        return found

    def _begin_with_older(self, limits: Limits) -> None:
        """Begin with the newest snapshot inside the log: it holds the state so far, and later entries follow it."""
        found, older = self.found, self._older
        if found.entries and found.entries[0].index > older.index + 1:
            raise StorageError(
                f"metadata log: its first command is {found.entries[0].index}, and the snapshot before it ends with "
                f"{older.index}"
            )
        found.entries = [entry for entry in found.entries if entry.index > older.index]
        found.catalog = Catalog.restore(older.data, limits)
        found.index, found.base_term = older.index, FIRST_TERM


def parts_of(record: Persist) -> Iterator[Persist]:
    """Records that a journal takes: each adds to the one before, so that a crash between them leaves a prefix."""
    if len(record.entries) <= 1 or sum(map(entry_bytes, record.entries)) <= RECORD_BYTES_MAX:
        yield record
        return
    keep_index, part, size = record.keep_index, list[Entry](), 0
    for entry in record.entries:
        if part and size + entry_bytes(entry) > RECORD_BYTES_MAX:
            yield Persist(record.sequence, record.term, record.vote, keep_index, tuple(part))
            keep_index, part, size = keep_index + len(part), [], 0
        part.append(entry)
        size += entry_bytes(entry)
    yield Persist(record.sequence, record.term, record.vote, keep_index, tuple(part))
