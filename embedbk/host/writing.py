"""A writing handle in a client node: user threads append to its packer, the host seals its frames and moves its LAC."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from embedbk.codec.arrow_rows import Rows
from embedbk.codec.entry_records import RecordRun
from embedbk.codec.frame import Frame
from embedbk.codec.ledger_metadata import Durability, LedgerMetadata
from embedbk.codec.packing import PACKER_STOPPED, Buffer, Packing
from embedbk.core.client_words import AddFailed, Confirmed, CopiesMissed, EnsembleChanged, Received
from embedbk.core.fragment_sums import modulus_of
from embedbk.core.idle_form import IdleForm, shrink
from embedbk.core.machine import Effect
from embedbk.core.vocabulary import Ended
from embedbk.core.writer import Writer
from embedbk.errors import EmbedbkError, LedgerClosed, UsageError
from embedbk.host.awaited import Awaited
from embedbk.host.operations import Operation
from embedbk.host.seldom_fields import CLOSING, SeldomField, SeldomFields
from embedbk.host.signal import Signal, Watermark
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = ["NEVER_REACHED", "HandedOver", "LedgerOwner", "Writing", "is_countable"]

logger = logging.getLogger(__name__)

NEVER_REACHED = LEDGER_ID_MAX  # Above every entry.


class HandedOver(UsageError):
    """This handle failed, and later appends go to the next one; nothing of this append was queued (P8.2)."""


def is_countable(core: Writer) -> bool:
    """Whether common answers to its adds can be counted beside it: each is to a whole frame, and there is one each."""
    quorum = core.quorum
    return quorum.ensemble_size == quorum.write_quorum and core.metadata.durability == Durability.SYNCED


class Ahead(Protocol):
    """Acknowledgements as they come, from any thread (transports/adds.py)."""

    def lac(self) -> tuple[int, int]: ...

    def wait(self, entry_id: int, *, is_alone: bool) -> bool: ...


class LedgerOwner(Protocol):
    """Whose ledger a handle writes, where that is more than a ledger. One object for all ledgers of an owner: a bound
    method of it for each handle would be larger than the reference to it."""

    def explain(self, error: EmbedbkError) -> EmbedbkError:
        """What an error of the ledger means to the user of the handle."""


class Writing(Operation, Watermark):
    """A writing handle: user threads append to the packer, the host seals its frames and moves the LAC.

    It is its own watermark: of entries that are acknowledged, or never will be by this handle. There may be very many
    open ones of which nothing is asked, so what few need is made when it is needed.
    """

    __slots__ = (
        "_core",
        "_is_moved",
        "_lac",
        "_length",
        "_owner",
        "_received",
        "_seldom",
        "_signal",
        "_wake",
        "due_ns",
        "error",
        "failure",
        "is_common",
        "is_over",
        "local",
        "on_failed",
        "on_missed",
        "on_reached",
        "packer",
        "tell_at",
    )
    _core: Writer | IdleForm

    outstanding = SeldomField[tuple[Frame, ...]](())  # The frames that its core had sent.
    # Nothing of this one is sent before all adds of that handle are done (P8.2 ii); and which one waits so for it.
    behind = SeldomField["Writing | None"](None)
    following = SeldomField["Writing | None"](None)
    is_handed_over = SeldomField[bool](False)
    _closed = SeldomField["Awaited[int] | None"](None)
    _outcome = SeldomField[EmbedbkError | int | None](
        None
    )  # What `closed` tells: an error, or the last entry.
    ensemble_changes = SeldomField[int](0)
    has_missed = SeldomField[bool](False)  # A bookie may lack acknowledged entries.
    # The revision of the log's list into which the closing transaction put this ledger's end; 0: it put none.
    recorded_revision = SeldomField[int](0)

    def __init__(
        self,
        core: Writer,
        packer: Packing,
        wake: Callable[[Writing], None],
        owner: LedgerOwner | None = None,
        *,
        has_sums: bool = False,
    ) -> None:
        """wake(self): tell the host, from a user's thread, that the packer has something to look at.

        owner: says what an error of the ledger means to the user of this handle. has_sums: the handle publishes
        digests of the fragments that end (P11.4); its packer is a new one.
        """
        self._seldom: SeldomFields | None = None
        Operation.__init__(self, core)
        Watermark.__init__(self)
        if has_sums:
            packer.begin_sums(modulus_of(core.quorum))
            core.in_flight.sums_through = packer.sums_through
        self.packer = packer
        self._signal: Signal | None = None
        self._lac = NO_ENTRY  # As published: entries up to here are acknowledged.
        self._length = 0
        self._received = NO_ENTRY
        self.local: Ahead | None = None  # What knows of acknowledgements before they are published.
        self.error: EmbedbkError | None = None  # Every entry above the LAC ends with it.
        # Called on the host's thread when the handle fails: decides what becomes of its outstanding entries (P8.2),
        # which wait until `error` says so. With None they fail with the handle.
        self.on_failed: Callable[[], None] | None = None
        # Why it failed, from then on. Each append to a log looks at it.
        self.failure: EmbedbkError | None = None
        # Called with this handle on the host's thread whenever that becomes so.
        self.on_missed: Callable[[Writing], None] | None = None
        # Its answers may be counted beside its core: in general, and now (ClientNode).
        self.is_common = is_countable(core)
        self._wake = wake
        self._owner = owner
        self._is_moved = False
        # The thread that appends this entry, or one behind it, calls `on_reached`, once for each time that it is set.
        self.tell_at = NEVER_REACHED
        self.on_reached: Callable[[Writing], None] | None = None

    # The host's side.

    @property  # type: ignore[override]
    def core(self) -> Writer:
        """On the host's thread only."""
        core = self._core
        if isinstance(core, IdleForm):
            core = self._core = core.restore(self.packer.sums_through)
        return core

    @core.setter
    def core(self, core: Writer) -> None:
        self._core = core

    @property
    def is_shrunk(self) -> bool:
        return isinstance(self._core, IdleForm)

    def shrink(self) -> None:
        core = self._core
        if self.local is None and not isinstance(core, IdleForm):
            self._core = shrink(core) or core

    def on_effect(self, effect: Effect) -> None:
        super().on_effect(effect)
        self._is_moved = True
        if isinstance(effect, Confirmed):
            self._lac, self._length = effect.lac, effect.length
            self._received = max(self._received, effect.lac)
            self.packer.set_lac(effect.lac, effect.length)
        elif isinstance(effect, Received):
            self._received = effect.entry_id
        elif isinstance(effect, AddFailed):
            self._fail_adds(effect)
        elif isinstance(effect, EnsembleChanged):
            self.ensemble_changes += 1
            logger.info(
                "ledger %d: its entries from %d on go to %s",
                self.metadata.ledger_id,
                effect.first_entry,
                ", ".join(member.bookie_id for member in effect.ensemble),
            )
        elif isinstance(effect, CopiesMissed):
            self.has_missed = True
            if self.on_missed is not None:
                self.on_missed(self)
        elif isinstance(effect, Ended):
            self._end(effect)

    def _fail_adds(self, effect: AddFailed) -> None:
        if self.on_failed is None or self.error is not None:
            self.error = self.error or self._explained(effect.error)
            self.packer.stop()
            return
        self.failure, self.outstanding = effect.error, effect.outstanding
        self.packer.stop()  # A thread that finds it stopped finds why.
        self.on_failed()

    def _explained(self, error: EmbedbkError) -> EmbedbkError:
        return error if self._owner is None else self._owner.explain(error)

    @property
    def is_undecided(self) -> bool:
        """It failed, and it is not decided yet what becomes of what is outstanding."""
        return self.failure is not None and self.error is None

    def hand_over(self, last_entry: int) -> None:
        """The ledger ended at this entry: entries up to it are acknowledged, and another handle has those behind it by
        now."""
        if self.is_undecided:
            self.is_handed_over, self._received = True, max(self._lac, last_entry)
            replaced = LedgerClosed(
                f"ledger {self.metadata.ledger_id} failed, and was replaced", definite=True
            )
            self.give_up(replaced, last_entry)

    def give_up(self, error: EmbedbkError, last_entry: int = NO_ENTRY) -> None:
        """Fail what is outstanding and was not handed over; what is not behind the ledger's end is acknowledged."""
        if self.is_undecided:
            self._lac = max(self._lac, last_entry)
            self.error, self.outstanding = error, ()
            self._is_moved = True
            self.publish()

    def fail(self, error: EmbedbkError) -> None:
        self.give_up(error)
        self.error = self.error or error  # It says what happened here; nothing of the ledger explains it.
        super().fail(error)

    def wait_behind(self, before: Writing) -> None:
        """Send nothing before all adds of that handle are done, which takes no more of them. From any thread, before
        anything is appended here."""
        self.behind, before.following = before, self

    @property
    def is_done(self) -> bool:
        """All that was appended is acknowledged, and on the disks of its ack quorum; it has not failed."""
        return self.failure is None and self.error is None and self.lac >= self.packer.last_entry

    def begin_behind(self) -> bool:
        """Whether the handle before is done, if there is one: then this one goes on by itself. A handle that failed is
        never done, whatever was acknowledged, so what was appended here moves behind what was outstanding there."""
        before = self.behind
        if before is None:
            return True
        if not before.is_done:
            return False
        self.behind = before.following = None
        self._is_moved = before._is_moved = True
        return True

    def set_aside(self, failure: EmbedbkError) -> None:
        """The handle before failed: nothing of this one was sent, or will be, and what was appended here goes to
        another handle. It is undecided until then."""
        self.failure = self.failure or failure
        self.packer.stop()

    def _end(self, effect: Ended) -> None:
        self.packer.stop()
        error = None if effect.error is None else self._explained(effect.error)
        if self.is_undecided:
            pass  # It is closed, or not, so that this can be decided.
        elif error is not None:
            self.error = self.error or error
        elif self.error is None:
            self.error = LedgerClosed("this handle was closed", definite=True, hint="open a new writer")
        if error is None and self.core.changes.has_recorded:
            self.recorded_revision = self.core.changes.revision
        with CLOSING:
            if self._outcome is None:
                self._outcome = self.core.lac if error is None else error
                self._tell_outcome()

    @property
    def closed(self) -> Awaited[int]:
        """The last entry, once the ledger is closed by this handle. Made when it is asked for: it weighs more than the
        rest of an open ledger."""
        with CLOSING:
            if self._closed is None:
                self._closed = Awaited()
                self._tell_outcome()
            return self._closed

    def _tell_outcome(self) -> None:
        if self._closed is None or self._outcome is None:
            return
        if isinstance(self._outcome, EmbedbkError):
            self._closed.set_exception(self._outcome)
        else:
            self._closed.set_result(self._outcome)

    def publish(self) -> None:
        if self._is_moved:
            self._is_moved = False
            if self.error is not None:
                self.end()
            else:
                self.rise(self._received)
            # A thread that makes one after this look sees the state that moved before it.
            if self._signal is not None:
                self._signal.notify()

    def attach(self, local: Ahead) -> None:
        self.local = local

    def detach(self, lac: int, length: int) -> None:
        """The course is over: take its LAC and length over, and drop `local`."""
        self._lac, self._length, self._received = lac, length, max(self._received, lac)
        self.local = None

    # The users' side.

    @property
    def signal(self) -> Signal:
        """Notified of any change: room, a mark, the end."""
        signal = self._signal
        if signal is None:
            fresh = Signal()
            with CLOSING:
                signal = self._signal = self._signal or fresh
        return signal

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata, as last published."""
        return self._core.metadata

    @property
    def lac(self) -> int:
        """Entries up to here are acknowledged."""
        local = self.local
        return self._lac if local is None else max(self._lac, local.lac()[0])

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC."""
        local = self.local
        return self._length if local is None else max(self._length, local.lac()[1])

    @property
    def received(self) -> int:
        """What an append waits for: the LAC, or ahead of it with deferred sync (P3.2)."""
        return max(self._received, self.lac)

    def is_received(self, entry_id: int) -> bool:
        """Whether `received` has reached this entry. What was published is checked first: a thread that it woke needs
        no more."""
        return self._received >= entry_id or self.received >= entry_id

    def wait_locally(self, entry_id: int) -> bool:
        """Block until the entry is acknowledged, where that is known before it is published. False: it is not."""
        local = self.local
        is_alone = not self.is_awaited and (self._signal is None or not self._signal.is_awaited)
        return local is not None and local.wait(entry_id, is_alone=is_alone)

    def try_append(self, data: Buffer) -> int:
        """Queue one entry: its id, or NO_ENTRY when the bytes in flight are at their bound. Raises `stop_error`."""
        try:
            entry_id, should_wake = self.packer.append(data)
            if should_wake:
                self._wake(self)
        except EmbedbkError:
            raise
        except BaseException:
            self._wake(
                self
            )  # A signal handler raised: the entry may be queued, and nobody else tells the host.
            raise
        if entry_id >= 0:
            if entry_id >= self.tell_at:
                self._tell_reached()
            return entry_id
        if entry_id == PACKER_STOPPED:
            raise self.stop_error()
        return NO_ENTRY

    def _tell_reached(self) -> None:
        self.tell_at = NEVER_REACHED
        if self.on_reached is not None:
            self.on_reached(self)

    def try_append_with(self, data: Buffer, attributes: bytes, expected: int, told: list[int]) -> int:
        """As `try_append`, with attributes; only as entry `expected` unless that is below 0, else PACKER_CONFLICT.

        told: gets the id as the entry is queued, whatever a signal handler raises behind that."""
        try:
            entry_id, should_wake = self.packer.append_with(data, attributes, expected, told)
            if should_wake:
                self._wake(self)
        except EmbedbkError:
            raise
        except BaseException:
            self._wake(self)
            raise
        if entry_id == PACKER_STOPPED:
            raise self.stop_error()
        if entry_id >= self.tell_at:
            self._tell_reached()
        return entry_id

    def try_append_many(self, items: Sequence[Buffer] | RecordRun, caller: int) -> tuple[int, int]:
        """Queue as many items as there is room for: the first id, and how many were taken. No other thread appends
        before this caller's rest (`Packing`). Raises `stop_error` where none was taken."""
        try:
            if isinstance(items, Rows):
                first, taken, should_wake = self.packer.append_rows(items.columns, items.begin, caller)
            elif isinstance(items, RecordRun):
                first, taken, should_wake = self.packer.append_many(items.values, caller, items.attributes)
            else:
                first, taken, should_wake = self.packer.append_many(items, caller)
            if should_wake:
                self._wake(self)
        except EmbedbkError:
            raise
        except BaseException:
            self._wake(self)
            raise
        if taken and first + taken > self.tell_at:
            self._tell_reached()
        if not taken and items and self.packer.is_stopped:
            raise self.stop_error()
        return first, taken

    def stop_error(self) -> EmbedbkError:
        """Why nothing can be appended: a fresh error of the same kind, definite, as nothing of this was sent."""
        error = self.error
        if self.is_undecided or self.is_handed_over:
            return HandedOver("the log is on its way to a next ledger; nothing was appended")
        if error is None:
            return UsageError("this writer is closed; open a new one to append")
        again = type(error)(error.args[0], definite=True, hint=error.hint)
        again.__cause__ = error
        return again

    def is_settled(self, entry_id: int) -> bool:
        return self.is_received(entry_id) or self.error is not None

    def is_synced(self, entry_id: int) -> bool:
        return self.lac >= entry_id or self.error is not None
