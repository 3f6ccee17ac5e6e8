"""What messages between clients and bookies have in common: the status of an answer, and types and bounds of fields;
msgspec refuses everything else while it decodes."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from embedbk.codec.frame import LEDGER_KEY_BYTES
from embedbk.config import ENSEMBLE_SIZE_MAX
from embedbk.ids import INCARNATION_BYTES, LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "Count",
    "EntryId",
    "Incarnation",
    "Key",
    "Lac",
    "LedgerId",
    "Modulus",
    "Nonce",
    "Residues",
    "Status",
]

Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
Key = Annotated[bytes, msgspec.Meta(min_length=LEDGER_KEY_BYTES, max_length=LEDGER_KEY_BYTES)]
LedgerId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
EntryId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
# Half of the range of entry ids: a range behind a LAC that a lying peer sent still has possible ids.
Lac = Annotated[int, msgspec.Meta(ge=NO_ENTRY, le=LEDGER_ID_MAX // 2)]
Modulus = Annotated[int, msgspec.Meta(ge=1, le=ENSEMBLE_SIZE_MAX)]
Residues = Annotated[int, msgspec.Meta(ge=0)]
Nonce = Annotated[int, msgspec.Meta(ge=0)]  # Any 64 bits.
Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]


class Status(enum.IntEnum):
    """A bookie's verdict on a request. Numbers are on the wire: never re-used."""

    OK = 0
    FENCED = 1  # A normal add of a fenced or dropped ledger (P3.4a).
    IN_LIMBO = 2  # The bookie may have lost entries of this ledger (P7.4).
    WRONG_INCARNATION = 3  # The request is for another disk incarnation (P7.2).
    WRONG_KEY = 4  # Another ledger password (P3.5).
    CONFLICT = 5  # Another payload is stored under this id (P3.4c).
    BAD_FRAME = 6  # A digest or number in the frame is wrong; nothing of it was stored.
    READ_ONLY = 7  # No normal adds here now; fences and recovery adds pass (P7.8).
    NO_SUCH_LEDGER = 8  # An explicit negative: this bookie never stored anything of the ledger (P7.1).
    UNKNOWN = 9  # The bookie cannot tell: I/O error, unreadable entry. Never a negative (P7.1).
    RECEIVED = (
        10  # Answer to a deferred add: held in memory. Another answer follows when it is durable (P3.2).
    )
    # Nothing of the request was done; send it again a little later. More adds wait than are kept (P7.8), or what a
    # class of reads may read in a second is used up (P6.7).
    BUSY = 11
