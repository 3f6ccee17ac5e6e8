"""What a bookie says of itself under its ephemeral key, by which clients find it (RP47: an id is not an address)."""

from __future__ import annotations

import msgspec

from embedbk.errors import StorageError

__all__ = [
    "BOOKIES_PREFIX",
    "REGISTRATION_VERSION",
    "Registration",
    "COOKIES_PREFIX",
    "cookie_path",
    "decode_registration",
    "encode_registration",
    "registration_path",
]

REGISTRATION_VERSION = 1
BOOKIES_PREFIX = "/bookies/"
COOKIES_PREFIX = "/cookies/"


class Registration(msgspec.Struct, frozen=True, array_like=True):
    version: int
    bookie_id: str
    incarnation: bytes
    endpoints: list[str]
    is_writable: bool
    free_bytes: int
    location: str = ""  # "zone/rack" (RP38, RP40); nothing where nobody said it.


def registration_path(bookie_id: str) -> str:
    return BOOKIES_PREFIX + bookie_id


def encode_registration(value: Registration) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_registration(data: bytes) -> Registration:
    """Raises StorageError for bytes that are not a registration of a version this code knows."""
    try:
        value = msgspec.msgpack.decode(data, type=Registration)
    except msgspec.MsgspecError as broken:
        raise StorageError(f"these {len(data)} bytes are no bookie registration: {broken}") from broken
    if value.version != REGISTRATION_VERSION:
        raise StorageError(
            f"registration has version {value.version}; this embedbk knows {REGISTRATION_VERSION}"
        )
    return value


def cookie_path(bookie_id: str) -> str:
    """Where the cluster keeps the incarnation that a bookie id is bound to (P7.2)."""
    return COOKIES_PREFIX + bookie_id
