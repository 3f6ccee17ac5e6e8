"""The readable rest of a damaged journal, and a new journal behind the damage (P7.4, I42; JOURNAL.md section 6).

Decides nothing: it reports what can be read and whether something is missing. The storage (`starting.py`) decides
whether a bookie may continue with that, and makes what was read durable before `finish`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from embedbk.storage.journal import FILE_BYTES, fault_text, journal_settings, raise_fault
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.native import ffi, lib

__all__ = ["JournalSalvage", "SalvageFacts"]

RECORDS_MAX = 256  # Fetched from C in one call.


@dataclass(frozen=True, slots=True)
class SalvageFacts:
    """The result of reading a damaged journal whole."""

    may_have_lost: bool  # A record above the log mark is missing, or may be.
    missing_count: int  # Those that are known to have been there.
    start_token: int  # Token of the first record behind the damage: above every token that was ever seen.
    damage: str  # Where it begins; empty if there is none.


class JournalSalvage:
    """A damaged journal, read from end to end; holds its directory until `close`. Changes nothing before `finish`.

    Args:
        directory, io, file_bytes, identity: as for `Journal`.
        after: the log mark: what it covers is in entry logs and cannot be lost here.

    Raises:
        StorageError: the directory is in use, holds another's files or those of a later version, or cannot be read.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        after: int,
        io: MemoryDisk | None = None,
        file_bytes: int = FILE_BYTES,
        identity: bytes | None = None,
    ) -> None:
        self.directory = os.fspath(directory)
        self._disk = io  # Keeps the table of calls alive.
        settings = journal_settings(file_bytes, threaded=False, file_count_max=0, identity=identity)
        out = ffi.new("struct ebk_salvage **")
        fault = ffi.new("struct ebk_journal_fault *")
        table = lib.ebk_io_disk() if io is None else io.io
        code = lib.ebk_salvage_open(table, os.fsencode(self.directory), settings, after, out, fault)
        if code < 0:
            raise_fault(fault, f"journal {self.directory} cannot be salvaged")
        self._salvage: Any = ffi.gc(out[0], lib.ebk_salvage_close)
        self._is_closed = False

    def records(self) -> Iterator[tuple[int, int, int, memoryview]]:
        """(token, kind, ledger_id, body) of what can be read above the mark, in order; where it is missing, tokens
        leave a gap. Once."""
        found = ffi.new("struct ebk_record[]", RECORDS_MAX)
        while not self._is_closed and (count := lib.ebk_salvage_next(self._salvage, found, RECORDS_MAX)):
            yield from [
                (
                    record.token,
                    record.kind,
                    record.ledger_id,
                    memoryview(bytes(ffi.buffer(record.data, record.size))),
                )
                for record in found[0:count]
            ]

    def facts(self) -> SalvageFacts:
        """The result; after `records` was read to its end."""
        facts = ffi.new("struct ebk_salvage_facts *")
        lib.ebk_salvage_tell(self._salvage, facts)
        has_damage = facts.first.code != lib.EBK_OK
        return SalvageFacts(
            facts.may_have_lost,
            facts.missing_count,
            facts.start_token,
            fault_text(facts.first) if has_damage else "",
        )

    def finish(self) -> None:
        """Let the journal begin with `start_token`, durably: what stands below is in entry logs, or given up.

        Raises:
            StorageError: the start file cannot be made; the journal is as it was.
        """
        fault = ffi.new("struct ebk_journal_fault *")
        if lib.ebk_salvage_finish(self._salvage, fault) < 0:
            raise_fault(fault, f"journal {self.directory} cannot go on behind its damage")

    def close(self) -> None:
        self._is_closed = True
        ffi.release(self._salvage)

    def __enter__(self) -> JournalSalvage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
