"""The note of how far a metadata member's log was used, in a small file beside it (P2.1, P9.2, P10.3).

Decides how the note lies on disk and what a log must still have of it. Leaves to others: when it is written
(log_use.py: what is noted is durable in the log, and was not sent to anybody yet), and how an owner declares a loss.

A log that was cut back, or lost its newest files, looks like one that never went further. A member that started on it
would give out ids and epochs twice, which no other node can detect: so it refuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from embedbk.errors import StorageError
from embedbk.storage.noted import NoteFile

__all__ = ["MEMBER_FILE", "FileNotes", "MemberNotes", "MemoryNotes", "Used", "what_is_missing"]

MEMBER_FILE = "MEMBER"
_MAGIC = b"EBKM"


class Used(Struct, frozen=True, array_like=True):
    """The owner of the log, its newest start, and its last record, all durable."""

    cluster_token: bytes
    incarnation: bytes
    start_count: int
    nonce: bytes
    last_token: int
    is_of_log: bool = False  # The start is one of this log; else, by an older build, of the metadata.
    term: int = 0  # And index of the last entry, as of that record: nothing beyond was acknowledged.
    last_index: int = 0
    has_doubt: bool = False  # Once it had less than that, and may not have everything again.


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Used)


class MemberNotes(Protocol):
    """The place where a member keeps its note."""

    def read(self) -> Used | None:
        """The newest note; None: there is none. Raises StorageError: it cannot be read."""
        ...

    def write(self, used: Used, *, is_synced: bool) -> None:
        """Write the note: durable when this returns if is_synced, else when the system writes it. Raises
        StorageError."""
        ...


class FileNotes:
    """The notes in a member's directory."""

    def __init__(self, directory: Path) -> None:
        self._note = NoteFile(directory / MEMBER_FILE, _MAGIC)

    def read(self) -> Used | None:
        return self._newest(self._note.read())

    def parse(self, content: bytes) -> Used | None:
        """As `read`, of the file's content."""
        return self._newest(self._note.parse(content))

    def _newest(self, bodies: list[bytes]) -> Used | None:
        try:
            found = [_decoder.decode(body) for body in bodies]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as broken:
            raise StorageError(f"{self._note.path} holds no note of a metadata member: {broken}") from broken
        if not found:
            return None
        # The second is a newer one of the same start; what stands there of any other was replaced.
        is_same = len(found) > 1 and found[0].nonce == found[1].nonce
        return found[1] if is_same else found[0]

    def write(self, used: Used, *, is_synced: bool) -> None:
        (self._note.keep if is_synced else self._note.hint)(_encode(used))


class MemoryNotes:
    """For a log in memory: what is written lives through everything that becomes of the log."""

    def __init__(self) -> None:
        self.used: Used | None = None

    def read(self) -> Used | None:
        return self.used

    def write(self, used: Used, *, is_synced: bool) -> None:
        self.used = used


def what_is_missing(used: Used | None, last_token: int, start_count: int, nonce: bytes | None) -> str:
    """What a log lacks of its noted use; empty: nothing. nonce: of the start number used.start_count in the log, None:
    the log does not have that start."""
    if used is None:
        return (
            f"its file {MEMBER_FILE} is missing, and it was started {start_count} times"
            if start_count
            else ""
        )
    if last_token < used.last_token:
        return f"it ends with record {last_token}, and {used.last_token} were durable"
    if start_count < used.start_count:
        return f"it was started {used.start_count} times, and {start_count} starts stand in it"
    if used.start_count and nonce is not None and nonce != used.nonce:
        return f"its start number {used.start_count} is another than the one that was noted: it is of another copy"
    return ""
