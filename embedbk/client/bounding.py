"""How many payload bytes a log may have, and what its owner does at that bound (P8.8).

Decides when appends are refused, and when the oldest ledgers are let go. The owner counts what the list records and
what it appended itself, so an append costs no more than without a bound: the appending thread looks at an entry that
was worked out before, as for a roll (`roll_bounds`). At the bound the handle has a bar; an append that comes to it
waits for one look at the list, and is refused if the look found no room.

    ROOM ── 7/8 are used: look, and let go or keep retention ──> NEAR ── all is used ──> FULL: each append waits for a
    look, at most one a second ──> refused, or ROOM
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from embedbk.client.cursors import cursors_holding
from embedbk.client.log_reading import LogReading
from embedbk.client.log_settings import record_of
from embedbk.client.roll_bounds import MOVING
from embedbk.client.truncating import pins, truncate
from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_list import Begun, LogList
from embedbk.codec.log_settings import AtBound, SettingsRecord
from embedbk.config import ENTRY_BYTES_MAX, Roll
from embedbk.core.log_paging import recorded_bytes
from embedbk.errors import EmbedbkError, LogAtBound
from embedbk.host.writing import NEVER_REACHED, HandedOver

if TYPE_CHECKING:
    from embedbk.client.appending import Appending
    from embedbk.client.renewing import Succession
    from embedbk.client.roll_bounds import RollBounds
    from embedbk.client.runtime import Runtime
    from embedbk.core.log_listing import TakenOver

__all__ = [
    "BytesBound",
    "LogBytes",
    "bound_of",
    "bounded",
    "check_splice",
    "make_room",
    "refusal",
    "retain",
    "spliced_bytes",
]

logger = logging.getLogger("embedbk.client.log")

# Ledgers go whole: none has more than this share of the bound.
_ROLLS_AT = 8
_AGAIN_S = 1.0  # Pause between two looks that refused appends ask for ...
_SOON_S = 0.05  # ... and that appends ask for while they wait for a ledger to be closed.


class BytesBound(NamedTuple):
    """What a log's settings say of its bytes, at a revision of them."""

    bytes_max: int
    lets_go: bool
    record: SettingsRecord
    revision: int

    @property
    def near_bytes(self) -> int:
        """From here on the owner looks for something that may go, before appends are refused."""
        return self.bytes_max - self.bytes_max // 8

    @property
    def fits_bytes(self) -> int:
        """Payload bytes that are left when the oldest ledgers are let go."""
        return self.bytes_max - self.bytes_max // 4


def bound_of(record: SettingsRecord | None, revision: int) -> BytesBound | None:
    if record is None or record.bytes_max is None:
        return None
    return BytesBound(record.bytes_max, record.at_bytes_max == AtBound.LET_GO, record, revision)


def bounded(roll: Roll, bound: BytesBound | None) -> Roll:
    """The roll with ledgers small enough for the bound: the last ledger of a log cannot go."""
    if bound is None:
        return roll
    share = max(1, bound.bytes_max // _ROLLS_AT)
    return Roll(share if roll.bytes is None else min(roll.bytes, share), roll.entries, roll.age_s)


class LogLook(NamedTuple):
    """What a look at a log found."""

    log_list: LogList
    list_revision: int
    held_by: str = ""
    holder: str = ""
    offset: int = 0  # The offset from which on that is held.


async def retain(reading: LogReading, record: SettingsRecord, revision: int) -> None:
    """Keep retention once (P8.8): both must allow it, where both are given."""
    older_than_s = None if record.retention_ms is None else record.retention_ms / 1000
    keep_bytes = record.retention_bytes
    await truncate(reading, None, older_than_s, keep_bytes, may_do_nothing=True, settings_at=revision)


async def make_room(
    reading: LogReading, bound: BytesBound, unrecorded: Callable[[LogList], int], coming: int = 0
) -> LogLook:
    """Look at the list, and let go what the settings let go. unrecorded: payload bytes that the list does not record.
    coming: bytes of ledgers that are to be spliced."""
    log_list, revision = await reading.listed_at()
    beside = unrecorded(log_list) + coming
    if recorded_bytes(log_list) + beside >= bound.near_bytes:
        if bound.record.has_retention:
            await retain(reading, bound.record, bound.revision)
        if bound.lets_go and beside <= bound.bytes_max:  # Otherwise all would go, and it still would not fit.
            fits_bytes = max(0, bound.fits_bytes - beside)
            steps = truncate(
                reading,
                None,
                None,
                None,
                may_do_nothing=True,
                fits_bytes=fits_bytes,
                settings_at=bound.revision,
            )
            await steps
        log_list, revision = await reading.listed_at()
        beside = unrecorded(log_list) + coming
    if recorded_bytes(log_list) + beside < bound.bytes_max:
        return LogLook(log_list, revision)
    return LogLook(log_list, revision, *await _holder(reading, log_list, bound))


async def _holder(reading: LogReading, log_list: LogList, bound: BytesBound) -> tuple[str, str, int]:
    """What holds the front of the log, if anything does: the lowest of pins, and of cursors that hold."""
    now_ms = reading.runtime.wall_ms()
    found = [(each.offset, "pin", each.name) for each in await pins(reading) if each.until_ms > now_ms]
    if not bound.lets_go:
        found += [(each.offset, "cursor", each.name) for each in await cursors_holding(reading)]
    last = log_list.segments[-1].first_offset if log_list.segments else 0
    offset, kind, name = min(found, default=(0, "", ""))
    # The last ledger never goes, so a pin or cursor that holds only that one holds nothing back.
    return ("", "", 0) if not kind or (last is not None and offset >= last) else (kind, name, offset)


def refusal(
    name: str, bound: BytesBound, byte_count: int, found: LogLook | None, why: str = ""
) -> LogAtBound:
    if found is not None and found.held_by:
        held = f"its {found.held_by} {found.holder!r} holds everything from offset {found.offset} on"
    else:
        held = why or "nothing but its settings keeps its oldest ledgers"
    hint = {
        "cursor": "consume by that cursor, move or delete it, and have the log truncated: retention does that",
        "pin": "unpin() takes a pin away",
    }.get(
        "" if found is None else found.held_by,
        "truncate() makes room, and so does retention, or a higher bytes_max: log.change()",
    )
    error = LogAtBound(
        f"log {name!r} has {byte_count} payload bytes, and its bound is {bound.bytes_max}, so that it takes no more: "
        f"{held}",
        hint=hint,
    )
    error.byte_count, error.bytes_max = byte_count, bound.bytes_max
    if found is not None:
        error.held_by, error.holder = found.held_by, found.holder
    return error


def check_splice(name: str, bound: BytesBound, byte_count: int, coming: int, found: LogLook) -> None:
    """Raises LogAtBound where so many more bytes are too many: a splice comes whole or not at all."""
    if byte_count + coming > bound.bytes_max:
        refused = refusal(name, bound, byte_count, found)
        refused.args = (f"{coming} more bytes are to be spliced: {refused.args[0]}",)
        raise refused


async def spliced_bytes(runtime: Runtime, ledger_ids: Sequence[int]) -> int:
    """Payload bytes of ready-made ledgers, as far as their metadata has them; others are not spliced anyway."""
    total = 0
    for ledger_id in ledger_ids:
        value, _ = await runtime.get(ledger_key_path(ledger_id), f"asking how long ledger {ledger_id} is")
        if value is not None:
            total += decode_ledger_metadata(value, ledger_id).length or 0
    return total


class LogBytes:
    """The bytes of one owner's log, and its bar. Any thread may call anything."""

    __slots__ = (
        "_bounds",
        "_found",
        "_full_since_s",
        "_is_looking",
        "_line",
        "_list_epoch",
        "_list_revision",
        "_looked_s",
        "_recorded",
        "_told",
        "_unrecorded",
        "_was_near",
        "_why",
        "bound",
        "tell_at",
    )

    def __init__(self, line: Succession, bounds: RollBounds) -> None:
        """bounds: told when `tell_at` changed."""
        self.bound: BytesBound | None = None
        self.tell_at = NEVER_REACHED  # The entry of the current ledger at which `look` is due.
        self._line = line
        self._bounds = bounds
        tenure = line.taken
        self._recorded = tenure.recorded_bytes  # Bytes by the list, as last looked at.
        self._list_revision, self._list_epoch = tenure.list_revision, tenure.epoch
        self._unrecorded: dict[int, int] = {}  # Ledgers that we left, until their lengths stand in the list.
        self._is_looking = False
        self._looked_s = 0.0
        self._full_since_s: float | None = (
            None  # Time since which looks leave the log full; None: the last one did not.
        )
        self._was_near = False
        self._found: LogLook | None = None
        self._told = ("", "")  # What holds the log, as it was logged last.
        self._why = ""  # Why a look failed.

    def _reading(self) -> LogReading:
        owning = self._line.owning
        return LogReading(owning.runtime, owning.name, owning.password)

    def note(self, log_list: LogList, revision: int) -> None:
        """The log's list, as it was at this revision."""
        with MOVING:
            if revision < self._list_revision:
                return
            self._list_revision, self._list_epoch = revision, log_list.epoch
            self._recorded = recorded_bytes(log_list)
            for ledger_id in self._recorded_since(log_list):
                del self._unrecorded[ledger_id]

    def _recorded_since(self, log_list: LogList) -> list[int]:
        """Ledgers that we left and that the list counts by now, or that went."""
        lengths = {each.ledger_id: each.length for each in log_list.segments}
        return [each for each in self._unrecorded if lengths.get(each, 0) is not None]

    def follow(self, before: Appending, taken: TakenOver) -> None:
        """The log goes on in another ledger than this one. From now on ignore lists older than that ledger: the one
        before may not be in them yet, as if it were gone."""
        with MOVING:
            self._unrecorded[before.ledger_id] = before.writing.packer.length
            self.note(taken.log_list, taken.list_revision)
        self.look()

    def keep(self, bound: BytesBound | None) -> None:
        """The bound from now on; None: there is none."""
        with MOVING:
            self.bound = bound
            self._was_near = False
        self.look()

    def byte_count(self) -> int:
        """Payload bytes of the log, appended ones that are not acknowledged among them."""
        with MOVING:
            return (
                self._recorded + sum(self._unrecorded.values()) + self._line.appending.writing.packer.length
            )

    def _unrecorded_beside(self, log_list: LogList) -> int:
        with MOVING:
            recorded = self._recorded_since(log_list)
            left = sum(length for each, length in self._unrecorded.items() if each not in recorded)
            return left + self._line.appending.writing.packer.length

    # Looking.

    def look(self) -> None:
        """Whether the bound is reached. Runs in the appending thread at `tell_at`, and whenever something changed."""
        with MOVING:
            appending, bound = self._line.appending, self.bound
            count = self.byte_count()
            is_near = bound is not None and count >= bound.near_bytes
            asks = is_near and not self._was_near and not self._is_looking
            self._was_near, self._is_looking = is_near, self._is_looking or asks
            if bound is None:
                self.tell_at = NEVER_REACHED
            else:
                next_bytes = bound.bytes_max if is_near else bound.near_bytes
                # No entry is larger than this, so that the first one at or behind the bound is met.
                entries = -((count - next_bytes) // ENTRY_BYTES_MAX)
                self.tell_at = appending.writing.packer.last_entry + max(1, entries)
            # If another client has the log by now, appends fail by the bookies' fence and not by the bound.
            is_ours = self._list_epoch <= self._line.taken.epoch
            if bound is not None and is_ours and count >= bound.bytes_max:
                appending.shut_out(self.refused)
            else:
                appending.let_in()
        self._bounds.tell_again()
        if asks:
            self._line.owning.runtime.behind(self._look_at_list())

    def refused(self) -> LogAtBound | HandedOver | None:
        """Why an append is refused; None: a look for room is under way, and the append may wait for it. While the log
        leaves its ledger, which makes room, appends wait elsewhere: it leaves only when none waits in the ledger."""
        runtime = self._line.owning.runtime
        if self._line.is_held:
            return HandedOver("the log is on its way to a next ledger; nothing was appended")
        with MOVING:
            if self._is_looking:
                return None
            bound = self.bound
            if bound is None or self.byte_count() < bound.bytes_max:
                self._line.appending.let_in()
                return None
            since_s = runtime.clock_s() - self._looked_s
            if self._full_since_s is not None and self._is_ending(bound):
                if since_s < _SOON_S:
                    return None
            elif self._full_since_s is not None and since_s < _AGAIN_S:
                return refusal(self._line.owning.name, bound, self.byte_count(), self._found, self._why)
            self._is_looking = True
        runtime.behind(self._look_at_list())
        return None

    def _is_ending(self, bound: BytesBound) -> bool:
        """Whether nothing holds the ledgers to let go, so that the log only waits for a ledger to be closed and
        recorded, within the time that this may take."""
        runtime = self._line.owning.runtime
        assert self._full_since_s is not None
        is_free = bound.lets_go and self._found is not None and not self._found.held_by
        return is_free and runtime.clock_s() - self._full_since_s < runtime.settings.operation_timeout_s

    async def look_now(self) -> None:
        """Look at the list, as part of a round of the keeper."""
        with MOVING:
            if self._is_looking or self.bound is None:
                return
            self._is_looking = True
        await self._look_at_list()

    async def _look_at_list(self) -> None:
        """Raises nothing but what ends the process: appends that wait get the error, and the next look tries again."""
        runtime, name = self._line.owning.runtime, self._line.owning.name
        bound, found, why = self.bound, None, ""
        try:
            bound = bound_of(*await record_of(runtime, name))  # As they are now: what follows compares them.
            if bound is not None:
                found = await make_room(self._reading(), bound, self._unrecorded_beside)
                self.note(found.log_list, found.list_revision)
        except EmbedbkError as failed:
            why = f"and its list cannot be looked at: {failed.args[0]}"
        finally:
            with MOVING:
                self._is_looking = False
                self._looked_s = runtime.clock_s()
                self.bound, self._found, self._why = bound, found, why
                is_full = bound is not None and self.byte_count() >= bound.bytes_max
                self._full_since_s = (self._full_since_s or self._looked_s) if is_full else None
            self.look()
            self._line.appending.writing.signal.notify()
            self._go_on_from_full(bound)
        if bound is not None and found is not None:
            self._tell_holder(bound, found)

    def _tell_holder(self, bound: BytesBound, found: LogLook) -> None:
        """Log what holds the log, once for each holder."""
        holder = (found.held_by, found.holder)
        if found.held_by and holder != self._told:
            logger.warning(
                "log %r has %d payload bytes, and its bound is %d; its %s %r holds everything from offset %d on",
                self._line.owning.name,
                self.byte_count(),
                bound.bytes_max,
                found.held_by,
                found.holder,
                found.offset,
            )
        self._told = holder

    def _go_on_from_full(self, bound: BytesBound | None) -> None:
        """Leave the last ledger: it never goes while it is the last, and no append to it will make it roll."""
        appending = self._line.appending
        if bound is None or self.byte_count() < bound.bytes_max or self._line.is_busy:
            return
        if appending.writing.packer.length >= bound.bytes_max // _ROLLS_AT:
            self._line.roll_behind(Begun.BYTES)

    # Splicing.

    async def check_room(self, bound: BytesBound, coming: int) -> None:
        """Raises LogAtBound where so many more bytes are too many, even after everything that may go is gone."""
        found = await make_room(self._reading(), bound, self._unrecorded_beside, coming)
        self.note(found.log_list, found.list_revision)
        self.look()
        check_splice(self._line.owning.name, bound, self.byte_count(), coming, found)
