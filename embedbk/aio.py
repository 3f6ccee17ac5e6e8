"""The same names as the blocking face, awaited: `async with embedbk.aio.open("./data") as bk: ...`.

Each object belongs to no event loop: it may be made anywhere and used in whichever loop runs. What opens something may
be awaited, or entered at once: `async with bk.log("orders").writer() as orders: ...`.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from embedbk.client import client, cursors, deleting, explaining, ledger, log, sealing, splicing, truncating
from embedbk.client.appending import Appending
from embedbk.client.batches import Batch, Entry, Located, Segment, batch_of, entries_of
from embedbk.client.bookie_states import BookieState, bookie_states
from embedbk.client.bulk import BYTES_PER_CALL, ENTRIES_PER_CALL, Bulk, BulkReading, Place
from embedbk.client.consuming import Consuming
from embedbk.client.cursors import Cursoring, CursorState
from embedbk.client.deleting import DeletedLedger
from embedbk.client.devices import Devices
from embedbk.client.draining import BookieReport, cancel_drain, decommission, drain, report_on, retire
from embedbk.client.explaining import Explanation
from embedbk.client.ledger import quorum_of, traits_of
from embedbk.client.locking import Holder, Locking
from embedbk.client.log_names import log_names
from embedbk.client.log_reading import LogReading, Start
from embedbk.client.log_settings import (
    KEEP,
    Keep,
    LogSettings,
    WriterArguments,
    change,
    create_log,
    log_exists,
    settings,
)
from embedbk.client.password import Password
from embedbk.client.placed import Appended
from embedbk.client.reading import LedgerReading
from embedbk.client.record_batches import record_batch_maker
from embedbk.client.renewing import Succession
from embedbk.client.repair_state import health_of, switch_repair
from embedbk.client.runtime import Runtime, refuse_pickling
from embedbk.client.sealing import Seal
from embedbk.client.splicing import STAGED_TTL_S, SpliceOutcome, Staging
from embedbk.client.stopping import may_stop
from embedbk.client.tickets import PLAIN, Ticket, terms_of
from embedbk.client.truncating import LogPin, Truncation
from embedbk.client.waiting import run_async
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.packer_twin import Buffer
from embedbk.config import Placement, Roll, Settings, check_seconds
from embedbk.errors import OperationTimeout, UsageError
from embedbk.ids import Position, check_log_name
from embedbk.repair.health import Health
from embedbk.repair.stopping import StopVerdict

__all__ = [
    "Client",
    "Consumer",
    "Cursor",
    "LedgerReader",
    "LedgerWriter",
    "Lock",
    "Log",
    "LogReader",
    "LogWriter",
    "open",
]


class _Closing(ABC):
    """What leaves its block by `_leave`."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(kind is None)

    @abstractmethod
    async def _leave(self, is_normal: bool) -> None: ...


Handle = TypeVar("Handle", bound=_Closing)


class Opening(Generic[Handle]):
    """Something on its way open: await it, or enter it with `async with`. Once."""

    def __init__(self, steps: Coroutine[Any, Any, Handle]) -> None:
        self._steps = steps
        self._handle: Handle | None = None

    def __await__(self) -> Generator[Any, None, Handle]:
        return self._steps.__await__()

    async def __aenter__(self) -> Handle:
        self._handle = await self._steps
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._handle is not None
        await self._handle.__aexit__(kind, error, trace)


def open(
    target: str | os.PathLike[str],
    bookies: int | None = None,
    listen: str | None = None,
    *,
    settings: Settings | None = None,
    create: bool = True,
    journal_directories: Sequence[str | os.PathLike[str]] = (),
    ledger_directories: Sequence[str | os.PathLike[str]] = (),
    expands: bool = False,
) -> Opening[Client]:
    """As `embedbk.open`."""
    devices = Devices.of(journal_directories, ledger_directories, expands)
    return Opening(_open(target, bookies, listen, settings, devices, create))


async def _open(
    target: str | os.PathLike[str],
    bookies: int | None,
    listen: str | None,
    settings: Settings | None,
    devices: Devices,
    create: bool,
) -> Client:
    # Starting reads disks and replays journals: on a thread, so that the loop goes on.
    opened = await asyncio.to_thread(client.start, target, bookies, listen, settings, devices, create=create)
    try:
        await run_async(opened.ready())
    except BaseException:
        await asyncio.to_thread(opened.runtime.close)
        raise
    return Client(client.Client(opened))


class Client(_Closing):
    """As `embedbk.Client`; close it, or use it with `async with`."""

    def __init__(self, blocking: client.Client) -> None:
        self._blocking = blocking  # Warns if it is never closed.
        self._runtime: Runtime = blocking._runtime

    def log(self, name: str, *, password: bytes = b"") -> Log:
        self._runtime.check()
        return Log(self._runtime, check_log_name(name), Password(password))

    async def create_log(
        self,
        name: str,
        *,
        password: bytes = b"",
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        durability: str | None = None,
        digest: str | None = None,
        roll: Roll | None = None,
        retention_s: float | None = None,
        retention_bytes: int | None = None,
        properties: Mapping[str, bytes] | None = None,
    ) -> Log:
        """As `embedbk.Client.create_log`."""
        made = self.log(name, password=password)
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
        }
        await run_async(create_log(made._reading, wanted))
        return made

    async def log_exists(self, name: str) -> bool:
        """As `embedbk.Client.log_exists`."""
        self._runtime.check()
        return await run_async(log_exists(self._runtime, check_log_name(name)))

    async def logs(self, prefix: str = "") -> list[str]:
        """As `embedbk.Client.logs`."""
        return await run_async(log_names(self._runtime, prefix))

    def lock(self, name: str, *, value: bytes = b"") -> Lock:
        """As `embedbk.Client.lock`."""
        return Lock(Locking(self._runtime, name, value))

    def create_ledger(
        self,
        *,
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        password: bytes = b"",
        custom: Mapping[str, bytes] = client.NO_CUSTOM,
        durability: str = "synced",
        delays_change: bool = False,
        placement: Placement | None = None,
        digest: str = "crc32c",
    ) -> Opening[LedgerWriter]:
        async def steps() -> LedgerWriter:
            quorum = await run_async(quorum_of(self._runtime, ensemble_size, write_quorum, ack_quorum))
            traits = traits_of(
                self._runtime, durability, placement, delays_change=delays_change, digest=digest
            )
            made = ledger.create(self._runtime, quorum, Password(password), custom, traits)
            return LedgerWriter(await run_async(made))

        return Opening(steps())

    def open_ledger(
        self, ledger_id: int, *, recover: bool = False, password: bytes = b""
    ) -> Opening[LedgerReader]:
        async def steps() -> LedgerReader:
            opened = LedgerReading.open(self._runtime, ledger_id, Password(password), recover=recover)
            return LedgerReader(await run_async(opened))

        return Opening(steps())

    async def delete_ledger(self, ledger_id: int, *, password: bytes = b"", force: bool = False) -> None:
        await run_async(deleting.delete(self._runtime, ledger_id, Password(password), force=force))

    async def delete_log(self, name: str, *, password: bytes = b"", force: bool = False) -> None:
        """As `embedbk.Client.delete_log`."""
        steps = deleting.delete_log(self._runtime, check_log_name(name), Password(password), force=force)
        await run_async(steps)

    async def undelete_ledger(self, ledger_id: int, *, password: bytes = b"") -> None:
        await run_async(deleting.undelete(self._runtime, ledger_id, Password(password)))

    async def deleted_ledgers(self) -> list[DeletedLedger]:
        return await run_async(deleting.deleted(self._runtime))

    async def forget_deleted(self) -> list[int]:
        return await run_async(deleting.forget_deleted(self._runtime))

    async def explain(self, ledger_id: int) -> Explanation:
        return await run_async(explaining.explain(self._runtime, ledger_id))

    async def ledgers(self) -> list[int]:
        return await run_async(ledger.ledger_ids(self._runtime))

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """As `embedbk.Client.ledger_metadata`."""
        return await run_async(ledger.metadata_of(self._runtime, ledger_id))

    async def is_closed(self, ledger_id: int) -> bool:
        return (await run_async(ledger.metadata_of(self._runtime, ledger_id))).is_closed

    @property
    def url(self) -> str:
        return self._blocking.url

    async def listen(self, endpoint: str = "tcp://127.0.0.1:0") -> str:
        """As `embedbk.Client.listen`."""
        return await run_async(self._blocking._listen(endpoint))

    async def bookies(self) -> list[BookieState]:
        return await run_async(bookie_states(self._runtime))

    async def bookie(self, bookie_id: str) -> BookieReport:
        return await run_async(report_on(self._runtime, bookie_id))

    async def drain_bookie(self, bookie_id: str, why: str = "") -> BookieReport:
        return await run_async(drain(self._runtime, bookie_id, why=why))

    async def cancel_drain(self, bookie_id: str, why: str = "") -> None:
        await run_async(cancel_drain(self._runtime, bookie_id, why=why))

    async def decommission_bookie(self, bookie_id: str, why: str = "") -> None:
        await run_async(decommission(self._runtime, bookie_id, why=why))

    async def replace_bookie(self, bookie_id: str, why: str = "", *, accepts_loss: bool = False) -> str:
        return await run_async(retire(self._runtime, bookie_id, why=why, accepts_loss=accepts_loss))

    async def give_up_bookie(
        self, bookie_id: str, incarnation: str, why: str = "", *, accepts_loss: bool = False
    ) -> None:
        await run_async(retire(self._runtime, bookie_id, incarnation, why=why, accepts_loss=accepts_loss))

    async def can_i_stop(self, *nodes: str) -> StopVerdict:
        return await run_async(may_stop(self._runtime, nodes, is_for_good=False))

    async def can_i_lose(self, nodes: Sequence[str]) -> StopVerdict:
        return await run_async(may_stop(self._runtime, list(nodes), is_for_good=True))

    async def health(self) -> Health:
        return await run_async(health_of(self._runtime))

    async def stop_repair(self, why: str = "") -> None:
        await run_async(switch_repair(self._runtime, stopped=True, why=why))

    async def start_repair(self) -> None:
        await run_async(switch_repair(self._runtime, stopped=False))

    async def trigger_audit(self) -> None:
        await run_async(switch_repair(self._runtime, triggers=True))

    async def close(self) -> None:
        await asyncio.to_thread(self._runtime.close)

    async def _leave(self, is_normal: bool) -> None:
        await self.close()

    def __reduce__(self) -> Any:
        return self._blocking.__reduce__()


class Lock(_Closing):
    """As `embedbk.Lock`; hold it with `async with`."""

    def __init__(self, locking: Locking) -> None:
        self._locking = locking

    @property
    def name(self) -> str:
        return self._locking.name

    @property
    def epoch(self) -> int:
        return self._locking.epoch

    @property
    def is_held(self) -> bool:
        return self._locking.is_held

    def check(self) -> None:
        self._locking.check()

    async def acquire(self, timeout_s: float | None = None) -> int:
        return await run_async(self._locking.acquire(timeout_s))

    async def release(self) -> None:
        await run_async(self._locking.release())

    async def until_lost(self, timeout_s: float | None = None) -> bool:
        return await run_async(self._locking.until_lost(timeout_s))

    async def holder(self) -> Holder | None:
        return await run_async(self._locking.holder())

    async def holders(self) -> AsyncGenerator[Holder | None, None]:
        async for holder in _each(self._locking.holders(), lambda holder: holder):
            yield holder

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def _leave(self, is_normal: bool) -> None:
        if is_normal:
            await self.release()
        else:
            self._locking.let_go()

    def __reduce__(self) -> Any:
        self._locking.refuse_pickling()


class _Writer(_Closing):
    """What both writers share."""

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
    def length(self) -> int:
        return self._appending.writing.length

    @property
    def last_position(self) -> Position:
        return self._appending.last_position

    @property
    def durability(self) -> str:
        return self._appending.durability

    async def flush(self, timeout_s: float | None = None) -> int:
        """Until everything queued before is acknowledged as an append is; the LAC."""
        return await run_async(self._appending.flush(timeout_s))

    async def force(self, timeout_s: float | None = None) -> int:
        """Until everything queued before is durable on its ack quorum, also with deferred sync (P3.2); the LAC."""
        return await run_async(self._appending.force(timeout_s))

    def release(self) -> None:
        """Let go without touching cluster state; the next opener recovers."""
        self._appending.release()

    def _queue_nowait(self, data: Buffer) -> Ticket:
        entry_id = self._appending.try_append(data)
        if entry_id < 0:
            raise OperationTimeout(
                "as many bytes are in flight as are allowed; nothing was appended",
                definite=True,
                hint="await the appending call, or flush(), which wait for room",
            )
        return Ticket(self._appending, entry_id)

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
        data: Buffer,
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
        parts: Sequence[Buffer],
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """All parts as one entry: all of them are there, or none."""
        terms = terms_of(timeout_s, entry_id, after, producer)
        return (await run_async(self._appending.append_batch(parts, terms))).entry_id

    def add_nowait(self, data: Buffer) -> Ticket:
        """Queue one entry, to be awaited; raises OperationTimeout, definite, when there is no room."""
        return self._queue_nowait(data)

    async def add_many(self, items: Sequence[Buffer], timeout_s: float | None = None) -> Appended:
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
        steps = ledger.append_arrow(batch, value, (key, timestamp, headers), timeout_s)
        return await run_async(steps(self._appending, timeout_s))

    async def close(self) -> int:
        return await run_async(self._appending.close())


class LogWriter(_Writer):
    """As `embedbk.LogWriter`."""

    def __init__(self, name: str, line: Succession) -> None:
        self.name = name
        self._line = line

    @property
    def _appending(self) -> Appending:  # type: ignore[override]
        return self._line.appending

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
        data: Buffer,
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
            except UsageError:
                if not self._line.has_left(appending):
                    raise
        return await run_async(self._line.through(lambda now, left: now.append(data, left), terms))

    async def append_batch(
        self,
        parts: Sequence[Buffer],
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> Position:
        """All parts as one entry: all of them are there, or none."""
        terms = terms_of(timeout_s, entry_id, after, producer)
        return await run_async(self._line.through(lambda now, left: now.append_batch(parts, left), terms))

    def append_nowait(self, data: Buffer) -> Ticket:
        """Queue one entry, to be awaited; raises OperationTimeout, definite, when there is no room, or while `renew`
        is on its way to a new ledger."""
        appending = self._appending
        try:
            return self._queue_nowait(data)
        except UsageError as refused:
            if not self._line.has_left(appending):
                raise
            raise OperationTimeout(
                "the log is on its way to a new ledger; nothing was appended",
                definite=True,
                hint="await the appending call, which waits for it",
            ) from refused

    async def append_many(self, items: Sequence[Buffer], timeout_s: float | None = None) -> Appended:
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
        steps = ledger.append_arrow(batch, value, (key, timestamp, headers), timeout_s)
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
        await run_async(log.renew_as(self._line, ensemble_size, write_quorum, ack_quorum))

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


class LedgerReader(_Closing):
    """As `embedbk.LedgerReader`."""

    def __init__(self, reading: LedgerReading) -> None:
        self._reading = reading

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
        return _entries(self._reading.read_unconfirmed(first, last))

    def read(self, first: int = 0, last: int | None = None) -> AsyncIterator[Entry]:
        return _entries(self._reading.read(first, last))

    def read_batches(self, first: int = 0, last: int | None = None) -> AsyncIterator[Batch]:
        return _each(self._reading.read(first, last), batch_of)

    def record_batches(self, first: int = 0, last: int | None = None) -> AsyncIterator[Any]:
        return _each(self._reading.read(first, last), record_batch_maker())

    def close(self) -> None:
        self._reading.close()

    async def _leave(self, is_normal: bool) -> None:
        self.close()

    def __reduce__(self) -> Any:
        refuse_pickling(
            "a ledger reader", "send the client's url and the ledger id, and open the ledger there"
        )


class Consumer(_Closing):
    """As `embedbk.Consumer`: `async with` it, and `async for` over it."""

    def __init__(self, consuming: Consuming) -> None:
        self._consuming = consuming

    @property
    def epoch(self) -> int:
        return self._consuming.epoch

    @property
    def position(self) -> int:
        return self._consuming.position

    @property
    def committed(self) -> int:
        return self._consuming.committed

    async def commit(self) -> bool:
        """As `embedbk.Consumer.commit`."""
        return await run_async(self._consuming.commit())

    async def __aiter__(self) -> AsyncGenerator[Entry, None]:
        consuming = self._consuming
        consuming.again()
        while (located := await run_async(consuming.next())) is not None:
            for entry in entries_of(located):
                yield entry
                consuming.passed(entry)
                if consuming.needs_look and await run_async(consuming.look()):
                    break

    async def __aenter__(self) -> Self:
        await run_async(self._consuming.begin())
        return self

    async def _leave(self, is_normal: bool) -> None:
        if is_normal:
            await run_async(self._consuming.end())
        else:
            self._consuming.let_go()

    def __reduce__(self) -> Any:
        refuse_pickling("a consumer", "open the log there and call consume()")


class Cursor:
    """As `embedbk.Cursor`."""

    def __init__(self, cursoring: Cursoring) -> None:
        self._cursoring = cursoring

    @property
    def name(self) -> str:
        return self._cursoring.name

    async def get(self) -> CursorState:
        return await run_async(self._cursoring.get())

    async def set(self, place: Start = None, *, revision: int | None = None) -> CursorState:
        return await run_async(self._cursoring.set(place, revision))

    async def delete(self, *, revision: int | None = None) -> bool:
        return await run_async(self._cursoring.delete(revision))

    def consume(
        self, *, timeout_s: float | None = None, idle_s: float | None = None, commit_s: float = 1.0
    ) -> Consumer:
        """As `embedbk.Cursor.consume`."""
        return Consumer(Consuming(self._cursoring, timeout_s, idle_s, commit_s))

    def __reduce__(self) -> Any:
        refuse_pickling(
            "a cursor handle", "send the client's url and the names of log and cursor, and open it there"
        )


class LogReader(_Closing):
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


class Log:
    """As `embedbk.Log`."""

    def __init__(self, runtime: Runtime, name: str, password: Password) -> None:
        self.name = name
        self._runtime = runtime
        self._password = password
        self._reading = LogReading(runtime, name, password)

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
    ) -> Opening[LogWriter]:
        async def steps() -> LogWriter:
            given = WriterArguments(ensemble_size, write_quorum, ack_quorum, durability, digest, roll)
            opened = log.open_writer(
                self._runtime, self.name, self._password, given, placement, delays_change=delays_change
            )
            return LogWriter(self.name, await run_async(opened))

        return Opening(steps())

    def read(self, start: Start = None, end: Start = None) -> AsyncIterator[Entry]:
        return _entries(self._reading.read(start, end))

    def read_batches(self, start: Start = None, end: Start = None) -> AsyncIterator[Batch]:
        return _each(self._reading.read(start, end), batch_of)

    def record_batches(self, start: Start = None, end: Start = None) -> AsyncIterator[Any]:
        return _each(self._reading.read(start, end), record_batch_maker())

    async def end(self) -> int:
        return await run_async(self._reading.end())

    async def first_at(self, time: int | datetime) -> int:
        """As `embedbk.Log.first_at`."""
        return await run_async(self._reading.first_at(log.ms_of(time)))

    async def time_at(self, place: Position | int) -> int | None:
        return await run_async(self._reading.time_at(place))

    def reader(self, start: Place = "earliest") -> LogReader:
        """As `embedbk.Log.reader`."""
        return LogReader(BulkReading(self._reading, start))

    def tail(self, start: Start = None, *, idle_s: float | None = None) -> AsyncIterator[Entry]:
        check_seconds(idle_s, "idle_s")
        return _entries(self._reading.tail(start, idle_s))

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

    async def seal(self, reason: str) -> Seal:
        """As `embedbk.Log.seal`."""
        return await run_async(sealing.seal(self._reading, reason))

    async def sealed(self) -> Seal | None:
        return await run_async(sealing.sealed(self._reading))

    def __reduce__(self) -> Any:
        refuse_pickling("a log handle", "send the client's url and the log's name, and open it there")


T = TypeVar("T")
Given = TypeVar("Given")


async def _each(frames: AsyncGenerator[Given, None], make: Callable[[Given], T]) -> AsyncGenerator[T, None]:
    try:
        while True:
            try:
                located = await run_async(frames.__anext__())
            except StopAsyncIteration:
                return
            yield make(located)
    finally:
        await run_async(frames.aclose())


async def _entries(frames: AsyncGenerator[Located, None]) -> AsyncGenerator[Entry, None]:
    async for entries in _each(frames, entries_of):
        for entry in entries:
            yield entry
