"""The writer of a log, the blocking face: taking the log over, appending, going on in a next ledger (P8.1, P8.2).

Opens a writer by the log's settings, for both faces. Leaves to `passage` to which ledger an append goes, and to
`core.log` what a takeover does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from embedbk.client.appending import Appending
from embedbk.client.bounding import bound_of
from embedbk.client.creating import Traits, alike
from embedbk.client.ledger import append_arrow, queue_blocking
from embedbk.client.log_settings import (
    WriterArguments,
    adopt,
    renewal_quorum,
    resized,
    writer_terms,
)
from embedbk.client.owning import Owning
from embedbk.client.password import Password
from embedbk.client.placed import Appended
from embedbk.client.renewing import Succession
from embedbk.client.runtime import Runtime, refuse_pickling
from embedbk.client.tickets import PLAIN, AppendTerms, Ticket, all_acknowledged, terms_of
from embedbk.client.waiting import run_blocking
from embedbk.codec.arrow_rows import ArrowNames
from embedbk.codec.entry_records import EntryRecord
from embedbk.codec.packing import Buffer
from embedbk.config import NEVER_ROLL, Placement, Quorum, Roll, check_seconds
from embedbk.errors import EmbedbkError, MetadataUnavailable, UsageError
from embedbk.ids import Position

__all__ = ["LogWriter", "open_writer", "renew_as", "take_over"]

logger = logging.getLogger("embedbk.client.log")


async def take_over(
    runtime: Runtime,
    name: str,
    password: Password,
    quorum: Quorum,
    traits: Traits,
    roll: Roll = NEVER_ROLL,
) -> Succession:
    """Fence the earlier writer, close its ledgers, list a new one (P8.1)."""
    owning = Owning(runtime, name, password, quorum, traits)
    return Succession(owning, await owning.take_over(), roll)


async def open_writer(
    runtime: Runtime,
    name: str,
    password: Password,
    given: WriterArguments,
    placement: Placement | None,
    *,
    delays_change: bool,
) -> Succession:
    """Open a writer by the log's settings; where there are none, these arguments become the settings (P8.7)."""
    terms = await writer_terms(runtime, name, given, placement, delays_change=delays_change)
    line = await take_over(runtime, name, password, terms.quorum, terms.traits, terms.roll)
    try:
        if given.compression is None:
            # The setting is gone, and compression ends with it.
            line.own = alike(line.own._replace(compression=None))
        line.follows = terms.revision
        line.bound_by(bound_of(terms.record, terms.revision))
        line.roll_by(terms.roll)
        try:
            await adopt(runtime, line.owning.name, terms, line.taken.epoch)
        except EmbedbkError as failed:  # Then the next writer deals with them.
            logger.warning("log %r has no settings yet: %s", name, failed)
    except BaseException:
        line.release()  # Its caller was interrupted, and nobody else would ever let go of it.
        raise
    return line


async def renew_as(
    line: Succession, ensemble_size: int | None, write_quorum: int | None, ack_quorum: int | None
) -> None:
    """Renew; sizes that are given become the log's setting, where it has one."""
    runtime, name = line.owning.runtime, line.owning.name
    quorum = await renewal_quorum(runtime, name, ensemble_size, write_quorum, ack_quorum)
    await line.renew(quorum)
    if (ensemble_size, write_quorum, ack_quorum) != (None, None, None):
        try:
            await resized(runtime, name, quorum, line.taken.epoch)
        except EmbedbkError as failed:
            sizes = f"{quorum.ensemble_size}/{quorum.write_quorum}/{quorum.ack_quorum}"
            raise MetadataUnavailable(
                f"log {name!r} goes on in ledger {line.taken.ledger_id} of {sizes}, and these sizes may not be its "
                f"setting: {failed.args[0]}",
                hint="call it again, or its writer goes back to the sizes of the setting",
            ) from failed


class LogWriter:
    """The writer of a log, until another takes it over.

    Leaving its block normally waits for what was appended and closes its ledger; leaving by an exception releases it
    without touching cluster state, and the next writer recovers it.
    """

    __slots__ = ("__weakref__", "_line", "name")

    def __init__(self, name: str, line: Succession) -> None:
        self.name = name
        self._line = line

    @property
    def _appending(self) -> Appending:
        return self._line.appending

    @property
    def epoch(self) -> int:
        """The fencing token of this ownership: a later owner's is higher (P9.2)."""
        return self._line.taken.epoch

    @property
    def ledger_id(self) -> int:
        return self._appending.ledger_id

    @property
    def first_offset(self) -> int:
        """The dense offset of the first entry of this writer's current ledger."""
        return self._line.taken.first_offset

    @property
    def lac(self) -> int:
        """The last entry of this writer's ledger that is acknowledged; -1 before the first."""
        return self._appending.writing.lac

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC, of this writer's ledger."""
        return self._appending.writing.length

    @property
    def ensemble_changes(self) -> int:
        """How often a failed bookie was replaced under this writer."""
        return self._appending.writing.ensemble_changes

    def append(
        self,
        data: Buffer | EntryRecord,
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> Position:
        """Append one entry; return its position once it is durable on its ack quorum (P3.2, P3.3).

        Args:
            data: a payload; or, from level 15 of the cluster on, an `EntryRecord`: one with key, timestamp and headers.
            timeout_s: seconds for the whole call; None waits without end.
            entry_id: the id that the caller expects in the current ledger; any other is a UsageError, and nothing is
                appended, also when that ledger fails before the entry is in it.
            after: append only if this position stands last (as `last_position` gives it), else AppendConflict.
            producer: (id, sequence), sequences rising: what was appended under them already is answered with its old
                position, within the last 1000 of each producer; also when another writer appended it, if that stands
                within the last 10,000 entries before this writer and was not truncated.

        Raises:
            UsageError: not bytes, over the limit, not the expected id, or this handle was closed; nothing was appended.
            AppendConflict: something else stands last; nothing was appended.
            OperationTimeout: timeout_s passed; `definite` where nothing was sent, else `ticket` tells the fate.
            LogAtBound, always `definite`: the log has as many bytes as its settings allow; try again after its front is
                truncated. The call first waits for one look at the log, as all calls that append do.
            LedgerFenced: another process has the log now. NotEnoughBookies, MetadataUnavailable, LogFull: its ledger
                failed, and no next one could be made; otherwise a failed ledger is replaced, and the append goes to
                the next one (P8.2). `definite` says whether this entry certainly does not survive, else `ticket.fate()`
                tells, once the ledger is closed (P3.6).
            EntryUnreadable, NotEnoughBookies, MetadataUnavailable, Truncated, always `definite`: with producer=, the
                entries already in the log could not be read back; nothing was appended.
        """
        terms = terms_of(timeout_s, entry_id, after, producer)
        if terms is PLAIN:
            appending = self._line.appending
            try:
                return appending.append_blocking(data, "aio.LogWriter.append")
            except UsageError as refused:
                if not self._line.has_left(appending, refused):
                    raise
        steps = self._line.through(lambda now, left: now.append(data, left), terms)
        return run_blocking(steps, "aio.LogWriter.append")

    def append_batch(
        self,
        parts: Sequence[Buffer | EntryRecord],
        *,
        timeout_s: float | None = None,
        entry_id: int | None = None,
        after: Position | None = None,
        producer: tuple[int, int] | None = None,
    ) -> Position:
        """Append all parts as one entry: all of them are there, or none; readers get them by `Entry.parts`, or by
        `Entry.records` with their keys, timestamps and headers.

        The arguments and errors are those of `append`; the bounds are those of one entry, and 8192 parts.
        """
        terms = terms_of(timeout_s, entry_id, after, producer)
        steps = self._line.through(lambda now, left: now.append_batch(parts, left), terms)
        return run_blocking(steps, "aio.LogWriter.append_batch")

    @property
    def last_position(self) -> Position:
        """Position of the last entry that was queued; before the first one, of the last entry of earlier ledgers."""
        return self._appending.last_position

    def append_nowait(self, data: Buffer | EntryRecord) -> Ticket:
        """Queue one entry; blocks only while as many bytes are in flight as are allowed."""
        appending = self._line.appending
        try:
            return queue_blocking(appending, data, "aio.LogWriter.append")
        except UsageError as refused:
            if not self._line.has_left(appending, refused):
                raise

        async def queue(now: Appending, _: AppendTerms) -> Ticket:
            return Ticket(now, await now.queue(data))

        return run_blocking(self._line.through(queue, PLAIN), "aio.LogWriter.append")

    def append_many(self, items: Sequence[Buffer | EntryRecord], timeout_s: float | None = None) -> Appended:
        """Append all items as consecutive entries; returns when the last is durable.

        All are payloads; or the first is an `EntryRecord`, and the others are either.
        """
        terms = terms_of(timeout_s, None, None, None)
        steps = self._line.through(lambda now, left: now.append_many(items, left.timeout_s), terms)
        return run_blocking(steps, "aio.LogWriter.append_many")

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

        The arguments are those of `LedgerWriter.append_arrow`, the errors those of `append_many` and UsageError for
        what is no such data: then nothing was appended.
        """
        steps = append_arrow(batch, ArrowNames(value, key, timestamp, headers), timeout_s)
        line = self._line.through(
            lambda now, left: steps(now, left.timeout_s), terms_of(timeout_s, None, None, None)
        )
        return run_blocking(line, "aio.LogWriter.append_arrow")

    def renew(
        self,
        *,
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
    ) -> None:
        """Go over to a new ledger by taking the log over from ourselves: for other sizes, say, when there are more
        bookies than before (P8.1). Sizes that are left out are those of the log's settings; else 3/3/2, or 1/1/1 with
        fewer than three bookies. Sizes that are given become the setting, where the log has one.

        Appends of other threads wait meanwhile, and none fails; the earlier ledger is closed behind everything
        appended to it. `epoch`, `ledger_id` and `first_offset` are new afterwards.

        Raises:
            UsageError: the sizes are not allowed, or the writer was closed; nothing was changed.
            NotEnoughBookies: fewer than ensemble_size take entries now; nothing was changed.
            OperationTimeout: appends did not end, or the ledger is not closed yet: call it again.
            MetadataUnavailable that names the new ledger: it is there, and the sizes may not be the setting.
            LedgerFenced: another process has the log. Any other: the earlier ledger is closed and there is no new one:
                appends are refused, definitely, until this is called again.
        """
        run_blocking(renew_as(self._line, ensemble_size, write_quorum, ack_quorum), "aio.LogWriter.renew")

    def roll(self) -> None:
        """Go on in a next ledger of the same sizes, under the same epoch (P8.2); if the current one is empty, do
        nothing. The writer rolls by itself at the bounds that `Log.writer` was given.

        Appends go on: those to the next ledger are sent when all before them are durable. `ledger_id` and
        `first_offset` are new afterwards. The earlier ledger is closed behind, and no further roll begins before the
        metadata says so. Below the cluster's level 4 (`embedbk quorum raise`) it is done as `renew` does it.

        Raises:
            UsageError: the writer was closed; nothing was changed.
            NotEnoughBookies, MetadataUnavailable, LogFull: there is no next ledger; the writer stays with this one.
            OperationTimeout: the earlier ledger, or calls that append, did not end: call it again.
            LedgerFenced: another process has the log. Any other: the ledger failed before everything appended to it was
                durable: appends are refused, definitely, until `renew` is called.
        """
        run_blocking(self._line.roll(), "aio.LogWriter.roll")

    def lost(self, timeout_s: float | None = None) -> bool:
        """Wait until another process has the log (P8.4): True as soon as metadata or a bookie says so. False: nobody
        has taken it within timeout_s, or this writer was closed or released meanwhile. A process that takes a log
        says so before it fences: appends until then may still be acknowledged, before the other's first entry.

        Metadata that cannot be reached proves nothing: a process that does more for the log than append to it has to
            compare the epoch (P9.1).

        Raises:
            MetadataUnavailable: it cannot be followed now; nothing is known.
        """
        check_seconds(timeout_s, "timeout_s")
        return run_blocking(self._line.lost(timeout_s), "aio.LogWriter.lost")

    @property
    def durability(self) -> str:
        """What an append waits for: "synced" (disks of the ack quorum) or "deferred" (its memory; see `force`)."""
        return self._appending.durability

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until everything appended before is acknowledged as an append is; return the LAC."""
        return run_blocking(all_acknowledged(self._line.newest, timeout_s), "aio.LogWriter.flush")

    def force(self, timeout_s: float | None = None) -> int:
        """Wait until everything appended before is durable on its ack quorum, also with deferred sync (P3.2); return
        the LAC."""
        steps = all_acknowledged(self._line.newest, timeout_s, is_synced=True)
        return run_blocking(steps, "aio.LogWriter.force")

    def close(self) -> Position:
        """Wait for what was appended and close the ledger; return the position of its last entry."""
        of, last = run_blocking(self._line.close(), "aio.LogWriter.close")
        return Position(of.ledger_id, last)

    def release(self) -> None:
        """Let go of the log without touching cluster state; the next writer recovers it."""
        self._line.release()

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
        refuse_pickling("a log writer", "a log has one writer; open a writer there, which takes the log over")

    def __repr__(self) -> str:
        return f"LogWriter({self.name!r}, ledger {self.ledger_id}, lac {self.lac})"
