"""The offline verifier: reads every byte of a bookie's directories and trusts nothing (I31, I41, I42, I45, I46; P7.1,
P7.2, P7.3, P7.5). `metadata_checking` does the same with those of a metadata member.

Decides what of it is damage. It writes nothing, locks only against a start meanwhile, and reads by code of its own
(journal_reader, entry_log_reader), so that a mistake of the C module cannot hide itself. What it cannot see: whether
the bookie ever acknowledged something of which no trace is left; only its peers know that.

    identity of each directory ─▶ entry logs (descriptors, states, index, every entry) ─▶ journal above the log mark
                                  └── cross references: marks, missing logs, ledgers without state, double entries
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Sequence
from dataclasses import dataclass

from embedbk.codec.frame import Frame
from embedbk.codec.kernels import offsets, scan
from embedbk.core.ledger_table import LedgerTable
from embedbk.errors import PeerError, StorageError
from embedbk.storage.entry_log_index import IndexRun
from embedbk.storage.entry_log_layout import Descriptor
from embedbk.storage.entry_log_reader import (
    READ_BYTES_MAX,
    EntryLog,
    LogSummary,
    Whose,
    is_entry,
    log_name,
    parse_log_name,
    read_entry_log,
    why_no_entry,
)
from embedbk.storage.entry_logs import check_chain, marks_of
from embedbk.storage.findings import Findings, Progress, silent
from embedbk.storage.journal_reader import look_at_journal, walk_records
from embedbk.storage.metadata_checking import MetadataFacts, check_metadata
from embedbk.storage.raw_files import RawDirectory, RawFile
from embedbk.storage.replay import replay_record
from embedbk.storage.used_reader import compare_used

__all__ = ["BookieFacts", "MetadataFacts", "Progress", "check_bookie", "check_metadata"]


@dataclass(slots=True)
class BookieFacts:
    """Counts of what was read, for the report."""

    entry_logs: int = 0
    entries: int = 0  # In entry logs, replaced ones too.
    ledgers: int = 0
    fenced: int = 0
    log_mark: int = 0
    journal_records: int = 0  # Above the log mark.
    last_token: int = 0
    bytes: int = 0


def check_bookie(
    journals: Sequence[RawDirectory | None],
    entries: Sequence[RawDirectory],
    whose: Whose,
    findings: Findings,
    *,
    progress: Progress = silent,
) -> BookieFacts:
    """Check what one bookie has stored. A part that is not given is not looked at, nor what crosses to it.

    journals: its journal directories, in their order; None for one that is not here.
    entries: its ledger directories, all of them, or none.
    whose: as its identity says; what is empty is not compared.
    """
    check = _BookieCheck(whose, findings, progress)
    try:
        if entries:
            check.read_entry_logs(entries)
        check.read_journals(journals, has_entry_logs=bool(entries))
    except (
        OSError
    ) as refused:  # A directory cannot be read; a file that cannot be read is reported where it is met.
        findings.damage(str(refused.filename or "directory"), f"it cannot be read: {refused.strerror}")
        return check.facts
    if entries and any(journals) and None not in journals:
        check.cross(entries[0].path)
    check.count_ledgers()
    return check.facts


class _BookieCheck:
    def __init__(self, whose: Whose, findings: Findings, progress: Progress) -> None:
        self.whose = whose
        self.findings = findings
        self.facts = BookieFacts()
        self.table = LedgerTable()
        self.is_complete = True  # False: something could not be read, so that what is missing proves nothing.
        self._progress = progress
        self._highest: dict[int, int] = {}  # Ledger -> highest entry found.
        self._runs: dict[int, list[tuple[IndexRun, str]]] = {}  # Ledger -> runs of the logs read so far.
        self._homes: dict[str, RawDirectory] = {}  # The directory of each entry log, by name.
        self._marks: list[int] = []  # The log mark in the tokens of several journals.

    # Entry logs.

    def read_entry_logs(self, directories: Sequence[RawDirectory]) -> None:
        for directory in directories:
            self._note_names(directory)
        logs: list[LogSummary] = []
        for name in sorted(self._homes):
            log = self._read_log(self._homes[name], int(name[:8], 16), name)
            if log is None:
                self.is_complete = False
                continue
            logs.append(log.summary())
        left = self._check_chain(directories[0], logs)
        self.facts.log_mark, self._marks = marks_of(
            [log for log in logs if log.descriptor.log_id not in left]
        )
        for each in [log.descriptor for log in logs]:
            if each.mark > self.facts.log_mark and each.log_id not in left:
                name = log_name(each.log_id)
                self.findings.note(
                    f"{self._homes[name].path}/{name}",
                    "its flush was cut off in another directory: its entries count, its log mark does not",
                )

    def _note_names(self, directory: RawDirectory) -> None:
        unfinished: list[tuple[int, str]] = []
        for name in directory.names():
            parsed = parse_log_name(name)
            path = f"{directory.path}/{name}"
            if parsed is None:
                if name not in ("IDENTITY", "OWNER", "lost+found"):
                    self.findings.note(path, "not a file of a bookie; left alone")
            elif parsed[1]:
                unfinished.append((parsed[0], path))
            elif name in self._homes:
                self.findings.damage(path, f"it is in {self._homes[name].path} too")
            else:
                self._homes[name] = directory
        for _, path in unfinished:
            self.findings.note(
                path, "an unfinished entry log: a flush was cut off; the journal has its content"
            )

    def _read_log(self, directory: RawDirectory, log_id: int, name: str) -> EntryLog | None:
        path = f"{directory.path}/{name}"
        try:
            with directory.open(name) as file:
                log = read_entry_log(file, name, log_id, self.whose, self.findings)
                if log is None:
                    return None
                self.facts.entry_logs += 1
                self._load_states(path, log)
                self._check_padding(file, log.descriptor)
                for run in log.runs:
                    self._check_run(file, run)
                    self._note_run(file, run)
                    self._progress(path, run.size)
                for ledger_id, entry_id, *_ in log.scanned:  # Each was checked by the scan.
                    self._note_entry(ledger_id, entry_id)
                self.is_complete &= not log.dark
                self.facts.bytes += log.descriptor.file_size
                return log
        except OSError as refused:
            self.findings.damage(path, f"the file cannot be read: {refused.strerror}")
            return None

    def _check_chain(self, first: RawDirectory, logs: list[LogSummary]) -> set[int]:
        refused, left = check_chain(logs)

        def path_of(log_id: int) -> str:
            return f"{self._homes.get(log_name(log_id), first).path}/{log_name(log_id)}"

        for log_id, said in refused:
            self.is_complete = False
            self.findings.damage(path_of(log_id), said)
        for log_id in sorted(left):
            self.findings.note(path_of(log_id), "compacted, or written once more: the next start deletes it")
        return left

    def _load_states(self, path: str, log: EntryLog) -> None:
        try:
            self.table.load(log.states)
        except StorageError as impossible:
            self.findings.damage(path, str(impossible), offset=4096)

    def _check_padding(self, file: RawFile, descriptor: Descriptor) -> None:
        """Check the bytes between the sections: they were written as zeros, no sum covers them, and no reader reads
        them."""
        end = descriptor.second_states_offset + descriptor.states_size
        between = (descriptor.entries_end, descriptor.index_offset)
        for begin, stop in ((128, 4096), between, (end, descriptor.file_size - 128)):
            if any(file.read(begin, stop - begin)):
                self.findings.note(file.path, "padding is not zero; nobody reads it", offset=begin)

    def _check_run(self, file: RawFile, run: IndexRun) -> None:
        """Check that every entry of the run stands where the index says, with its digest."""
        located = run.entries() or []
        begin = 0
        while begin < len(located):
            end = begin + 1
            while (
                end < len(located) and located[end][1] + located[end][2] - located[begin][1] <= READ_BYTES_MAX
            ):
                end += 1
            self._check_entries(file, run.ledger_id, located[begin:end])
            begin = end

    def _check_entries(self, file: RawFile, ledger_id: int, located: list[tuple[int, int, int]]) -> None:
        offset = located[0][1]
        size = located[-1][1] + located[-1][2] - offset
        self.facts.entries += len(located)
        try:
            block = file.read(offset, size)
        except OSError:
            block = b""  # Entry by entry, so that the others are found.
        if len(block) == size and _is_run(block, ledger_id, located):
            return
        bad: list[tuple[int, int, str]] = []  # Entry id, offset, why.
        for entry_id, at, entry_size in located:
            try:
                raw = file.read(at, entry_size)
            except OSError as refused:
                bad.append((entry_id, at, f"cannot be read: {refused.strerror}"))
                continue
            if len(raw) < entry_size:
                bad.append((entry_id, at, "the file ends before it"))
            elif not is_entry(raw, ledger_id, entry_id):
                bad.append((entry_id, at, why_no_entry(raw)))
        for entry_id, at, why in bad:
            self.findings.damage(file.path, why, offset=at, ledger_id=ledger_id, first_entry=entry_id)

    # Which log holds which entries.

    def _note_entry(self, ledger_id: int, entry_id: int) -> None:
        self._highest[ledger_id] = max(self._highest.get(ledger_id, -1), entry_id)

    def _note_run(self, file: RawFile, run: IndexRun) -> None:
        runs = self._runs.setdefault(run.ledger_id, [])
        if run.first <= self._highest.get(run.ledger_id, -1):
            for other, name in runs:
                if other.first <= run.last and run.first <= other.last:
                    self._compare(file, run, other, name)
        runs.append((run, os.path.basename(file.path)))
        self._note_entry(run.ledger_id, run.last)

    def _compare(self, file: RawFile, run: IndexRun, other: IndexRun, name: str) -> None:
        """Compare an entry that two logs have: a valid copy may replace a bad one, but two valid ones must be the same
        (P3.4c)."""
        if name == os.path.basename(file.path):
            return
        elsewhere = {entry_id: (offset, size) for entry_id, offset, size in other.entries() or []}
        with self._homes[name].open(name) as older:
            for entry_id, offset, size in run.entries() or []:
                if entry_id not in elsewhere:
                    continue
                copies = [file.read(offset, size), older.read(*elsewhere[entry_id])]
                if copies[0] != copies[1] and all(is_entry(copy, run.ledger_id, entry_id) for copy in copies):
                    self.findings.damage(
                        file.path,
                        f"another entry is stored under this id in {name}, and both are valid",
                        offset=offset,
                        ledger_id=run.ledger_id,
                        first_entry=entry_id,
                    )

    # Journal.

    def read_journals(self, directories: Sequence[RawDirectory | None], *, has_entry_logs: bool) -> None:
        if not directories:
            return
        marks = self._marks or [self.facts.log_mark] + [0] * (len(directories) - 1)
        if len(marks) != len(directories) or (self.facts.log_mark and len(marks) > 1 and not self._marks):
            path = next((each.path for each in directories if each is not None), "journals")
            self.findings.damage(
                path,
                f"{len(directories)} journals are here, and the entry logs were written beside {len(self._marks) or 1}",
            )
            self.is_complete = False
            return
        for directory, mark in zip(directories, marks, strict=True):
            if directory is None:
                self.is_complete = False
            else:
                self._read_journal(directory, mark if has_entry_logs else None)

    def _read_journal(self, directory: RawDirectory, mark: int | None) -> None:
        picture = look_at_journal(directory, self.findings)
        self.facts.last_token += picture.last_token
        mark = max(0, picture.first_token - 1) if mark is None else mark
        if picture.is_sound:
            compare_used(directory, picture, mark, self.findings)
        damages = self.findings.damage_count
        for record in walk_records(directory, picture, mark, self.findings):
            self.facts.journal_records += 1
            self.facts.bytes += len(record.body)
            try:
                replay_record(
                    self.table, self._take_frame, record.token, record.kind, record.ledger_id, record.body
                )
            except StorageError as impossible:
                self.findings.damage(directory.path, str(impossible))
            self._progress(directory.path, len(record.body))
        self.is_complete &= picture.is_sound and self.findings.damage_count == damages

    def _take_frame(self, frame: Frame) -> None:
        self._note_entry(frame.ledger_id, frame.last_entry)

    # Checks between journals, states and entry logs.

    def cross(self, path: str) -> None:
        """Report entries without a ledger state, and ledgers whose last entry is nowhere. Only when all could be
        read."""
        if not self.is_complete:
            return
        dropped = (
            self.table.ranges()
        )  # The next compaction of their logs removes what is left of these (P7.3).
        for ledger_id in sorted(self._highest.keys() - set(self.table)):
            if _is_in(dropped, ledger_id):
                continue
            self.findings.damage(
                path,
                "entries are there, but no state of the ledger: a fence could be forgotten",
                ledger_id=ledger_id,
            )
        for ledger_id in self.table:
            row = self.table.get(ledger_id)
            assert row is not None
            if row.last_entry > self._highest.get(ledger_id, -1) and not row.in_limbo and not row.is_dropped:
                self.findings.damage(
                    path,
                    "it was accepted, and neither an entry log nor the journal has it",
                    ledger_id=ledger_id,
                    first_entry=row.last_entry,
                )

    def count_ledgers(self) -> None:
        self.facts.ledgers = len(self.table)
        rows = (self.table.get(ledger_id) for ledger_id in self.table)
        self.facts.fenced = sum(1 for row in rows if row is not None and row.is_fenced)


def _is_in(ranges: Sequence[tuple[int, int]], ledger_id: int) -> bool:
    """Whether one of the ranges, which ascend, has this ledger; first and last included."""
    place = bisect.bisect_right(ranges, ledger_id, key=lambda each: each[0])
    return place > 0 and ledger_id <= ranges[place - 1][1]


def _is_run(block: bytes, ledger_id: int, located: list[tuple[int, int, int]]) -> bool:
    """Whether the block is these entries and nothing else, by one pass in C; False also where lengths do not go on."""
    try:
        _, _, count, _, found = scan(block)
    except PeerError:
        return False
    if (count, found) != (len(located), ledger_id):
        return False
    spans = offsets(block)
    base = located[0][1]
    ends = [begin + size + 4 for begin, size in zip(spans.spans[::2], spans.spans[1::2], strict=True)]
    return spans.ids.tolist() == [entry_id for entry_id, _, _ in located] and ends == [
        offset + size - base for _, offset, size in located
    ]
