"""A metadata member's log as builds before snapshots were files wrote it: records of kinds 1 to 3."""

from __future__ import annotations

import struct

from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import Command, encode_command
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MemberIdentity

__all__ = ["OlderWriter"]

_CHUNK = struct.Struct("<IIQ")


class OlderWriter:
    """Commands, and snapshots in chunks between them, behind which the log was trimmed."""

    def __init__(self, journal: MemoryJournal, identity: MemberIdentity) -> None:
        self.journal, self.catalog, self.index = journal, Catalog(), 0
        self._identity = b"\x01" + identity.cluster_token + identity.incarnation
        journal.append(3, 0, self._identity)

    def write(self, command: Command) -> None:
        self.index += 1
        self.journal.append(1, self.index, encode_command(command))
        self.catalog.apply(command, 1, FIRST_TERM)

    def save_snapshot(self, chunk_bytes: int = 200, *, is_trimmed: bool = True) -> None:
        data = self.catalog.snapshot()
        count = max(1, -(-len(data) // chunk_bytes))
        first = self.journal.append(3, 0, self._identity)
        for number in range(count):
            part = data[number * chunk_bytes : (number + 1) * chunk_bytes]
            self.journal.append(2, self.index, _CHUNK.pack(number, count, len(data)) + part)
        self.journal.commit()
        if is_trimmed:
            self.journal.trim(first - 1)
