"""Snapshots of a state, in a log of their own: how one is written whole, found again, and checked.

Each is a first entry with its offset, its parts, and a last entry, the last of its ledger, with the place of the first,
and with count and digest of the parts. One without its last entry was cut short, and counts for nothing. Decides which
one counts, and which may go: the one of the highest offset counts, whichever copy wrote it, because a state at any
offset is correct. Leaves to `replica` when one is made, and the truncation of the log of commands behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from xxhash import xxh3_128

from embedbk.client.batches import Segment
from embedbk.client.client import Client
from embedbk.client.log import Log
from embedbk.config import ENTRY_BYTES_MAX
from embedbk.errors import NoSuchLedger, StorageError, Truncated

__all__ = ["SUFFIX", "SavedState", "StateSnapshots"]

_TRIES = 8  # Snapshots that take each other's place while they are looked for.
SUFFIX = ".snapshots"  # Behind the name of the log of commands.
PART_BYTES = min(512 << 10, ENTRY_BYTES_MAX)


class _Begin(msgspec.Struct, frozen=True, array_like=True, tag=1):
    version: int
    offset: int
    log_id: str = ""  # Of the log of commands; "": an earlier build wrote the snapshot, and noted no id.


class _End(msgspec.Struct, frozen=True, array_like=True, tag=2):
    begins: int  # The dense offset of the first entry.
    parts: int
    digest: bytes


VERSION = 1
_CONTROL, _PART = (
    b"c",
    b"p",
)  # The first byte of an entry: parts of a state are never taken for the entry with their place.
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_Begin | _End] = msgspec.msgpack.Decoder(_Begin | _End)


class SavedState(NamedTuple):
    """A snapshot that was written to its end. offset, log_id: of the log of commands."""

    offset: int
    end: _End
    log_id: str = ""


class StateSnapshots:
    """The snapshots of one state."""

    def __init__(self, bk: Client, name: str, password: bytes) -> None:
        self._log: Log = bk.log(name + SUFFIX, password=password)

    def newest(self, log_id: str = "") -> SavedState | None:
        """The one that counts; None: there is none. log_id: of the log whose state is asked for; "": any.

        Raises StorageError: one is of a later version, or of another log. Truncated: newer ones came all the time while
            this was read.
        """
        for _ in range(_TRIES):
            try:
                segments = self._log.segments()
                found = [self._look(segment, segments[0].first_offset) for segment in segments]
            except NoSuchLedger:
                return None
            except Truncated as gone:  # A newer one came while this was read.
                last = gone
                continue
            saved = [each for each in found if each is not None]
            for each in saved:
                self._check_log(each, log_id)
            return max(saved, key=lambda each: each.offset, default=None)
        raise last

    def parts(self, found: SavedState) -> Iterator[bytes]:
        """Raises StorageError at the end: these are not the parts that were saved. Truncated: a newer one came."""
        digest, count, first = xxh3_128(), 0, found.end.begins + 1
        for entry in self._log.read(first, first + found.end.parts):
            part = bytes(entry.data[1:])
            digest.update(part)
            count += 1
            yield part
        if (count, digest.digest()) != (found.end.parts, found.end.digest):
            raise StorageError(
                f"the snapshot at offset {found.offset} in log {self._log.name!r} is not what was saved",
                hint="take another one where the state is whole: Leader.checkpoint()",
            )

    def write(self, offset: int, parts: Iterable[bytes], log_id: str = "") -> SavedState:
        """Write a snapshot, durably, and delete those before it. Where one of this offset or a higher one is there,
        that one stays, and nothing is written: of two concurrent saves the later state counts, not the later writer.

        Raises LedgerFenced: another copy saves just now; and what `newest` and writing to a log raise. No snapshot that
            counted is gone.
        """
        with self._log.writer() as writer:
            there = self.newest(
                log_id
            )  # After taking the log over, so that no other copy adds one meanwhile.
            if there is None or there.offset < offset:
                ticket = writer.append_nowait(_CONTROL + _encode(_Begin(VERSION, offset, log_id)))
                ticket.result()
                digest, count = xxh3_128(), 0
                for part in _cut(parts):
                    digest.update(part)
                    count += 1
                    writer.append_nowait(_PART + part)
                writer.append(_CONTROL + _encode(_End(ticket.offset, count, digest.digest())))
        found = self.newest(log_id)
        if found is None or found.offset < offset:
            raise StorageError(
                f"log {self._log.name!r} does not show the snapshot at {offset}; nothing was let go"
            )
        self._log.truncate(found.end.begins, may_do_nothing=True)
        return found

    def _look(self, segment: Segment, log_begins: int) -> SavedState | None:
        """The one that ends with a ledger of the log, if one does, and all of it is there: it may stand in several, and
        another hand may have truncated the first."""
        if segment.last_entry < 0:
            return None
        last = segment.first_offset + segment.last_entry
        end = self._control(last)
        if not isinstance(end, _End) or end.parts != last - end.begins - 1 or end.begins < log_begins:
            return None
        begin = self._control(end.begins)
        if not isinstance(begin, _Begin):
            return None
        if begin.version > VERSION:
            raise StorageError(
                f"log {self._log.name!r} holds a snapshot of version {begin.version}; this embedbk knows {VERSION}",
                hint="use the build that wrote it, or a later one; nothing was changed",
            )
        return SavedState(begin.offset, end, begin.log_id)

    def _check_log(self, found: SavedState, log_id: str) -> None:
        if found.log_id and log_id and found.log_id != log_id:
            raise StorageError(
                f"log {self._log.name!r} holds a snapshot of log {found.log_id}, and the log of commands of that name "
                f"is log {log_id} by now: the former was deleted, or renamed; nothing was changed",
                hint=f"rename {self._log.name!r}, or delete it if nobody needs the state of {found.log_id}",
            )

    def _control(self, offset: int) -> _Begin | _End | None:
        for entry in self._log.read(offset, offset + 1):
            if entry.data[:1] != _CONTROL:
                return None
            try:
                return _decoder.decode(entry.data[1:])
            except msgspec.MsgspecError:
                return None
        return None


def _cut(parts: Iterable[bytes]) -> Iterator[bytes]:
    """In pieces that an entry holds."""
    for part in parts:
        view = memoryview(part)
        for begin in range(0, len(view), PART_BYTES):
            yield bytes(view[begin : begin + PART_BYTES])
