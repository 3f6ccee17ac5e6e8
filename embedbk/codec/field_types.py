"""Types and bounds of fields in metadata messages; msgspec refuses everything else while it decodes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "ENDPOINTS_MAX",
    "METADATA_VERSION",
    "Count",
    "Endpoint",
    "Endpoints",
    "EntryId",
    "LastEntry",
    "LedgerId",
    "LongText",
    "Number",
    "RandomBytes",
    "ShortText",
]

ENDPOINTS_MAX = 64  # In one answer: those of all members of a cluster.

# The metadata of ledgers and the lists of logs have this version.
METADATA_VERSION = 1

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
RandomBytes = Annotated[bytes, msgspec.Meta(max_length=64)]  # A token, nonce or digest, kept in small notes.
ShortText = Annotated[str, msgspec.Meta(max_length=127)]  # A name, a role, an id.
LongText = Annotated[str, msgspec.Meta(max_length=400)]  # A sentence for people.
Endpoint = Annotated[str, msgspec.Meta(max_length=255)]
Endpoints = Annotated[tuple[Endpoint, ...], msgspec.Meta(max_length=ENDPOINTS_MAX)]

LedgerId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
# Half of the range of entry ids, as of a LAC: a request for ids behind it still has possible ids.
EntryId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX // 2)]
LastEntry = Annotated[int, msgspec.Meta(ge=NO_ENTRY, le=LEDGER_ID_MAX // 2)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
