"""The writing handle of a ledger, for both faces: append, wait for the LAC, close, release (P3, P5.1).

Nothing here decides when something is acknowledged; `core.writer` does. What one append asks for, its ticket, and what
becomes of it stand in `tickets.py`; what precedes the handle's ledger in `past.py`; what an entry becomes in
the ledger in `stored_form.py`; an append on terms in `terms_append.py`, a call that appends many in `many_append.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from embedbk.client.disk_copies import wait_for_copies
from embedbk.client.many_append import Items, ManyAppend
from embedbk.client.past import NO_PAST, PRODUCERS_LOCK, Past, Tenure
from embedbk.client.placed import Appended, Heir, joined, move_outstanding
from embedbk.client.reading import Frames
from embedbk.client.runtime import Runtime
from embedbk.client.stored_form import as_record, batch_of, packer_of, records_of, run_of, stored
from embedbk.client.terms_append import front_is_done, queue_on
from embedbk.client.tickets import PLAIN, AppendTerms, Ticket, acknowledged, raise_failed
from embedbk.client.waiting import FutureResult, Moved, Passed, refuse_in_event_loop, run_async, run_blocking
from embedbk.codec.digest import DigestType
from embedbk.codec.entry_records import EntryRecord
from embedbk.codec.ledger_metadata import Durability
from embedbk.codec.log_settings import Compression
from embedbk.codec.packing import Buffer
from embedbk.config import check_seconds
from embedbk.core.end_recording import EndRecord
from embedbk.core.producers import Producers
from embedbk.core.writer import Writer
from embedbk.errors import EmbedbkError, LedgerClosed, OperationTimeout, UsageError
from embedbk.host.writing import HandedOver, LedgerOwner, Writing
from embedbk.ids import NO_ENTRY, Position
from embedbk.metadata.levels import LEVEL_OF_SUMS

__all__ = ["Appending"]

# Freed blocks are noticed at the latest after this: a socket's thread may free the last one.
_ROOM_POLL_S = 0.01


class Appending:
    """The creator's handle of one ledger: the logic under `LedgerWriter`, `LogWriter` and their aio twins.

    There may be very many of them, so what few need is made when it is needed.
    """

    __slots__ = (
        "_is_closing",
        "bar",
        "compression",
        "heir",
        "is_over",
        "ledger_id",
        "past",
        "runtime",
        "writing",
    )

    def __init__(
        self,
        runtime: Runtime,
        core: Writer,
        what: str = "",
        owner: LedgerOwner | None = None,
        mac_key: bytes = b"",
        compression: Compression | None = None,
    ) -> None:
        """what: how messages name the handle, if not by its log or ledger. owner: as `Writing` takes it.

        mac_key: the key of the ledger's tags, if it has any.
        """
        self.runtime = runtime
        # What stands before this ledger. Others read it.
        self.past = Past(what) if what else NO_PAST
        self.ledger_id = core.ledger_id
        self.compression = compression  # The compression of entries, used where that makes them smaller.
        packer = packer_of(runtime, core, compression, mac_key)
        self.writing = Writing(
            core, packer, runtime.wake_writing, owner, has_sums=runtime.has_level(LEVEL_OF_SUMS)
        )
        self.is_over = False  # Closed or released by its owner.
        self._is_closing = False  # The close is under way, and its outcome was not returned yet.
        # Not None: an append calls it first, and is refused with the error that it returns, or waits if it returns
        # None. Set at the end as well.
        self.bar: Callable[[], EmbedbkError | None] | None = None
        # Where this ledger failed: the next one, with what was outstanding. Set before any waiter is notified.
        self.heir: Heir | None = None
        runtime.start(self.writing)
        runtime.handles.look_after()

    def continue_behind(self, before: Position, history: Callable[[], Frames] | None) -> None:
        """This ledger follows others: `before` is the last position there, `history` reads the tail."""
        is_known = history is None  # Then nothing stands there.
        self.past = replace(self.past, before=before, history=history, are_producers_known=is_known)

    def continue_from(self, before: Appending, last_entry: int) -> None:
        """This ledger follows one of the same writer, which takes no more appends, and ends at last_entry."""
        past = before.past
        at = past.before if last_entry == NO_ENTRY else Position(before.ledger_id, last_entry)
        own = self.past
        with PRODUCERS_LOCK:
            # One object for both ledgers, also where an append to the first is noted only now.
            noted = before.producers
        self.past = replace(
            past,
            what=own.what,
            tenure=own.tenure,
            before=at,
            noted=noted,
            learning=None,
            bound=None,
        )

    def remember_producers_of(self, before: Appending) -> None:
        """This ledger follows one of the same writer. Where all that was appended there is in the log, the writer keeps
        what it knows of producers, however far back: the log itself may tell less of it (P3.1)."""
        if before.writing.lac == before.writing.packer.last_entry:
            with PRODUCERS_LOCK:
                self.past = replace(self.past, noted=before.producers)

    def belong_to(self, tenure: Tenure) -> None:
        """This ledger belongs to a log, which its owner has by this."""
        self.past = replace(self.past, tenure=tenure)

    @property
    def tenure(self) -> Tenure:
        """By what the ledger's log is its owner's. The ledger is one of a log."""
        assert self.past.tenure is not None
        return self.past.tenure

    @property
    def first_offset(self) -> int:
        """The offset of the ledger's entry 0 in its log; 0: it is in none."""
        return 0 if self.past.tenure is None else self.past.tenure.first_offset

    @property
    def epoch(self) -> int | None:
        """The epoch of the log's owner; None: the ledger is in no log."""
        return None if self.past.tenure is None else self.past.tenure.epoch

    def begin_times(self, floor_ms: int) -> None:
        """Give entries times, none below floor_ms, the time of the entry before them (P8.11). Call it before the first
        append."""
        now_ms = self.runtime.told_ms
        if now_ms is None and self.writing.metadata.digest != DigestType.CRC32C:
            now_ms = self.runtime.wall_ms
        self.writing.packer.begin_times(floor_ms, now_ms)

    # Moving to a next ledger after a failure (P8.2).

    def now(self, entry_id: int) -> tuple[Appending, int]:
        """The handle and the id that an entry queued here has by now, if it was not lost."""
        handle = self
        while (heir := handle.heir) is not None and (moved := heir.moved(entry_id)) is not None:
            handle, entry_id = heir.appending, moved
        return handle, entry_id

    def hand_over_to(self, following: Appending, last_entry: int, *, front: Appending | None = None) -> bool:
        """The ledger failed, and certainly ended there: move what is outstanding behind that end to the next ledger, to
        which nobody else appends yet, once and in order, ahead of all later appends. False: the handle was released
        meanwhile, so its outstanding appends have failed.

        front: the handle before this one, which was handed over just now.
        """
        packer, following_packer = self.writing.packer, following.writing.packer
        refused = self.past.refused(last_entry, follows_refused=front is not None and front.has_refused_last)
        first = following_packer.last_entry + 1
        if not move_outstanding(self.writing, following_packer, last_entry, refused):
            return False
        heir = Heir(following, last_entry, tuple(refused), first)
        following.past.remember(self.ledger_id, heir)
        self.heir = heir
        # A call whose rest is still to come keeps its turn there (P3.1). A call that gives up meanwhile does so here,
        # then there.
        following_packer.hold_for(packer.held_by)
        if packer.held_by == 0:
            following_packer.hold_for(0)
        return True

    @property
    def has_refused_last(self) -> bool:
        """Whether the last entry that it took is in no ledger, by its condition."""
        heir = self.heir
        return heir is not None and heir.refused[-1:] == (self.writing.packer.last_entry,)

    async def is_reached(self, following: Appending) -> bool:
        """Wait until all that was appended here is done, so that what is appended to the ledger that follows is sent.
        False: this handle ended before."""
        writing, behind = self.writing, following.writing

        def is_settled() -> bool:
            return behind.behind is None or writing.failure is not None or writing.error is not None

        await Moved(writing.signal, is_settled)
        return behind.behind is None

    @property
    def what(self) -> str:
        """How messages name the handle."""
        past = self.past
        if past.tenure is not None:
            return f"the writer of log {past.tenure.owning.name!r}"
        return past.what or f"the writer of ledger {self.ledger_id}"

    @property
    def producers(self) -> Producers:
        """The producers whose appends are known. The caller holds PRODUCERS_LOCK."""
        if self.past is NO_PAST:
            self.past = Past()
        return self.past.producers

    @property
    def last_position(self) -> Position:
        """The position of the last entry that was queued; before the first one, the last position of the ledgers in
        front."""
        last = self.writing.packer.last_entry
        before = self.past.before
        return Position(self.ledger_id, last) if last != NO_ENTRY or before is None else before

    @property
    def lac(self) -> int:
        return self.writing.lac

    @property
    def durability(self) -> str:
        """What an append waits for: "synced" or "deferred" (P3.2)."""
        return Durability(self.writing.metadata.durability).name.lower()

    # Appending. Payloads are copied before a call returns.

    def shut_out(self, bar: Callable[[], EmbedbkError | None]) -> None:
        """Appends ask this first from now on: it returns why they are refused, or None where they may wait for that to
        end."""
        if not self.is_over:
            self.bar = bar

    def let_in(self) -> None:
        if not self.is_over:
            self.bar = None

    def refuse(self) -> NoReturn:
        """The handle is over, or another process's: raises why it takes no appends."""
        self.runtime.check()
        raise UsageError(
            f"{self.what} was closed or released; nothing was appended", hint="open a new writer to append"
        )

    def is_barred(self, *, has_begun: bool = False) -> bool:
        """Whether an append is to wait. Raises why it is refused. has_begun: a part of the call is queued."""
        if self.is_over or self.runtime.is_forked:
            self.refuse()
        bar = self.bar
        if bar is None or self.writing.packer.is_stopped:  # The caller finds it stopped, and then the reason.
            return False
        refused = bar()
        if refused is None:
            return True
        if has_begun and isinstance(refused, HandedOver):
            return False  # The next ledger waits for the rest of this call.
        raise refused

    def try_append(self, data: Buffer | EntryRecord) -> int:
        """Queue one entry: its id, or NO_ENTRY when so much is in flight that the caller must wait for room.

        Raises:
            UsageError: not bytes, over the limit, or the handle was closed; nothing was queued.
            EmbedbkError: what ended the handle, or keeps it from appending now; definite, as nothing of this was sent.
        """
        if (self.bar is not None or self.runtime.is_forked) and self.is_barred():
            return NO_ENTRY
        if isinstance(data, EntryRecord):
            return self.writing.try_append_with(*stored(self, data), -1, [])
        return self.writing.try_append(data)

    async def queue(self, data: Buffer | EntryRecord, told: list[int] | None = None) -> int:
        """Queue one entry, waiting for room. It is compressed once, however long that takes. told: gets the id as the
        entry is queued."""
        told = [] if told is None else told
        is_barred = (self.bar is not None or self.runtime.is_forked) and self.is_barred()
        as_stored = stored(self, data)
        while True:
            entry_id = NO_ENTRY if is_barred else self.writing.try_append_with(*as_stored, -1, told)
            if entry_id != NO_ENTRY:
                return entry_id
            await self.room()
            is_barred = (self.bar is not None or self.runtime.is_forked) and self.is_barred()

    async def queue_many(self, items: Sequence[Buffer | EntryRecord], until_s: float = math.inf) -> Appended:
        """Queue all items as consecutive entries, waiting for room; no object per entry is made. Other appends wait
        until all are queued: the range is known by its first id and its count alone (P3.1).

        Items after a refused one, and the rest when the handle fails or the time is over half-way, are not queued.
        """
        if self.is_over or self.runtime.is_forked:
            self.refuse()
        return await ManyAppend(self, until_s).queue(run_of(self, items))

    def try_append_many(self, items: Items, caller: int, *, has_begun: bool = False) -> tuple[int, int]:
        """Queue as many of the items as have room: the first id, and how many. For `ManyAppend`: caller is the number
        of its call, and has_begun says whether a part of it is queued."""
        if self.bar is not None and not self.is_over and self.is_barred(has_begun=has_begun):
            return NO_ENTRY, 0
        return self.writing.try_append_many(items, caller)

    async def room(self) -> None:
        """Wait for some of what is in flight to be released, or for the handle to fail; a while at most."""
        packer, writing = self.writing.packer, self.writing
        before = packer.unreleased_bytes
        has_room = Moved(
            writing.signal,
            lambda: (
                writing.error is not None or writing.failure is not None or packer.unreleased_bytes < before
            ),
            _ROOM_POLL_S,
        )
        await has_room

    # One entry without any terms, in both faces: nearly every append, so no more steps than it takes.

    def append_blocking(self, data: Buffer | EntryRecord, aio_twin: str) -> Position:
        """As `append`, blocking this thread."""
        refuse_in_event_loop(aio_twin)
        entry_id = self.try_append(data)
        if entry_id == NO_ENTRY:
            return run_blocking(self.append(data), aio_twin)
        try:
            self.block(entry_id)
        except BaseException as stopped:
            self._tell_stopped(stopped, entry_id)
            raise
        if not self.writing.is_received(entry_id):
            return self._follow_blocking(entry_id, aio_twin)
        return Position(self.ledger_id, entry_id)

    def _follow_blocking(self, entry_id: int, aio_twin: str) -> Position:
        """The entry is not in this ledger: it is in the next one, or nowhere."""
        try:
            return run_blocking(acknowledged(self, entry_id), aio_twin)
        except EmbedbkError:
            raise
        except BaseException as stopped:
            self._tell_stopped(stopped, entry_id)
            raise

    def block(self, entry_id: int) -> None:
        """Block until the entry is settled. Where C counts the answers it wakes this thread, without a turn of the
        host's thread."""
        if not (self.writing.is_received(entry_id) or self.writing.wait_locally(entry_id)):
            Passed(self.writing, entry_id).wait()

    async def append_awaited(self, data: Buffer | EntryRecord) -> Position:
        """As `append`, as part of the running task."""
        entry_id = self.try_append(data)
        if entry_id == NO_ENTRY:
            return await run_async(self.append(data))
        writing = self.writing
        future = writing.future(entry_id)
        if future is not None:
            try:
                await future
            except BaseException as stopped:
                writing.forget(future)
                self._tell_stopped(stopped, entry_id)
                raise
        if not writing.is_received(entry_id):
            return await self._follow_awaited(entry_id)
        return Position(self.ledger_id, entry_id)

    async def _follow_awaited(self, entry_id: int) -> Position:
        """As `_follow_blocking`, awaited."""
        try:
            return await run_async(acknowledged(self, entry_id))
        except EmbedbkError:
            raise
        except BaseException as stopped:
            self._tell_stopped(stopped, entry_id)
            raise

    async def append(
        self,
        data: Buffer | EntryRecord,
        terms: AppendTerms = PLAIN,
        part_ends: Sequence[int] = (),
        records: bytes = b"",
    ) -> Position:
        """Append one entry and wait until it is acknowledged. A cancelled or interrupted caller gets the exception with
        a `ticket` for the queued entry, None when nothing was queued."""
        entry_id = NO_ENTRY
        told: list[int] = []  # The id that it is queued under, whatever stops this call then.
        until_s = math.inf if terms.timeout_s is None else self.runtime.clock_s() + terms.timeout_s
        try:
            if terms is PLAIN and not part_ends:
                entry_id = await self.queue(data, told)
            else:
                record = as_record(data)
                value, records = record.value, records or records_of(self, [record])
                placed = await queue_on(self, terms, value, part_ends, records, until_s, told)
                if placed.ledger_id != self.ledger_id:
                    await front_is_done(self, terms.timeout_s, until_s)
                    return placed  # Appended before, in a ledger that is closed by now, or about to be.
                entry_id = placed.entry_id
            left_s = None if terms.timeout_s is None else max(0.0, until_s - self.runtime.clock_s())
            return await acknowledged(self, entry_id, left_s)
        except EmbedbkError:
            raise
        except BaseException as stopped:
            self._tell_stopped(stopped, told[0] if told else entry_id)
            raise

    def _tell_stopped(self, stopped: BaseException, entry_id: int) -> None:
        """The caller was cancelled or interrupted: add to the exception what may still happen."""
        was_queued = entry_id != NO_ENTRY
        stopped.ticket = Ticket(self, entry_id) if was_queued else None  # type: ignore[attr-defined]
        stopped.add_note(
            f"{self.what}: entry {entry_id} was queued and may survive; `ticket` tells its fate"
            if was_queued
            else f"{self.what}: nothing was appended"
        )

    async def append_batch(
        self, parts: Sequence[Buffer | EntryRecord], terms: AppendTerms = PLAIN
    ) -> Position:
        """All parts as one entry: all of them are there, or none."""
        payload, part_ends, records = batch_of(self, parts)
        return await self.append(payload, terms, part_ends, records)

    async def append_many(
        self, items: Sequence[Buffer | EntryRecord], timeout_s: float | None = None
    ) -> Appended:
        check_seconds(timeout_s, "timeout_s")
        until_s = math.inf if timeout_s is None else self.runtime.clock_s() + timeout_s
        appended = await self.queue_many(items, until_s)
        if not appended.entry_count:
            return appended
        left_s = None if timeout_s is None else max(0.0, until_s - self.runtime.clock_s())
        handle = self
        while handle.ledger_id != appended.ledger_id:  # Its last part was queued in a later ledger.
            assert handle.heir is not None
            handle = handle.heir.appending
        try:
            await acknowledged(handle, appended.last_entry, left_s)
        except EmbedbkError as failed:
            # The error of the last one, which may be in no ledger while the first ones are in one.
            began_on, entry_id = self.now(appended.parts[0].first_entry)
            failed.definite = failed.definite and began_on.lac < entry_id
            raise
        if self.heir is None:
            return appended
        return joined(self, appended)

    async def on_disks(self, entry_id: int, copies: int, timeout_s: float | None) -> int:
        """Wait until so many bookies hold the entry durably; return how many do, at least (`Ticket.at_least`)."""
        return await wait_for_copies(self, entry_id, copies, timeout_s)

    # Ending.

    async def close(self) -> int:
        """Wait for what was queued, close the ledger behind it (P5.1); return its last entry. May be called twice:
        after OperationTimeout it waits again."""
        if self.is_over and not self._is_closing:
            return self.lac
        if not self.is_over:
            self.leave()
        return await self.close_behind()

    def leave(self) -> None:
        """Take no more appends; queued entries are still sent, until `close_behind`."""
        self.runtime.check()
        self._end_use()
        if self.writing.packer.open_count():
            self.runtime.wake_writing(self.writing)  # Its last frame grows no more, and waits for nothing.

    async def drained(self) -> bool:
        """Wait until all that was queued before `leave` is on the disks of its ack quorum. False: the handle failed,
        and the outcome of its entries is not decided yet. Raises their error otherwise."""
        writing, last = self.writing, self.writing.packer.last_entry
        if last != NO_ENTRY:
            await Moved(writing.signal, lambda: writing.is_synced(last) or writing.failure is not None)
            if writing.error is not None and writing.lac < last:
                raise_failed(self, last)
        return writing.failure is None

    async def close_behind(self, end: EndRecord | None = None) -> int:
        """After `leave`: close the ledger behind what was queued; return its last entry. After OperationTimeout, call
        it again. end: as `ClientNode.close_writing` takes it."""
        if not self._is_closing:
            self._is_closing = True
            if self.writing.failure is None:
                self.writing.on_failed = None  # Nothing is outstanding, so no next ledger is needed.
            node, writing = self.runtime.node, self.writing
            self.runtime.call(lambda: node.close_writing(self.runtime.now_ns(), writing, end))
        limit = self.runtime.settings.operation_timeout_s
        try:
            last: int = await FutureResult(self.writing.closed, limit, f"closing {self.what}")
        except OperationTimeout:
            raise
        except EmbedbkError:
            self._is_closing = False
            raise
        self._is_closing = False
        return last

    def let_go(self) -> None:
        """As `release`, where what it took goes to another handle: nothing of it fails."""
        self.runtime.call_if_open(lambda: self.runtime.node.release(self.writing))

    def release(self) -> None:
        """Let go without touching cluster state: the next opener recovers the ledger. May be called twice."""
        if not self.is_over:
            self._end_use()
            self.abandon()

    def abandon(self) -> None:
        """As `release`, also behind `leave`: what is outstanding fails."""
        self.runtime.call_if_open(self._release)

    def _end_use(self) -> None:
        self.is_over = True
        self.bar = _over
        self.writing.packer.stop()
        if self.past.learning is not None:
            self.past.learning.end()

    def _release(self) -> None:
        self.runtime.node.release(self.writing)
        self.writing.fail(
            LedgerClosed(
                f"{self.what} was released; adds in flight may or may not survive",
                hint="open the ledger with recover=True, or take the log over, to learn what survived",
            )
        )


def _over() -> None:
    """The bar of a handle that is over; the handle itself refuses."""
