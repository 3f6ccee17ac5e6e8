"""The file of what a scrub has finished, so that the next one goes on behind it (SCRUB.md).

JSON lines: a head that says of which cluster and level this is, then one line for each range that was found sound, with
a digest of the ledger's metadata at that time. A range counts only while the metadata is the same, byte for byte: seats
that changed since are read anew. What was not sound, or not told, is not written, so it is read again. A last line that
is cut off is a range that was not finished, or a file of which not even the head was.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from embedbk.errors import StorageError, UsageError
from embedbk.ids import NO_ENTRY

__all__ = ["ScrubProgress"]

_VERSION = 1


def _digest(metadata: bytes) -> str:
    return hashlib.blake2b(metadata, digest_size=12).hexdigest()


class ScrubProgress:
    """path None: nothing is remembered."""

    def __init__(self, path: Path | None, cluster_token: bytes, level: str) -> None:
        """Raises UsageError: the file is of another cluster or level, or is none. StorageError: it cannot be read."""
        self._path = path
        self._head = {"v": _VERSION, "cluster": cluster_token.hex(), "level": level}
        self._done: dict[int, dict[str, int]] = {}  # By ledger and metadata: sound up to this entry.
        self._lines: list[str] = []
        self._begins = False  # Whether the file is a head that is cut off.
        if path is not None:
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            text = path.read_text("utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError) as failed:
            raise StorageError(f"the state of the scrub in {path} cannot be read: {failed}") from failed
        # Its writer was killed, or the disk was full.
        self._begins = bool(text) and json.dumps(self._head).startswith(text)
        lines = [] if self._begins else text.splitlines()
        read = [_line(each) for each in lines]
        if not lines:
            self._lines.append(json.dumps(self._head))
        elif read[0] != self._head or any(
            each != self._head for each in read if each is not None and "v" in each
        ):
            # Two scrubs that began the file at once have put a head each.
            raise UsageError(
                f"{path} is no state of a scrub of this cluster at level {self._head['level']}",
                hint="give another file, or delete it to begin anew; nothing was scrubbed",
            )
        for each in read[1:]:
            if each is not None and "v" not in each:
                known = self._done.setdefault(int(each["ledger"]), {})
                known[str(each["metadata"])] = int(each["last"])

    def done_up_to(self, ledger_id: int, metadata: bytes) -> int:
        """The last entry up to which the ledger was sound under this metadata; NO_ENTRY: none."""
        return self._done.get(ledger_id, {}).get(_digest(metadata), NO_ENTRY)

    def note(self, ledger_id: int, metadata: bytes, last: int) -> None:
        """All entries up to this one are sound."""
        if self._path is not None:
            self._lines.append(json.dumps({"ledger": ledger_id, "metadata": _digest(metadata), "last": last}))

    def save(self) -> None:
        """Raises StorageError: it cannot be written; the scrub itself is not harmed."""
        if self._path is None or not self._lines:
            return
        try:
            cut = self._path.exists() and not self._begins and not self._path.read_bytes().endswith(b"\n")
            with open(self._path, "w" if self._begins else "a", encoding="utf-8") as file:
                file.write(
                    ("\n" if cut and self._path.stat().st_size else "") + "\n".join(self._lines) + "\n"
                )
                file.flush()
                os.fsync(file.fileno())
        except OSError as failed:
            raise StorageError(
                f"the state of the scrub cannot be written to {self._path}: {failed}"
            ) from failed
        self._lines, self._begins = [], False

    def finish(self) -> None:
        """All was told: the next scrub begins anew. Raises StorageError."""
        if self._path is None:
            return
        try:
            self._path.write_text(json.dumps(self._head) + "\n", "utf-8")
        except OSError as failed:
            raise StorageError(
                f"the state of the scrub in {self._path} cannot be ended: {failed}"
            ) from failed


def _line(text: str) -> Any:
    """None: it is cut off, or no line of this file."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_range = isinstance(found, dict) and all(
        isinstance(found.get(key), kind) for key, kind in (("ledger", int), ("metadata", str), ("last", int))
    )
    return found if is_range or (isinstance(found, dict) and "v" in found) else None
