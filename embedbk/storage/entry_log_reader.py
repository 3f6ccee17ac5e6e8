"""A second reader of entry logs, in plain Python and from STORAGE.md alone (I31, I41, I46, ST13).

Decides what one entry log holds and what in it is damage, as native/store/store_load.c does, but reports everything
that it finds and reads every entry. entry_logs.py judges the logs of a bookie together. For the verifier and the `cat`
commands; the fuzzers compare it with the C reader.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from embedbk.codec.kernels import scan
from embedbk.core.ledger_table import LEDGER_STATE
from embedbk.errors import PeerError
from embedbk.storage.entry_log_index import IndexRun, Located, join_indexes, read_index
from embedbk.storage.entry_log_layout import (
    BLOCK_BYTES,
    DESCRIPTOR,
    VERSION,
    VERSION_ONE,
    Descriptor,
    parse_descriptor,
)
from embedbk.storage.entry_log_scan import EVERYTHING, Hole, read_part, read_with_zeros, scan_hole
from embedbk.storage.findings import Findings
from embedbk.storage.raw_files import RawFile

__all__ = [
    "READ_BYTES_MAX",
    "EntryLog",
    "LogSummary",
    "Whose",
    "is_entry",
    "log_name",
    "parse_log_name",
    "read_entry_log",
    "why_no_entry",
]

READ_BYTES_MAX = 4 << 20  # Bytes of one read, unless a single entry is larger.

ROLL_ITEM = struct.Struct("<QQ40x")

_NAME = re.compile(r"([0-9a-f]{8})\.elog(\.tmp)?")


def log_name(log_id: int) -> str:
    return f"{log_id:08x}.elog"


def parse_log_name(name: str) -> tuple[int, bool] | None:
    """(id, is it unfinished) of an entry log's name; None for another."""
    found = _NAME.fullmatch(name)
    return (int(found[1], 16), found[2] is not None) if found else None


# --- What stands in a log -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Whose:
    """The identity that entry logs must have; empty fields are not compared."""

    cluster_token: bytes = b""
    incarnation: bytes = b""


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What one log holds, and what its descriptor says about other logs."""

    descriptor: Descriptor
    marks: list[int]
    roll: list[tuple[int, int]]


@dataclass(slots=True)
class EntryLog:
    """One log as far as it can be believed."""

    name: str
    descriptor: Descriptor
    states: bytes
    marks: list[int]  # For several journals, in their own tokens; empty if there is one journal.
    roll: list[tuple[int, int]]  # Ranges of the ids of logs that were there and stay; empty: not listed.
    runs: list[IndexRun] = field(default_factory=list)
    is_index_whole: bool = True  # Else runs are what is left of it, and between them entries were scanned.
    scanned: list[Located] = field(default_factory=list)
    dark: list[Hole] = field(default_factory=list)  # In these, more entries may have stood than are known.

    def summary(self) -> LogSummary:
        return LogSummary(self.descriptor, self.marks, self.roll)

    def located(self) -> Iterator[Located]:
        """Every entry that it is known to hold, in the order of the file."""
        scanned = iter(self.scanned)
        next_scanned = next(scanned, None)
        for run in self.runs:
            while next_scanned is not None and next_scanned[2] < run.offset:
                yield next_scanned
                next_scanned = next(scanned, None)
            for entry_id, offset, size in run.entries() or []:
                yield run.ledger_id, entry_id, offset, size
        while next_scanned is not None:
            yield next_scanned
            next_scanned = next(scanned, None)


# --- One log ------------------------------------------------------------------------------------------------


def read_entry_log(
    file: RawFile, name: str, log_id: int, whose: Whose, findings: Findings
) -> EntryLog | None:
    """Descriptor, states and index of one log; its entries are located, not read. None when it must be refused.

    Raises OSError when the file cannot be read at all.
    """
    descriptor = _read_descriptors(file, log_id, whose, findings)
    if descriptor is None:
        return None
    if file.size() != descriptor.file_size:
        findings.damage(
            file.path,
            f"it has {file.size()} bytes, and was written with {descriptor.file_size}",
            offset=file.size(),
        )
    states = _read_states(file, descriptor, findings)
    if states is None:
        return None
    roll_at = len(states) - descriptor.roll_count * LEDGER_STATE.size
    roll = [(first, last) for first, last in ROLL_ITEM.iter_unpack(states[roll_at:])]
    marks_at = roll_at - descriptor.journal_count * LEDGER_STATE.size
    marks = [mark for _, mark in ROLL_ITEM.iter_unpack(states[marks_at:roll_at])]
    log = EntryLog(name, descriptor, states[:marks_at], marks, roll)
    _take_index(file, log, findings)
    return log


def _take_index(file: RawFile, log: EntryLog, findings: Findings) -> None:
    descriptor = log.descriptor
    places = [descriptor.first_index_offset, descriptor.index_offset]
    if not descriptor.has_two_indexes:
        del places[0]
    found: list[list[IndexRun] | None] = []
    for place in places:
        index = _read_section(file, descriptor, place, descriptor.index_size, descriptor.index_crc)
        found.append(read_index(descriptor, index) if index is not None else None)
    whole = next((runs for runs in found if runs is not None), None)
    way_out = "its other copy serves" if whole is not None else "its entries are found by a scan"
    if whole is None and len(places) > 1:
        way_out = "its other copy is, too; the runs that are whole in one of them serve"
    for place, runs in zip(places, found, strict=True):
        if runs is None:
            findings.damage(file.path, f"the index is damaged or cut off; {way_out}", offset=place)
    if whole is not None:
        log.runs = whole
        return
    if len(places) > 1 and descriptor.index_size <= file.size():
        copies = [read_with_zeros(file, place, descriptor.index_size) for place in places]
        log.runs = join_indexes(descriptor, copies)
    _scan_holes(file, log, findings)


def _scan_holes(file: RawFile, log: EntryLog, findings: Findings) -> None:
    """The entries found between the runs; a hole is dark unless they are all that is missing."""
    descriptor = log.descriptor
    is_filled = True
    hole = Hole(descriptor.entries_offset, descriptor.entries_end)
    holes: list[Hole] = []
    for run in [*log.runs, None]:
        if run is not None:
            hole = replace(hole, end=run.offset, behind=(run.ledger_id, run.first))
        if hole.begin < hole.end:
            found, fills = scan_hole(file, hole, findings)
            log.scanned += found
            holes.append(hole)
            is_filled &= fills
        if run is not None:
            hole = Hole(run.offset + run.size, descriptor.entries_end, (run.ledger_id, run.last))
    log.is_index_whole = not holes and is_filled
    count = sum(run.count for run in log.runs) + len(log.scanned)
    if not is_filled or count != descriptor.entry_count:
        log.dark = holes or [EVERYTHING]


def _read_descriptors(file: RawFile, log_id: int, whose: Whose, findings: Findings) -> Descriptor | None:
    size = file.size()
    second = max(0, size - DESCRIPTOR.size)
    parsed = [parse_descriptor(read_part(file, offset, DESCRIPTOR.size)) for offset in (0, second)]
    for offset, each in zip((0, second), parsed, strict=True):
        if isinstance(each, int):
            findings.damage(
                file.path, f"version {each}; this program knows {VERSION_ONE} to {VERSION}", offset=offset
            )
            return None
    head, tail = (each if isinstance(each, Descriptor) else None for each in parsed)
    descriptor = head or tail
    if descriptor is None:
        findings.damage(
            file.path,
            f"neither the first descriptor nor the second at {second} is whole: its ledger states (fences) and its "
            "log mark cannot be known",
            offset=0,
        )
        return None
    if (
        descriptor.log_id != log_id
        or (whose.cluster_token and descriptor.cluster_token != whose.cluster_token)
        or (whose.incarnation and descriptor.incarnation != whose.incarnation)
    ):
        findings.damage(
            file.path,
            f"it is entry log {descriptor.log_id:08x} of incarnation {descriptor.incarnation.hex()} in cluster "
            f"{descriptor.cluster_token.hex()}: of another bookie or disk, or renamed",
            offset=0,
        )
        return None
    if head is None:
        findings.damage(file.path, "the first descriptor is damaged; the second one serves", offset=0)
    elif tail is None:
        at = descriptor.file_size - DESCRIPTOR.size
        findings.damage(
            file.path, "the second descriptor is damaged or cut off; the first one serves", offset=at
        )
    elif head.raw != tail.raw:
        findings.damage(file.path, "its two descriptors are not the same", offset=second)
    return descriptor


def _read_section(file: RawFile, descriptor: Descriptor, offset: int, size: int, crc: int) -> bytes | None:
    section = read_part(file, offset, size)
    return section if section is not None and descriptor.section_crc(section) == crc else None


def _read_states(file: RawFile, descriptor: Descriptor, findings: Findings) -> bytes | None:
    places = (BLOCK_BYTES, descriptor.second_states_offset)
    copies = [
        _read_section(file, descriptor, offset, descriptor.states_size, descriptor.states_crc)
        for offset in places
    ]
    first, second = copies
    if first is None and second is None:
        findings.damage(
            file.path,
            f"the ledger states and their second copy at {places[1]} are damaged: a fence could be forgotten",
            offset=places[0],
        )
        return None
    if first is None:
        findings.damage(
            file.path, "the ledger states are damaged; their second copy serves", offset=places[0]
        )
    if second is None:
        findings.damage(
            file.path, "the second copy of the ledger states is damaged or cut off", offset=places[1]
        )
    return first if first is not None else second


# --- One entry -------------------------------------------------------------------------------------------


def is_entry(raw: bytes | memoryview, ledger_id: int, entry_id: int) -> bool:
    """Whether the bytes are exactly this one entry, whole."""
    try:
        first, _, count, _, found = scan(raw)
    except PeerError:
        return False
    return (count, found, first) == (1, ledger_id, entry_id)


def why_no_entry(raw: bytes | memoryview) -> str:
    """Why these bytes are not the entry that belongs here, one clause."""
    try:
        first, _, count, _, ledger_id = scan(raw)
    except PeerError as broken:
        return "damaged: it " + str(broken).rpartition(") " if ") " in str(broken) else "bytes ")[2]
    if count > 1:
        return f"{count} entries stand in its place"
    return f"ledger {ledger_id}, entry {first} stands in its place: written to the wrong offset"
