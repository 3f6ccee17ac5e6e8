"""Reading an index section of an entry log, from STORAGE.md section 3 alone: runs, and where each entry stands.

Decides which parts of an index can be believed: all of a copy whose sum is right, or, of two damaged copies, each run
that is whole in one of them. A range between two runs that no run covers is a hole: entry_log_scan.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES
from embedbk.config import STORED_BYTES_MAX
from embedbk.storage.entry_log_layout import Descriptor

__all__ = ["ENTRY_SIZE_MAX", "RUN", "RUN_ENTRIES_MAX", "Located", "IndexRun", "join_indexes", "read_index"]

RUN_ENTRIES_MAX = 1024
MODULUS_MAX = 64
ENTRY_SIZE_MAX = ENTRY_OVERHEAD_BYTES + STORED_BYTES_MAX
CODED_BYTES_MAX = RUN_ENTRIES_MAX * 15
CRC_BYTES = 4  # The sum of a run, at its end, where there are two copies of the index.

# ledger_id, first, last, residues, offset, bytes, count, coded_size, modulus, sizes_equal, summed, reserved
RUN = struct.Struct("<QqqQQIIIBBBB")

Located = tuple[int, int, int, int]  # ledger_id, entry_id, offset, size


@dataclass(frozen=True, slots=True)
class IndexRun:
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
    digests: tuple[int, ...] | None = None  # For each residue, ascending; None: they are not known.

    def digest_place(self, entry_id: int) -> int:
        """Which of the digests an entry belongs to."""
        below = (1 << entry_id % self.modulus) - 1 if self.modulus else 0
        return (self.residues & below).bit_count()

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
        """The step to the next id of the pattern; 0 when there is none up to last."""
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


def _digest_bytes(descriptor: Descriptor, modulus: int, residues: int) -> int:
    """Bytes of a run's digests: one digest for each residue, or one for all where ids are coded."""
    if not descriptor.has_digests:
        return 0
    return 8 * (residues.bit_count() if modulus else 1)


def _run_at(descriptor: Descriptor, index: bytes, at: int) -> tuple[IndexRun, int] | None:
    """The run that begins at `at`, and where it ends; None when none stands there. Its own sum is not checked."""
    if len(index) - at < RUN.size:
        return None
    ledger_id, first, last, residues, offset, size, count, coded_size, modulus, equal, summed, _ = (
        RUN.unpack_from(index, at)
    )
    coded_at = at + RUN.size
    digests_at = coded_at + coded_size
    crc_at = digests_at + _digest_bytes(descriptor, modulus, residues)
    end = crc_at + (CRC_BYTES if descriptor.has_two_indexes else 0)
    if end > len(index):
        return None
    coded = index[coded_at:digests_at]
    digests = struct.unpack(f"<{(crc_at - digests_at) // 8}Q", index[digests_at:crc_at])
    known = digests if descriptor.has_digests and summed == 1 else None
    run = IndexRun(ledger_id, first, last, residues, offset, size, count, modulus, equal, coded, known)
    return (run, end) if run.entries() is not None else None


def read_index(descriptor: Descriptor, index: bytes) -> list[IndexRun] | None:
    """The runs of an index section, which tile the entries; None unless every one of them is sound."""
    runs: list[IndexRun] = []
    at, offset, entries = 0, descriptor.entries_offset, 0
    for _ in range(descriptor.run_count):
        found = _run_at(descriptor, index, at)
        if found is None:
            return None
        run, at = found
        if run.offset != offset or (
            runs and (run.ledger_id, run.first) <= (runs[-1].ledger_id, runs[-1].last)
        ):
            return None
        offset += run.size
        entries += run.count
        runs.append(run)
    is_whole = at == len(index) and offset == descriptor.entries_end and entries == descriptor.entry_count
    return runs if is_whole else None


def join_indexes(descriptor: Descriptor, copies: Sequence[bytes]) -> list[IndexRun]:
    """The runs that are whole in one of the copies, in their order; what could not be read of a copy is zeros."""
    runs: list[IndexRun] = []
    at, offset, has_hole = 0, descriptor.entries_offset, False
    while at < descriptor.index_size:
        for copy in copies:
            found = _whole_run_at(descriptor, copy, at)
            if found is None:
                continue
            run, end = found
            is_next = not runs or (run.ledger_id, run.first) > (runs[-1].ledger_id, runs[-1].last)
            fits = run.offset > offset if has_hole else run.offset == offset
            if is_next and fits and run.offset + run.size <= descriptor.entries_end:
                runs.append(run)
                at, offset, has_hole = end, run.offset + run.size, False
                break
        else:
            has_hole = True
            at += 1
    return runs


def _whole_run_at(descriptor: Descriptor, index: bytes, at: int) -> tuple[IndexRun, int] | None:
    """As `_run_at`, with a right sum behind it."""
    if len(index) - at < RUN.size + CRC_BYTES:
        return None
    coded_size = int.from_bytes(index[at + 48 : at + 52], "little")
    residues = int.from_bytes(index[at + 24 : at + 32], "little")
    end = at + RUN.size + coded_size + _digest_bytes(descriptor, index[at + 52], residues)
    if coded_size > CODED_BYTES_MAX or end + CRC_BYTES > len(index):
        return None
    if not 0 < int.from_bytes(index[at + 44 : at + 48], "little") <= RUN_ENTRIES_MAX:
        return None
    if int.from_bytes(index[end : end + CRC_BYTES], "little") != descriptor.run_crc(at, index[at:end]):
        return None
    return _run_at(descriptor, index, at)
