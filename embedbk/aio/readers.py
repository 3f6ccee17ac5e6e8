"""The readers of a ledger and of a log, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from embedbk.aio.iterating import each, entries_one_by_one
from embedbk.aio.opening import Closing
from embedbk.client.batches import Batch, Entry, batch_of, entries_of
from embedbk.client.bulk import BYTES_PER_CALL, ENTRIES_PER_CALL, Bulk, BulkReading, Place
from embedbk.client.reading import LedgerReading
from embedbk.client.record_batches import record_batch_maker
from embedbk.client.runtime import refuse_pickling
from embedbk.client.waiting import run_async
from embedbk.codec.ledger_metadata import LedgerMetadata

__all__ = ["LedgerReader", "LogReader"]


class LedgerReader(Closing):
    """As `embedbk.LedgerReader`."""

    def __init__(self, reading: LedgerReading) -> None:
        self._reading = reading
        reading.show()

    @property
    def ledger_id(self) -> int:
        return self._reading.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        return self._reading.metadata

    @property
    def is_closed(self) -> bool:
        return self._reading.is_closed

    @property
    def last_entry(self) -> int | None:
        return self._reading.metadata.last_entry

    @property
    def length(self) -> int | None:
        return self._reading.metadata.length

    async def last_add_confirmed(self) -> int:
        return await run_async(self._reading.limit())

    async def try_last_add_confirmed(self) -> int:
        return await run_async(self._reading.try_limit())

    async def read_last(self) -> Entry:
        return next(entries_of(await run_async(self._reading.last())))

    def read_unconfirmed(self, first: int = 0, last: int | None = None) -> AsyncIterator[Entry]:
        return entries_one_by_one(self._reading.read_unconfirmed(first, last))

    def read(
        self, first: int = 0, last: int | None = None, *, skip_lost: bool = False
    ) -> AsyncIterator[Entry]:
        return entries_one_by_one(self._reading.read(first, last, skip_lost=skip_lost))

    def read_batches(
        self, first: int = 0, last: int | None = None, *, skip_lost: bool = False
    ) -> AsyncIterator[Batch]:
        return each(self._reading.read(first, last, skip_lost=skip_lost), batch_of)

    def record_batches(
        self, first: int = 0, last: int | None = None, *, with_records: bool = False, skip_lost: bool = False
    ) -> AsyncIterator[Any]:
        located = self._reading.read(first, last, skip_lost=skip_lost)
        return each(located, record_batch_maker(with_records=with_records))

    def close(self) -> None:
        self._reading.close()

    async def _leave(self, is_normal: bool) -> None:
        self.close()

    def __reduce__(self) -> Any:
        refuse_pickling(
            "a ledger reader", "send the client's url and the ledger id, and open the ledger there"
        )


class LogReader(Closing):
    """As `embedbk.LogReader`."""

    def __init__(self, reading: BulkReading) -> None:
        self._reading = reading

    @property
    def next_offset(self) -> int | None:
        return self._reading.next_offset

    async def read_bulk(
        self,
        max_entries: int = ENTRIES_PER_CALL,
        max_bytes: int = BYTES_PER_CALL,
        wait_s: float | None = 0.0,
        *,
        min_entries: int = 1,
    ) -> Bulk:
        return await run_async(self._reading.read(max_entries, max_bytes, wait_s, min_entries))

    def seek(self, place: Place) -> None:
        self._reading.seek(place)

    def close(self) -> None:
        self._reading.close()

    async def _leave(self, is_normal: bool) -> None:
        self.close()

    def __reduce__(self) -> Any:
        refuse_pickling(
            "a log reader", "send the client's url, the log's name and `next_offset`, and read on from there"
        )
