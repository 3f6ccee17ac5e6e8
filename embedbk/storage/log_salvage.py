"""How one of several metadata members continues when its log is damaged in its middle (METADATA.md, 2; I42, I81).

Decides which of the whole records are still valid, what the member may have acknowledged beyond them, and in which
order a new log replaces the damaged one. The only member of a cluster is refused as before: no other member has what it
lost. salvage.py reads the damaged journal; doubt is explained in RAFT.md, 4.

A step names the entry before its first, but not that entry's term. So a step behind a hole is taken only if it begins
behind a snapshot: anywhere else a missing record may have replaced the entries before it. Steps that cannot be taken
still show term, vote and how far the log went.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from embedbk.codec.kernels import crc32c
from embedbk.errors import StorageError
from embedbk.metadata.catalog import Limits
from embedbk.metadata.log_records import decode_persist, encode_persist
from embedbk.metadata.quorum import Configuration
from embedbk.metadata.raft_vocabulary import Boot, Doubt, Entry, Persist
from embedbk.storage.journal import DamagedJournal, Journal
from embedbk.storage.log_use import JOIN_AGAIN
from embedbk.storage.member_notes import MemberNotes, Used
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.metadata_log import (
    KIND_IDENTITY,
    KIND_SALVAGED,
    KIND_STEP,
    MemberIdentity,
    Salvaged,
    decode_identity,
    parts_of,
)
from embedbk.storage.raw_files import RawDirectory
from embedbk.storage.salvage import JournalSalvage
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshots import KIND_NAMED, Found, Named, Origin, look_for_base, names_of

__all__ = ["SALVAGED_FILE", "finish_salvage", "salvage_log"]

logger = logging.getLogger(__name__)

SALVAGED_FILE = "SALVAGED"
_VERSION = 1
_SUM_BYTES = 4
_WRITE_BYTES = 1 << 20

Record = tuple[int, int, int, bytes]  # token, kind, number, body


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """The records that are in the file until they are in the journal. first_token: the token of the first of them
    there."""

    version: int
    first_token: int
    records: list[tuple[int, int, bytes]]  # kind, number, body


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Kept)


def salvage_log(
    directory: str,
    damage: DamagedJournal,
    *,
    io: MemoryDisk | None,
    file_bytes: int,
    limits: Limits,
    snapshots: RawDirectory,
    notes: MemberNotes | None,
) -> None:
    """Let a journal begin anew behind its damage, with what is whole. `finish_salvage` writes that into it.

    Raises:
        DamagedJournal: of the only member, or of one for which it is unknown how much it acknowledged.
        StorageError: what can be read is no log of one member, or it cannot be written.
    """
    try:
        used = notes.read() if notes is not None else None
    except StorageError:
        used = None
    with JournalSalvage(directory, after=0, io=io, file_bytes=file_bytes) as salvage:
        records = [(token, kind, number, bytes(body)) for token, kind, number, body in salvage.records()]
        first_token = salvage.facts().start_token
        try:
            whole = _Whole(records, snapshots, limits)
        except StorageError as bad:
            raise DamagedJournal(f"{damage.args[0]}; and {bad.args[0]}") from damage
        if whole.identity is None or whole.is_alone:
            raise damage
        if used is None or not used.is_of_log:
            raise DamagedJournal(
                f"{damage.args[0]}; how much it acknowledged cannot be told", hint=JOIN_AGAIN
            ) from damage
        _write(SnapshotFiles(directory, io=io), _Kept(_VERSION, first_token, whole.kept(used)))
        salvage.finish()
    logger.error(
        "metadata log: %s; this member goes on with entries up to %d and votes for nobody before it has again what it "
        "may have acknowledged; the damaged files are kept beside it as damaged-*",
        damage.args[0],
        whole.last_index,
    )


def finish_salvage(directory: str, journal: Journal, io: MemoryDisk | None) -> bool:
    """Write what a salvage left into the journal that begins anew, if it does not stand there yet. True: it has to be
    opened once more to be read. Raises StorageError."""
    files = SnapshotFiles(directory, io=io)
    if SALVAGED_FILE not in names_of(files):
        return False
    kept = _read(files)
    first_token, next_token = journal.facts().first_token, journal.next_token()
    has_begun = first_token >= kept.first_token or (first_token == 0 and next_token == kept.first_token)
    if has_begun:  # Else a crash came before: the damage is as it was, and so is the decision.
        for kind, number, body in kept.records[next_token - kept.first_token :]:
            _append(journal, kind, number, body)
        journal.wait(journal.next_token() - 1)
    try:
        files.remove(SALVAGED_FILE)
        files.sync()  # Otherwise an old file could come back after new ones were written.
    except OSError as refused:
        raise StorageError(
            f"{os.path.join(directory, SALVAGED_FILE)} cannot be removed: {refused}",
            hint="check the permissions of the directory and its disk",
        ) from refused
    return has_begun


def _append(journal: Journal, kind: int, number: int, body: bytes) -> None:
    try:
        journal.append(kind, number, body)
    except StorageError as full:
        if not full.definite:
            raise
        journal.wait(journal.next_token() - 1)  # Its queue is bounded.
        journal.append(kind, number, body)


@dataclass(slots=True)
class _Run:
    """Records without a gap between them. last: index of the last entry; None: they follow nothing that is whole."""

    last_token: int
    last: int | None = None


class _Whole:
    """The meaning of the whole records."""

    def __init__(self, records: Iterable[Record], snapshots: RawDirectory, limits: Limits) -> None:
        self.identity: MemberIdentity | None = None
        self.term = 0
        self.vote: Boot | None = None
        self.highest = 0  # Index of the last entry as the newest record has it.
        self.start_count = 0
        self._doubted = Doubt(0, 0)  # The doubt that an earlier salvage left.
        self._identities: dict[bytes, None] = {}
        self._base_body = b""
        records = list(records)
        named = [
            Named.decode(token, number, body) for token, kind, number, body in records if kind == KIND_NAMED
        ]
        for token, kind, _, body in records:
            if kind == KIND_IDENTITY:
                self._take_identity(token, body)
        token_of_cluster = self.identity.cluster_token if self.identity is not None else b""
        self._found: Found = look_for_base(snapshots, named, token_of_cluster, limits)
        self._base = self._found.kept[-1] if self._found.kept else None
        self._entries: list[Entry] = []  # Behind the base, as the last run has them that means something.
        self._go_through(records)

    @property
    def base_index(self) -> int:
        return self._base.index if self._base is not None else 0

    @property
    def last_index(self) -> int:
        return self.base_index + len(self._entries)

    @property
    def is_alone(self) -> bool:
        assert self.identity is not None
        held = [entry.body for entry in self._entries if isinstance(entry.body, Configuration)]
        newest = held[-1] if held else self._found.configuration or self.identity.first_configuration
        return newest.voters == (self.identity.member,) and not newest.is_joint

    def kept(self, used: Used) -> list[tuple[int, int, bytes]]:
        """The records of a log with this state. used: the note of the damaged log."""
        known = self._doubted
        index = max(self.highest, self.last_index, used.last_index, known.acknowledged_index)
        doubt = Doubt(max(self.term, used.term, known.term), index)
        salvaged = Salvaged(max(self.start_count, used.start_count), doubt)
        records = [(KIND_SALVAGED, 0, salvaged.encode())]
        records += [(KIND_IDENTITY, 0, body) for body in self._identities]
        if self._base is not None:
            records.append((KIND_NAMED, self._base.index, self._base_body))
        for part in parts_of(Persist(0, self.term, self.vote, self.base_index, tuple(self._entries))):
            records.append((KIND_STEP, part.keep_index + len(part.entries), encode_persist(part)))
        return records

    def _take_identity(self, token: int, body: bytes) -> None:
        identity, start = decode_identity(token, body)
        if self.identity not in (None, identity):
            raise StorageError(
                f"metadata log: record {token} names another member than the records before it"
            )
        self.identity = identity
        self._identities[body] = None
        if start is not None:
            self.start_count = max(self.start_count, start.count)

    def _go_through(self, records: list[Record]) -> None:
        run, entries = _Run(0, 0 if self._base is None else None), list[Entry]()
        for token, kind, number, body in records:
            if token != run.last_token + 1:
                self._settle(run, entries)
                run, entries = _Run(token), []
            run.last_token = token
            if kind == KIND_STEP:
                self._take_step(run, entries, decode_persist(body))
            elif kind == KIND_NAMED:
                named = Named.decode(token, number, body)
                if named == self._base:
                    self._base_body = body
                if named.origin is Origin.FETCHED_INSTEAD:
                    self._settle(run, entries)
                    entries.clear()
                    run.last = named.index if named.index <= self.base_index else None
            elif kind == KIND_SALVAGED:
                self._settle(run, entries)
                self._take_salvaged(Salvaged.decode(token, body), run, entries)
            elif kind != KIND_IDENTITY:
                run.last = None  # Its build had clusters of one member only.
        self._settle(run, entries)

    def _take_salvaged(self, before: Salvaged, run: _Run, entries: list[Entry]) -> None:
        """The log was damaged and salvaged before: what follows this record stands for all that was before it."""
        self._doubted = Doubt(
            max(self._doubted.term, before.doubt.term),
            max(self._doubted.acknowledged_index, before.doubt.acknowledged_index),
        )
        self.start_count = max(self.start_count, before.start_count)
        entries.clear()
        run.last = 0 if self._base is None else None

    def _take_step(self, run: _Run, entries: list[Entry], step: Persist) -> None:
        base, last = self.base_index, step.keep_index + len(step.entries)
        if step.term >= self.term:
            self.term, self.vote = step.term, step.vote
        self.highest = last
        if run.last is None and step.keep_index > base:
            return  # It is behind entries that are unknown.
        if run.last is not None and step.keep_index > run.last and step.keep_index > base:
            raise StorageError(
                f"metadata log: a step follows entry {step.keep_index}, and the log ends with {run.last}"
            )
        del entries[max(0, step.keep_index - base) :]
        entries += step.entries[max(0, base - step.keep_index) :]
        run.last = last

    def _settle(self, run: _Run, entries: list[Entry]) -> None:
        """End the run here. One that ended before the snapshot was named may have held other entries before those
        that follow it."""
        if run.last is None:
            return
        is_behind = self._base is None or run.last_token >= self._base.token
        self._entries = list(entries) if is_behind else []


def _write(files: SnapshotFiles, kept: _Kept) -> None:
    body = _encode(kept)
    data = crc32c(body).to_bytes(_SUM_BYTES, "little") + body
    name = f"{SALVAGED_FILE}.new"
    try:
        if name in files.names():
            files.remove(name)  # A salvage that a crash ended left it.
        file = files.create(name)
        try:
            for at in range(0, len(data), _WRITE_BYTES):
                file.write(data[at : at + _WRITE_BYTES], at)
            file.sync()
        finally:
            file.close()
        files.rename(name, SALVAGED_FILE)
    except OSError as refused:
        raise StorageError(
            f"what is whole of a damaged metadata log cannot be written to {os.path.join(files.path, name)}: {refused}",
            hint="make room on the device, then start the member again: nothing was changed",
        ) from refused


def _read(files: SnapshotFiles) -> _Kept:
    path = os.path.join(files.path, SALVAGED_FILE)
    try:
        with files.open(SALVAGED_FILE) as file:
            data = file.read(0, file.size())
        kept = _decoder.decode(data[_SUM_BYTES:])
    except (OSError, msgspec.MsgspecError) as bad:
        raise StorageError(f"{path} cannot be read: {bad}", hint=JOIN_AGAIN) from bad
    if crc32c(data[_SUM_BYTES:]).to_bytes(_SUM_BYTES, "little") != data[:_SUM_BYTES]:
        raise StorageError(f"{path} is not what was written", hint=JOIN_AGAIN)
    if kept.version != _VERSION:
        raise StorageError(f"{path} is of version {kept.version}; this embedbk knows {_VERSION}")
    return kept
