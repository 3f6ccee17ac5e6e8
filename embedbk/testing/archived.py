"""The files of a world's archive, as its readers read them: values in memory, some of which are away for a while.

Decides nothing but how much comes at once. It takes the place of `embedbk.archive.reading`.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

from embedbk.codec.entry_digest import DIGEST_MASK, entry_digest
from embedbk.codec.frame import Frame, frame_of, merge, split
from embedbk.codec.freed_ledger import LOG_OF_LEDGER
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.errors import ArchiveUnreadable, StorageError
from embedbk.host.signal import Signal
from embedbk.scrub.archived import ArchivedLedger, ArchivedPart
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["ArchivedInMemory", "FilesInMemory", "frames_in_memory"]

_ENTRIES_AT_ONCE = 5  # Entries that come at once, as if they were a row group.


def frames_in_memory(world: World, metadata: LedgerMetadata, first: int, last: int) -> list[Frame]:
    freed = metadata.freed
    assert freed is not None
    log_id = metadata.custom[LOG_OF_LEDGER].decode()
    content = world.archived.get((log_id, metadata.ledger_id, freed.manifest))
    if content is None:
        raise Violation("P8.14", f"ledger {metadata.ledger_id} was freed, and its files were never written")
    whole, frames = frame_of(memoryview(content), metadata.ledger_id), []
    for begin in range(first, last + 1, _ENTRIES_AT_ONCE):
        part = merge([whole], begin, min(begin + _ENTRIES_AT_ONCE - 1, last))
        if part is None or part.last_entry != min(begin + _ENTRIES_AT_ONCE - 1, last):
            raise Violation(
                "P8.14", f"ledger {metadata.ledger_id} was freed, and its files lack entry {begin}"
            )
        frames.append(part)
    return frames


class ArchivedInMemory:
    """As `embedbk.archive.reading.ArchivedReading`."""

    def __init__(self, world: World, metadata: LedgerMetadata, first: int, last: int) -> None:
        self.signal = Signal()
        self.is_over = True
        is_away = not world.is_healed and world.archive_chance.random() < 0.2
        self._error = None
        self._frames: deque[Frame] = deque()
        if is_away:
            self._error = ArchiveUnreadable(f"ledger {metadata.ledger_id}: its archive is away")
        else:
            self._frames.extend(frames_in_memory(world, metadata, first, last))
            world.sometimes["freed ledger read"] += 1

    def has_news(self) -> bool:
        return True

    def take(self) -> Frame | None:
        if self._frames:
            return self._frames.popleft()
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """Nothing has to be released."""


class FilesInMemory:
    """As `embedbk.scrub.archive_files.FilesOfArchives`: a ledger has one file."""

    def __init__(self, world: World) -> None:
        self._world = world

    def parts(self, archived: ArchivedLedger) -> Sequence[ArchivedPart]:
        digests = self._digests(archived)
        return [ArchivedPart("values in memory", 0, len(digests) - 1, sum(digests) & DIGEST_MASK)]

    def digests(self, archived: ArchivedLedger, part: ArchivedPart) -> array[int]:
        return self._digests(archived)

    def _digests(self, archived: ArchivedLedger) -> array[int]:
        content = self._world.archived.get((archived.log_id, archived.ledger_id, archived.manifest))
        if content is None:
            raise StorageError(f"ledger {archived.ledger_id} was archived, and its files were never written")
        frame = frame_of(memoryview(content), archived.ledger_id)
        return array("Q", (entry_digest(entry) for _, entry in split(frame)))
