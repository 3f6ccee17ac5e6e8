"""A second reader of entry logs, in plain Python and from STORAGE.md alone (I31, I41, I46, ST13).

Decides what one entry log holds and what in it is damage, as native/store_load.c does, but tells all that it finds
and reads every entry; what the logs of a bookie say together is in entry_logs.py. For the verifier and the `cat`
commands; the fuzzers compare it with the C reader.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES
from embedbk.codec.kernels import crc32c, scan
from embedbk.config import ENTRY_BYTES_MAX
from embedbk.core.ledger_table import LEDGER_STATE
from embedbk.errors import PeerError
from embedbk.storage.findings import Findings
from embedbk.storage.raw_files import RawFile

__all__ = [
    "DESCRIPTOR",
    "RUN",
    "Descriptor",
    "EntryLog",
    "Located",
    "LogSummary",
    "Run",
    "Whose",
    "is_entry",
    "log_name",
    "parse_log_name",
    "read_entry_log",
    "read_index",
    "read_part",
    "why_no_entry",
]

BLOCK_BYTES = 4096
MAGIC = b"EBKL"
VERSION = 1
VERSION_PARTS = 2  # One of several logs that are a flush together, or with marks of several journals.
PARTS_MAX = 16
JOURNALS_MAX = 16
RUN_ENTRIES_MAX = 1024
MODULUS_MAX = 64
ENTRY_SIZE_MAX = ENTRY_OVERHEAD_BYTES + ENTRY_BYTES_MAX
SECTION_BYTES_MAX = 1 << 48
READ_BYTES_MAX = 4 << 20  # Of one read, unless a single entry is larger.
IDENTITY_BYTES = 48  # Of the descriptor: what the sums of the sections are seeded with.

# magic, version, log_id, previous_id, cluster_token, incarnation, mark, states_size, entries_size, entry_count,
# index_size, file_size, run_count, ledger_count, states_crc, index_crc, roll_count, part, part_count, journal_count,
# reserved, crc
DESCRIPTOR = struct.Struct("<4sIII16s16sQQQQQQIIIIIHHH2sI")
ROLL_ITEM = struct.Struct("<QQ40x")
# ledger_id, first, last, residues, offset, bytes, count, coded_size, modulus, sizes_equal, reserved
RUN = struct.Struct("<QqqQQIIIBBH")

_NAME = re.compile(r"([0-9a-f]{8})\.elog(\.tmp)?")
_PAYLOAD_SIZE = struct.Struct("<4xI")


def log_name(log_id: int) -> str:
    return f"{log_id:08x}.elog"


def parse_log_name(name: str) -> tuple[int, bool] | None:
    """(id, is it unfinished) of an entry log's name; None for another."""
    found = _NAME.fullmatch(name)
    return (int(found[1], 16), found[2] is not None) if found else None


# --- What stands in a log -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose entry logs are expected; what is empty is not compared."""

    cluster_token: bytes = b""
    incarnation: bytes = b""


@dataclass(frozen=True, slots=True)
class Descriptor:
    raw: bytes
    log_id: int
    previous_id: int
    cluster_token: bytes
    incarnation: bytes
    mark: int
    states_size: int
    entries_size: int
    entry_count: int
    index_size: int
    file_size: int
    run_count: int
    ledger_count: int
    states_crc: int
    index_crc: int
    roll_count: int
    part: int
    part_count: int  # Logs of its flush; 1 where it is alone.
    journal_count: int  # Marks of journals; 0 where there is one, whose mark is `mark`.

    @property
    def entries_offset(self) -> int:
        return BLOCK_BYTES + self.states_size

    @property
    def index_offset(self) -> int:
        return self.entries_offset + self.entries_size

    @property
    def second_states_offset(self) -> int:
        return self.index_offset + self.index_size

    def section_crc(self, section: bytes) -> int:
        return crc32c(section, crc32c(self.raw[:IDENTITY_BYTES]))

    def is_possible(self) -> bool:
        """Whether the sections lie one behind the other inside a file of file_size bytes."""
        if max(self.states_size, self.entries_size, self.index_size) > SECTION_BYTES_MAX:
            return False
        end = self.second_states_offset + self.states_size + DESCRIPTOR.size
        is_alone = self.part_count == 1 and self.part == 0
        is_part = 1 < self.part_count <= PARTS_MAX and self.part < min(self.part_count, self.log_id)
        return (
            (is_alone or is_part)
            and self.states_size % LEDGER_STATE.size == 0
            and self.journal_count <= JOURNALS_MAX
            and (self.journal_count + self.roll_count) * LEDGER_STATE.size <= self.states_size
            and self.file_size % BLOCK_BYTES == 0
            and 0 <= self.file_size - end < BLOCK_BYTES
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Entries of one ledger that stand one behind the other."""

    ledger_id: int
    first: int
    last: int
    residues: int
    offset: int
    size: int  # Bytes of all its entries.
    count: int
    modulus: int
    sizes_equal: int
    coded: bytes

    def entries(self) -> list[tuple[int, int, int]] | None:
        """(entry_id, offset, size) of each; None when the numbers are not possible."""
        if not 0 < self.count <= RUN_ENTRIES_MAX or not 0 <= self.first <= self.last:
            return None
        if self.modulus > MODULUS_MAX or self.sizes_equal > 1:
            return None
        size, rest = divmod(self.size, self.count)
        if not ENTRY_OVERHEAD_BYTES <= size <= ENTRY_SIZE_MAX or (self.sizes_equal and rest):
            return None
        found: list[tuple[int, int, int]] = []
        numbers = _numbers(self.coded)
        entry_id, offset, size = self.first, self.offset, size if self.sizes_equal else 0
        try:
            for ordinal in range(self.count):
                if ordinal > 0:
                    step = self._step(entry_id) if self.modulus else next(numbers)
                    if not 0 < step <= self.last - entry_id:
                        return None
                    entry_id += step
                elif self.modulus and not self._has(entry_id):
                    return None
                if not self.sizes_equal:
                    coded = next(numbers)
                    size += (coded >> 1) ^ -(coded & 1)
                    if coded > 0xFFFFFFFF or not ENTRY_OVERHEAD_BYTES <= size <= ENTRY_SIZE_MAX:
                        return None
                found.append((entry_id, offset, size))
                offset += size
            is_at_end = next(numbers, None) is None
        except StopIteration:
            return None
        except ValueError:
            return None
        is_sound = is_at_end and entry_id == self.last and offset == self.offset + self.size
        return found if is_sound else None

    def _has(self, entry_id: int) -> bool:
        return bool(self.residues >> entry_id % self.modulus & 1)

    def _step(self, entry_id: int) -> int:
        """To the next id of the pattern; 0 when it is none up to last."""
        step = 1
        while entry_id + step <= self.last and step <= self.modulus:
            if self._has(entry_id + step):
                return step
            step += 1
        return 0


def _numbers(coded: bytes) -> Iterator[int]:
    """The varints of a run. ValueError for one that is cut short or longer than ten bytes."""
    value = shift = 0
    for byte in coded:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value & (2**64 - 1)
            value = shift = 0
        elif shift == 70:
            raise ValueError("a number of more than ten bytes")
    if shift:
        raise ValueError("a number that is cut short")


Located = tuple[int, int, int, int]  # ledger_id, entry_id, offset, size


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What one log says of itself and of the others."""

    descriptor: Descriptor
    marks: list[int]
    roll: list[tuple[int, int]]


@dataclass(slots=True)
class EntryLog:
    """One log as far as it can be believed."""

    name: str
    descriptor: Descriptor
    states: bytes
    marks: list[int]  # Of journals, in their own tokens; empty where there is one.
    roll: list[
        tuple[int, int]
    ]  # Ranges of the ids of logs that were there and stay; empty: it does not tell.
    runs: list[Run] | None  # None: the index is lost, and the entries were scanned.
    scanned: list[Located] = field(default_factory=list)
    is_dark: bool = False  # Index and entries are lost: any id may have stood in it.

    def summary(self) -> LogSummary:
        return LogSummary(self.descriptor, self.marks, self.roll)

    def located(self) -> Iterator[Located]:
        """Every entry that it is known to hold, in the order of the file."""
        if self.runs is None:
            yield from self.scanned
            return
        for run in self.runs:
            for entry_id, offset, size in run.entries() or []:
                yield run.ledger_id, entry_id, offset, size


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
    log = EntryLog(name, descriptor, states[:marks_at], marks, roll, None)
    index = _read_section(
        file, descriptor, descriptor.index_offset, descriptor.index_size, descriptor.index_crc
    )
    runs = read_index(descriptor, index) if index is not None else None
    if runs is not None:
        log.runs = runs
        return log
    findings.damage(
        file.path,
        "the index is damaged or cut off; its entries are found by a scan",
        offset=descriptor.index_offset,
    )
    _scan(file, log, findings)
    return log


def read_part(file: RawFile, offset: int, size: int) -> bytes | None:
    """Exactly these bytes; None when they are not all there or cannot be read."""
    try:
        found = file.read(offset, size) if offset + size <= file.size() else b""
    except OSError:
        return None
    return found if len(found) == size else None


def _parse_descriptor(raw: bytes | None) -> Descriptor | int | None:
    """The descriptor; the number of a version that is not known; None when these bytes are none."""
    if raw is None or raw[:4] != MAGIC or crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        return None
    fields = DESCRIPTOR.unpack(raw)
    if fields[1] not in (VERSION, VERSION_PARTS):
        return int(fields[1])
    parts = fields[17:20] if fields[1] == VERSION_PARTS else (0, 1, 0)
    descriptor = Descriptor(raw, *fields[2:17], *parts)
    return descriptor if descriptor.is_possible() else None


def _read_descriptors(file: RawFile, log_id: int, whose: Whose, findings: Findings) -> Descriptor | None:
    size = file.size()
    second = max(0, size - DESCRIPTOR.size)
    parsed = [_parse_descriptor(read_part(file, offset, DESCRIPTOR.size)) for offset in (0, second)]
    for offset, each in zip((0, second), parsed, strict=True):
        if isinstance(each, int):
            findings.damage(
                file.path, f"version {each}; this program knows {VERSION} and {VERSION_PARTS}", offset=offset
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


def read_index(descriptor: Descriptor, index: bytes) -> list[Run] | None:
    """The runs of an index section, which tile the entries; None unless every one of them is sound."""
    runs: list[Run] = []
    at, offset, entries = 0, descriptor.entries_offset, 0
    before: Run | None = None
    for _ in range(descriptor.run_count):
        if len(index) - at < RUN.size:
            return None
        ledger_id, first, last, residues, run_offset, size, count, coded_size, modulus, equal, _ = (
            RUN.unpack_from(index, at)
        )
        at += RUN.size
        if coded_size > len(index) - at:
            return None
        coded = index[at : at + coded_size]
        run = Run(ledger_id, first, last, residues, run_offset, size, count, modulus, equal, coded)
        at += coded_size
        if run.entries() is None or run_offset != offset:
            return None
        if before is not None and (ledger_id, first) <= (before.ledger_id, before.last):
            return None
        offset += size
        entries += count
        runs.append(run)
        before = run
    is_whole = at == len(index) and offset == descriptor.index_offset and entries == descriptor.entry_count
    return runs if is_whole else None


# --- Scan where the index is lost ---------------------------------------------------------------------------


def _valid_size(block: memoryview, at: int) -> int:
    """Whole size of the valid entry at `at`, or 0."""
    if len(block) - at < ENTRY_OVERHEAD_BYTES or block[at] != 1:
        return 0
    size = ENTRY_OVERHEAD_BYTES + int(_PAYLOAD_SIZE.unpack_from(block, at)[0])
    if size > ENTRY_SIZE_MAX or size > len(block) - at:
        return 0
    try:
        scan(block[at : at + size])
    except PeerError:
        return 0
    return size


def _valid_entries(block: memoryview, at: int) -> list[Located]:
    """The valid entries that stand one behind the other from `at` on; offsets are in the block."""
    found: list[Located] = []
    while size := _valid_size(block, at):
        header = ENTRY_HEADER.unpack_from(block, at)
        found.append((header[4], header[5], at, size))
        at += size
    return found


def _scan(file: RawFile, log: EntryLog, findings: Findings) -> None:
    """The good entries at the front, and those that fill the end; unless they are all, the log is dark."""
    descriptor = log.descriptor
    begin = descriptor.entries_offset
    have = max(0, min(descriptor.entries_size, file.size() - begin))
    content = b"".join(
        read_part(file, begin + at, min(BLOCK_BYTES, have - at)) or bytes(min(BLOCK_BYTES, have - at))
        for at in range(0, have, BLOCK_BYTES)
    )
    block = memoryview(content)
    front = _valid_entries(block, 0)
    good = front[-1][2] + front[-1][3] if front else 0
    back: list[Located] = []
    if have == descriptor.entries_size and good < have:
        back = _find_back(block, good)
    log.scanned = [(ledger, entry, begin + place, size) for ledger, entry, place, size in front + back]
    keys = [located[:2] for located in front]
    is_ascending = all(one < other for one, other in pairwise(keys))
    if good == descriptor.entries_size and is_ascending and len(keys) == descriptor.entry_count:
        return
    log.is_dark = True
    lost = descriptor.entries_size - good - sum(size for *_, size in back)
    findings.damage(
        file.path,
        f"{lost} bytes of its entries are damaged or cut off, and no index says what stood there: no id is known to "
        "be absent any more",
        offset=begin + good,
    )


def _find_back(block: memoryview, at: int) -> list[Located]:
    """The first valid entries from where such fill everything up to the end; a payload may hold entries itself."""
    while at < len(block):
        found = _valid_entries(block, at)
        end = found[-1][2] + found[-1][3] if found else at
        if end == len(block):
            return found
        at = end + 1 if found else at + 1
    return []


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
