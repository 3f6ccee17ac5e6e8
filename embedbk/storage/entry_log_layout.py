"""Where the parts of an entry log stand, from STORAGE.md section 1 alone.

Decides whether 128 bytes are a descriptor that can be believed, and returns its fields. entry_log_reader.py decides
which of a log's two descriptors serves; entry_log_index.py reads the sections.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from embedbk.codec.kernels import crc32c
from embedbk.core.ledger_table import LEDGER_STATE

__all__ = ["BLOCK_BYTES", "DESCRIPTOR", "MAGIC", "VERSION", "VERSION_ONE", "Descriptor", "parse_descriptor"]

BLOCK_BYTES = 4096
MAGIC = b"EBKL"
VERSION_ONE = 1
VERSION_TWICE = 3  # The index stands twice, and each run has its CRC.
VERSION = 4  # Each run has room for the digests of its entries.
PARTS_MAX = 16
JOURNALS_MAX = 16
SECTION_BYTES_MAX = 1 << 48
IDENTITY_BYTES = 48  # The descriptor's first bytes, which seed the sums of the sections.

# magic, version, log_id, previous_id, cluster_token, incarnation, mark, states_size, entries_size, entry_count,
# index_size, file_size, run_count, ledger_count, states_crc, index_crc, roll_count, part, part_count, journal_count,
# reserved, crc
DESCRIPTOR = struct.Struct("<4sIII16s16sQQQQQQIIIIIHHH2sI")


@dataclass(frozen=True, slots=True)
class Descriptor:
    raw: bytes
    version: int
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
    def has_two_indexes(self) -> bool:
        return self.version >= VERSION_TWICE

    @property
    def has_digests(self) -> bool:
        return self.version >= VERSION

    @property
    def first_index_offset(self) -> int:
        return BLOCK_BYTES + self.states_size

    @property
    def entries_offset(self) -> int:
        return self.first_index_offset + (self.index_size if self.has_two_indexes else 0)

    @property
    def entries_end(self) -> int:
        return self.entries_offset + self.entries_size

    @property
    def index_offset(self) -> int:
        """Bytes of the index behind the entries; where there are two copies, in a block of its own."""
        return -(-self.entries_end // BLOCK_BYTES) * BLOCK_BYTES if self.has_two_indexes else self.entries_end

    @property
    def second_states_offset(self) -> int:
        return self.index_offset + self.index_size

    def section_crc(self, section: bytes) -> int:
        return crc32c(section, crc32c(self.raw[:IDENTITY_BYTES]))

    def run_crc(self, at: int, run: bytes) -> int:
        """The sum over a run's head, coded numbers and digests, which begin at `at` of their section."""
        return crc32c(run, crc32c(at.to_bytes(8, "little"), crc32c(self.raw[:IDENTITY_BYTES])))

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


def parse_descriptor(raw: bytes | None) -> Descriptor | int | None:
    """The descriptor; a number: its version, which is not known; None when these bytes are no descriptor."""
    if raw is None or raw[:4] != MAGIC or crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        return None
    fields = DESCRIPTOR.unpack(raw)
    if not VERSION_ONE <= fields[1] <= VERSION:
        return int(fields[1])
    parts = fields[17:20] if fields[1] > VERSION_ONE else (0, 1, 0)
    descriptor = Descriptor(raw, *fields[1:17], *parts)
    return descriptor if descriptor.is_possible() else None
