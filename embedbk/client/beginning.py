"""Where a cluster, a bookie or a metadata member may begin: what is a directory, and whether it may be a new one.

Decides it the same way for `embedbk.open`, `Cluster` and the peer commands, before anything is made. A device that is
not mounted looks like an empty directory, or like one whose parent is missing: parents are never made, and with
create=False nothing new is made at all. What a directory with something in it holds, and whose it is, is judged where
it is opened (embedded.py, storage/identity.py, storage/metadata_opening.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from embedbk.errors import StorageError, UsageError
from embedbk.storage.identity import OWNER_FILE
from embedbk.storage.noted import sync_name_of

__all__ = ["IGNORED", "check_bookies_path", "check_path", "holds_log", "is_new", "make", "refuse_new"]

IGNORED = frozenset({OWNER_FILE, "lost+found"})  # An empty directory may have these.

# A scheme with its slash (two of them, which `Path` makes one), a scheme of ours without, or HOST:PORT.
_ADDRESS = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:/|(?:embedbk|tcp|ipc|https?):|[^/]*:\d+\s*$)", re.IGNORECASE)


def check_path(path: str | os.PathLike[str], what: str = "directory") -> Path:
    """Raises UsageError for what is no path, and for one that looks like an address: no user wants a directory of that
    name."""
    given = os.fsdecode(path)
    if not given or "\0" in given:
        raise UsageError(
            f"{what} {given!r} is no path; nothing was made", hint="the working directory is called ."
        )
    if _ADDRESS.match(given):
        raise UsageError(
            f"{what} {given!r} looks like an address, and is no directory; nothing was made",
            hint=f"a cluster's address is the text embedbk://HOST:PORT; a directory of this name is ./{given}",
        )
    return Path(path)


def check_bookies_path(path: str | os.PathLike[str], what: str = "directory") -> Path:
    """As `check_path`, for a place of bookies' directories, whose identity names all of them as text (P7.2)."""
    checked = check_path(path, what)
    try:
        str(checked.absolute()).encode()
    except UnicodeEncodeError as half:
        raise UsageError(
            f"{what} {str(checked)!r} is not allowed for a bookie: its name is no text in UTF-8; nothing was made",
            hint="give a directory whose path is",
        ) from half
    return checked


def is_new(path: Path, *, create: bool, what: str = "directory") -> bool:
    """Whether there is nothing in the directory, or no directory yet where one may be made. Makes nothing.

    Raises:
        UsageError: it looks like an address.
        StorageError: it, or its parent, is missing or cannot be used, or it is no directory.
    """
    check_path(path, what)
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        _refuse_to_make(path, what, create=create)
        return True
    except NotADirectoryError as taken:
        raise StorageError(
            f"{what} {path} is not a directory",
            definite=True,
            hint="give a directory, or a path where one can be made",
        ) from taken
    except OSError as refused:
        raise StorageError(
            f"{what} {path} cannot be read: {refused}",
            definite=True,
            hint="check its permissions and its disk",
        ) from refused
    return not set(names) - IGNORED


def _refuse_to_make(path: Path, what: str, *, create: bool) -> None:
    parent = Path(os.path.abspath(path)).parent
    if not parent.is_dir():
        raise StorageError(
            f"{what} {path} cannot be made: {parent} is missing, or no directory; removed, or not mounted?",
            definite=True,
            hint="mount or make the directory that it is to stand in",
        )
    if not create:
        raise StorageError(
            f"{what} {path} is missing: removed, or not mounted?",
            definite=True,
            hint="put it back; create=True (--create) makes a new one",
        )


def make(path: Path) -> None:
    """Make the directory, and nothing above it, if it is not there; its name is durable when this returns.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        path.mkdir(exist_ok=True)
        sync_name_of(path)
    except OSError as refused:
        raise StorageError(
            f"directory {path} cannot be made: {refused}",
            definite=True,
            hint="check the path and its permissions",
        ) from refused


def refuse_new(paths: Sequence[Path], what: str) -> None:
    """create=False: each of these has something in it.

    Raises StorageError for the first that is missing or empty.
    """
    for path in paths:
        if is_new(path, create=False, what=what):
            raise StorageError(
                f"{what} {path} is empty: wiped, or not mounted?",
                definite=True,
                hint="put it back; create=True (--create) begins anew in an empty one",
            )


def holds_log(directory: Path) -> bool:
    """Whether a metadata member has begun in it: its log names the cluster."""
    try:
        return any(name.startswith("journal-") for name in os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return False
