"""What tests of the archive have in common: logs with all kinds of entries, and what an archive holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from embedbk.archive.jobs import ArchiveReport, archive, set_place
from embedbk.archive.place import create_place
from embedbk.client.archiving import archive_records
from embedbk.client.client import Client
from embedbk.client.ledger import LedgerWriter
from embedbk.client.log import Log
from embedbk.client.splicing import Staging
from embedbk.client.waiting import run_blocking
from embedbk.codec.entry_records import EntryRecord
from embedbk.codec.log_archives import ArchiveRecord
from embedbk.errors import OperationTimeout

__all__ = ["Late", "archived", "files_of", "records_of", "rows_in", "write"]


class Late(Log):
    """A log for which ledgers are staged that no bookie answers for."""

    @classmethod
    def of(cls, log: Log) -> Late:
        return cls(log._runtime, log.name, log._password)

    def stage(self, staging: Staging) -> LedgerWriter:
        return _LateWriter(super().stage(staging)._appending)


class _LateWriter(LedgerWriter):
    def _late(self, *_: Any, **__: Any) -> Any:
        raise OperationTimeout("no answer came in time")

    append_arrow = add_many = add_batch = _late


def write(bk: Client, name: str, *counts: int) -> list[int]:
    """So many entries, a ledger for each count, whose ids these are; atomic batches, producers and empty ones too."""
    ledgers = []
    for count in counts:
        with bk.log(name).writer() as writer:
            for number in range(count):
                if number % 7 == 3:
                    writer.append_batch([b"part one of %d" % number, b"", b"part three"])
                elif number % 7 == 1:
                    writer.append(
                        EntryRecord(b"%d in ledger %d" % (number, len(ledgers)), b"key", number, {"n": b"1"})
                    )
                elif number % 11 == 10:
                    writer.append_batch([b"bare in %d" % number, EntryRecord(b"dated", timestamp=number)])
                elif number % 7 == 5:
                    writer.append(b"produced %d" % number, producer=(4, 1 + number + 1000 * len(ledgers)))
                else:
                    writer.append_nowait(
                        b"" if number % 7 == 6 else b"%d in ledger %d" % (number, len(ledgers))
                    )
            writer.flush()
            ledgers.append(writer.ledger_id)
    return ledgers


def archived(bk: Client, name: str, place: Path, *counts: int, slice_bytes: int = 300) -> ArchiveReport:
    """A log of so many entries in ledgers, all in an archive that is made for it."""
    write(bk, name, *counts)
    create_place(place)
    set_place(bk, name, place)
    return archive(bk, name, slice_bytes=slice_bytes)


def records_of(bk: Client, name: str) -> dict[int, ArchiveRecord]:
    return run_blocking(archive_records(bk._runtime, bk.log(name).log_id()), "archive")


def files_of(place: Path) -> list[str]:
    """All but the archive's own, as they stand below it."""
    found = [
        str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() and path.parent != place
    ]
    return sorted(found)


def rows_in(place: Path) -> pa.Table:
    """As whoever knows nothing of embedbk reads it."""
    read = pyarrow.dataset.dataset(str(place), format="parquet", partitioning="hive").to_table()
    return read.sort_by([("offset", "ascending"), ("slot", "ascending")])
