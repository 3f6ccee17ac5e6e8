"""Truncating a log, and the pins that hold it (P8.3, P8.8), for both faces.

Decides what the caller receives. The cores decide how much is truncated and how, round by round; one transaction makes
or removes a pin and compares the list: a pin that comes too late gets an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from embedbk.client.log_pages import PageGone
from embedbk.client.log_places import Start
from embedbk.client.log_reading import LogReading
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.log_cursors import CursorHold
from embedbk.codec.log_list import log_key_path
from embedbk.codec.log_pins import (
    PINS_MAX,
    LogPins,
    PinRecord,
    decode_log_pins,
    encode_log_pins,
    log_pins_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.config import check_flag
from embedbk.core.truncating import LogTruncating, Round
from embedbk.core.truncation import Held, Terms, live_pins
from embedbk.errors import MetadataConflict, NotTruncated, Truncated, UsageError
from embedbk.ids import LEDGER_ID_MAX, check_log_name
from embedbk.metadata.levels import LEVEL_OF_FRONTS, LEVEL_OF_PAGES

__all__ = ["WHY_ENDED", "LogPin", "Truncation", "pin", "pins", "truncate", "unpin"]

logger = logging.getLogger("embedbk.client.log")

_ROUNDS_MAX = 20  # The list or the pins changed so often under a pin that was to be made.

_WHY = {
    Held.REACHED: "the next ledger holds entries that are to stay; a ledger goes whole",
    Held.OPEN: "the next ledger is not recorded as closed",
    Held.LAST: "the next ledger is the last one, which stays",
}
_HINT = {
    Held.PIN: "unpin() takes a pin away",
    Held.CURSOR: "its consumer frees it by going on; force=True passes it, and it holds no more then",
}
WHY_ENDED = {
    CursorHold.ENDED_BY_TIME: "it was not moved for as long as it was told",
    CursorHold.ENDED_BY_BYTES: "more bytes are behind it than it was told",
    CursorHold.ENDED_BY_FORCE: "somebody truncated by force",
    CursorHold.ENDED_BY_BOUND: "the log has as many bytes as it may have, and lets go of its slowest cursor",
}


class Truncation(NamedTuple):
    """The result of a truncation (P8.8). Ledgers go whole, so it reaches at most what was asked for."""

    asked: int | None  # The offset below which everything was to go; None: only time or size was given.
    began: int  # Where the log began before.
    reached: int  # Where it begins now.
    ledgers: int  # That left the log, and are deleted as `delete_ledger` does it.
    held_by: str  # Why it went no further: "reached", "open", "last", "pin" or "cursor".
    pin: str  # The pin that held it; "" where none did.
    why: str  # The same in words.
    cursor: str = ""  # The cursor that held it; "" where none did.
    # Cursors that hold no more: by force, or by the bounds that they were given.
    passed: tuple[str, ...] = ()


class LogPin(NamedTuple):
    """Nothing from this offset on is truncated, until the pin's time is over or somebody takes it away."""

    name: str
    offset: int
    epoch: int  # Rises with each pin that is made of the log: the holder of a lower one of this name has lost it.
    until_ms: int  # Since 1970.


async def truncate(
    reading: LogReading,
    before: Start,
    older_than_s: float | None,
    keep_bytes: int | None,
    *,
    may_do_nothing: bool,
    force: bool = False,
    fits_bytes: int | None = None,
    settings_at: int | None = None,
) -> Truncation:
    """fits_bytes, settings_at: of `Terms`, where the log's own settings ask for it."""
    runtime = reading.runtime
    runtime.check()
    _check_level(reading)
    check_flag(may_do_nothing, "may_do_nothing")
    check_flag(force, "force")
    if before is None and older_than_s is None and keep_bytes is None and fits_bytes is None:
        raise UsageError("nothing says how much is to go", hint="give before=, older_than_s= or keep_bytes=")
    for what, value in (("older_than_s", older_than_s), ("keep_bytes", keep_bytes)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value <= LEDGER_ID_MAX):  # NaN is not, either.
            raise UsageError(f"{what}={value!r}: allowed are numbers from 0 on, up to {LEDGER_ID_MAX}")
    await reading.found()
    name = reading.name
    asked = None if before is None else await reading.offset_of(before)
    wall_ms = runtime.wall_ms()
    begun_before_ms = None if older_than_s is None else wall_ms - int(older_than_s * 1000)
    kept = None if keep_bytes is None else int(keep_bytes)
    terms = Terms(asked, begun_before_ms, kept, force, fits_bytes, settings_at)
    grace_ms = int(runtime.settings.delete_grace_s * 1000)
    rounds: list[Round] = []
    while not rounds or rounds[-1].held is None:
        core = LogTruncating(
            name,
            terms,
            reading.password.verifier,
            wall_ms,
            grace_ms,
            notes_places=runtime.has_level(LEVEL_OF_FRONTS),
        )
        came_to: Round = await runtime.run(core, f"truncating log {name!r}")
        rounds.append(came_to)
        for pin_name in came_to.expired:
            logger.warning("log %r: the time of its pin %r is over; the pin was taken away", name, pin_name)
        for cursor_name, hold in came_to.ended:
            logger.warning(
                "log %r: its cursor %r holds nothing any more, and what it held is truncated: %s",
                name,
                cursor_name,
                WHY_ENDED[hold],
            )
    return _told(name, asked, rounds, may_do_nothing=may_do_nothing)


def _told(name: str, asked: int | None, rounds: list[Round], *, may_do_nothing: bool) -> Truncation:
    last = rounds[-1]
    assert last.held is not None
    count = sum(each.ledgers for each in rounds)
    pin_name = last.by if last.held is Held.PIN else ""
    cursor_name = last.by if last.held is Held.CURSOR else ""
    why = _WHY.get(last.held, f"its {last.held.value} {last.by!r} holds what is left")
    passed = tuple(cursor for each in rounds for cursor, _ in each.ended)
    done = Truncation(
        asked,
        rounds[0].began,
        last.reached,
        count,
        last.held.value,
        pin_name,
        why,
        cursor_name,
        passed,
    )
    if count:
        logger.info(
            "log %r: %d ledgers were truncated; it begins at offset %d now", name, count, done.reached
        )
    elif not may_do_nothing:
        error = NotTruncated(
            f"log {name!r}: no ledger could go, and it still begins at offset {done.reached}: {why}",
            hint=_HINT.get(last.held, "may_do_nothing=True takes that for done"),
        )
        error.truncation = done
        raise error
    return done


def _check_level(reading: LogReading) -> None:
    if not reading.runtime.has_level(LEVEL_OF_PAGES):
        raise UsageError(
            f"log {reading.name!r}: the cluster's level is below {LEVEL_OF_PAGES}, and builds may come back that know "
            "neither truncated lists nor pins; nothing was changed",
            hint="embedbk quorum raise",
        )


async def pin(reading: LogReading, pin_name: str, at: Start, ttl_s: float) -> LogPin:
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not 0 < ttl_s < 1e9:
        raise UsageError(f"ttl_s={ttl_s!r}: allowed are seconds above 0")
    check_log_name(pin_name)
    _check_level(reading)
    until_ms = reading.runtime.wall_ms() + int(ttl_s * 1000)
    for _ in range(_ROUNDS_MAX):
        log_list, list_revision = await reading.listed_at()
        try:
            offset = log_list.first_offset if at is None else await reading.places.offset_in(log_list, at)
        except PageGone:
            continue
        if offset < log_list.first_offset:
            error = Truncated(
                f"log {reading.name!r}: offset {offset} is below its start, {log_list.first_offset}"
            )
            error.first_offset = log_list.first_offset
            raise error

        def change(held: tuple[PinRecord, ...], revision: int) -> tuple[PinRecord, ...]:
            others = tuple(each for each in held if each.name != pin_name)
            if len(others) >= PINS_MAX:
                raise UsageError(f"log {reading.name!r} has {len(others)} pins, and may have {PINS_MAX}")
            epoch = 1 + max(list_revision, revision)  # noqa: B023
            return (*others, PinRecord(pin_name, offset, epoch, until_ms))  # noqa: B023

        made = await _change(reading, change, [Compare(log_key_path(reading.name), list_revision)])
        if made is not None:
            return _shown(made[-1])
    raise MetadataConflict(
        f"log {reading.name!r} changed {_ROUNDS_MAX} times while pin {pin_name!r} was to be made; it was not made",
        definite=True,
        hint="try again",
    )


async def unpin(reading: LogReading, pin_name: str) -> bool:
    _check_level(reading)
    for _ in range(_ROUNDS_MAX):
        if pin_name not in (each.name for each in await pins(reading)):
            return False
        made = await _change(
            reading, lambda held, _: tuple(each for each in held if each.name != pin_name), []
        )
        if made is not None:
            return True
    raise MetadataConflict(f"the pins of log {reading.name!r} changed {_ROUNDS_MAX} times", definite=True)


async def pins(reading: LogReading) -> list[LogPin]:
    await reading.found()
    held, _ = await _held(reading)
    return [_shown(each) for each in held]


def _shown(record: PinRecord) -> LogPin:
    return LogPin(record.name, record.offset, record.epoch, record.until_ms)


async def _held(reading: LogReading) -> tuple[tuple[PinRecord, ...], int]:
    key = log_pins_path(reading.name)
    value, revision = await reading.runtime.get(key, f"reading the pins of log {reading.name!r}")
    held = decode_log_pins(value, reading.name).pins if value is not None else ()
    return held, ABSENT if value is None else revision


async def _change(
    reading: LogReading,
    change: Callable[[tuple[PinRecord, ...], int], tuple[PinRecord, ...]],
    when: list[Compare],
) -> tuple[PinRecord, ...] | None:
    """The pins as they are from now on; None: something has changed under it, and nothing was done."""
    runtime, key = reading.runtime, log_pins_path(reading.name)
    held, revision = await _held(reading)
    new = change(live_pins(held, runtime.wall_ms()), revision)
    put = Put(key, encode_log_pins(LogPins(METADATA_VERSION, new)))
    is_done = await runtime.transact(
        [*when, Compare(key, revision)], [put], f"changing the pins of log {reading.name!r}"
    )
    return new if is_done else None
