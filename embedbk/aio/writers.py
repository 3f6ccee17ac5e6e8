"""The writers of a ledger and of a log, awaited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from embedbk.aio.opening import Closing
from embedbk.client import ledger, log_writer
from embedbk.client.appending import Appending
from embedbk.client.placed import Appended
from embedbk.client.renewing import Succession
from embedbk.client.runtime import refuse_pickling
from embedbk.client.tickets import PLAIN, Ticket, all_acknowledged, terms_of
from embedbk.client.waiting import run_async
from embedbk.codec.arrow_rows import ArrowNames
from embedbk.codec.entry_records import EntryRecord
from embedbk.codec.packing import Buffer
from embedbk.config import check_seconds
from embedbk.errors import OperationTimeout, UsageError
from embedbk.ids import Position

__all__ = ["LedgerWriter", "LogWriter"]


class _Writer(Closing):
    """The methods of both writers."""

    __slots__ = ("__weakref__", "_appending")

    def __init__(self, appending: Appending) -> None:
        self._appending = appending

    @property
    def ledger_id(self) -> int:
        return self._appending.ledger_id

    @property
    def lac(self) -> int:
        return self._appending.writing.lac

    @property
    def _newest(self) -> Appending:
        """The handle of the entry that was queued last."""
        return self._appending

    @property
    def length(self) -> int:
        return self._appending.writing.length

    @property
    def last_position(self) -> Position:
        return self._appending.last_position

    @property
    def durability(self) -> str:
        return self._appending.durability

    async def flush(self, timeout_s: float | None = None) -> int:
        """Wait until everything queued before is acknowledged as an append is; return the LAC."""
        return await run_async(all_acknowledged(self._newest, timeout_s))

    async def force(self, timeout_s: float | None = None) -> int:
        """Wait until everything queued before is durable on its ack quorum, also with deferred sync (P3.2); return the
        LAC."""
        return await run_async(all_acknowledged(self._newest, timeout_s, is_synced=True))

    def release(self) -> None:
        """Let go without touching cluster state; the next opener recovers."""
        self._appending.release()

    def _queue_nowait(self, appending: Appending, data: Buffer | EntryRecord) -> Ticket:
        """appending: the handle of now. A log's writer may be in its next ledger when the entry is queued."""
        entry_id = appending.try_append(data)
        if entry_id < 0:
            raise OperationTimeout(
                "as many bytes are in flight as are allowed; nothing was appended",
                definite=True,
                hint="await the appending call, or flush(), which wait for room",
            )
        return Ticket(appending, entry_id)

    async def _leave(self, is_normal: bool) -> None:
        if is_normal:
            await run_async(self._appending.close())
        else:
            self._appending.release()

    def __reduce__(self) -> Any:
        refuse_pickling("a writer", "a ledger has one writer; open one there, which fences this one")


class LedgerWriter(_Writer):
    """As `embedbk.LedgerWriter`."""

    __slots__ = ()

    async def add(
        self,
        data: Buffer | EntryRecord,
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> int:
        terms = terms_of(timeout_s, entry_id, after, producer)
        if terms is PLAIN:
            return (await self._appending.append_awaited(data)).entry_id
        return (await run_async(self._appending.append(data, terms))).entry_id

    async def add_batch(
        self,
        parts: Sequence[Buffer | EntryRecord],
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """All parts as one entry: all of them are there, or none."""
        terms = terms_of(timeout_s, entry_id, after, producer)
        return (await run_async(self._appending.append_batch(parts, terms))).entry_id

    def add_nowait(self, data: Buffer | EntryRecord) -> Ticket:
        """Queue one entry, to be awaited; raises OperationTimeout, definite, when there is no room."""
        return self._queue_nowait(self._appending, data)

    async def add_many(
        self, items: Sequence[Buffer | EntryRecord], timeout_s: float | None = None
    ) -> Appended:
        return await run_async(self._appending.append_many(items, timeout_s))

    async def append_arrow(
        self,
        batch: Any,
        value: str = "value",
        key: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Appended:
        """As `embedbk.LedgerWriter.append_arrow`."""
        steps = ledger.append_arrow(batch, ArrowNames(value, key, timestamp, headers), timeout_s)
        return await run_async(steps(self._appending, timeout_s))

    async def close(self) -> int:
        return await run_async(self._appending.close())


class LogWriter(_Writer):
    """As `embedbk.LogWriter`."""

    __slots__ = ("_line", "name")

    def __init__(self, name: str, line: Succession) -> None:
        self.name = name
        self._line = line

    @property
    def _appending(self) -> Appending:  # type: ignore[override]
        return self._line.appending

    @property
    def _newest(self) -> Appending:
        return self._line.newest

    @property
    def epoch(self) -> int:
        return self._line.taken.epoch

    @property
    def first_offset(self) -> int:
        return self._line.taken.first_offset

    @property
    def ensemble_changes(self) -> int:
        return self._appending.writing.ensemble_changes

    async def append(
        self,
        data: Buffer | EntryRecord,
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> Position:
        terms = terms_of(timeout_s, entry_id, after, producer)
        if terms is PLAIN:
            appending = self._appending
            try:
                return await appending.append_awaited(data)
            except UsageError as refused:
                if not self._line.has_left(appending, refused):
                    raise
        return await run_async(self._line.through(lambda now, left: now.append(data, left), terms))

    async def append_batch(
        self,
        parts: Sequence[Buffer | EntryRecord],
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> Position:
        """All parts as one entry: all of them are there, or none."""
        terms = terms_of(timeout_s, entry_id, after, producer)
        return await run_async(self._line.through(lambda now, left: now.append_batch(parts, left), terms))

    def append_nowait(self, data: Buffer | EntryRecord) -> Ticket:
        """Queue one entry, to be awaited; raises OperationTimeout, definite, when there is no room, or while `renew`
        is on its way to a new ledger."""
        appending = self._appending
        try:
            return self._queue_nowait(appending, data)
        except UsageError as refused:
            if not self._line.has_left(appending, refused):
                raise
            raise OperationTimeout(
                "the log is on its way to a new ledger; nothing was appended",
                definite=True,
                hint="await the appending call, which waits for it",
            ) from refused

    async def append_many(
        self, items: Sequence[Buffer | EntryRecord], timeout_s: float | None = None
    ) -> Appended:
        terms = terms_of(timeout_s, None, None, None)
        steps = self._line.through(lambda now, left: now.append_many(items, left.timeout_s), terms)
        return await run_async(steps)

    async def append_arrow(
        self,
        batch: Any,
        value: str = "value",
        key: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Appended:
        """As `embedbk.LogWriter.append_arrow`."""
        steps = ledger.append_arrow(batch, ArrowNames(value, key, timestamp, headers), timeout_s)
        terms = terms_of(timeout_s, None, None, None)
        return await run_async(self._line.through(lambda now, left: steps(now, left.timeout_s), terms))

    async def renew(
        self,
        *,
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
    ) -> None:
        """As `embedbk.LogWriter.renew`: appends of other tasks wait meanwhile."""
        await run_async(log_writer.renew_as(self._line, ensemble_size, write_quorum, ack_quorum))

    async def roll(self) -> None:
        """As `embedbk.LogWriter.roll`."""
        await run_async(self._line.roll())

    async def lost(self, timeout_s: float | None = None) -> bool:
        """As `embedbk.LogWriter.lost`."""
        check_seconds(timeout_s, "timeout_s")
        return await run_async(self._line.lost(timeout_s))

    async def close(self) -> Position:
        of, last = await run_async(self._line.close())
        return Position(of.ledger_id, last)

    def release(self) -> None:
        self._line.release()

    async def _leave(self, is_normal: bool) -> None:
        if is_normal:
            await self.close()
        else:
            self.release()
