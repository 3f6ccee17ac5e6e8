"""The read-only marker: the file by which an operator keeps normal adds away from a bookie (P7.8, ST26, ST27).

It is `DIRECTORY/READ_ONLY`, and holds the reason for people to read. It outlives restarts. Removing it makes the bookie
writable again, unless something else keeps it read-only. A running bookie looks for it now and then (host/spacing.py).
"""

from __future__ import annotations

import os
from pathlib import Path

from embedbk.errors import StorageError
from embedbk.storage.noted import sync_directory

__all__ = ["READ_ONLY_FILE", "end_read_only", "keep_read_only", "read_only_reason"]

READ_ONLY_FILE = "READ_ONLY"
_REASON_BYTES_MAX = 1000


def read_only_reason(directory: Path) -> str | None:
    """The operator's reason to take no normal adds here, perhaps an empty one; None: there is no marker.

    Raises:
        StorageError: it is unknown whether there is a marker.
    """
    path = directory / READ_ONLY_FILE
    try:
        with open(path, "rb") as file:
            return file.read(_REASON_BYTES_MAX).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as refused:
        raise StorageError(f"{path} cannot be read: {refused}", hint="check its permissions") from refused


def keep_read_only(directory: Path, reason: str) -> None:
    """Write the marker: durable when this returns. Raises StorageError: it is not."""
    path = directory / READ_ONLY_FILE
    # The reason stays as it was typed, also where that is no UTF-8: an error here would leave a marker without it.
    told = reason.encode(errors="surrogateescape")[:_REASON_BYTES_MAX]
    try:
        with open(path, "wb") as file:
            file.write(told + b"\n")
            file.flush()
            os.fsync(file.fileno())
        sync_directory(directory)
    except OSError as refused:
        raise StorageError(
            f"{path} cannot be written: {refused}", hint="check its permissions and its disk"
        ) from refused


def end_read_only(directory: Path) -> bool:
    """Remove the marker, durably. Returns whether there was one. Raises StorageError."""
    path = directory / READ_ONLY_FILE
    try:
        path.unlink()
        sync_directory(directory)
    except FileNotFoundError:
        return False
    except OSError as refused:
        raise StorageError(
            f"{path} cannot be removed: {refused}", hint="check the permissions of its directory"
        ) from refused
    return True
