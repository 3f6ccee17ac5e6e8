"""The last add confirmed of a ledger: readers ask a bookie for it, and writers that pause or are idle tell it
(P6.2; WIRE.md section 3)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from embedbk.codec.bookie_fields import (
    Count,
    Incarnation,
    Key,
    Lac,
    LedgerId,
    Status,
)
from embedbk.errors import PeerError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "EXPLICIT_LACS_MAX",
    "EXPLICIT_LAC_BYTES",
    "LacRequest",
    "LacAnswer",
    "ExplicitLacRequest",
    "ExplicitLacs",
    "LacHints",
    "ExplicitLacAnswer",
    "is_answered",
    "pack_explicit_lacs",
]

# ledger_id, lac, lac_length, ledger_key
_EXPLICIT_LAC = struct.Struct("<QqQ16s")
EXPLICIT_LAC_BYTES = _EXPLICIT_LAC.size
EXPLICIT_LACS_MAX = 256


class LacRequest(msgspec.Struct, frozen=True, array_like=True):
    """Tell the LAC without fencing; with wait_ms, answer when it passes after_lac or the ledger is fenced (P6.2)."""

    incarnation: Incarnation
    ledger_id: LedgerId
    after_lac: Lac = NO_ENTRY
    wait_ms: Count = 0
    bytes_max: Count = 0  # Above 0: give the entries after_lac + 1 .. LAC along, as far as they fit.


class LacAnswer(msgspec.Struct, frozen=True, array_like=True):
    """With a frame where entries were asked for and are here: positive verdicts only, what is missing is unknown."""

    status: Status
    ledger_id: LedgerId
    lac: Lac = NO_ENTRY
    lac_length: Count = 0
    is_fenced: bool = False


class ExplicitLacRequest(msgspec.Struct, frozen=True, array_like=True):
    """The writer's LAC, sent when it idles so that readers see the last entries (P6.2).

    A hint is kept in memory only and answered at once: it wakes the readers that wait now. The durable LAC follows.
    wants_answer: the bookie answers whether readers wait; else it answers nothing, also if the hint fails.
    """

    incarnation: Incarnation
    ledger_id: LedgerId
    ledger_key: Key
    lac: Lac
    lac_length: Count
    is_hint: bool = False
    wants_answer: bool = True


class ExplicitLacs(msgspec.Struct, frozen=True, array_like=True):
    """The LACs of many idle writers, one behind the other: as so many requests that are no hints and want no answer.
    Its request id is 0."""

    incarnation: Incarnation
    lacs: bytes
    ARE_HINTS: ClassVar[bool] = False

    def unpack(self) -> list[ExplicitLacRequest]:
        """In the order in which they were given.

        Raises:
            PeerError: not whole LACs, too many, or impossible numbers in one.
        """
        count, rest = divmod(len(self.lacs), EXPLICIT_LAC_BYTES)
        if rest or not 1 <= count <= EXPLICIT_LACS_MAX:
            raise PeerError(
                f"LACs of {len(self.lacs)} bytes: allowed are 1 to {EXPLICIT_LACS_MAX} times {EXPLICIT_LAC_BYTES}"
            )
        found: list[ExplicitLacRequest] = []
        for ledger_id, lac, length, key in _EXPLICIT_LAC.iter_unpack(self.lacs):
            if max(ledger_id, length) > LEDGER_ID_MAX or not NO_ENTRY <= lac <= LEDGER_ID_MAX // 2:
                raise PeerError(f"the LAC of ledger {ledger_id} has impossible numbers")
            request = ExplicitLacRequest(
                self.incarnation, ledger_id, key, lac, length, self.ARE_HINTS, wants_answer=False
            )
            found.append(request)
        return found


class LacHints(ExplicitLacs, frozen=True, array_like=True):
    """The LACs of many writers that pause, as so many hints: each is kept in memory only (P6.2)."""

    ARE_HINTS: ClassVar[bool] = True


class ExplicitLacAnswer(msgspec.Struct, frozen=True, array_like=True):
    status: Status
    ledger_id: LedgerId
    is_awaited: bool = (
        False  # A reader waits here for a newer LAC, or did lately: further ones are worth a hint.
    )


def is_answered(request: msgspec.Struct) -> bool:
    """Every request is answered, except LAC hints that want no answer (P6.2)."""
    if isinstance(request, ExplicitLacRequest):
        return request.wants_answer
    return not isinstance(request, ExplicitLacs)


def pack_explicit_lacs(requests: Sequence[ExplicitLacRequest]) -> ExplicitLacs:
    """At most `EXPLICIT_LACS_MAX`, of one incarnation, all of them hints or none, and none that wants an answer."""
    pack = _EXPLICIT_LAC.pack
    lacs = [pack(each.ledger_id, each.lac, each.lac_length, each.ledger_key) for each in requests]
    kind = LacHints if requests[0].is_hint else ExplicitLacs
    return kind(requests[0].incarnation, b"".join(lacs))
