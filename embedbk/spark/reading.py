"""The reads of the data source: how far a log goes, which ranges make up a part of it, and their entries.

Planning runs on the driver; `read` runs in the executors, each with its own client, straight from the bookies. Nothing
here needs Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from embedbk.client.batches import Batch, Segment
from embedbk.client.log import Log
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.waiting import run_blocking
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.log_identity import is_minted
from embedbk.errors import EntryUnreadable, NoSuchLedger, Truncated, UsageError
from embedbk.ids import NO_ENTRY, Position
from embedbk.metadata.levels import LEVEL_OF_LOG_IDS
from embedbk.spark.clients import client_of

__all__ = [
    "BYTES_ASSUMED",
    "EARLIEST",
    "LATEST",
    "LedgerRange",
    "LogPoint",
    "ReadPlace",
    "Starting",
    "admitted",
    "begin",
    "end_of",
    "names",
    "pin",
    "plan",
    "read",
    "standing",
    "started",
    "stretch",
]

logger = logging.getLogger("embedbk.spark")

EARLIEST, LATEST = "earliest", "latest"
BYTES_ASSUMED = 1024  # Assumed bytes of an entry in a ledger of unknown length.


@dataclass(frozen=True, slots=True)
class ReadPlace:
    """Logs of one cluster; plain data, for it travels to the executors."""

    cluster: str
    password: bytes = b""

    def log(self, name: str) -> Log:
        return client_of(self.cluster).log(name, password=self.password)

    def reading(self, name: str) -> LogReading:
        """The same for several calls, all of which are about one log, wherever its name leads meanwhile."""
        return LogReading(client_of(self.cluster)._runtime, name, Password(self.password))


@dataclass(frozen=True, slots=True)
class Starting:
    """A place in each log: an offset for some names; for the others a cursor or a time, or everywhere the same word."""

    word: str  # EARLIEST or LATEST.
    offsets: Mapping[str, int]
    cursor: str = ""  # Where the cursor of this name stands in each.
    time_ms: int | None = None  # The first entry at or behind this time.
    may_miss: bool = True  # Where there is none: the log's end.

    def offset_in(self, place: ReadPlace, name: str) -> int | None:
        """The offset in a log; None: the word tells it.

        Raises:
            NoSuchCursor: the log has no such cursor.
            UsageError: it has no entry from that time on, and that was to be an error.
        """
        if (offset := self.offsets.get(name)) is not None:
            return offset
        if self.cursor:
            return place.log(name).cursor(self.cursor).get().offset
        if self.time_ms is None:
            return None
        log = place.log(name)
        offset = log.first_at(self.time_ms)
        if not self.may_miss and offset >= log.end():
            raise UsageError(
                f"log {name!r} has no entry at or behind {self.time_ms} ms since 1970",
                hint='option("onNoMatch", "latest") begins at its end then',
            )
        return offset


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A place between two entries of a log: everything below `offset` is behind it.

    ledger_id, entry_id: where the entry right below it stands, if there is one; a log that was deleted and begun anew
    has another there. log_id: which log it is of (P8.12), also where no entry is below it; "": that was not noted.
    begin: as the end of a micro-batch, where its rows begin if that is not the point at which the one before ended.
    """

    offset: int
    ledger_id: int = NO_ENTRY
    entry_id: int = NO_ENTRY
    log_id: str = ""
    begin: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """Entries first_entry..last_entry, both included, of one ledger of a log."""

    log: str
    ledger_id: int
    first_entry: int
    last_entry: int
    first_offset: int  # The offset of the ledger's entry 0.
    archived: Freed | None = (
        None  # Files that have all of the ledger, verified, beside or instead of bookies.
    )

    @property
    def entry_count(self) -> int:
        return self.last_entry - self.first_entry + 1


def names(place: ReadPlace, pattern: str) -> list[str]:
    """The logs there are whose name begins with `pattern`, a prefix."""
    return sorted(client_of(place.cluster).logs(pattern))


def stretch(
    place: ReadPlace, name: str, start: Starting, end: Starting
) -> tuple[LogPoint, LogPoint, list[Segment]]:
    """Where a read of all that is there now begins and ends, and the ledgers from its start on.

    Confirmed entries never change, so a later or repeated read gets the same.

    Raises:
        UsageError: the places are behind what may be read now, or the end is before the start.
        Truncated: the start is below the beginning of the log.
    """
    wanted, until = start.offset_in(place, name), end.offset_in(place, name)
    segments = place.log(name).segments(wanted)
    first = LogPoint(_first_of(segments) if wanted is None else wanted)
    reached = _end_in(segments)
    if wanted is None and start.word == LATEST:
        first = reached
    last = LogPoint(until) if until is not None else first if end.word == EARLIEST else reached
    # What a cursor or a time tells was confirmed once; less may be known of it now, and nothing is behind it.
    if name not in start.offsets and first.offset > reached.offset:
        first = reached
    if name not in end.offsets and last.offset > reached.offset:
        last = reached
    if not first.offset <= last.offset <= reached.offset:
        raise UsageError(
            f"log {name!r}: offsets {first.offset} to {last.offset} (left out) were asked for, and it may be read "
            f"up to {reached.offset} (left out) now"
        )
    return first, last, segments


def started(place: ReadPlace, name: str, start: Starting) -> LogPoint:
    """Where a stream begins that has no checkpoint. Raises what `Starting.offset_in` raises."""
    log = place.reading(name)
    run_blocking(log.listed(), "spark")
    if (wanted := start.offset_in(place, name)) is not None:
        return LogPoint(wanted, log_id=_identity(log))
    return _begin(log) if start.word == EARLIEST else end_of(place, name)[0]


def end_of(place: ReadPlace, name: str, above: LogPoint | None = None) -> tuple[LogPoint, list[Segment]]:
    """How far the log may be read now, and its ledgers from `above` on, which is at or below that.

    Raises NoSuchLedger: `above` is of another log; `standing` tells what follows.
    """
    log = place.reading(name)
    segments = run_blocking(log.segments(None if above is None else above.offset), "spark")
    if above is not None and _is_of_another(above, log):
        raise NoSuchLedger(_another(name, above), definite=False)
    reached = _end_in(segments, _identity(log))
    return above if above is not None and reached.offset <= above.offset else reached, segments


def _first_of(segments: Sequence[Segment]) -> int:
    return segments[0].first_offset if segments else 0


def _end_in(segments: Sequence[Segment], log_id: str = "") -> LogPoint:
    for each in reversed(segments):
        if each.last_entry >= 0:
            return _behind(each, each.last_entry, log_id)
    return LogPoint(_first_of(segments), log_id=log_id)


def begin(place: ReadPlace, name: str) -> LogPoint:
    """Where the log begins."""
    return _begin(place.reading(name))


def _begin(log: LogReading) -> LogPoint:
    segments = run_blocking(log.segments(), "spark")
    return LogPoint(_first_of(segments), log_id=_identity(log))


def _behind(segment: Segment, entry_id: int, log_id: str) -> LogPoint:
    return LogPoint(segment.first_offset + entry_id + 1, segment.ledger_id, entry_id, log_id)


def _identity(log: LogReading) -> str:
    """The id of a log that was found. Empty below the level of ids, where a log that is begun anew has the same one."""
    log_id = str(log.name)
    return log_id if is_minted(log_id) or log.runtime.has_level(LEVEL_OF_LOG_IDS) else ""


def _is_of_another(point: LogPoint, log: LogReading) -> bool:
    """Whether the point is known to be of another log than this one, which was found."""
    return point.log_id not in ("", _identity(log) or point.log_id)


def _another(name: str, point: LogPoint) -> str:
    return (
        f"log {name!r} is not the log with the id {point.log_id}, which was read up to offset {point.offset}"
    )


def _without(name: str, point: LogPoint) -> str:
    return f"log {name!r}: ledger {point.ledger_id}, up to which it was read, is not in it at offset {point.offset - 1}"


def standing(place: ReadPlace, name: str, point: LogPoint, *, may_lose: bool) -> LogPoint:
    """The point itself, if the log is still the one it was taken from and still has what comes behind it.

    may_lose: where that is not so, the log's first point at or behind it instead, and one line on the log.

    Raises:
        Truncated: what comes next is gone; says from where to where.
        NoSuchLedger: the log was deleted and begun anew.
    """
    log = place.reading(name)
    run_blocking(log.listed(), "spark")
    try:
        found = not _is_of_another(point, log) and _stands_at(log, point)
    except Truncated as gone:
        first = gone.first_offset if gone.first_offset is not None else _begin(log).offset
        lost = f"log {name!r}: its offsets {point.offset} to {first - 1} were truncated and cannot be read"
        if not may_lose:
            error = Truncated(lost, hint='read on from where it begins: option("failOnDataLoss", "false")')
            error.first_offset = first
            raise error from gone
        logger.warning("%s; reading goes on at offset %d", lost, first)
        return LogPoint(first, log_id=_identity(log))
    if found:
        return point
    anew = (_another if _is_of_another(point, log) else _without)(name, point)
    if not may_lose:
        raise NoSuchLedger(
            f"{anew}: the log was deleted and begun anew, or the name is another log's by now",
            hint='a new checkpoint reads the new one from its start, and so does option("failOnDataLoss", "false")',
        )
    logger.warning("%s; reading goes on at its start", anew)
    return _begin(log)


def _stands_at(log: LogReading, point: LogPoint) -> bool:
    """Whether the entry below the point is the one that it names; True where that was truncated, or it names none."""
    if point.entry_id == NO_ENTRY:
        run_blocking(log.segments(point.offset), "spark")
        return True
    try:
        segments = run_blocking(log.segments(point.offset - 1), "spark")
    except Truncated as gone:
        if gone.first_offset != point.offset:
            raise
        return True
    for each in segments:
        if each.last_entry >= 0:  # Its LAC may be reported lower than before; its place does not change.
            return (each.ledger_id, point.offset - 1 - each.first_offset) == (point.ledger_id, point.entry_id)
    return False


def plan(name: str, segments: Sequence[Segment], start: LogPoint, end: LogPoint) -> list[LedgerRange]:
    """The ranges of ledgers between two points, from the ledgers that stand from the first one on."""
    ranges = []
    for each in segments:
        first, last = max(0, start.offset - each.first_offset), end.offset - 1 - each.first_offset
        if each.ledger_id != end.ledger_id:  # Else it is known to be confirmed up to there.
            last = min(each.last_entry, last)
        if first <= last:
            ranges.append(LedgerRange(name, each.ledger_id, first, last, each.first_offset))
    if sum(each.entry_count for each in ranges) != end.offset - start.offset:
        raise EntryUnreadable(
            f"log {name!r}: of its offsets {start.offset} to {end.offset - 1} the ledgers that are listed have "
            f"{sum(each.entry_count for each in ranges)}",
            hint="read again when more bookies of its last ledger answer",
        )
    if ranges and end.ledger_id not in (NO_ENTRY, ranges[-1].ledger_id):
        raise NoSuchLedger(f"{_without(name, end)}: the log was deleted and begun anew just now")
    return ranges


def admitted(
    segments: Sequence[Segment], start: LogPoint, end: LogPoint, rows: int | None, byte_count: int | None
) -> LogPoint:
    """The last point at or below `end` with at most so many entries and about so many bytes behind `start`; always at
    least one entry. Bytes are counted by what an entry of each ledger has on the average: nothing is read for that."""
    if rows is None and byte_count is None:
        return end
    reached, left, bytes_left = start, rows, byte_count
    for each in segments:
        first = max(0, start.offset - each.first_offset)
        last = min(each.last_entry, end.offset - 1 - each.first_offset)
        if first > last:
            continue
        count = last - first + 1
        if left is not None:
            count = min(count, left)
            left -= count
        if bytes_left is not None:
            size = BYTES_ASSUMED if each.length is None else max(1, each.length // (each.last_entry + 1))
            count = min(count, bytes_left // size)
            bytes_left -= count * size
        if count == 0 and reached.offset == start.offset:
            count = 1
        if count > 0:
            reached = _behind(each, first + count - 1, end.log_id)
        if first + count - 1 < last:
            break
    return reached


def read(place: ReadPlace, part: LedgerRange) -> Iterator[Batch]:
    """The entries of one range, in order and all of them.

    Raises:
        EntryUnreadable: fewer could be read than were planned; reading again may help.
        Truncated: the log was truncated since this was planned.
    """
    start, end = Position(part.ledger_id, part.first_entry), Position(part.ledger_id, part.last_entry + 1)
    seen = part.first_entry - 1
    for batch in place.log(part.log).read_batches(start, end):
        seen = batch.ids[-1]
        yield batch
    # A LAC may be reported lower than at planning, where the bookie that knew it is gone: no rows may be lost.
    if seen != part.last_entry:
        raise EntryUnreadable(
            f"log {part.log!r}, ledger {part.ledger_id}: of the entries {part.first_entry}..{part.last_entry}, which "
            f"were confirmed when the read was planned, those up to {seen} could be read",
            hint="read again when more bookies of the ledger answer",
        )


def pin(place: ReadPlace, name: str, pin_name: str, at: LogPoint, ttl_s: float) -> None:
    """Keep everything from the point on from being truncated for ttl_s (P8.8). Where no pin can be made, reading goes
    on without: it is whole then, or ends with `Truncated`.

    Raises:
        Truncated: it comes too late.
    """
    if ttl_s <= 0:
        return
    try:
        place.log(name).pin(pin_name, at.offset, ttl_s=ttl_s)
    except UsageError as refused:
        logger.warning("log %r is read without a pin: %s", name, refused)
