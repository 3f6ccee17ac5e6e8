"""Where a log ends now, and how much it has in front of that end: the lag of a cursor (P8.8).

Decides what counts as known. Entries are exact, as offsets are dense; payload bytes come from the list, and a ledger
that counts in part counts by the share of its entries.
"""

from __future__ import annotations

from dataclasses import dataclass

from embedbk.client.log_reading import LogReading
from embedbk.client.reading import LedgerReading
from embedbk.core.log_paging import end_of
from embedbk.errors import EntryUnreadable, Lost, NoSuchLedger, NotEnoughBookies
from embedbk.ids import NO_ENTRY

__all__ = ["LogEnd", "log_end"]


@dataclass(frozen=True, slots=True)
class _Part:
    """Some consecutive ledgers of the log; length None: no build recorded it."""

    first_offset: int
    end: int
    length: int | None


@dataclass(frozen=True, slots=True)
class LogEnd:
    offset: int  # The offset behind the last entry that may be read.
    parts: tuple[_Part, ...]

    @property
    def begins(self) -> int:
        """The offset of the first entry that is there, or would be."""
        return self.parts[0].first_offset if self.parts else self.offset

    def bytes_from(self, offset: int) -> int | None:
        """Payload bytes from this offset on; None: not known."""
        total = 0
        for part in self.parts:
            entries = part.end - max(offset, part.first_offset)
            if entries <= 0:
                continue
            if part.length is None:
                return None
            total += part.length * entries // (part.end - part.first_offset)
        return total


async def log_end(reading: LogReading) -> LogEnd | None:
    """None: too few bookies answer to tell."""
    log_list = await reading.listed()
    parts: list[_Part] = []
    pages, segments = log_list.pages, log_list.segments
    if pages is not None and log_list.has_pages and segments:
        behind = segments[0].first_offset
        assert behind is not None  # The newest closed one stays in the list.
        parts.append(_Part(pages.first_offset, behind, pages.length))
    following = log_list.first_offset
    for segment in segments:
        first_offset = following if segment.first_offset is None else segment.first_offset
        if segment.last_entry is not None:
            following = end_of(segment)
            parts.append(_Part(first_offset, following, segment.length))
            continue
        try:
            ended = await _open_end(reading, segment.ledger_id)
        except NotEnoughBookies:
            return None
        if ended is None:
            continue  # This ledger closed empty, and left the list.
        last_entry, length, is_closed = ended
        following = first_offset + last_entry + 1
        parts.append(_Part(first_offset, following, length))
        if not is_closed:
            break  # Where the next one begins is not known, and nothing is in it yet.
    return LogEnd(following, tuple(parts))


async def _open_end(reading: LogReading, ledger_id: int) -> tuple[int, int | None, bool] | None:
    """(last entry, payload bytes, whether it ends there) of a ledger that is not recorded as closed."""
    try:
        ledger = await LedgerReading.open(reading.runtime, ledger_id, reading.password, recover=False)
    except NoSuchLedger:
        return None
    try:
        last_entry = await ledger.limit()
        if ledger.is_closed:
            return last_entry, ledger.metadata.length, True
        if last_entry == NO_ENTRY:
            return NO_ENTRY, 0, False
        frames = ledger.frames(last_entry, last_entry)
        try:
            return last_entry, (await anext(frames)).frame.length, False
        except (EntryUnreadable, Lost):
            return last_entry, None, False
        finally:
            await frames.aclose()
    finally:
        ledger.close()
