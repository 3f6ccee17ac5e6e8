"""Durable cursors of a log (P8.8), for both faces: where consumers stand, and what they hold against truncation.

Decides what the caller is told, and what one change of a cursor compares. Making a cursor or moving it back compares
the list, as a pin does, and what truncation compares; moving it forward compares nothing but the cursor. Consuming by a
cursor is `consuming`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from embedbk.client.entry_times import times_at
from embedbk.client.log_end import log_end
from embedbk.client.log_pages import PageGone
from embedbk.client.log_places import Start
from embedbk.client.log_reading import LogReading
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.log_cursors import (
    CURSORS_MAX,
    CursorHold,
    CursorRecord,
    LogCursors,
    NamedCursor,
    cursor_lease_name,
    cursor_path,
    decode_cursor,
    decode_log_cursors,
    encode_cursor,
    encode_log_cursors,
    log_cursors_path,
)
from embedbk.codec.log_list import log_key_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.errors import (
    EmbedbkError,
    MetadataConflict,
    NoSuchCursor,
    StorageError,
    Truncated,
    UsageError,
    WrongPassword,
)
from embedbk.ids import LEDGER_ID_MAX, check_cursor_name
from embedbk.metadata.claims import lock_path
from embedbk.metadata.levels import LEVEL_OF_CURSORS

__all__ = ["CursorState", "Cursoring", "check_level", "cursors", "cursors_holding"]

_ROUNDS_MAX = 20  # Tries of one change, while others change the list or the cursors.

_ENDED = {
    CursorHold.ENDED_BY_TIME: "time",
    CursorHold.ENDED_BY_BYTES: "bytes",
    CursorHold.ENDED_BY_FORCE: "force",
    CursorHold.ENDED_BY_BOUND: "bound",
}


class CursorState(NamedTuple):
    """Where a cursor stands, as the metadata has it."""

    name: str
    offset: int  # Everything before it was consumed.
    revision: int  # The revision of its last move; `set(revision=)` compares it.
    epoch: int  # The epoch of the consumer that committed it; 0: it was set by hand.
    moved_ms: int  # ms since 1970, by the clock of the process that moved it.
    holds: bool  # Nothing from `offset` on is truncated, unless by force, or by a bound of the log.
    ended: str  # Why it holds no more although it was meant to: "time", "bytes", "force" or "bound"; "" else.
    consumer: str = ""  # The holder of its lease; "": nobody. Only `Log.cursors` fills it and what follows:
    lag_entries: int | None = None  # Acknowledged entries behind it; None: too few bookies answer to tell.
    # Their payload bytes, as far as the list has them; in the ledger where they begin, by the share of entries.
    lag_bytes: int | None = None
    # How long the oldest of them has been there, by the clocks of its writer and of this machine; None: not known, as
    # it has no time (P8.11), or no copy of it can be read just now.
    lag_s: float | None = None


class Cursoring:
    """One cursor by its name, in steps that both faces drive."""

    def __init__(
        self,
        reading: LogReading,
        name: str,
        holds: bool,
        ends_after_s: float | None,
        ends_behind_bytes: int | None,
    ) -> None:
        reading.runtime.check()
        if not isinstance(holds, bool):
            raise UsageError(f"holds={holds!r}: True and False are allowed")
        for what, value, most in (
            ("ends_after_s", ends_after_s, 1e9),
            ("ends_behind_bytes", ends_behind_bytes, LEDGER_ID_MAX),
        ):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < value <= most):
                raise UsageError(f"{what}={value!r}: allowed are numbers above 0, or None for no such bound")
            if value is not None and not holds:
                raise UsageError(f"{what}={value!r} says when holding ends, and holds=False was given")
        self.reading, self.name = reading, check_cursor_name(name)
        self._is_to_hold = holds
        self._idle_ms = None if ends_after_s is None else max(1, int(ends_after_s * 1000))
        self._bytes_behind = None if ends_behind_bytes is None else int(ends_behind_bytes)

    @property
    def path(self) -> str:
        return cursor_path(self.reading.name, self.name)

    @property
    def what(self) -> str:
        return f"cursor {self.name!r} of log {self.reading.name!r}"

    async def get(self) -> CursorState:
        await self.reading.found()
        named, _ = await _named(self.reading)
        cursor = next((each for each in named if each.name == self.name), None)
        record, revision = await self.record()
        if cursor is None or record is None:
            raise self.missing()
        return _state(cursor, record, revision)

    async def record(self) -> tuple[CursorRecord | None, int]:
        value, revision = await self.reading.runtime.get(self.path, f"reading {self.what}")
        if value is None:
            return None, ABSENT
        return decode_cursor(value, self.reading.name, self.name), revision

    def missing(self) -> NoSuchCursor:
        return NoSuchCursor(
            f"log {self.reading.name!r} has no cursor {self.name!r}",
            hint="set() makes it, and so does consume()",
        )

    async def set(self, place: Start, revision: int | None, *, only_new: bool = False) -> CursorState:
        """only_new: leave a cursor that is there already as it is."""
        reading, runtime = self.reading, self.reading.runtime
        check_level(reading)
        for _ in range(_ROUNDS_MAX):
            # The list first: a cursor found below its start was passed by a truncation since, and is not made there
            # again.
            log_list, list_revision = await reading.listed_at()
            try:
                offset = (
                    log_list.first_offset
                    if place is None
                    else await reading.places.offset_in(log_list, place)
                )
            except PageGone:
                continue
            named, named_revision = await _named(reading)
            record, at = await self.record()
            cursor = next((each for each in named if each.name == self.name), None)
            if only_new and cursor is not None and record is not None:
                return _state(cursor, record, at)
            if revision is not None and at != revision:
                raise MetadataConflict(
                    f"{self.what} was moved at revision {at}, and {revision} was given; it stays where it is",
                    hint="get() says where it stands",
                )
            if offset < log_list.first_offset:
                error = Truncated(
                    f"log {reading.name!r}: offset {offset} is below its start, {log_list.first_offset}"
                )
                error.first_offset = log_list.first_offset
                raise error
            moved = CursorRecord(METADATA_VERSION, offset, 0, runtime.wall_ms())
            hold = CursorHold.HOLDS if self._is_to_hold else CursorHold.NONE
            wanted = NamedCursor(self.name, hold, self._idle_ms, self._bytes_behind)
            when = [Compare(self.path, at)]
            then: list[Put | Delete] = [Put(self.path, encode_cursor(moved))]
            if record is None or cursor != wanted or offset < record.offset:
                # It may hold entries that nothing held before: it and a truncation compare the same key, so one sees
                # the other.
                when += [
                    Compare(log_key_path(reading.name), list_revision),
                    Compare(log_cursors_path(reading.name), named_revision),
                ]
                then.append(self._naming(named, wanted))
            if await runtime.transact(when, then, f"moving {self.what}"):
                record, at = await self.record()
                if record == moved:
                    return _state(wanted, moved, at)
                return await self.get()  # Another client has moved it on already.
        raise MetadataConflict(
            f"{self.what} changed {_ROUNDS_MAX} times while it was to be moved", definite=True
        )

    def _naming(self, named: Sequence[NamedCursor], wanted: NamedCursor) -> Put:
        others = tuple(each for each in named if each.name != self.name)
        if len(others) >= CURSORS_MAX:
            raise UsageError(
                f"log {self.reading.name!r} has {len(others)} cursors, and may have {CURSORS_MAX}",
                hint="delete those that nobody needs",
            )
        value = encode_log_cursors(LogCursors(METADATA_VERSION, (*others, wanted)))
        return Put(log_cursors_path(self.reading.name), value)

    async def delete(self, revision: int | None) -> bool:
        reading = self.reading
        check_level(reading)
        await reading.found()
        for _ in range(_ROUNDS_MAX):
            named, named_revision = await _named(reading)
            # Whatever the value is: a cursor that cannot be read goes, too.
            value, found = await reading.runtime.get(self.path, f"deleting {self.what}")
            at = ABSENT if value is None else found
            if value is None and self.name not in (each.name for each in named):
                return False
            if revision is not None and at != revision:
                raise MetadataConflict(
                    f"{self.what} was moved at revision {at}, and {revision} was given; it stays"
                )
            left = tuple(each for each in named if each.name != self.name)
            when = [Compare(self.path, at), Compare(log_cursors_path(reading.name), named_revision)]
            naming = Put(
                log_cursors_path(reading.name), encode_log_cursors(LogCursors(METADATA_VERSION, left))
            )
            then: list[Put | Delete] = [Delete(self.path), naming]
            if await reading.runtime.transact(when, then, f"deleting {self.what}"):
                return True
        raise MetadataConflict(
            f"{self.what} changed {_ROUNDS_MAX} times while it was to be deleted", definite=True
        )


def check_level(reading: LogReading) -> None:
    if not reading.runtime.has_level(LEVEL_OF_CURSORS):
        raise UsageError(
            f"log {reading.name!r}: the cluster's level is below {LEVEL_OF_CURSORS}, and builds may come back that "
            "truncate past cursors; nothing was changed",
            hint="embedbk quorum raise",
        )


async def _named(reading: LogReading) -> tuple[tuple[NamedCursor, ...], int]:
    key = log_cursors_path(reading.name)
    value, revision = await reading.runtime.get(key, f"reading which cursors log {reading.name!r} has")
    if value is None:
        return (), ABSENT
    return decode_log_cursors(value, reading.name).cursors, revision


async def cursors_holding(reading: LogReading) -> list[CursorState]:
    """The cursors that hold the log, and where; their lag is not filled in."""
    found: list[CursorState] = []
    for cursor in (await _named(reading))[0]:
        if cursor.hold == CursorHold.HOLDS:
            what = f"reading cursor {cursor.name!r} of log {reading.name!r}"
            value, revision = await reading.runtime.get(cursor_path(reading.name, cursor.name), what)
            if value is not None:
                found.append(_state(cursor, decode_cursor(value, reading.name, cursor.name), revision))
    return found


def _state(cursor: NamedCursor, record: CursorRecord, revision: int) -> CursorState:
    return CursorState(
        cursor.name,
        record.offset,
        revision,
        record.epoch,
        record.moved_ms,
        cursor.hold == CursorHold.HOLDS,
        _ENDED.get(CursorHold(cursor.hold), ""),
    )


async def cursors(reading: LogReading, *, as_far_as_told: bool = False) -> list[CursorState]:
    """All cursors of a log, by their names, with their consumers and lags.

    as_far_as_told: without lags where the log's password is another or its end cannot be read, and without cursors that
    cannot be read; else these are errors.
    """
    passed_over: tuple[type[EmbedbkError], ...] = (StorageError, WrongPassword) if as_far_as_told else ()
    await reading.found()
    runtime, log = reading.runtime, reading.name
    named, _ = await _named(reading)
    if not named:
        await reading.listed()  # Raises if there is no such log.
        return []
    end = None
    with contextlib.suppress(*passed_over):
        end = await log_end(reading)
    now_ms = runtime.wall_ms()
    found: list[CursorState] = []
    for cursor in sorted(named, key=lambda each: each.name):
        what = f"reading cursor {cursor.name!r} of log {log!r}"
        value, revision = await runtime.get(cursor_path(log, cursor.name), what)
        if value is None:
            continue  # Deleted since.
        try:
            state = _state(cursor, decode_cursor(value, log, cursor.name), revision)
        except passed_over:
            continue
        holder, _ = await runtime.get(lock_path(cursor_lease_name(log, cursor.name)), what)
        consumer = "" if holder is None else holder.decode(errors="replace")
        if end is not None:
            lag = max(0, end.offset - state.offset)
            state = state._replace(lag_entries=lag, lag_bytes=end.bytes_from(state.offset))
        found.append(state._replace(consumer=consumer))
    if end is None:
        return found
    oldest = {each.offset: max(each.offset, end.begins) for each in found if each.lag_entries}
    times: dict[int, int | None] = {}
    with contextlib.suppress(*passed_over):
        times = await times_at(reading, oldest.values())
    for number, state in enumerate(found):
        time_ms = times.get(oldest[state.offset]) if state.lag_entries else now_ms
        if time_ms is not None:
            found[number] = state._replace(lag_s=max(0, now_ms - time_ms) / 1000)
    return found
