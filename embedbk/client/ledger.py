"""Ledgers, the blocking face: write and read (P3, P5, P6).

Writers and readers are different classes. Their logic stands in `appending` and `reading`, how a ledger is made in
`creating`; `aio` has the same names, awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from embedbk.client.appending import Appending
from embedbk.client.batches import Batch, Entry, batch_of, entries_of
from embedbk.client.iterating import iterate
from embedbk.client.placed import Appended
from embedbk.client.reading import LedgerReading
from embedbk.client.record_batches import RecordBatches
from embedbk.client.runtime import refuse_pickling
from embedbk.client.tickets import PLAIN, Ticket, all_acknowledged, terms_of
from embedbk.client.waiting import run_blocking
from embedbk.codec.arrow_columns import rows_of
from embedbk.codec.arrow_rows import ArrowNames
from embedbk.codec.entry_records import EntryRecord
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.packing import Buffer
from embedbk.config import check_seconds
from embedbk.ids import Position

__all__ = ["LedgerReader", "LedgerWriter", "append_arrow", "queue_blocking"]


class LedgerWriter:
    """The one writer of a ledger that it created.

    Leaving its block normally waits for what was added and closes the ledger; leaving by an exception releases it
    without touching cluster state, and the next opener recovers it.
    """

    __slots__ = ("__weakref__", "_appending")

    def __init__(self, appending: Appending) -> None:
        self._appending = appending

    @property
    def ledger_id(self) -> int:
        return self._appending.ledger_id

    @property
    def lac(self) -> int:
        """Last add confirmed: the last entry that this handle knows to be durable; -1 before the first."""
        return self._appending.writing.lac

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC."""
        return self._appending.writing.length

    def add(
        self,
        data: Buffer | EntryRecord,
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Add one entry; return its id once it is durable on its ack quorum (P3.2, P3.3).

        Args:
            data: a payload; or, from level 15 of the cluster on, an `EntryRecord`: one with key, timestamp and headers.
            timeout_s: seconds for the whole call; None waits without end.
            entry_id: the id that the caller expects; any other is a UsageError, and nothing is added.
            after: append only if this position stands last (as `last_position` gives it), else AppendConflict.
            producer: (id, sequence), sequences rising: an entry that was already added under them is not added again,
                and its old position is returned, also when another writer added it; the last 1000 of each producer are
                known.

        Raises:
            UsageError: not bytes, over the limit, not the expected id, or this handle was closed; nothing was added.
            AppendConflict: something else stands last; nothing was added.
            OperationTimeout: timeout_s passed; `definite` where nothing was sent, else `ticket` tells the fate.
            LedgerFenced, LedgerClosed, NotEnoughBookies: the handle failed; `definite` is True where this entry
                certainly does not survive, else `ticket.fate()` reports it, once the ledger is closed (P3.6).
        """
        terms = terms_of(timeout_s, entry_id, after, producer)
        if terms is PLAIN:
            return self._appending.append_blocking(data, "aio.LedgerWriter.add").entry_id
        steps = self._appending.append(data, terms)
        return run_blocking(steps, "aio.LedgerWriter.add").entry_id

    def add_batch(
        self,
        parts: Sequence[Buffer | EntryRecord],
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Add all parts as one entry: all of them are there, or none; readers get them by `Entry.parts`, or by
        `Entry.records` with their keys, timestamps and headers.

        The arguments and errors are those of `add`; the bounds are those of one entry, and 8192 parts.
        """
        terms = terms_of(timeout_s, entry_id, after, producer)
        steps = self._appending.append_batch(parts, terms)
        return run_blocking(steps, "aio.LedgerWriter.add_batch").entry_id

    @property
    def last_position(self) -> Position:
        """Position of the last entry that was queued; before the first one, an entry id of -1."""
        return self._appending.last_position

    def add_nowait(self, data: Buffer | EntryRecord) -> Ticket:
        """Queue one entry; blocks only while as many bytes are in flight as are allowed."""
        return queue_blocking(self._appending, data, "aio.LedgerWriter.add")

    def add_many(self, items: Sequence[Buffer | EntryRecord], timeout_s: float | None = None) -> Appended:
        """Add all items as consecutive entries; returns when the last is durable.

        All are payloads; or the first is an `EntryRecord`, and the others are either.
        """
        return run_blocking(self._appending.append_many(items, timeout_s), "aio.LedgerWriter.add_many")

    def append_arrow(
        self,
        batch: Any,
        value: str = "value",
        key: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Appended:
        """Append each row of a column of Arrow data as an entry, in order; returns when the last is durable.

        The bytes go from Arrow's buffers straight into frames: no object is made for a row, and pyarrow is not needed.

        Args:
            batch: anything with `__arrow_c_array__` or `__arrow_c_stream__`: record batches, tables and arrays of
                pyarrow, data frames and series of polars, or a stream, all of which is taken; sliced ones, too.
            value: the name of the column; ignored where batch is one column by itself. Binary or string, plain, large
                or as views.
            key, timestamp, headers: names of the columns with these for each value (`EntryRecord`); null: the record
                has none. key: as value. timestamp: int64 with ms since 1970, or an Arrow timestamp, fractions of a ms
                left off. headers: a map, or a list of structs of two, of names to values.

        Raises:
            UsageError: no such data or column, a null value, a record that no entry can hold, a cluster whose level
                does not allow keys yet; nothing was appended.
            The other errors of `add`.
        """
        steps = append_arrow(batch, ArrowNames(value, key, timestamp, headers), timeout_s)
        return run_blocking(steps(self._appending, timeout_s), "aio.LedgerWriter.append_arrow")

    @property
    def durability(self) -> str:
        """What an add waits for: "synced" (disks of the ack quorum) or "deferred" (its memory; see `force`)."""
        return self._appending.durability

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until everything added before is acknowledged as an add is; return the LAC."""
        return run_blocking(all_acknowledged(self._appending, timeout_s), "aio.LedgerWriter.flush")

    def force(self, timeout_s: float | None = None) -> int:
        """Wait until everything added before is durable on its ack quorum, also with deferred sync (P3.2); return the
        LAC."""
        steps = all_acknowledged(self._appending, timeout_s, is_synced=True)
        return run_blocking(steps, "aio.LedgerWriter.force")

    def close(self) -> int:
        """Wait for what was added and close the ledger (P5.1); return its last entry, -1 when it is empty."""
        return run_blocking(self._appending.close(), "aio.LedgerWriter.close")

    def release(self) -> None:
        """Let go of the ledger without touching cluster state; the next opener recovers it."""
        self._appending.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.release()

    def __reduce__(self) -> Any:
        refuse_pickling(
            "a ledger writer", "a ledger has one writer; send its ledger_id and open it for reading"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(ledger {self.ledger_id}, lac {self.lac})"


class LedgerReader:
    """A ledger opened for reading: a closed one to its last entry, an open one up to its LAC (P6.1, P6.2)."""

    def __init__(self, reading: LedgerReading) -> None:
        self._reading = reading
        reading.show()

    @property
    def ledger_id(self) -> int:
        return self._reading.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """All the cluster knows of the ledger, as the watch shows it."""
        return self._reading.metadata

    @property
    def is_closed(self) -> bool:
        return self._reading.is_closed

    @property
    def last_entry(self) -> int | None:
        """The last entry of a closed ledger, -1 when it is empty; None while it is not closed."""
        return self._reading.metadata.last_entry

    @property
    def length(self) -> int | None:
        """Payload bytes of a closed ledger; None while it is not closed."""
        return self._reading.metadata.length

    def last_add_confirmed(self) -> int:
        """Ask the bookies how far the ledger may be read now; its last entry when it is closed (P6.2).

        Raises NotEnoughBookies when too few bookies answer; the message has the answer of each.
        """
        return run_blocking(self._reading.limit(), "aio.LedgerReader.last_add_confirmed")

    def try_last_add_confirmed(self) -> int:
        """As `last_add_confirmed`, but the first bookie that knows more than this reader is enough (CL26)."""
        return run_blocking(self._reading.try_limit(), "aio.LedgerReader.try_last_add_confirmed")

    def read_last(self) -> Entry:
        """The last entry that may be read now.

        Raises NoSuchEntry while there is none, and what `read` raises.
        """
        located = run_blocking(self._reading.last(), "aio.LedgerReader.read_last")
        return next(entries_of(located))

    def read_unconfirmed(self, first: int = 0, last: int | None = None) -> Iterator[Entry]:
        """As `read`, beyond what is acknowledged: as far as any bookie holds entries, and no further than last.

        What it shows above the LAC may never be acknowledged, and may be gone after the ledger's recovery (P6.3).
        """
        located = self._reading.read_unconfirmed(first, last)
        for each in iterate(located, "aio.LedgerReader.read_unconfirmed"):
            yield from entries_of(each)

    def read(self, first: int = 0, last: int | None = None, *, skip_lost: bool = False) -> Iterator[Entry]:
        """The entries first..last, both included, in entry order; last None: as far as may be read now.

        skip_lost: go on behind entries that are lost for good (P11.5); else it ends there with `Lost`, whose
            `next_offset` is the next entry.

        Raises:
            Lost: an operator gave up what comes next.
            UsageError: this is no range, or it passes what may be read.
            EntryUnreadable: no bookie of the write set gave a copy with a valid digest.
        """
        frames = self._reading.read(first, last, skip_lost=skip_lost)
        for located in iterate(frames, "aio.LedgerReader.read"):
            yield from entries_of(located)

    def read_batches(
        self, first: int = 0, last: int | None = None, *, skip_lost: bool = False
    ) -> Iterator[Batch]:
        """As `read`, but as buffers, without an object per entry."""
        frames = self._reading.read(first, last, skip_lost=skip_lost)
        for located in iterate(frames, "aio.LedgerReader.read_batches"):
            yield batch_of(located)

    def record_batches(
        self, first: int = 0, last: int | None = None, *, with_records: bool = False, skip_lost: bool = False
    ) -> RecordBatches:
        """As `read`, but as Arrow record batches (`embedbk.arrow.SCHEMA`), whose columns lie in those buffers: to
        iterate, or as one stream: `pyarrow.table(ledger.record_batches())`.

        with_records: also key, timestamp and headers (`embedbk.arrow.SCHEMA_WITH_RECORDS`). A batch in which no record
        has any costs nothing extra; in the others an object is made for each row.

        Raises UsageError where pyarrow is not installed.
        """
        located = self._reading.read(first, last, skip_lost=skip_lost)
        frames = iterate(located, "aio.LedgerReader.record_batches")
        return RecordBatches(frames, with_records=with_records)

    def close(self) -> None:
        self._reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        refuse_pickling(
            "a ledger reader", "send the client's url and the ledger id, and open the ledger there"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(ledger {self.ledger_id})"


def append_arrow(
    batch: Any, names: ArrowNames, timeout_s: float | None
) -> Callable[[Appending, float | None], Coroutine[Any, Any, Appended]]:
    """A function that appends the rows of this data to a handle, in the time that is left. Checks the data
    first."""
    check_seconds(timeout_s, "timeout_s")
    rows = rows_of(batch, names)
    return lambda now, left_s: now.append_many(rows, left_s)


def queue_blocking(appending: Appending, data: Buffer | EntryRecord, aio_twin: str) -> Ticket:
    entry_id = appending.try_append(data)
    if entry_id < 0:
        entry_id = run_blocking(appending.queue(data), aio_twin)
    return Ticket(appending, entry_id)
