"""Reads of entries at a bookie, and the verdicts that it answers (WIRE.md section 3)."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from embedbk.codec.bookie_fields import (
    Count,
    EntryId,
    Incarnation,
    Key,
    Lac,
    LedgerId,
    Modulus,
    Residues,
    Status,
)
from embedbk.config import READ_WAIT_MS_MAX
from embedbk.ids import NO_ENTRY

__all__ = [
    "READ_OTHERS_MAX",
    "ReadClass",
    "ReadRange",
    "ReadRequest",
    "ReadPart",
    "ReadAnswer",
]

READ_OTHERS_MAX = 127  # Ranges that one read asks for beside its own, each of another ledger.
_ReadClass = Annotated[int, msgspec.Meta(ge=0, le=255)]
_WaitMs = Annotated[int, msgspec.Meta(ge=0, le=READ_WAIT_MS_MAX)]


class ReadClass(enum.IntEnum):
    """What entries are read for: a bookie serves the lower numbers first, and bounds the bytes per second of all but
    the first (P6.7). Numbers are on the wire: never re-used."""

    TAIL = 0  # The newest entries, single ones, and everything that a recovery reads: never bounded.
    CATCH_UP = 1  # A reader that goes forward through a ledger.
    BATCH = 2  # A job that reads very much, and that nobody waits for: Spark, archives, exports.
    UPKEEP = 3  # Copies that repair makes, and scrubs.


class ReadRange(msgspec.Struct, frozen=True, array_like=True):
    """A range that a ReadRequest wants beside its own, of another ledger."""

    ledger_id: LedgerId
    first_entry: EntryId
    last_entry: EntryId
    modulus: Modulus = 1
    residues: Residues = 1


class ReadRequest(msgspec.Struct, frozen=True, array_like=True):
    """Entries first..last as far as they fit, of those ids with id % modulus in residues (bit r for residue r). others:
    ranges that are wanted as well, without a fence; bytes_max is for all of them together. A build that does not know
    the field answers for its own range alone."""

    incarnation: Incarnation
    ledger_id: LedgerId
    first_entry: EntryId
    last_entry: EntryId
    bytes_max: Count
    fence: bool = False  # A recovery read: fences before it looks (P5.2c, P5.2f).
    ledger_key: Key = bytes(16)  # Checked when fence is set (P3.5).
    modulus: Modulus = 1
    residues: Residues = 1
    # A ReadClass; a number beyond those that this build knows counts as the last one.
    reads_as: _ReadClass = ReadClass.TAIL
    others: Annotated[list[ReadRange], msgspec.Meta(max_length=READ_OTHERS_MAX)] = []


class ReadPart(msgspec.Struct, frozen=True, array_like=True):
    """The verdict on one of the other ranges, as of a `ReadAnswer`. BUSY: the others left no room for it."""

    status: Status
    ledger_id: LedgerId
    absent: list[tuple[int, int]] = []
    wait_ms: _WaitMs = 0


class ReadAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A verdict per id (P5.2c): in the frames = positive; in absent = explicit negative; anything else = unknown.

    absent holds (first, last) ranges, both included. status NO_SUCH_LEDGER makes every asked id absent; a status
    other than OK and NO_SUCH_LEDGER gives no verdict at all. lac is the best this bookie knows. others: of the
    request's other ranges, in their order; each has one frame at most, which names its ledger.
    """

    status: Status
    ledger_id: LedgerId
    absent: list[tuple[int, int]] = []
    lac: Lac = NO_ENTRY
    lac_length: Count = 0
    # With BUSY: the bytes per second of the request's class are used up for so long, and nothing was read (P6.7).
    wait_ms: _WaitMs = 0
    others: Annotated[list[ReadPart], msgspec.Meta(max_length=READ_OTHERS_MAX)] = []
