"""Sealing a log, and asking whether it is (P8.9), for both faces. How it is done, `core.log_sealing` decides."""

from __future__ import annotations

import logging
from typing import NamedTuple

from embedbk.client.cursors import check_level
from embedbk.client.log_reading import LogReading
from embedbk.codec.log_list import SEAL_REASON_MAX, Begun, LogSeal
from embedbk.config import Quorum
from embedbk.core.log import LogMoved
from embedbk.core.log_listing import NewLedger
from embedbk.core.log_sealing import LogSealing
from embedbk.errors import LedgerFenced, UsageError
from embedbk.ids import is_text

__all__ = ["Seal", "seal", "sealed"]

logger = logging.getLogger("embedbk.client.log")

_TRIES_MAX = 5  # Others took the log over meanwhile so often.
_NONE_IS_MADE = Quorum(1, 1, 1)


class Seal(NamedTuple):
    """Nothing is ever appended to the log any more."""

    reason: str
    sealed_ms: int  # Since 1970.
    by: str  # For people.


async def seal(reading: LogReading, reason: str) -> Seal:
    runtime = reading.runtime
    runtime.check()
    if not isinstance(reason, str) or not 1 <= len(reason) <= SEAL_REASON_MAX or not is_text(reason):
        raise UsageError(f"reason={reason!r:.80}: allowed are 1 to {SEAL_REASON_MAX} characters")
    check_level(reading)
    await reading.listed()  # Before anybody is fenced: that there is such a log.
    for left in reversed(range(_TRIES_MAX)):
        guard = await reading.claimed(creates=False)
        name = reading.name
        new = NewLedger(
            _NONE_IS_MADE,
            reading.password.verifier,
            runtime.wall_ms(),
            Begun.TAKEOVER,
            placement=runtime.placement,
        )
        core = LogSealing(
            name,
            runtime.owner().encode(),
            new,
            reading.password.key,
            runtime.bookies,
            runtime.new_chance(),
            LogSeal(reason, runtime.wall_ms(), runtime.owner()),
            mac_key=reading.password.mac_key,
            losses=runtime.contending.losses(name, runtime.now_ns()),
            guard=guard,
        )
        try:
            done: LogSeal = await runtime.run(core, f"sealing log {name!r}")
        except LogMoved:
            if not left:
                raise
            continue
        except LedgerFenced:
            runtime.call_if_open(lambda: runtime.contending.note_lost(name, runtime.now_ns()))  # noqa: B023
            if not left:
                raise
            continue
        logger.info("log %r is sealed for ever: %s", name, reason)
        return _shown(done)
    raise AssertionError("the last try raises")


async def sealed(reading: LogReading) -> Seal | None:
    log_list = await reading.listed()
    return None if log_list.seal is None else _shown(log_list.seal)


def _shown(record: LogSeal) -> Seal:
    return Seal(record.reason, record.sealed_ms, record.by)
