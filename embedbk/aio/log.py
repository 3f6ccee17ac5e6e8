"""A log, awaited: its readers, writer, cursors and settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from embedbk.aio.cursors import Cursor
from embedbk.aio.iterating import each, entries_one_by_one
from embedbk.aio.opening import Opening
from embedbk.aio.readers import LogReader
from embedbk.aio.writers import LedgerWriter, LogWriter
from embedbk.client import (
    cursors,
    entry_times,
    log_deleting,
    log_writer,
    sealing,
    splicing,
    truncating,
    undeleting,
)
from embedbk.client.batches import Batch, Entry, Segment, batch_of
from embedbk.client.bulk import BulkReading, Place
from embedbk.client.cursors import Cursoring, CursorState
from embedbk.client.log_following import LogFollowing
from embedbk.client.log_identity import rename
from embedbk.client.log_places import Start
from embedbk.client.log_reading import LogReading
from embedbk.client.log_settings import (
    KEEP,
    Keep,
    LogSettings,
    WriterArguments,
    change,
    settings,
)
from embedbk.client.password import Password
from embedbk.client.record_batches import record_batch_maker
from embedbk.client.runtime import Runtime, refuse_pickling
from embedbk.client.sealing import Seal
from embedbk.client.splicing import STAGED_TTL_S, SpliceOutcome, Staging
from embedbk.client.times import ms_of
from embedbk.client.truncating import LogPin, Truncation
from embedbk.client.undeleting import Undeletion
from embedbk.client.waiting import run_async
from embedbk.config import Placement, Roll, check_seconds
from embedbk.ids import Position, check_log_name

__all__ = ["Log"]


class Log:
    """As `embedbk.Log`."""

    def __init__(self, runtime: Runtime, name: str, password: Password) -> None:
        self.name = name
        self._runtime = runtime
        self._password = password

    @property
    def _reading(self) -> LogReading:
        return LogReading(self._runtime, self.name, self._password)

    def writer(
        self,
        *,
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        durability: str | None = None,
        delays_change: bool = False,
        placement: Placement | None = None,
        digest: str | None = None,
        roll: Roll | None = None,
        compression: str | None = None,
    ) -> Opening[LogWriter]:
        async def steps() -> LogWriter:
            given = WriterArguments(
                ensemble_size, write_quorum, ack_quorum, durability, digest, roll, compression
            )
            opened = log_writer.open_writer(
                self._runtime, self.name, self._password, given, placement, delays_change=delays_change
            )
            return LogWriter(self.name, await run_async(opened))

        return Opening(steps())

    def read(
        self, start: Start = None, end: Start = None, *, skip_lost: bool = False
    ) -> AsyncIterator[Entry]:
        return entries_one_by_one(self._reading.read(start, end, skip_lost=skip_lost))

    def read_batches(
        self, start: Start = None, end: Start = None, *, skip_lost: bool = False
    ) -> AsyncIterator[Batch]:
        return each(self._reading.read(start, end, skip_lost=skip_lost), batch_of)

    def record_batches(
        self, start: Start = None, end: Start = None, *, with_records: bool = False, skip_lost: bool = False
    ) -> AsyncIterator[Any]:
        located = self._reading.read(start, end, skip_lost=skip_lost)
        return each(located, record_batch_maker(with_records=with_records))

    async def end(self) -> int:
        return await run_async(self._reading.end())

    async def first_at(self, time: int | datetime) -> int:
        """As `embedbk.Log.first_at`."""
        return await run_async(entry_times.first_at(self._reading, ms_of(time)))

    async def time_at(self, place: Position | int) -> int | None:
        return await run_async(entry_times.time_at(self._reading, place))

    def reader(self, start: Place = "earliest", *, skip_lost: bool = False) -> LogReader:
        """As `embedbk.Log.reader`."""
        return LogReader(BulkReading(self._reading, start, skip_lost=skip_lost))

    def tail(
        self, start: Start = None, *, idle_s: float | None = None, skip_lost: bool = False
    ) -> AsyncIterator[Entry]:
        check_seconds(idle_s, "idle_s")
        return entries_one_by_one(LogFollowing(self._reading).tail(start, idle_s, skip_lost=skip_lost))

    async def segments(self, start: Start = None) -> list[Segment]:
        return await run_async(self._reading.segments(start))

    async def truncate(
        self,
        before: Start = None,
        *,
        older_than_s: float | None = None,
        keep_bytes: int | None = None,
        may_do_nothing: bool = False,
        force: bool = False,
    ) -> Truncation:
        steps = truncating.truncate(
            self._reading, before, older_than_s, keep_bytes, may_do_nothing=may_do_nothing, force=force
        )
        return await run_async(steps)

    async def undelete(self, from_: Start = None) -> Undeletion:
        return await run_async(undeleting.undelete(self._reading, from_))

    async def pin(self, name: str, at: Start = None, *, ttl_s: float = 3600.0) -> LogPin:
        return await run_async(truncating.pin(self._reading, name, at, ttl_s))

    async def unpin(self, name: str) -> bool:
        return await run_async(truncating.unpin(self._reading, name))

    async def pins(self) -> list[LogPin]:
        return await run_async(truncating.pins(self._reading))

    def cursor(
        self,
        name: str,
        holds: bool = True,
        *,
        ends_after_s: float | None = None,
        ends_behind_bytes: int | None = None,
    ) -> Cursor:
        """As `embedbk.Log.cursor`."""
        return Cursor(Cursoring(self._reading, name, holds, ends_after_s, ends_behind_bytes))

    async def cursors(self) -> list[CursorState]:
        return await run_async(cursors.cursors(self._reading))

    async def settings(self) -> LogSettings:
        return await run_async(settings(self._reading))

    async def change(
        self,
        *,
        revision: int | None = None,
        ensemble_size: int | Keep | None = KEEP,
        write_quorum: int | Keep | None = KEEP,
        ack_quorum: int | Keep | None = KEEP,
        durability: str | Keep | None = KEEP,
        digest: str | Keep | None = KEEP,
        roll: Roll | Keep | None = KEEP,
        retention_s: float | Keep | None = KEEP,
        retention_bytes: int | Keep | None = KEEP,
        properties: Mapping[str, bytes] | Keep | None = KEEP,
        bytes_max: int | Keep | None = KEEP,
        at_bytes_max: str | Keep | None = KEEP,
        compression: str | Keep | None = KEEP,
    ) -> LogSettings:
        """As `embedbk.Log.change`."""
        wanted = {
            "ensemble_size": ensemble_size,
            "write_quorum": write_quorum,
            "ack_quorum": ack_quorum,
            "durability": durability,
            "digest": digest,
            "roll": roll,
            "retention_s": retention_s,
            "retention_bytes": retention_bytes,
            "properties": properties,
            "bytes_max": bytes_max,
            "at_bytes_max": at_bytes_max,
            "compression": compression,
        }
        return await run_async(change(self._reading, revision, wanted))

    def staging(
        self, application: str | None = None, number: int = 0, *, ttl_s: float = STAGED_TTL_S
    ) -> Staging:
        """As `embedbk.Log.staging`."""
        return splicing.staging(self._runtime, self.name, application, number, ttl_s)

    def stage(self, staging: Staging) -> Opening[LedgerWriter]:
        """As `embedbk.Log.stage`."""

        async def steps() -> LedgerWriter:
            return LedgerWriter(await run_async(splicing.stage(self._reading, staging)))

        return Opening(steps())

    async def splice(
        self, staging: Staging, ledger_ids: Sequence[int], *, timeout_s: float | None = None
    ) -> SpliceOutcome:
        """As `embedbk.Log.splice`."""
        return await run_async(splicing.splice(self._reading, staging, ledger_ids, timeout_s))

    async def unstage(self, staging: Staging) -> int:
        """As `embedbk.Log.unstage`."""
        return await run_async(splicing.unstage(self._reading, staging))

    async def spliced(self, application: str) -> SpliceOutcome | None:
        """As `embedbk.Log.spliced`."""
        return await run_async(splicing.spliced(self._reading, application))

    async def forget_application(self, application: str) -> bool:
        """As `embedbk.Log.forget_application`."""
        return await run_async(splicing.forget_application(self._reading, application))

    async def log_id(self) -> str:
        """As `embedbk.Log.log_id`."""
        return await run_async(self._reading.log_id())

    async def rename(self, new_name: str) -> None:
        """As `embedbk.Log.rename`."""
        await run_async(rename(self._runtime, self.name, check_log_name(new_name)))
        self.name = new_name

    async def delete(self, *, force: bool = False) -> None:
        """As `embedbk.Log.delete`."""
        await run_async(log_deleting.delete_log(self._runtime, self.name, self._password, force=force))

    async def seal(self, reason: str) -> Seal:
        """As `embedbk.Log.seal`."""
        return await run_async(sealing.seal(self._reading, reason))

    async def sealed(self) -> Seal | None:
        return await run_async(sealing.sealed(self._reading))

    def __reduce__(self) -> Any:
        refuse_pickling("a log handle", "send the client's url and the log's name, and open it there")
