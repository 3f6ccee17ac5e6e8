"""Where the cluster keeps that a ledger needs repair, and is being repaired (P7.7, P11): one key per ledger.

While the key is there, some bookie may be getting copies that no fragment names yet.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX

__all__ = [
    "MARK_VERSION",
    "MISSING_BYTES_MAX",
    "MISSING_MAX",
    "REPAIR_PREFIX",
    "RepairMark",
    "decode_repair_mark",
    "encode_repair_mark",
    "is_missing_set",
    "repair_mark_path",
]

MARK_VERSION = 1
REPAIR_PREFIX = "/ur/"
MISSING_MAX = 64  # Bookies that one mark names.
MISSING_BYTES_MAX = 1024  # Of their ids together: answers that name them are kept (METADATA.md, 1).

_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]  # msgspec refuses the rest while it decodes.


class RepairMark(msgspec.Struct, frozen=True, array_like=True):
    """missing: bookies whose copies are missing, sorted, each once. created_ms: by the clock of who marked it first;
    for people. tries: repairs of it that failed. is_postponed: since the last of them nobody may take it."""

    version: int
    missing: tuple[str, ...]
    created_ms: _Count = 0
    tries: _Count = 0
    is_postponed: bool = False
    # What stands behind these, each as its bytes: fields of later builds, kept by whatever build writes the mark anew.
    rest: tuple[bytes, ...] = ()


_FIELDS = len(RepairMark.__struct_fields__) - 1  # `rest` is no field of the array.
_decode_parts = msgspec.msgpack.Decoder(list[msgspec.Raw])
_known = msgspec.msgpack.Decoder(RepairMark)
_encode = msgspec.msgpack.Encoder().encode


def repair_mark_path(ledger_id: int) -> str:
    return f"{REPAIR_PREFIX}{ledger_id:016x}"


def is_missing_set(missing: tuple[str, ...]) -> bool:
    """Whether a mark may name these bookies: some, not too many, sorted and each once."""
    return (
        0 < len(missing) <= MISSING_MAX
        and all(missing)
        and list(missing) == sorted(set(missing))
        and sum(len(each.encode()) for each in missing) <= MISSING_BYTES_MAX
    )


def encode_repair_mark(mark: RepairMark) -> bytes:
    return _encode([*msgspec.structs.astuple(mark)[:_FIELDS], *map(msgspec.Raw, mark.rest)])


def decode_repair_mark(value: bytes) -> RepairMark:
    """Raises StorageError for bytes that are not a mark of a version that this code knows."""
    what = f"these {len(value)} bytes are no repair mark"
    parts = unpack(_decode_parts, value, StorageError, what)
    head = _encode(parts[:_FIELDS])
    mark = unpack(_known, head, StorageError, what)
    if mark.version != MARK_VERSION:
        raise StorageError(f"repair mark has version {mark.version}; this embedbk knows {MARK_VERSION}")
    if not is_missing_set(mark.missing):
        raise StorageError(f"repair mark names {len(mark.missing)} bookies: not sorted, too many, or none")
    return msgspec.structs.replace(mark, rest=tuple(bytes(each) for each in parts[_FIELDS:]))
