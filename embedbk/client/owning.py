"""What the owner of a log does: it takes the log over, lists its next ledger, records where the last one ended (P8.1,
P8.2).

Decides which ledgers, times and producers the handle of each ledger takes over from those in front of it, and what a
lost ledger means to the writer of a log. Which ledger an append goes to, `passage` decides.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from embedbk.client.appending import Appending
from embedbk.client.creating import Traits, alike, begin_writing, patience_with
from embedbk.client.entry_times import last_time
from embedbk.client.living import writer_name
from embedbk.client.log_identity import claim
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.past import Tenure
from embedbk.client.reading import Frames
from embedbk.client.runtime import Runtime
from embedbk.client.splice_requests import living
from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import Durability
from embedbk.codec.log_list import Begun, LogList, decode_log_list, encode_log_list, log_key_path
from embedbk.codec.log_settings import Compression
from embedbk.codec.metadata_messages import Compare, Get, Value
from embedbk.config import METADATA_VALUE_BYTES_MAX, Quorum
from embedbk.core.dropping import Dropping
from embedbk.core.end_recording import EndRecord
from embedbk.core.leaving import Leaving
from embedbk.core.log import LogMoved, LogTakeover
from embedbk.core.log_listing import NewLedger, TakenOver
from embedbk.core.log_paging import last_position, recorded_bytes
from embedbk.core.log_replacing import LogReplacing
from embedbk.core.log_rolling import LogPreparing, LogRecording
from embedbk.core.log_splicing import LogSplicing, Splice, Spliced
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import (
    EmbedbkError,
    LedgerClosed,
    LedgerFenced,
    LogSealed,
    NoSuchLedger,
    StorageError,
    Truncated,
)
from embedbk.host.awaited import Awaited
from embedbk.host.operations import OneResult
from embedbk.host.signal import Signal
from embedbk.ids import NO_ENTRY, NO_POSITION, Position
from embedbk.metadata.levels import LEVEL_OF_LOGS, LEVEL_OF_PAGES, LEVEL_OF_SPLICES, LEVEL_OF_TIMES

__all__ = ["Joined", "Owned", "Owning"]

logger = logging.getLogger(__name__)

_MOVES_MAX = 20  # The log was renamed or deleted so often while it was to be taken over.
_PRODUCER_ENTRIES_MAX = 10_000  # Read back by a new writer to learn who produced what.
_LIST_TELL = 0.8  # A list of ledgers that has used so much of its bytes is logged at each takeover.


class Owned(NamedTuple):
    """A log that this process took over just now: its list, and the handle of its newest ledger."""

    taken: TakenOver
    appending: Appending


class Joined(NamedTuple):
    """Ledgers spliced in when the log is taken over from its own writer, and the time at which they came to it."""

    splice: Splice
    spliced_ms: int


@dataclass(frozen=True, slots=True)
class _Tail:
    """Reads the log from begin to end when it is called. One that holds the reading would be as large as half of an
    idle writer."""

    owning: Owning
    begin: int
    end: int

    def __call__(self) -> Frames:
        owning = self.owning
        reading = LogReading(owning.runtime, owning.name, owning.password)
        return _what_is_left(reading, self.begin, self.end)


@functools.cache
def _handing_over(options: WriterOptions) -> WriterOptions:
    """The same for a ledger that another one follows: one object for all writers with these options."""
    return replace(options, hands_over=True)


class Owning:
    """One log, as one writer owns it. quorum: of the ledgers to come."""

    __slots__ = (
        "_given",
        "_recorded",
        "_splicing",
        "_word",
        "is_lost",
        "lost_ns",
        "name",
        "password",
        "quorum",
        "runtime",
        "signal",
        "traits",
    )

    def __init__(
        self, runtime: Runtime, name: str, password: Password, quorum: Quorum, traits: Traits
    ) -> None:
        self.runtime = runtime
        self._given = name
        self.name = name  # Its id, once it was taken over (P8.12).
        self.quorum = alike(quorum)
        self.password = password
        self.traits = traits
        self._recorded: tuple[LogList, int] | None = None  # The list as `record` put it, and its revision.
        self._splicing: LogSplicing | None = None  # The last one.
        self._word = b""  # Identifies an epoch that we put, until its outcome is known.
        self.is_lost = False  # Somebody else has the log; and it was noted.
        self.lost_ns = 0  # When.
        self.signal: Signal | None = None  # Notified once when it is lost, on any thread.

    def has_put(self, owner: bytes | None) -> bool:
        """Whether this value is of an epoch that we put, and whose outcome we did not receive."""
        return bool(self._word) and owner == self._word

    def write_by(self, durability: Durability, digest: DigestType, compression: Compression | None) -> None:
        """How the ledgers to come are written."""
        changed = self.traits._replace(durability=durability, digest=digest, compression=compression)
        self.traits = alike(changed)

    @property
    def can_prepare(self) -> bool:
        """A ledger may be listed while writes go on in the one before (P10.8)."""
        return self.runtime.has_level(LEVEL_OF_LOGS)

    async def take_over(self, renews: int | None = None, joined: Joined | None = None) -> Owned:
        """Fence the writer before, close its ledgers, list a new one (P8.1). renews: as `LogTakeover` takes it. joined:
        ledgers spliced in front of the new one, by an owner that renews; `spliced` returns the outcome."""
        runtime = self.runtime
        runtime.check()
        if renews is not None:
            return await self._take_over(renews, joined, ())
        for left in reversed(range(_MOVES_MAX)):
            claimed = await claim(runtime, self._given)
            assert claimed is not None  # It is made where it is not there.
            self.name = claimed.log_id
            try:
                return await self._take_over(None, joined, claimed.guard)
            except LogMoved:
                if not left:
                    raise
        raise AssertionError("the last try raises")

    async def _take_over(
        self, renews: int | None, joined: Joined | None, guard: tuple[Compare, ...]
    ) -> Owned:
        runtime = self.runtime
        owner = runtime.owner().encode()
        if runtime.has_level(LEVEL_OF_SPLICES):
            owner += await living(runtime)
        if renews is not None:
            self._word = self._word or b"%s %016x" % (owner, runtime.chance.getrandbits(64))
            owner = self._word
        new = await self._new(Begun.TAKEOVER if renews is None else Begun.REQUEST)
        if joined is not None:
            new = new._replace(created_ms=max(new.created_ms, joined.spliced_ms))
        terms = (self.name, owner, new, self.password.key, runtime.bookies, runtime.new_chance())
        losses, mac_key = runtime.contending.losses(self.name, runtime.now_ns()), self.password.mac_key
        if joined is None:
            core = LogTakeover(*terms, mac_key=mac_key, losses=losses, renews=renews, guard=guard)
        else:
            core = self._splicing = LogSplicing(
                *terms, joined.splice, mac_key=mac_key, losses=losses, renews=renews, lists_next=True
            )
        began_s = runtime.clock_s()
        try:
            taken: TakenOver = await runtime.run(core, f"taking over log {self.name!r}")
        except LedgerFenced:
            if renews is None:
                runtime.call_if_open(self._note_lost)
            else:
                self.lose()
            raise
        except LogSealed:
            if renews is not None:
                self.lose()
            raise
        self._word, self.is_lost = b"", False
        logger.info(
            "log %r is taken over with epoch %d: it goes on at offset %d in ledger %d, behind %d others (%.3f s)",
            self.name,
            taken.epoch,
            taken.first_offset,
            taken.metadata.ledger_id,
            taken.log_list.ledger_count - 1,
            runtime.clock_s() - began_s,
        )
        self._tell_size(taken)
        last_ms = await self._last_time(taken)
        self._delete_left(taken)
        appending = self.begin(taken)
        self._continue_behind(taken, appending)
        self._begin_times(appending, last_ms)
        return Owned(taken, appending)

    def spliced(self) -> Spliced:
        """The outcome of the last splice. Raises why it was not done."""
        assert self._splicing is not None
        if self._splicing.unspliced is not None:
            raise self._splicing.unspliced
        assert self._splicing.spliced is not None
        return self._splicing.spliced

    def _begin_times(self, appending: Appending, floor_ms: int) -> None:
        """floor_ms: the time of the entry before; NO_ENTRY: it has none. Where it has one, the level is in force, also
        where this client has not received it yet: else a ledger without times would stand behind one with them."""
        if floor_ms != NO_ENTRY or self.runtime.has_level(LEVEL_OF_TIMES):
            appending.begin_times(floor_ms)

    async def _last_time(self, taken: TakenOver) -> int:
        """The time of the last entry before ours, below which none of ours may be (P8.11)."""
        try:
            reading = LogReading(self.runtime, self.name, self.password)
            return await last_time(reading, taken.log_list, taken.first_offset)
        except EmbedbkError as unreadable:
            # Going on by our own clock alone is better than not at all: what is lost everywhere never comes back.
            logger.warning(
                "log %r: the time of its last entry is not known, so that what is appended now may seem older: %s",
                self.name,
                unreadable,
            )
            return NO_ENTRY

    async def prepare(self, before: Appending, begun: Begun) -> TakenOver:
        """List the next ledger, to which nothing is sent yet (P8.2 i)."""
        runtime = self.runtime
        known, self._recorded = self._recorded, None
        core = LogPreparing(
            self.name,
            before.tenure.epoch,
            before.ledger_id,
            await self._new(begun),
            runtime.bookies,
            runtime.new_chance(),
            known,
        )
        prepared: TakenOver = await runtime.run(core, f"preparing the next ledger of log {self.name!r}")
        self._tell_size(prepared)
        return prepared

    async def replacement(self, failed: Appending, ended: int | None) -> LogReplacing:
        """The core that lists the ledger behind one that failed, with the end of that one (P8.2). ended: where its
        handle has closed it; None: it could not."""
        runtime = self.runtime
        return LogReplacing(
            self.name,
            failed.tenure.epoch,
            failed.ledger_id,
            failed.lac,
            ended,
            await self._new(Begun.FAILURE),
            self.password.key,
            runtime.bookies,
            runtime.new_chance(),
            self.password.mac_key,
            None if ended is None else failed.writing.length,
        )

    async def replace(self, core: LogReplacing) -> TakenOver:
        try:
            taken: TakenOver = await self.runtime.run(
                core, f"replacing the failed ledger of log {self.name!r}"
            )
        except (LedgerFenced, LogSealed):
            self.lose()
            raise
        self._tell_size(taken)
        return taken

    def follow(self, before: Appending, prepared: TakenOver, last_entry: int) -> Owned:
        """The next ledger, now that the one before it took its last append (P8.2 iii), or failed behind last_entry."""
        taken = prepared.placed(before.tenure.first_offset + last_entry + 1)
        appending = self.begin(taken)
        appending.continue_from(before, last_entry)
        self._begin_times(appending, before.writing.packer.time_ms)
        logger.info(
            "log %r goes on at offset %d in ledger %d, behind ledger %d",
            self.name,
            taken.first_offset,
            taken.metadata.ledger_id,
            before.ledger_id,
        )
        return Owned(taken, appending)

    def continue_over(self, owned: Owned, before: Appending, last_entry: int) -> None:
        """The ledger of a takeover from itself follows one that failed: with all that is known of producers."""
        owned.appending.continue_from(before, last_entry)

    def end_of(self, ledger_id: int, following: TakenOver) -> EndRecord:
        """How the end of a ledger is recorded. following: what was listed behind it, in the list as it is known."""
        has_lengths = self.runtime.has_level(LEVEL_OF_PAGES)
        return EndRecord(
            self.name, following.epoch, ledger_id, following.log_list, following.list_revision, has_lengths
        )

    async def record(self, before: Appending, end: EndRecord, last_entry: int) -> None:
        """Put the end of a closed ledger into the list, for as long as it takes, unless its close has done so."""
        writing = before.writing
        if writing.recorded_revision:
            closed = writing.metadata
            assert closed.last_entry == last_entry and closed.length is not None
            log_list = end.recorded(last_entry, closed.length)
            assert log_list is not None  # It was put.
            self._recorded = log_list, writing.recorded_revision
            return
        told = writing.length if end.has_lengths else None
        recording = LogRecording(end.name, end.epoch, end.ledger_id, last_entry, told)
        what = f"recording the end of ledger {end.ledger_id} of log {self.name!r}"
        self._recorded = await self.runtime.run_to_its_end(recording, what)

    def forget_list(self) -> None:
        """The list of a log that does not roll just now is not kept: it may be long, and there may be very many."""
        self._recorded = None

    async def _new(self, begun: Begun) -> NewLedger:
        runtime, traits = self.runtime, self.traits
        return NewLedger(
            self.quorum,
            self.password.verifier,
            runtime.wall_ms(),
            begun,
            traits.durability,
            traits.options.placement,
            traits.digest,
            await patience_with(runtime, self.quorum),
            self.can_prepare,
            self.runtime.page_ledgers if self.runtime.has_level(LEVEL_OF_PAGES) else 0,
            await writer_name(runtime),
        )

    def begin(self, taken: TakenOver) -> Appending:
        """The handle of its newest ledger."""
        options = _handing_over(self.traits.options)
        appending = begin_writing(
            self.runtime,
            taken.metadata,
            taken.revision,
            self.password,
            "",
            options,
            self,
            self.traits.compression,
        )
        appending.belong_to(
            Tenure(
                self,
                taken.epoch,
                appending.ledger_id,
                taken.first_offset,
                taken.list_revision,
                recorded_bytes(taken.log_list),
            )
        )
        return appending

    def explain(self, error: EmbedbkError) -> EmbedbkError:
        """A client that closes an owner's ledger has usually taken the log over, even when the owner learns of it only
        afterwards, or finds that its empty ledger is gone. The epoch decides whether it has (`replace`)."""
        if not isinstance(error, LedgerClosed | NoSuchLedger):
            return error
        fenced = LedgerFenced(f"log {self.name!r} was taken over: {error.args[0]}", definite=error.definite)
        fenced.__cause__ = error
        return fenced

    def lose(self) -> None:
        """Whether another client has the epoch; or a bookie reports a fence while the metadata cannot be asked. From
        any thread."""
        if not self.is_lost:
            self.is_lost, self.lost_ns = True, self.runtime.now_ns()
            self.runtime.call_if_open(self._note_lost)
            if self.signal is not None:
                self.signal.notify()

    def _note_lost(self) -> None:
        """On the host's thread."""
        self.runtime.contending.note_lost(self.name, self.runtime.now_ns())

    def _tell_size(self, taken: TakenOver) -> None:
        """Warn while there is time: nobody can take over a log whose list is full (`LogFull`). A list with pages keeps
        little itself."""
        size = len(encode_log_list(taken.log_list))
        if size >= _LIST_TELL * METADATA_VALUE_BYTES_MAX:
            logger.warning(
                "log %r: its list of %d ledgers has %d of at most %d bytes; when these are used, nobody can take it "
                "over any more: write to another log in time, and delete this one when it was read",
                self.name,
                len(taken.log_list.segments),
                size,
                METADATA_VALUE_BYTES_MAX,
            )

    def _delete_left(self, taken: TakenOver) -> None:
        """Delete ledgers that left the list, now or before a crash, beside the new writer; no call waits for it
        (P8.3)."""
        listed = frozenset(segment.ledger_id for segment in taken.log_list.segments)
        deleting = OneResult(Leaving(self.name, taken.list_revision, listed, self.password.key))

        self._start_telling(deleting)
        if self.runtime.has_level(LEVEL_OF_PAGES):
            grace_ms = int(self.runtime.settings.delete_grace_s * 1000)
            self._start_telling(OneResult(Dropping(self.name, self.runtime.wall_ms(), grace_ms)))

    def _start_telling(self, deleting: OneResult) -> None:
        def tell(ended: Awaited[Any]) -> None:
            failure = ended.exception()
            if isinstance(failure, StorageError):  # Else the client was closed: the next owner continues.
                logger.warning("log %r: ledgers that left its list are not deleted: %s", self.name, failure)

        deleting.future.add_done_callback(tell)
        self.runtime.start(deleting)

    def _continue_behind(self, taken: TakenOver, appending: Appending) -> None:
        """Say where the log ends before this ledger, and how its last entries are read."""
        log_list = taken.log_list
        # A takeover closes all before its own (P8.1).
        last = last_position(log_list.segments[:-1], log_list.pages)
        if last is None:
            appending.continue_behind(NO_POSITION, None)
            return
        begin = max(log_list.first_offset, taken.first_offset - _PRODUCER_ENTRIES_MAX)
        appending.continue_behind(Position(*last), _Tail(self, begin, taken.first_offset))

    async def has_closed_empty(self, taken: Tenure) -> bool:
        """The list is still the one that we took over, not truncated behind us, and does not name our ledger."""
        ledger_id = taken.ledger_id
        found = await self.runtime.ask(
            Get(log_key_path(self.name)), f"asking what became of ledger {ledger_id}"
        )
        record = found.record if isinstance(found, Value) else None
        if record is None or record.value is None or record.created > taken.list_revision:
            return False
        log_list = decode_log_list(record.value, self.name)
        is_named = ledger_id in (segment.ledger_id for segment in log_list.segments)
        return not is_named and log_list.first_offset <= taken.first_offset


async def _what_is_left(reading: LogReading, begin: int, end: int) -> Frames:
    """From begin to end, or from where the log begins by now: what was truncated beside the reader is not needed."""
    while begin < end:
        try:
            async for located in reading.read(begin, end, skip_lost=True, is_stored=True):
                yield located
        except Truncated as gone:
            if gone.first_offset is None or gone.first_offset <= begin:
                raise
            begin = gone.first_offset
        else:
            return
