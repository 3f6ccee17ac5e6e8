"""Reading on in an archive, where the bookies of a ledger gave their copies up (P8.14).

Decides which error a reader gets that cannot read files here. `archive/reading.py` decides which file counts; it needs
pyarrow and is imported when a reader comes to such a ledger.
"""

from __future__ import annotations

from typing import Protocol

from embedbk.codec.frame import Frame
from embedbk.codec.freed_ledger import LOG_OF_LEDGER
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.errors import ArchiveUnreadable
from embedbk.host.signal import Signal

__all__ = ["ClosableSource", "FrameSource", "read_archived"]


class FrameSource(Protocol):
    """Frames in entry order, taken by one consumer at its own pace: from bookies, or from files."""

    signal: Signal
    is_over: bool

    def has_news(self) -> bool: ...

    def take(self) -> Frame | None: ...


class ClosableSource(FrameSource, Protocol):
    def close(self) -> None: ...


def read_archived(metadata: LedgerMetadata, first: int, last: int) -> ClosableSource:
    """The entries first..last of a ledger that was freed.

    Raises ArchiveUnreadable, definite: pyarrow is not installed.
    """
    freed = metadata.freed
    assert freed is not None
    try:
        from embedbk.archive.reading import ArchivedReading
    except ImportError as missing:
        error = ArchiveUnreadable(
            f"ledger {metadata.ledger_id}: its copies are files of the archive in {freed.path!r}, and what reads them "
            f"is not installed: {missing}",
            definite=True,
            hint="pip install 'embedbk[arrow]'",
        )
        error.place = freed.path
        raise error from missing
    log_id = metadata.custom[LOG_OF_LEDGER].decode(errors="replace")
    return ArchivedReading(freed, log_id, metadata.ledger_id, first, last)
