"""The three keys of a bookie in the metadata. Its ephemeral registration has its address (RP47: an id is not an
address). Its cookie has the directories, and their newest start, that the id is bound to (P7.2, P7.9). Its placement
says whether something may be placed there, which operator takes it out of service, and which of its directories are
retired (P10.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from embedbk.codec.unpacking import unpack
from embedbk.config import READ_BYTES_PER_S_MAX
from embedbk.errors import StorageError, UsageError
from embedbk.ids import INCARNATION_BYTES, LEDGER_ID_MAX, NAME_PATTERN, START_ID_BYTES

__all__ = [
    "BOOKIES_PREFIX",
    "COOKIE_VERSION",
    "PLACEMENTS_PREFIX",
    "PLACEMENT_VERSION",
    "PlacementNote",
    "ReadBounds",
    "ReadOnlyWord",
    "REGISTRATION_VERSION",
    "Registration",
    "RetiredDirectories",
    "UNBOUNDED",
    "COOKIES_PREFIX",
    "Cookie",
    "check_place",
    "cookie_path",
    "decode_cookie",
    "decode_placement",
    "decode_registration",
    "encode_cookie",
    "encode_placement",
    "encode_registration",
    "placement_path",
    "registration_path",
]

REGISTRATION_VERSION = 1
COOKIE_VERSION = 2
PLACEMENT_VERSION = 1
BOOKIES_PREFIX = "/bookies/"
COOKIES_PREFIX = "/cookies/"
PLACEMENTS_PREFIX = "/placements/"

ENDPOINTS_MAX = JOURNALS_MAX = 16
TEXT_CHARS_MAX = 512  # In an endpoint, and in a location.
RETIRED_MAX = 16  # Directories of one id that were taken out of service; the newest are kept.

# Bounds of these fields, which every client may write; msgspec refuses the rest while it decodes.
_Id = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
_Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]
_Endpoints = Annotated[list[_Text], msgspec.Meta(max_length=ENDPOINTS_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_BytesPerS = Annotated[int, msgspec.Meta(ge=0, le=READ_BYTES_PER_S_MAX)]
_Start = Annotated[bytes, msgspec.Meta(max_length=START_ID_BYTES)]
_Tokens = Annotated[tuple[_Count, ...], msgspec.Meta(max_length=JOURNALS_MAX)]


class Registration(msgspec.Struct, frozen=True, array_like=True):
    version: int
    bookie_id: _Id
    incarnation: _Incarnation
    endpoints: _Endpoints
    is_writable: bool
    free_bytes: _Count
    location: _Text = ""  # "zone/rack" (RP38, RP40); empty: it was not given.
    start: _Start = b""  # Random number of this start: endpoints may be the same after a kill (P7.9).
    why: _Text = ""  # It is read-only, in a few words for people; empty while it is writable.
    # Revision of its placement as of this registration (P10.6); None: an older build, or no room for that key.
    placement: _Count | None = None
    is_leaving: bool = False  # It is drained: writers and repairs move its seats elsewhere (P11.3).
    # Entry logs that may hold entries which nobody can find: while there are any, it denies nothing (ST38, P7.1).
    dark_logs: _Count = 0


_decoder = msgspec.msgpack.Decoder(Registration)


def registration_path(bookie_id: str) -> str:
    return BOOKIES_PREFIX + bookie_id


def placement_path(bookie_id: str) -> str:
    """Every transaction that newly names the bookie compares the revision of this key (P10.6). Its value is a
    `PlacementNote`, or empty."""
    return PLACEMENTS_PREFIX + bookie_id


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
    """Check what a bookie is about to register, before it starts: every reader of a bad registration would refuse it.

    Raises UsageError for more or longer texts than a registration may have.
    """
    if len(endpoints) > ENDPOINTS_MAX:
        raise UsageError(f"a bookie with {len(endpoints)} endpoints; at most {ENDPOINTS_MAX} are allowed")
    for text in (*endpoints, location):
        if len(text) > TEXT_CHARS_MAX:
            raise UsageError(
                f"{text[:40]!r}... of a bookie has {len(text)} characters; at most {TEXT_CHARS_MAX} are allowed"
            )


class Cookie(msgspec.Struct, frozen=True, array_like=True):
    """The directories that a bookie id is bound to, and their newest start that the cluster knows."""

    version: int
    incarnation: _Incarnation
    starts: _Count = 0  # Starts of these directories, up to this one; 0: its build did not count them.
    start: _Start = b""  # Its random number.
    tokens: _Tokens = ()  # For each journal, the newest token that was durable when this was written.
    place: _Text = ""  # Where it ran, for people.
    endpoints: _Endpoints = msgspec.field(
        default_factory=list
    )  # Where it was asked; from LEVEL_OF_KEEPERS on.


_cookie_decoder = msgspec.msgpack.Decoder(Cookie)


def encode_cookie(value: Cookie) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_cookie(data: bytes) -> Cookie:
    """Raises StorageError for bytes that are no cookie of a version this code knows."""
    if len(data) == INCARNATION_BYTES:
        return Cookie(1, data)  # An old build wrote only the incarnation; a newer cookie is longer.
    value = unpack(_cookie_decoder, data, StorageError, f"these {len(data)} bytes are no bookie's cookie")
    if value.version != COOKIE_VERSION:
        raise StorageError(f"cookie has version {value.version}; this embedbk knows {COOKIE_VERSION}")
    return value


def cookie_path(bookie_id: str) -> str:
    """Where the cluster keeps the incarnation that a bookie id is bound to (P7.2)."""
    return COOKIES_PREFIX + bookie_id


class RetiredDirectories(msgspec.Struct, frozen=True, array_like=True):
    """Directories that were taken out of service: a bookie that starts on them is refused (P11.3). was_empty: no ledger
    named them any more; else they were given up, and their copies counted as lost."""

    incarnation: _Incarnation
    retired_ms: _Count
    by: _Text
    why: _Text = ""
    was_empty: bool = False


class ReadOnlyWord(msgspec.Struct, frozen=True, array_like=True):
    """An operator's decision that a bookie is read-only: by whom, why and when."""

    by: _Text
    why: _Text
    since_ms: _Count


class ReadBounds(msgspec.Struct, frozen=True, array_like=True):
    """An operator's bounds of what a bookie reads for each class but the first, in bytes per second; 0: none (P6.7)."""

    catch_up: _BytesPerS = 0
    batch: _BytesPerS = 0
    upkeep: _BytesPerS = 0
    by: _Text = ""
    since_ms: _Count = 0

    @property
    def by_class(self) -> tuple[int, ...]:
        """As `codec.read_messages.ReadClass` numbers the classes."""
        return (0, self.catch_up, self.batch, self.upkeep)


UNBOUNDED = ReadBounds()


class PlacementNote(msgspec.Struct, frozen=True, array_like=True):
    """Operators' decisions about a bookie. is_draining: nothing is placed there, and its copies move elsewhere. why,
    by, changed_ms: of the last decision about that, for people. read_only: nothing is placed there, and its copies
    stay; only from LEVEL_OF_READ_ONLY_WORDS on. read_bounds: only from LEVEL_OF_READ_BOUNDS on. Each stands for
    itself."""

    version: int = PLACEMENT_VERSION
    is_draining: bool = False
    why: _Text = ""
    by: _Text = ""
    changed_ms: _Count = 0
    retired: Annotated[tuple[RetiredDirectories, ...], msgspec.Meta(max_length=RETIRED_MAX)] = ()
    read_only: ReadOnlyWord | None = None
    read_bounds: ReadBounds = UNBOUNDED

    @property
    def takes_nothing_new(self) -> bool:
        return self.is_draining or self.read_only is not None


_placement_decoder = msgspec.msgpack.Decoder(PlacementNote)


def encode_placement(value: PlacementNote) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_placement(data: bytes) -> PlacementNote:
    """An empty value, as the key is created, is no decision. Raises StorageError for bytes that are no note of a
    version that this code knows."""
    if not data:
        return PlacementNote()
    value = unpack(
        _placement_decoder, data, StorageError, f"these {len(data)} bytes are no bookie's placement"
    )
    if value.version != PLACEMENT_VERSION:
        raise StorageError(f"placement has version {value.version}; this embedbk knows {PLACEMENT_VERSION}")
    return value
