"""The durable side of a metadata member: its log of steps, and its snapshots (METADATA.md).

Decides when a snapshot is due, and the state that a member begins with. The log is the C journal in its own directory
(never the bookie's, whose bursts would delay it), or one in memory; each step of the member is one record of it
(`Persist`), so that term, vote and entries share one sync.

Snapshots are files beside it (snapshots.py): the start takes the newest that counts, and the entries that come behind
it (metadata_log.py). A record of every start has the member's identity, and another one before each snapshot is named,
with term and vote, so a log cannot be without them, and an emptied directory is another member of another cluster
(P10.3).

How far the log was used is noted beside it (log_use.py), once it is durable and before anything about it is sent. A log
that has less is refused, until its owner declares that something may be lost: then a new generation begins (P9.2).
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Generator
from pathlib import Path

from embedbk.codec.metadata_messages import Lineage
from embedbk.errors import StorageError, ensure
from embedbk.ids import START_ID_BYTES
from embedbk.member_ports import Beginning
from embedbk.metadata.catalog import DEFAULT_LIMITS, Catalog, Limits
from embedbk.metadata.commands import BeginGeneration, BeginLineage, decode_command
from embedbk.metadata.log_records import encode_persist
from embedbk.metadata.quorum import Configuration
from embedbk.metadata.raft_log import RETAINED_BYTES_MAX, RaftLog
from embedbk.metadata.raft_vocabulary import Boot, Entry, Persist
from embedbk.ports.journal import Journal
from embedbk.storage.log_use import LogUse, check_used, is_of
from embedbk.storage.member_notes import MemberNotes, Used
from embedbk.storage.metadata_log import (
    ENTRY_OVERHEAD_BYTES,
    KIND_IDENTITY,
    KIND_STEP,
    LogFound,
    LogStart,
    MemberIdentity,
    encode_identity,
    parts_of,
    read_log,
)
from embedbk.storage.raw_files import RawDirectory
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshots import Snapshots

__all__ = ["SNAPSHOT_DUE_BYTES", "MemberIdentity", "MetadataStore"]

SNAPSHOT_DUE_BYTES = 16 << 20  # Entries since the last snapshot, at least.
# At most, however large the last snapshot is: they lie in memory until then.
SNAPSHOT_DUE_BYTES_MAX = 256 << 20
SNAPSHOT_DUE_FACTOR = 4  # And at least so many times the last snapshot: about a fifth of what is written.


class MetadataStore:
    """Log and snapshots of one member. Opening has read what is durable: take `beginning`, it is the caller's."""

    def __init__(
        self,
        journal: Journal,
        first_token: int,
        *,
        limits: Limits = DEFAULT_LIMITS,
        snapshot_due_bytes: int = SNAPSHOT_DUE_BYTES,
        retained_bytes_max: int = RETAINED_BYTES_MAX,
        snapshots: RawDirectory | None = None,
        new_identity: MemberIdentity | None = None,
        notes: MemberNotes | None = None,
        may_have_lost: bool = False,
        gives_up: tuple[Lineage, ...] = (),
        is_whole: bool = False,
        word: Path | None = None,
        start_nonce: bytes | None = None,
    ) -> None:
        """first_token: the journal's oldest record (0 or its next token when it is empty). snapshots: their directory;
        one that can only be read, or None, gets none. new_identity: for an empty log, minted if None. notes: where it
        is noted how far the log was used. word: the file by which its owner may have declared a loss. gives_up: the
        lineages that it names as lost. is_whole: it declares that certainly nothing was lost.
        start_nonce: of START_ID_BYTES, another for each start; drawn if None. retained_bytes_max: as RaftLog has it.

        Raises:
            StorageError: the log is damaged, or begins after a trimmed part of which no snapshot is whole, or has less
                than it was used for, and its owner has not declared a loss.
        """
        self._journal = journal
        self._snapshot_due_bytes, self._limits = snapshot_due_bytes, limits
        self._retained_bytes_max = retained_bytes_max
        found = read_log(journal, first_token, snapshots, limits)
        self.snapshots_found = found.snapshots
        self._index = found.last_index
        self._entry_bytes = (
            found.entry_bytes
        )  # In the log since the last snapshot, or since the one under way began.
        self._entry_bytes_before = 0  # Its value when the snapshot under way began.
        self._snapshot_bytes = found.snapshot_bytes  # The bytes of the last snapshot.
        self._marks = found.marks
        # (token, sequence, last index, term) of records that are not yet durable.
        self._queued: deque[tuple[int, int, int, int]] = deque()
        self._durable_sequence, self._durable_index, self._durable_term = 0, self._index, found.term
        self._term, self._vote = found.term, found.vote  # The values in the last record.
        verdict = check_used(notes, found, journal.next_token() - 1, may_have_lost=may_have_lost)
        self.begins_generation = verdict.begins_generation
        self.gives_up = gives_up if verdict.begins_generation else ()
        self.is_whole = is_whole
        self.level = found.level  # The cluster's level, after the whole log.
        self.identity = found.identity or _identity_of_new(verdict.used, new_identity)
        self.start = LogStart(found.start_count + 1, start_nonce or os.urandom(START_ID_BYTES))
        self._doubt = verdict.doubt
        self._found: LogFound | None = found
        self._beginning: Beginning | None = None
        self._use: LogUse | None = None
        if notes is not None:
            self._use = LogUse(notes, word, self.identity, self.start, verdict)
            if not self.begins_generation and not is_of(verdict.used, self.identity):
                self._use.begin()
            elif verdict.doubt is not None and verdict.used is not None:
                self._use.keep_doubt(verdict.used)
            elif self.begins_generation:
                self._use.keep_word(self.gives_up, is_whole=is_whole)
        # This start is noted after this record; with a new generation, after the record that begins it.
        self._start_token: int | None = self._append_identity()
        if self.begins_generation:
            self._start_token = None
        self.snapshots: Snapshots | None = None
        if isinstance(snapshots, SnapshotFiles):
            self.snapshots = Snapshots(
                snapshots,
                journal,
                found.snapshots,
                cluster_token=self.identity.cluster_token,
                incarnation=self.identity.incarnation,
                token_of=self._marks.token_of,
                repeat=self._repeat,
            )
            self.snapshots.tidy(found.snapshots.refused, self._index)

    # --- What it begins with -----------------------------------------------------------------------------

    @property
    def boot(self) -> Boot:
        """This process of the member."""
        return Boot(self.identity.member, self.start.nonce)

    @property
    def beginning(self) -> Beginning:
        """The state that a member of a quorum starts with. The catalog is as of the snapshot; the caller owns it."""
        if self._beginning is None:
            found, self._found = self._found, None
            assert found is not None
            log = RaftLog(
                found.configuration or self.identity.first_configuration,
                snapshot_index=found.index,
                snapshot_term=found.base_term,
                configuration_index=found.configuration_index,
                entries=found.entries,
                retained_bytes_max=self._retained_bytes_max,
            )
            self._beginning = Beginning(found.catalog, log, found.term, found.vote, self._doubt)
        return self._beginning

    def keys(self, prefix: str) -> list[str]:
        """Before `beginning` is taken: the keys under a prefix, and those there that an entry of the log would put."""
        assert self._found is not None
        return self._found.keys(prefix)

    @property
    def index(self) -> int:
        """The index of the last entry in the log; that of the first is 1."""
        return self._index

    # --- While it runs -----------------------------------------------------------------------------------

    def persist(self, record: Persist, *, kick: bool = True) -> None:
        """Queue the changes of one step. `durable()` returns its sequence later. kick: wake the thread that writes;
        else call `kick()` soon.

        Raises:
            StorageError: the journal failed or is full; a part of it may be queued, and the member cannot go on (P7.6).
        """
        ensure(
            record.keep_index <= self._index, f"entry {record.keep_index + 1} does not follow {self._index}"
        )
        stands = self.snapshots.newest_index if self.snapshots is not None else 0
        ensure(
            record.keep_index >= stands, f"a snapshot stands for entry {stands}: it is never taken back (I65)"
        )
        if record.keep_index < self._index:
            self._cut_queued(record.keep_index)
        token = 0
        for part in parts_of(record):
            token = self._append_step(part, kick=kick)
            if self.begins_generation and self._start_token is None and _begins_generation(part.entries):
                self._start_token = token
        self._queued.append((token, record.sequence, self._index, record.term))

    def kick(self) -> None:
        """Wake the thread that writes, for what was queued without that."""
        self._journal.kick()

    def durable(self) -> int:
        """The sequence of the last record of `persist` that is on the device, and all before it. Never falls. Clears
        the descriptor's readiness."""
        token = self._journal.durable()
        while self._queued and self._queued[0][0] <= token:
            _, self._durable_sequence, self._durable_index, self._durable_term = self._queued.popleft()
        if self._use is not None and self._start_token is not None and token >= self._start_token:
            self._use.note(token, self._durable_term, self._durable_index)
        if self.snapshots is not None and self.snapshots.step(token, self._durable_index):
            self._snapshot_bytes = self.snapshots.kept[-1].file_bytes
        return self._durable_sequence

    def why_waiting(self) -> str:
        """Why records of `persist` are not durable yet, for people; empty: all are, or the log failed."""
        if not self._queued or self._journal.failed() is not None:
            return ""
        if self._journal.is_next_refused():
            return "there is no room for it (make room on the device, or raise the limit of open files, ulimit -n)"
        return "its disk does not answer"

    def saved(self) -> tuple[int, int] | None:
        """A snapshot that counts since this was asked last: the index that it stands for, and that of the first entry
        which the log keeps."""
        return self.snapshots.take_saved() if self.snapshots is not None else None

    def end_doubt(self) -> None:
        """End the doubt: the lost entries are here again, durably. The next note records that."""
        if self._use is not None:
            self._use.end_doubt()

    def failed(self) -> str | None:
        """Why the log stopped for good, or None (P7.6)."""
        return self._journal.failed()

    def filenos(self) -> list[int]:
        """Descriptors that become readable when `durable()` has something to return."""
        fileno = self._journal.fileno()
        more = self.snapshots.filenos() if self.snapshots is not None else []
        return [*([fileno] if fileno >= 0 else []), *more]

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the newest snapshot; 0: there is none."""
        return self._snapshot_bytes

    def is_snapshot_due(self) -> bool:
        """Whether the log grew so much since the last snapshot that the next one pays for itself."""
        if self.snapshots is None or self.snapshots.is_under_way:
            return False
        pays = max(self._snapshot_due_bytes, SNAPSHOT_DUE_FACTOR * self._snapshot_bytes)
        return self._entry_bytes >= min(pays, SNAPSHOT_DUE_BYTES_MAX)

    def begin_snapshot(
        self,
        index: int,
        term: int,
        configuration: Configuration,
        configuration_index: int,
        revision: int,
        record_count: int,
        session_count: int,
    ) -> Snapshots:
        """Begin a snapshot of the catalog as it is behind entry `index` of this term, where this configuration held.
        Its pieces are added to what this returns; `durable()` carries it on from there, and trims the log when it
        counts."""
        assert self.snapshots is not None
        newest = self.snapshots.newest_index
        ensure(
            newest < index <= self._index,
            f"a snapshot of entry {index}; it must be in {newest + 1}..{self._index}",
        )
        counts = revision, record_count, session_count
        self.snapshots.begin(index, term, configuration, configuration_index, *counts)
        self._entry_bytes_before, self._entry_bytes = self._entry_bytes, 0
        return self.snapshots

    def abandon_snapshot(self) -> None:
        """Give up the snapshot under way, which cannot be written: the next is as due as this one was."""
        assert self.snapshots is not None
        self.snapshots.abandon()
        self._entry_bytes += self._entry_bytes_before

    def install(self, index: int, term: int, *, keeps_entries: bool) -> None:
        """Put the snapshot of another member, which was fetched and is durable (fetched_file.py), in the place of
        everything up to index; before the step's `persist`. It counts when the record that names it is
        durable. keeps_entries: what follows it here agrees with it and stays; else the log begins behind it, empty.

        Raises:
            StorageError: no such snapshot is there; or the journal failed, and the member cannot go on (P7.6).
        """
        assert self.snapshots is not None
        ensure(index > self.snapshots.newest_index, f"snapshot {index} is older than what is here (I80)")
        ensure(index <= self._index or not keeps_entries, f"nothing stands behind {index} that could stay")
        named = self.snapshots.put(index, term, keeps_entries=keeps_entries)
        self._entry_bytes = self._entry_bytes_before = 0
        if not keeps_entries:
            self._cut_queued(index)
            self._marks.note(index, index, named.token)
            self._index = index

    def load(self, index: int, term: int) -> Generator[None, None, Catalog]:
        """The catalog of a snapshot in the directory, a piece at each step. Raises StorageError: it is not whole."""
        assert self.snapshots is not None
        return self.snapshots.load(index, term, self._limits)

    def close(self) -> None:
        """Make what is queued durable and release the directory."""
        if self._use is not None and self._use.is_start_noted and self._journal.failed() is None:
            with contextlib.suppress(StorageError):
                last = self._journal.next_token() - 1
                self._journal.wait(last)
                self._use.end(last, self._term, self._index)
        if self.snapshots is not None:
            self.snapshots.close()
        self._journal.close()

    def _append_step(self, part: Persist, *, kick: bool = True) -> int:
        last = part.keep_index + len(part.entries)
        body = encode_persist(part)
        token = self._journal.append(KIND_STEP, last, body, kick=kick)
        self._marks.note(part.keep_index, last, token)
        self._index, self._term, self._vote = last, part.term, part.vote
        size = len(body) + ENTRY_OVERHEAD_BYTES * len(part.entries)
        self._entry_bytes += size
        if self._use is not None:
            self._use.add(size)
        return token

    def _cut_queued(self, keep_index: int) -> None:
        """Forget entries that were taken back, durable or not."""
        self._durable_index = min(self._durable_index, keep_index)
        self._queued = deque(
            (token, sequence, min(last, keep_index), term) for token, sequence, last, term in self._queued
        )

    def _append_identity(self) -> int:
        return self._journal.append(KIND_IDENTITY, 0, encode_identity(self.identity, self.start))

    def _repeat(self) -> None:
        """Repeat the records that a trimmed log must still have, before the snapshot is named for which it is
        trimmed."""
        self._append_identity()
        self._append_step(Persist(0, self._term, self._vote, self._index, ()))


def _identity_of_new(used: Used | None, new_identity: MemberIdentity | None) -> MemberIdentity:
    """The identity for an empty log. A founder whose first start was cut short takes the one in its note, which was
    never sent."""
    identity = new_identity or MemberIdentity.mint()
    if used is None or not identity.is_founder:
        return identity
    return MemberIdentity(used.cluster_token, used.incarnation, identity.name)


def _begins_generation(entries: tuple[Entry, ...]) -> bool:
    return any(
        isinstance(entry.body, bytes)
        and isinstance(decode_command(entry.body), BeginGeneration | BeginLineage)
        for entry in entries
    )
