"""The entry logs of a bookie judged together: which of them count, the log mark, and the verdict on every id.

Decides as native/store/store_roll.c and native/store/store_read.c do, in plain Python and from STORAGE.md alone: held,
absent or unreadable (P7.1, I31, I45). One log by itself is read by entry_log_reader.py.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence

from embedbk.storage.entry_log_layout import Descriptor
from embedbk.storage.entry_log_reader import (
    EntryLog,
    LogSummary,
    Whose,
    is_entry,
    log_name,
    parse_log_name,
    read_entry_log,
)
from embedbk.storage.entry_log_scan import read_part
from embedbk.storage.findings import Findings
from embedbk.storage.raw_files import RawDirectory

__all__ = ["EntryLogs", "LogVerdict", "check_chain", "marks_of"]


class LogVerdict(enum.Enum):
    ABSENT = "absent"
    UNREADABLE = "unreadable"


def check_chain(logs: Sequence[LogSummary]) -> tuple[list[tuple[int, str]], set[int]]:
    """How a start judges the logs that are there together, ascending (STORAGE.md section 2).

    Returns (log id, why the start is refused) pairs, and the ids of logs that were compacted or written once more: a
    start does not read those, and deletes them.
    """
    there = {log.descriptor.log_id: log.descriptor for log in logs}
    newest, ranges = next(
        (
            (log.descriptor.log_id, log.roll)
            for log in reversed(logs)
            if log.roll and is_whole_flush(log.descriptor, there)
        ),
        (0, []),
    )
    if any(not first <= last < newest for first, last in ranges):
        return [(newest, "its roll is impossible")], set()  # Its neighbours cannot be judged.
    roll = set_of(ranges)
    refused = [
        (missing, f"it is missing; {log_name(newest)} says that it must be there")
        for missing in sorted(roll - there.keys())
    ]
    left = {log_id for log_id in there if log_id < newest and log_id not in roll}
    mark = 0
    kept = {log_id: each for log_id, each in there.items() if log_id not in left}
    for log in logs:
        descriptor = log.descriptor
        before = descriptor.previous_id
        if descriptor.log_id > newest and before and before not in there:
            refused.append(
                (descriptor.log_id, f"it was written after {log_name(before)}, which is missing or refused")
            )
        if descriptor.log_id in left or not is_whole_flush(descriptor, kept):
            continue
        if 0 < descriptor.mark < mark:
            refused.append(
                (descriptor.log_id, f"its log mark {descriptor.mark} is below {mark}, an older one's")
            )
        mark = max(mark, descriptor.mark)
        if descriptor.mark and log.marks and sum(log.marks) != descriptor.mark:
            refused.append((descriptor.log_id, "the marks of its journals do not add up to its log mark"))
    return refused, left


def is_whole_flush(descriptor: Descriptor, there: Mapping[int, Descriptor]) -> bool:
    """Whether the log is the first of a flush whose logs are all there: only then its roll and its mark count (I45)."""
    if descriptor.part:
        return False
    for part in range(1, descriptor.part_count):
        other = there.get(descriptor.log_id + part)
        if other is None or (other.part, other.part_count) != (part, descriptor.part_count):
            return False
    return True


def marks_of(logs: Sequence[LogSummary]) -> tuple[int, list[int]]:
    """The log mark of the logs that a start reads, and the same in the tokens of several journals."""
    there = {log.descriptor.log_id: log.descriptor for log in logs}
    whole = [log for log in logs if is_whole_flush(log.descriptor, there) and log.descriptor.mark]
    newest = max(whole, key=lambda log: (log.descriptor.mark, log.descriptor.log_id), default=None)
    return (newest.descriptor.mark, newest.marks) if newest is not None else (0, [])


def set_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {each for first, last in ranges for each in range(first, last + 1)}


class EntryLogs:
    """The entry logs of a bookie's directories together, newest last: the answers that the store in C must give.

    Keeps a location per entry: for stores of tests, and for looking at one ledger, not for checking a large bookie.
    """

    def __init__(self, directories: Sequence[RawDirectory], whose: Whose, findings: Findings) -> None:
        """Raises OSError when a directory cannot be read."""
        self.logs: list[EntryLog] = []
        self.is_refused = False  # A bookie would not start with these.
        self.mark = 0
        self._newest: dict[tuple[int, int], tuple[EntryLog, int, int]] = {}  # Log, offset, size.
        self._homes: dict[str, RawDirectory] = {}  # The directory of each log, by name.
        for directory in directories:
            for name in directory.names():
                parsed = parse_log_name(name)
                if parsed is None or parsed[1]:
                    continue
                if name in self._homes:
                    self.is_refused = True
                    findings.damage(f"{directory.path}/{name}", f"it is in {self._homes[name].path} too")
                self._homes[name] = directory
        found_logs = [self._read(name, whose, findings) for name in sorted(self._homes)]
        logs = [log for log in found_logs if log is not None]
        refused, left = check_chain([log.summary() for log in logs])
        for log_id, said in refused:
            self.is_refused = True
            home = self._homes.get(log_name(log_id), directories[0])
            findings.damage(f"{home.path}/{log_name(log_id)}", said)
        for log in logs:
            if log.descriptor.log_id not in left:
                self._take(log)
        self.mark = marks_of([log.summary() for log in self.logs])[0]

    def _read(self, name: str, whose: Whose, findings: Findings) -> EntryLog | None:
        home = self._homes[name]
        path = f"{home.path}/{name}"
        try:
            with home.open(name) as file:
                log = read_entry_log(file, name, int(name[:8], 16), whose, findings)
        except OSError as refused:
            findings.damage(path, f"the file cannot be read: {refused.strerror}")
            log = None
        if log is None:
            self.is_refused = True
        return log

    def _take(self, log: EntryLog) -> None:
        self.logs.append(log)
        for ledger_id, entry_id, offset, size in log.located():
            self._newest[ledger_id, entry_id] = (log, offset, size)

    def verdict(self, ledger_id: int, entry_id: int) -> bytes | LogVerdict:
        """The entry's bytes as the newest log has them, or what a bookie must answer instead (P7.1)."""
        found = self._newest.get((ledger_id, entry_id))
        if found is None:
            holes = (hole for log in self.logs for hole in log.dark)
            is_dark = any(hole.may_hold(ledger_id, entry_id) for hole in holes)
            return LogVerdict.UNREADABLE if is_dark else LogVerdict.ABSENT
        log, offset, size = found
        try:
            with self._homes[log.name].open(log.name) as file:
                raw = read_part(file, offset, size)
        except OSError:
            return LogVerdict.UNREADABLE
        return raw if raw is not None and is_entry(raw, ledger_id, entry_id) else LogVerdict.UNREADABLE

    def keys(self) -> Iterator[tuple[int, int]]:
        """Every (ledger, entry) that some log names."""
        yield from self._newest
