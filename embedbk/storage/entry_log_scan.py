"""Entries of an entry log that no index locates, found by their own headers (ST13).

Decides which entries in a hole between two runs can be believed: the valid entries at its front, and those that fill
its end. No others: a payload may itself contain valid entries, of other ledgers, and those are not this bookie's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise

from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES
from embedbk.codec.kernels import scan
from embedbk.errors import PeerError
from embedbk.storage.entry_log_index import ENTRY_SIZE_MAX, Located
from embedbk.storage.entry_log_layout import BLOCK_BYTES
from embedbk.storage.findings import Findings
from embedbk.storage.raw_files import RawFile

__all__ = ["EVERYTHING", "Hole", "read_part", "read_with_zeros", "scan_hole"]

Key = tuple[int, int]  # ledger_id, entry_id

FIRST_KEY: Key = (0, -1)
LAST_KEY: Key = (2**64 - 1, 2**63 - 1)

_PAYLOAD_SIZE = struct.Struct("<4xI")


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of the entries that no run names. What stands there has ids between those of the neighbours."""

    begin: int
    end: int
    before: Key = FIRST_KEY
    behind: Key = LAST_KEY

    def may_hold(self, ledger_id: int, entry_id: int) -> bool:
        return self.before < (ledger_id, entry_id) < self.behind


EVERYTHING = Hole(0, 0)  # Any id may have stood somewhere.


def read_part(file: RawFile, offset: int, size: int) -> bytes | None:
    """Read exactly these bytes; None when they are not all there or cannot be read."""
    try:
        found = file.read(offset, size) if offset + size <= file.size() else b""
    except OSError:
        return None
    return found if len(found) == size else None


def read_with_zeros(file: RawFile, offset: int, size: int) -> bytes:
    """Read block by block; a block that cannot be read is zeros, which then look like damage."""
    return b"".join(
        read_part(file, offset + at, min(BLOCK_BYTES, size - at)) or bytes(min(BLOCK_BYTES, size - at))
        for at in range(0, size, BLOCK_BYTES)
    )


def scan_hole(file: RawFile, hole: Hole, findings: Findings) -> tuple[list[Located], bool]:
    """The entries found in the hole, and whether they fill it in order: then it held nothing else, if the number of all
    entries is right."""
    size = hole.end - hole.begin
    have = max(0, min(size, file.size() - hole.begin))
    block = memoryview(read_with_zeros(file, hole.begin, have))
    front = _valid_entries(block, 0, hole)
    good = front[-1][2] + front[-1][3] if front else 0
    back: list[Located] = []
    if have == size and good < have:
        back = _find_back(block, good, hole)
    found = [(ledger, entry, hole.begin + place, size) for ledger, entry, place, size in front + back]
    is_ascending = all(one[:2] < other[:2] for one, other in pairwise(front))
    if good == size and is_ascending:
        return found, True
    lost = size - good - sum(size for *_, size in back)
    findings.damage(
        file.path,
        f"{lost} bytes of its entries are damaged or cut off, and no index says what stood there: what may have is not "
        "known to be absent any more",
        offset=hole.begin + good,
    )
    return found, False


def _valid_size(block: memoryview, at: int, hole: Hole) -> int:
    """Whole size of the valid entry at `at`, or 0."""
    if len(block) - at < ENTRY_OVERHEAD_BYTES or block[at] != 1:
        return 0
    size = ENTRY_OVERHEAD_BYTES + int(_PAYLOAD_SIZE.unpack_from(block, at)[0])
    if size > ENTRY_SIZE_MAX or size > len(block) - at:
        return 0
    try:
        first, _, _, _, ledger_id = scan(block[at : at + size])
    except PeerError:
        return 0
    return size if hole.may_hold(ledger_id, first) else 0


def _valid_entries(block: memoryview, at: int, hole: Hole) -> list[Located]:
    """The valid entries that follow each other from `at` on; offsets are in the block."""
    found: list[Located] = []
    while size := _valid_size(block, at, hole):
        header = ENTRY_HEADER.unpack_from(block, at)
        found.append((header[4], header[5], at, size))
        at += size
    return found


def _find_back(block: memoryview, at: int, hole: Hole) -> list[Located]:
    """The first valid entries from where such fill everything up to the end."""
    while at < len(block):
        found = _valid_entries(block, at, hole)
        end = found[-1][2] + found[-1][3] if found else at
        if end == len(block):
            return found
        at = end + 1 if found else at + 1
    return []
