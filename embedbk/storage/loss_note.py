"""Whether what a bookie held may be gone, and the note of it in its directory (P7.4, P7.9).

The note stands there from the start that is told of a loss, or notices one, until everything that may be lost is in
durable limbo; so a crash in between loses no word of it. Leaves to others: what a loss is (starting.py, identity.py),
and what follows from it (core/bookie.py).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from embedbk.errors import StorageError
from embedbk.storage.noted import sync_directory

__all__ = ["LossNote"]

logger = logging.getLogger(__name__)


class LossNote:
    """path: the note; None: of a simulated disk, which has none. is_declared: this start is told of a loss.

    Raises:
        StorageError: the note cannot be written.
    """

    def __init__(self, bookie_id: str, path: Path | None, *, is_declared: bool) -> None:
        self.may_have_lost = is_declared if path is None else _noted(path, is_new=is_declared)
        self._bookie_id = bookie_id
        self._path = path

    def note_less(self, reason: str) -> None:
        """As `DurableBookie.note_less`."""
        logger.error(
            "bookie %s has less than it had: %s; what is missing counts as unknown (P7.9)",
            self._bookie_id,
            reason,
        )
        self.may_have_lost = True
        if self._path is not None:
            _noted(self._path, is_new=True)

    def end(self) -> None:
        """As `DurableBookie.end_loss`."""
        self.may_have_lost = False
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as refused:  # The next start puts the same ledgers into limbo once more.
                logger.error("bookie %s: %s cannot be removed: %s", self._bookie_id, self._path, refused)


def _noted(path: Path, *, is_new: bool) -> bool:
    """Whether this start or an unfinished one before it was told of a loss; the note is durable when this returns. One
    that is there may be of a start that was killed before it was synced, or of an operator's `touch`.

    Raises:
        StorageError: the note cannot be written.
    """
    is_there = path.exists()
    if not is_there and not is_new:
        return False
    try:
        if not is_there:
            with open(path, "wb") as file:
                os.fsync(file.fileno())
        sync_directory(path.parent)  # Its name is all that it says.
    except OSError as refused:
        raise StorageError(
            f"{path} cannot be written: {refused}", hint="check its permissions and its disk"
        ) from refused
    return True
