"""Types and bounds of fields in metadata messages; msgspec refuses everything else while it decodes."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = [
    "ENDPOINTS_MAX",
    "Endpoint",
    "Endpoints",
    "LongText",
    "Number",
    "RandomBytes",
    "ShortText",
]

ENDPOINTS_MAX = 64  # In one answer: those of all members of a cluster.

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
RandomBytes = Annotated[bytes, msgspec.Meta(max_length=64)]  # A token, nonce or digest, kept in small notes.
ShortText = Annotated[str, msgspec.Meta(max_length=127)]  # A name, a role, an id.
LongText = Annotated[str, msgspec.Meta(max_length=400)]  # A sentence for people.
Endpoint = Annotated[str, msgspec.Meta(max_length=255)]
Endpoints = Annotated[tuple[Endpoint, ...], msgspec.Meta(max_length=ENDPOINTS_MAX)]
