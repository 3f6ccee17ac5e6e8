"""What a bookie says of itself under its ephemeral key, by which clients find it (RP47: an id is not an address)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError, UsageError
from embedbk.ids import INCARNATION_BYTES, LEDGER_ID_MAX, NAME_PATTERN

__all__ = [
    "BOOKIES_PREFIX",
    "REGISTRATION_VERSION",
    "Registration",
    "COOKIES_PREFIX",
    "check_place",
    "cookie_path",
    "decode_registration",
    "encode_registration",
    "registration_path",
]

REGISTRATION_VERSION = 1
BOOKIES_PREFIX = "/bookies/"
COOKIES_PREFIX = "/cookies/"


ENDPOINTS_MAX = 16
TEXT_CHARS_MAX = 512  # Of an endpoint, and of a location.

# What may stand in these fields, which every client may write; msgspec refuses the rest while it decodes.
_Id = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
_Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]
_Endpoints = Annotated[list[_Text], msgspec.Meta(max_length=ENDPOINTS_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]


class Registration(msgspec.Struct, frozen=True, array_like=True):
    version: int
    bookie_id: _Id
    incarnation: _Incarnation
    endpoints: _Endpoints
    is_writable: bool
    free_bytes: _Count
    location: _Text = ""  # "zone/rack" (RP38, RP40); nothing where nobody said it.


_decoder = msgspec.msgpack.Decoder(Registration)


def registration_path(bookie_id: str) -> str:
    return BOOKIES_PREFIX + bookie_id


def encode_registration(value: Registration) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_registration(data: bytes, bookie_id: str | None = None) -> Registration:
    """Raises StorageError for bytes that are not a registration of a version this code knows; of this bookie, where
    one is given."""
    value = unpack(_decoder, data, StorageError, f"these {len(data)} bytes are no bookie registration")
    if value.version != REGISTRATION_VERSION:
        raise StorageError(
            f"registration has version {value.version}; this embedbk knows {REGISTRATION_VERSION}"
        )
    if bookie_id not in (None, value.bookie_id):
        raise StorageError(f"this is the registration of bookie {value.bookie_id!r}")
    return value


def check_place(endpoints: Sequence[str], location: str) -> None:
    """What a bookie says of itself, before it starts: everybody who reads its registration would refuse it.

    Raises UsageError for more or longer texts than a registration may have.
    """
    if len(endpoints) > ENDPOINTS_MAX:
        raise UsageError(f"a bookie with {len(endpoints)} endpoints; at most {ENDPOINTS_MAX} are allowed")
    for text in (*endpoints, location):
        if len(text) > TEXT_CHARS_MAX:
            raise UsageError(
                f"{text[:40]!r}... of a bookie has {len(text)} characters; at most {TEXT_CHARS_MAX} are allowed"
            )


def cookie_path(bookie_id: str) -> str:
    """Where the cluster keeps the incarnation that a bookie id is bound to (P7.2)."""
    return COOKIES_PREFIX + bookie_id
