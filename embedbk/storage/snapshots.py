"""Which snapshots of a metadata member's log count, which are kept, and what may go (METADATA.md, 2; I80, I81).

Decides that a file counts only when a record of the log that names it is durable; that the two newest stay, and what is
pinned; that the log is trimmed up to the older of the two and no further, so that a damaged newest one costs nothing;
and what a start does with files that are damaged, foreign, or left over. Leaves to others when a snapshot is due
(metadata_store.py), its pieces (metadata/cutting.py) and its bytes (snapshot_format.py, snapshot_writer.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from embedbk.errors import StorageError, UsageError, ensure
from embedbk.metadata.catalog import Catalog, Limits
from embedbk.metadata.loading import load, load_in_slices
from embedbk.metadata.log_records import decode_configuration, encode_configuration
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.ports.journal import Journal
from embedbk.storage.fetched_file import FetchedFile, newest_fetched, remove_fetched
from embedbk.storage.raw_files import RawDirectory
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import (
    ASIDE_SUFFIX,
    DIGEST_BYTES,
    FETCHED_SUFFIX,
    PART_SUFFIX,
    SnapshotHeader,
    parse_snapshot_name,
    read_header,
    read_pieces,
    snapshot_name,
)
from embedbk.storage.snapshot_writer import SnapshotWriter

__all__ = [
    "FIRST_MEMBER",
    "KEPT_SNAPSHOTS",
    "KIND_NAMED",
    "NAMED",
    "Found",
    "Named",
    "Origin",
    "Snapshots",
    "configuration_of",
    "look_for_base",
    "names_of",
]

logger = logging.getLogger(__name__)

KIND_NAMED = 4  # The record's ledger_id is the index that the snapshot stands for; its body is `NAMED`.
# version, term, size of the file, digest, origin
NAMED = struct.Struct(f"<BQQ{DIGEST_BYTES}sB")
NAMED_VERSION = 2
OLDER_NAMED_BYTES = NAMED.size - 1  # The size of version 1, without an origin.
KEPT_SNAPSHOTS = 2
FIRST_MEMBER = "m1"  # The first member of a cluster, also while it had no name yet.


class Origin(IntEnum):
    """Where a snapshot came from, and what becomes of the entries in the log before the record that names it."""

    CUT_HERE = 0  # The entries stay.
    FETCHED_BESIDE = 1  # From another member; the entries behind its index stay, as they agree with it.
    FETCHED_INSTEAD = 2  # From another member; no entry stays: the log begins behind it.


@dataclass(frozen=True, slots=True)
class Named:
    """A snapshot as the log names it."""

    index: int
    term: int
    file_bytes: int
    digest: bytes
    origin: Origin = Origin.CUT_HERE
    token: int = field(default=0, compare=False)  # The record's token.

    @property
    def name(self) -> str:
        return snapshot_name(self.index, self.term)

    def encode(self) -> bytes:
        return NAMED.pack(NAMED_VERSION, self.term, self.file_bytes, self.digest, self.origin)

    @classmethod
    def decode(cls, token: int, index: int, body: bytes | memoryview) -> Named:
        form = (len(body), body[0] if len(body) else 0)
        if form not in ((OLDER_NAMED_BYTES, 1), (NAMED.size, NAMED_VERSION)):
            raise StorageError(
                f"metadata log: record {token} names no snapshot in version 1 or {NAMED_VERSION}"
            )
        _, term, file_bytes, digest, origin = NAMED.unpack(bytes(body).ljust(NAMED.size, b"\0"))
        if origin not in list(Origin):
            raise StorageError(
                f"metadata log: record {token} names a snapshot of origin {origin}, known are 0 to 2"
            )
        return cls(index, term, file_bytes, digest, Origin(origin), token)


# --- At a start -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """The snapshots named by the log, as a start found them. kept: those that count, the oldest first."""

    catalog: Catalog | None
    kept: list[Named]
    refused: list[tuple[Named, str]]  # Newer than the one that was taken, with the reason.
    configuration: Configuration | None = None  # As of it.
    configuration_index: int = 0

    @property
    def index(self) -> int:
        return self.kept[-1].index if self.catalog is not None else 0

    def why(self) -> str:
        return "; ".join(f"{named.name}: {reason}" for named, reason in self.refused)


def look_for_base(
    directory: RawDirectory | None, named: Sequence[Named], cluster_token: bytes, limits: Limits
) -> Found:
    """The catalog of the newest snapshot that is whole. Changes nothing on disk."""
    if directory is None or not named:
        return Found(None, [], [(each, "there is no directory of snapshots") for each in named])
    names = set(names_of(directory))
    # One that was set aside may have been cut once more, of the same entry: two records, and one file.
    latest = {each.name: each for each in named}
    named = [each for each in named if latest[each.name] is each]
    refused: list[tuple[Named, str]] = []
    for at in reversed(range(len(named))):
        each = named[at]
        if each.name not in names:
            if at >= len(named) - KEPT_SNAPSHOTS:
                refused.append((each, "the file is missing"))
            continue
        try:
            catalog, header, configuration = _load(directory, each, cluster_token, limits)
        except (StorageError, OSError) as bad:
            refused.append((each, str(bad)))
            continue
        # Not the one right before: that may be set aside, and the log stands behind an older one then.
        before = [older for older in named[:at] if older.name in names]
        kept = [*before[-(KEPT_SNAPSHOTS - 1) :], each]
        return Found(catalog, kept, refused, configuration, header.config_index)
    return Found(None, [], refused)


def names_of(directory: RawDirectory) -> list[str]:
    """The names in the directory; None where there is no directory. Raises StorageError: it cannot be read."""
    try:
        return directory.names()
    except FileNotFoundError:
        return []
    except OSError as refused:
        raise StorageError(
            f"{directory.path} cannot be read: {refused}", hint="check its permissions and its disk"
        ) from refused


def _load(
    directory: RawDirectory, named: Named, cluster_token: bytes, limits: Limits
) -> tuple[Catalog, SnapshotHeader, Configuration]:
    with directory.open(named.name) as file:
        header = read_header(file)
        if header.cluster_token != cluster_token:
            raise StorageError(
                f"it is of the cluster {header.cluster_token.hex()}, and the log of {cluster_token.hex()}"
            )
        found = Named(header.index, header.term, header.file_bytes, header.digest, named.origin)
        if found != named:
            raise StorageError(
                f"it stands for command {found.index} of term {found.term} with digest {found.digest.hex()}, and the "
                f"log names one for command {named.index} of term {named.term} with digest {named.digest.hex()}"
            )
        configuration = configuration_of(header)
        return load(read_pieces(file, header), limits), header, configuration


def configuration_of(header: SnapshotHeader) -> Configuration:
    """Raises StorageError. One from before there were configurations was cut by the only voter, whose name is m1."""
    if header.config:
        return decode_configuration(header.config)
    return Configuration((MemberId(FIRST_MEMBER, header.incarnation),))


# --- While it runs ----------------------------------------------------------------------------------------


class Snapshots:
    """Writes, names, keeps and removes the snapshots of a member that runs.

    found: of `look_for_base`. token_of: `LogMarks.token_of`. repeat: appends what a
    trimmed log must say before it names a snapshot: whose it is, its term and its vote.
    """

    def __init__(
        self,
        files: SnapshotFiles,
        journal: Journal,
        found: Found,
        *,
        cluster_token: bytes,
        incarnation: bytes,
        token_of: Callable[[int, int], int],
        repeat: Callable[[], None],
    ) -> None:
        self.kept = found.kept
        self._files = files
        self._journal = journal
        self._whose = cluster_token, incarnation
        self._token_of = token_of
        self._repeat = repeat
        self._pins: Counter[str] = Counter()
        self._writer: SnapshotWriter | None = None
        self._index = 0  # The index that the snapshot under way stands for.
        self._is_whole = False  # All its pieces were added, and it is not being finished yet.
        self._durable_index = 0
        self._named: tuple[int, Named] | None = None  # Its record's token; not yet durable.
        self._fetched: deque[Named] = deque()  # Put in place of what was here; not yet durable.
        self._saved: tuple[int, int] | None = None
        self._event = -1  # Made when a host asks for it.
        self._was_woken = False  # The event was set since it was read last.

    def filenos(self) -> list[int]:
        """Readable when the thread that writes has room, or is through; to be asked for before the first snapshot."""
        if self._event < 0 and self._files.threaded:
            self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return [self._event] if self._event >= 0 else []

    @property
    def is_under_way(self) -> bool:
        return self._writer is not None

    def has_room(self) -> bool:
        """Whether the next piece may be added now."""
        return self._writer is not None and self._writer.has_room()

    @property
    def newest_index(self) -> int:
        """The highest index that a snapshot stands for, or will: nothing up to it is ever taken back."""
        under_way = self._index if self._writer is not None else 0
        newest = self._fetched or self.kept
        return max(under_way, newest[-1].index if newest else 0)

    def begin(
        self,
        index: int,
        term: int,
        configuration: Configuration,
        configuration_index: int,
        revision: int,
        record_count: int,
        session_count: int,
    ) -> None:
        """A snapshot of the state behind entry `index`, which is of this term; `add` its pieces, then `end`."""
        ensure(self._writer is None, "one snapshot at a time")
        header = SnapshotHeader(
            *(*self._whose, index, term, revision, record_count, session_count),
            *(encode_configuration(configuration), configuration_index),
        )
        self._index, self._is_whole = index, False
        self._writer = SnapshotWriter(self._files, header, self.wake)

    def wake(self) -> None:
        """From any thread: wakes the thread that waits for `filenos`."""
        if self._event >= 0:
            os.eventfd_write(self._event, 1)
            # Set after the write: the thread that sees it finds something to read, and then looks at the work. If it
            # does not see it yet, it is woken again.
            self._was_woken = True

    def add(self, piece: bytes) -> None:
        assert self._writer is not None
        self._writer.add(piece)

    def end(self) -> None:
        """Called after the last piece was added; `step` continues."""
        self._is_whole = True
        self._go_on()

    def failure(self) -> str:
        """Why the snapshot under way cannot be written; empty: no failure is known. After a failure call `abandon`."""
        failed = self._writer.failure if self._writer is not None else None
        return str(failed) if failed is not None else ""

    def abandon(self) -> None:
        """Give up the snapshot under way; nothing of it counts."""
        if self._writer is not None and self._named is None:
            writer, self._writer = self._writer, None
            writer.stop()
            if writer.written is not None:
                # Its thread was quicker. No record names the file, so it would stay until the next start.
                self._remove(writer.name)

    def step(self, durable_token: int, durable_index: int) -> bool:
        """Continue what is under way. True: the snapshot counts from now on, and what it replaces was removed."""
        if self._was_woken:
            self._was_woken = False
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._event)
        self._durable_index = durable_index
        self._go_on()
        counts = False
        if self._writer is not None and self._named is not None and self._named[0] <= durable_token:
            self._take(self._named[1])
            self._saved = self.kept[-1].index, self._first_index()
            self._writer.stop()
            self._writer = self._named = None
            counts = True
        while self._fetched and self._fetched[0].token <= durable_token:
            self._take(self._fetched.popleft())
            counts = True
        return counts

    def take_saved(self) -> tuple[int, int] | None:
        """A snapshot that came to count since the last call: its index, and that of the first entry which the log
        keeps."""
        saved, self._saved = self._saved, None
        return saved

    def _first_index(self) -> int:
        return self.kept[-KEPT_SNAPSHOTS].index + 1 if len(self.kept) >= KEPT_SNAPSHOTS else 1

    def _go_on(self) -> None:
        writer = self._writer
        if writer is None or self._journal.failed() is not None:
            return
        if self._is_whole and self._durable_index >= self._index:
            # Never a whole file of commands that a crash can take back: what is left over then is in the log.
            self._is_whole = False
            writer.finish()
        if self._named is None and writer.written is not None:
            self._name(writer.written)

    def _name(self, header: SnapshotHeader) -> None:
        named = Named(header.index, header.term, header.file_bytes, header.digest)
        with contextlib.suppress(StorageError):  # A full queue: the next step tries again.
            self._repeat()
            token = self._journal.append(KIND_NAMED, named.index, named.encode())
            self._named = token, replace(named, token=token)

    def _take(self, named: Named) -> None:
        """It counts: the log names it, durably. Only now may what it stands for go, behind the one before it."""
        self.kept[:] = [
            *(each for each in self.kept if each.name != named.name),
            named,
        ]  # One file counts once.
        if len(self.kept) < KEPT_SNAPSHOTS:
            return
        older = self.kept[-KEPT_SNAPSHOTS]
        self._journal.trim(self._token_of(older.index, older.token))
        self._let_go()

    def _let_go(self) -> None:
        for each in self.kept[:-KEPT_SNAPSHOTS]:
            if not self._pins[each.name]:
                self.kept.remove(each)
                self._remove(each.name)

    # --- Of another member ---------------------------------------------------------------------------------

    def look_at_fetched(self, index: int, term: int) -> SnapshotHeader:
        """The file that was fetched under the name of this snapshot.

        Raises:
            StorageError: nothing was, or another one, or one of another cluster.
        """
        name = snapshot_name(index, term) + FETCHED_SUFFIX
        try:
            with self._files.open(name) as file:
                header = read_header(file)
        except OSError as refused:
            raise StorageError(f"snapshot {name} cannot be read: {refused}") from refused
        if (header.index, header.term) != (index, term) or header.cluster_token != self._whose[0]:
            raise StorageError(
                f"snapshot {name} stands for entry {header.index} of term {header.term} of the cluster "
                f"{header.cluster_token.hex()}"
            )
        configuration_of(header)
        return header

    def put(self, index: int, term: int, *, keeps_entries: bool) -> Named:
        """A fetched snapshot replaces everything up to its index; `step` returns when it counts. A snapshot of an older
        state that is being cut is given up. Raises StorageError: as `look_at_fetched`, or the disk or journal
        failed."""
        header, name = self.look_at_fetched(index, term), snapshot_name(index, term)
        self.abandon()
        try:
            self._files.rename(name + FETCHED_SUFFIX, name)
        except OSError as refused:
            raise StorageError(f"snapshot {name} cannot be given its name: {refused}") from refused
        origin = Origin.FETCHED_BESIDE if keeps_entries else Origin.FETCHED_INSTEAD
        named = Named(index, term, header.file_bytes, header.digest, origin)
        self._repeat()
        named = replace(named, token=self._journal.append(KIND_NAMED, index, named.encode()))
        self._fetched.append(named)
        return named

    def load(self, index: int, term: int, limits: Limits) -> Generator[None, None, Catalog]:
        """The catalog of a snapshot that stands in the directory, a piece at each step. Raises StorageError."""
        name = snapshot_name(index, term)
        try:
            with self._files.open(name) as file:
                return (yield from load_in_slices(read_pieces(file, read_header(file)), limits))
        except OSError as refused:
            raise StorageError(f"snapshot {name} cannot be read: {refused}") from refused

    # --- Pins ----------------------------------------------------------------------------------------------

    def pin(self, name: str) -> None:
        """Keep this snapshot, however many newer ones there are, until it is unpinned as often. A restart ends it.

        Raises:
            UsageError: no such snapshot is kept.
        """
        if name not in [each.name for each in self.kept]:
            raise UsageError(f"snapshot {name!r} is not kept; there are {[each.name for each in self.kept]}")
        self._pins[name] += 1

    def unpin(self, name: str) -> None:
        ensure(self._pins[name] > 0, f"snapshot {name} is not pinned")
        self._pins[name] -= 1
        self._let_go()

    # --- For other members ---------------------------------------------------------------------------------

    def fetch(self, index: int, term: int) -> FetchedFile:
        """Begin, or go on with, the one snapshot that is fetched; what was fetched of others goes. Raises OSError:
        what is there of it cannot be read; UsageError: as `SnapshotFiles.open` says."""
        fetched = FetchedFile(self._files, index, term, self._whose[0], self.wake)
        remove_fetched(self._files, keep=fetched.name)
        return fetched

    def newest_fetched(self) -> int | None:
        """The index of what was fetched, whole or in part; None: nothing was, or it cannot be read."""
        return newest_fetched(self._files)

    def remove_fetched(self) -> None:
        """Remove what was fetched and not installed."""
        remove_fetched(self._files)

    def read_kept(self, index: int, term: int, offset: int, size: int) -> bytes:
        """Bytes of a kept snapshot's file; fewer at its end. OSError or UsageError: it cannot be read now."""
        named = next((each for each in self.kept if (each.index, each.term) == (index, term)), None)
        if named is None:
            raise UsageError(f"snapshot {snapshot_name(index, term)} is not kept")
        with self._files.open(named.name) as file:
            return file.read(offset, max(0, min(size, named.file_bytes - offset)))

    # --- Start and end -------------------------------------------------------------------------------------

    def tidy(self, refused: Sequence[tuple[Named, str]], last_index: int) -> None:
        """At a start that continues: damaged files are set aside, left-over files removed, unknown files reported."""
        bad = {named.name for named, _ in refused}
        for name in self._names():
            parsed = parse_snapshot_name(name)
            if name.endswith(PART_SUFFIX) and parse_snapshot_name(name.removesuffix(PART_SUFFIX)):
                self._remove(name)
            elif name in bad:
                self._set_aside(name)
            elif parsed is not None and name not in [each.name for each in self.kept]:
                self._look_at_unnamed(name, last_index)

    def _look_at_unnamed(self, name: str, last_index: int) -> None:
        """Remove or report a snapshot that does not count. If it is this member's and not beyond the log's end, all of
        its state is also in the log or in a snapshot that counts; any other one is left to a person."""
        try:
            with self._files.open(name) as file:
                header = read_header(file)
        except (StorageError, OSError, UsageError) as unread:
            logger.warning("%s is not named by the log and left alone: %s", self._files.place(name), unread)
            return
        if header.cluster_token == self._whose[0] and header.incarnation != self._whose[1]:
            self._remove(name)  # Fetched, and a crash came before it counted: the member that cut it has it.
        elif (header.cluster_token, header.incarnation) != self._whose:
            logger.warning(
                "%s is not named by the log and left alone: it is of the member %s of the cluster %s",
                self._files.place(name),
                header.incarnation.hex(),
                header.cluster_token.hex(),
            )
        elif header.index > last_index:
            self._set_aside(name)  # It has state that was lost here.
        else:
            self._remove(name)

    def _set_aside(self, name: str) -> None:
        with self._telling(f"{name} cannot be set aside"):
            self._files.rename(name, name + ASIDE_SUFFIX)
            logger.warning("%s is kept as %s", self._files.place(name), name + ASIDE_SUFFIX)

    def _remove(self, name: str) -> None:
        with self._telling(f"{name} cannot be removed"):
            self._files.remove(name)

    def _names(self) -> list[str]:
        with self._telling("the directory cannot be read"):
            return self._files.names()
        return []

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as refused:
            logger.warning("metadata snapshots: %s: %s", what, refused)

    def close(self) -> None:
        """Give up the snapshot under way; the next start removes what is left of it."""
        if self._writer is not None:
            self._writer.stop()
            self._writer = None
        if self._event >= 0:
            os.close(self._event)
            self._event = -1
