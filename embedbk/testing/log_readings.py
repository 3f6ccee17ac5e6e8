"""What a log was in the end, by what processes saw of it, and whether all that they saw fits that (I93, I96, I97,
I101).

Decides which entries the log had: those that its last owner reads, and before them those that consumers by a cursor
saw: nothing goes before each cursor has passed it, so whatever was truncated was written down by one before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from embedbk.errors import UsageError
from embedbk.testing.log_events import (
    CursorCommitted,
    CutAsked,
    EntriesSeen,
    LogCut,
    LogEvent,
    ReadAsked,
    ReadEnded,
)
from embedbk.testing.violation import Violation

__all__ = ["Placed", "WholeLog", "check_readings"]


class Placed(NamedTuple):
    """An entry where it stands."""

    ledger: int
    entry: int
    text: str
    time: int | None


class Highest:
    """The highest number that was told before a time."""

    def __init__(self, told: Sequence[tuple[int, int]]) -> None:
        self._times: list[int] = []
        self._highest: list[int] = []
        for at_ns, number in sorted(told):
            self._times.append(at_ns)
            self._highest.append(max(number, self._highest[-1]) if self._highest else number)

    def before(self, time_ns: int) -> int:
        place = bisect_right(self._times, time_ns - 1)
        return self._highest[place - 1] if place else 0


class _Passed:
    """How far one cursor was consumed, as time went on: whatever is below was seen by a consumer of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.times: list[int] = []
        self.offsets: list[int] = []

    def at(self, time_ns: int) -> int:
        place = bisect_right(self.times, time_ns)
        return self.offsets[place - 1] if place else 0

    def add(self, process: str, seen: EntriesSeen) -> None:
        behind = self.offsets[-1] if self.offsets else 0
        if seen.offset > behind:
            raise Violation(
                "I101",
                f"{process} was given offset {seen.offset} by cursor {self.name}, whose consumers saw what is before "
                f"{behind} only",
            )
        self.times.append(seen.at_ns)
        self.offsets.append(max(behind, seen.offset + len(seen.texts)))


class WholeLog:
    """entries[i] is what stands at offset i, for the whole life of the log; in the end it is from `start` to `end`."""

    def __init__(self, told: Mapping[str, Sequence[LogEvent]]) -> None:
        self.passed: dict[str, _Passed] = {}
        known: dict[int, Placed] = {}
        self.start = self.end = -1
        self._cuts = Highest(
            [
                (each.asked_ns, each.before)
                for events in told.values()
                for each in events
                if isinstance(each, CutAsked)
            ]
        )
        consumed: list[tuple[int, str, str, EntriesSeen]] = []
        is_read = False
        for process, events in told.items():
            cursors: dict[int, str] = {}
            finals: set[int] = set()
            for event in events:
                if isinstance(event, ReadAsked) and event.cursor:
                    cursors[event.read] = event.cursor
                    self.passed.setdefault(event.cursor, _Passed(event.cursor))
                elif isinstance(event, ReadAsked) and event.kind == "final":
                    finals.add(event.read)
                    is_read = True
                elif isinstance(event, EntriesSeen) and event.read in cursors:
                    consumed.append((event.at_ns, cursors[event.read], process, event))
                elif isinstance(event, EntriesSeen) and event.read in finals:
                    self.start = event.offset if self.start < 0 else self.start
                    self.end = event.offset + len(event.texts)
                    _note(known, process, event)
        if not is_read:
            raise UsageError("nobody read the log in the end", hint='let its last owner read it, as "final"')
        if self.start < 0:
            self.start = self.end = 0  # Its last owner found nothing: whatever it had is lost.
        for _, cursor, process, event in sorted(consumed, key=lambda each: each[0]):
            if event.offset + len(event.texts) > self.end:
                raise Violation("I97", f"{process} consumed {event}; the log ends at {self.end}")
            self.passed[cursor].add(process, event)
            _note(known, process, event)
        self.entries: list[Placed] = []
        self._check_places(known)

    def _check_places(self, known: Mapping[int, Placed]) -> None:
        """I93: offsets are dense, and so is each ledger."""
        met: set[int] = set()
        for offset in range(self.end):
            placed = known.get(offset)
            if placed is None and offset < self.start:
                raise Violation("I101", f"offset {offset} was truncated, and no consumer has seen it")
            if placed is None:
                raise Violation("I93", f"offset {offset} is missing from the log")
            before = self.entries[-1] if self.entries else None
            if before is not None and before.ledger == placed.ledger:
                fits = placed.entry == before.entry + 1
            else:
                fits = placed.entry == 0 and placed.ledger not in met
            if not fits:
                raise Violation("I93", f"offset {offset} is {placed}, behind {before}")
            met.add(placed.ledger)
            self.entries.append(placed)
        self.ledgers = len(met)

    def may_begin_at(self, time_ns: int) -> int:
        """The highest offset at which the log may have begun at a time: nobody had asked for more to go (I96), and each
        cursor holds it (I101)."""
        held = min((each.at(time_ns) for each in self.passed.values()), default=0)
        return min(held, self._cuts.before(time_ns))

    def check_times(self) -> None:
        """P8.11: the time of an entry is never below that of the one before it."""
        last, of = 0, -1
        for offset, placed in enumerate(self.entries):
            if placed.time is None:
                continue
            if placed.time < last:
                raise Violation("P8.11", f"offset {offset} is of {placed.time}, and offset {of} of {last}")
            last, of = placed.time, offset


def _placed(seen: EntriesSeen) -> Iterator[tuple[int, Placed]]:
    times = dict(seen.times)
    for number, text in enumerate(seen.texts):
        yield seen.offset + number, Placed(seen.ledger, seen.entry + number, text, times.get(number))


def _note(known: dict[int, Placed], process: str, seen: EntriesSeen) -> None:
    for offset, placed in _placed(seen):
        if known.setdefault(offset, placed) != placed:
            raise Violation(
                "I93", f"{process} was given {placed} at offset {offset}, and another one {known[offset]}"
            )


def check_readings(
    told: Mapping[str, Sequence[LogEvent]],
    log: WholeLog,
    taken: Sequence[tuple[int, int]],
    own: Mapping[str, Sequence[tuple[int, int]]],
) -> Counter[str]:
    """Check what each process saw.

    taken: (when it was told, first offset) of all takeovers. own: of each process (when it was told, offset) of what
    it was acknowledged.
    """
    met: Counter[str] = Counter()
    closed = Highest(taken)
    commits: dict[str, list[tuple[int, int]]] = {}
    for events in told.values():
        cursors = {each.read: each.cursor for each in events if isinstance(each, ReadAsked) and each.cursor}
        for event in events:
            if isinstance(event, CursorCommitted):
                commits.setdefault(cursors[event.read], []).append((event.at_ns, event.offset))
    committed = {cursor: Highest(each) for cursor, each in commits.items()}
    for process, events in told.items():
        readings: dict[int, _Reading] = {}
        acknowledged = Highest([(at_ns, offset + 1) for at_ns, offset in own.get(process, ())])
        for event in events:
            match event:
                case ReadAsked():
                    reading = _Reading(process, event, log)
                    readings[event.read] = reading
                    if event.cursor and event.cursor in committed:
                        reading.check_begins(committed[event.cursor].before(event.asked_ns))
                    met[f"{event.kind} begun"] += 1
                case EntriesSeen():
                    readings[event.read].see(event)
                    met["entries seen"] += len(event.texts)
                case ReadEnded():
                    asked_ns = readings[event.read].asked.asked_ns
                    readings[event.read].end(event, closed.before(asked_ns), acknowledged.before(asked_ns))
                    met[f"{readings[event.read].asked.kind} {event.how}"] += 1
                case CursorCommitted():
                    readings[event.read].commit(event)
                    met["committed"] += 1
                case LogCut():
                    _check_start(log, process, event.at_ns, event.reached)
                    met["cut"] += 1
    met["ledgers"] = log.ledgers
    met["entries"] = len(log.entries)
    met["truncated entries"] = log.start
    return met


def _check_start(log: WholeLog, process: str, at_ns: int, first_offset: int) -> None:
    held = log.may_begin_at(at_ns)
    if first_offset > held:
        raise Violation(
            "I101", f"{process} found that the log begins at {first_offset}; a cursor holds {held}"
        )


class _Reading:
    def __init__(self, process: str, asked: ReadAsked, log: WholeLog) -> None:
        self.process, self.asked, self._log = process, asked, log
        self.next: int | None = asked.start

    def __str__(self) -> str:
        return f"{self.process}, {self.asked.kind} {self.asked.read}"

    def check_begins(self, committed: int) -> None:
        """I102: a cursor goes back only by hand, and nobody does so here; it stands before what its consumers saw."""
        start = self.asked.start or 0
        if start < committed:
            raise Violation("I102", f"{self} begins at {start}, and {committed} was committed before")
        passed = self._log.passed[self.asked.cursor].at(self.asked.at_ns)
        if start > passed:
            raise Violation(
                "I101", f"{self} begins at {start}, and its consumers saw what is before {passed}"
            )

    def see(self, seen: EntriesSeen) -> None:
        """I97: what it sees follows what it saw, and is what the log has there."""
        if self.next is None:
            _check_start(self._log, str(self), seen.at_ns, seen.offset)
        elif seen.offset != self.next and not (self.asked.cursor and seen.offset > self.next):
            raise Violation("I97", f"{self} stands at offset {self.next}, and is given {seen.offset}")
        entries = self._log.entries
        for offset, placed in _placed(seen):
            if offset >= len(entries):
                raise Violation(
                    "I97", f"{self} saw {placed} at offset {offset}; the log ends at {len(entries)}"
                )
            if entries[offset][:3] != placed[:3]:
                raise Violation(
                    "I97", f"{self} saw {placed} at offset {offset}; the log has {entries[offset]}"
                )
        self.next = seen.offset + len(seen.texts)

    def end(self, ended: ReadEnded, closed: int, acknowledged: int) -> None:
        """I96: who is told of a truncation was behind no cursor. P6.2, I100: who read to the end saw what owners before
        had left when the next one had the log, and what was acknowledged to the same process."""
        if ended.how == "truncated" and ended.first_offset is not None:
            _check_start(self._log, str(self), ended.at_ns, ended.first_offset)
            if self.next is not None and self.next >= ended.first_offset:
                raise Violation(
                    "I96",
                    f"{self} stands at {self.next}, and is told that the log begins at {ended.first_offset}",
                )
        if ended.how == "end" and self.next is not None and self.asked.kind in ("read", "final"):
            if self.next < closed:
                raise Violation(
                    "I97", f"{self} ended at {self.next}; the log was taken over at {closed} before"
                )
            if self.next < acknowledged:
                raise Violation(
                    "I100",
                    f"{self} ended at {self.next}; what is before {acknowledged} was acknowledged to it",
                )

    def commit(self, committed: CursorCommitted) -> None:
        """I102: nothing is committed that was not seen."""
        passed = self._log.passed[self.asked.cursor].at(committed.at_ns)
        if committed.offset > passed:
            raise Violation(
                "I102", f"{self} committed {committed.offset}; its consumers saw what is before {passed}"
            )
