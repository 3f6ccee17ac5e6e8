"""The newest metadata that a bookie met, in a file of its directory (P10.5; core/witness.py).

Decides how it is written; what is kept, and what follows from it, is the witness's.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from embedbk.core.witness import Met
from embedbk.errors import StorageError
from embedbk.storage.noted import NoteFile

__all__ = ["MET_FILE", "keep_met", "read_met"]

MET_FILE = "METADATA_MET"
_MAGIC = b"EBKW"

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Met)


def read_met(directory: Path) -> Met | None:
    """The newest metadata that was kept; None: none was met. Raises StorageError: the note cannot be read."""
    path = directory / MET_FILE
    try:
        found = [_decoder.decode(body) for body in NoteFile(path, _MAGIC).read()]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as broken:
        raise StorageError(
            f"{path} holds no note of this kind: {broken}", hint="was it replaced by hand?"
        ) from broken
    # The second is a newer one of the same start; what stands there of any other was replaced.
    if len(found) > 1 and (found[0].count, found[0].nonce) == (found[1].count, found[1].nonce):
        return found[1]
    return found[0] if found else None


def keep_met(directory: Path, met: Met, *, is_synced: bool) -> None:
    """Write the note; durable when this returns if is_synced, else when the system writes it. Raises StorageError."""
    note = NoteFile(directory / MET_FILE, _MAGIC)
    write = note.keep if is_synced else note.hint
    write(_encode(met))
