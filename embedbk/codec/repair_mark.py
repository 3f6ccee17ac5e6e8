"""Where the cluster keeps that a ledger needs repair, and is being repaired (P7.7, P11): one key per ledger.

While the key is there, some bookie may be getting copies that no fragment names yet.
"""

from __future__ import annotations

import contextlib
from typing import Annotated

import msgspec

from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import INCARNATION_BYTES, LEDGER_ID_MAX, NAME_PATTERN

__all__ = [
    "MARK_VERSION",
    "MISSING_BYTES_MAX",
    "MISSING_MAX",
    "MarkProgress",
    "REPAIR_PREFIX",
    "RepairMark",
    "TARGETS_MAX",
    "WHY_CHARS_MAX",
    "decode_repair_mark",
    "encode_repair_mark",
    "is_missing_set",
    "is_orphan",
    "moves_of",
    "progress_of",
    "repair_mark_path",
    "with_moves",
    "with_orphan",
    "with_progress",
]

MARK_VERSION = 1
REPAIR_PREFIX = "/ur/"
MISSING_MAX = 64  # Bookies that one mark names.
MISSING_BYTES_MAX = (
    1024  # Bytes of their ids together: the catalog keeps answers that name them (METADATA.md, 1).
)
TARGETS_MAX = 64  # Bookies that get copies under one mark; the newest are kept.
WHY_CHARS_MAX = 400  # Characters of the reason for a failure.

_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]  # msgspec refuses the rest while it decodes.
_BookieId = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
_Targets = Annotated[tuple[tuple[_BookieId, _Incarnation], ...], msgspec.Meta(max_length=TARGETS_MAX)]


class RepairMark(msgspec.Struct, frozen=True, array_like=True):
    """missing: bookies whose copies are missing, sorted, each once. created_ms: by the first marker's clock; for
    people. tries: repairs of it that failed. is_postponed: no worker may take it for a while after the last of them."""

    version: int
    missing: tuple[str, ...]
    created_ms: _Count = 0
    tries: _Count = 0
    is_postponed: bool = False
    # Fields behind these, each as its bytes: kept by every build that writes the mark anew. The first two are the
    # workers' (`MarkProgress`), the third is the auditor's (`is_orphan`), the fourth the balancer's (`moves_of`). The
    # catalog looks into none of them: so members of two builds decide alike.
    rest: tuple[bytes, ...] = ()


class MarkProgress(msgspec.Struct, frozen=True):
    """The part of a mark that workers write. targets: (bookie, incarnation) of those that get copies, or got some that
    no fragment names yet, the newest last; written before the first copy. why: why the last try failed, for people."""

    targets: tuple[tuple[str, bytes], ...] = ()
    why: str = ""


_FIELDS = len(RepairMark.__struct_fields__) - 1  # `rest` is no field of the array.
_decode_parts = msgspec.msgpack.Decoder(list[msgspec.Raw])
_known = msgspec.msgpack.Decoder(RepairMark)
_encode = msgspec.msgpack.Encoder().encode
_decode_targets = msgspec.msgpack.Decoder(_Targets)
_decode_why = msgspec.msgpack.Decoder(str)
_decode_orphan = msgspec.msgpack.Decoder(bool)
_decode_moves = msgspec.msgpack.Decoder(
    Annotated[dict[_BookieId, _BookieId], msgspec.Meta(max_length=MISSING_MAX)]
)


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


def progress_of(mark: RepairMark) -> MarkProgress:
    """A part that cannot be read counts as not written yet: the worker chooses a target anew then."""
    targets: tuple[tuple[str, bytes], ...] = ()
    why = ""
    with contextlib.suppress(StorageError, IndexError):
        targets = unpack(_decode_targets, mark.rest[0], StorageError, "these are no targets")
        why = unpack(_decode_why, mark.rest[1], StorageError, "this is no reason")
    return MarkProgress(targets, why[:WHY_CHARS_MAX])


def with_progress(mark: RepairMark, progress: MarkProgress) -> RepairMark:
    """The mark with this, and with everything else as it is."""
    targets, why = _encode(progress.targets[-TARGETS_MAX:]), _encode(progress.why[:WHY_CHARS_MAX])
    return msgspec.structs.replace(mark, rest=(targets, why, *mark.rest[2:]))


def is_orphan(mark: RepairMark) -> bool:
    """Whether the auditor says that nobody closes the ledger: its writer's session has been gone for the grace, or its
    recovery has stood for that long (P11.2). A part that cannot be read says nothing."""
    with contextlib.suppress(StorageError, IndexError):
        return unpack(_decode_orphan, mark.rest[2], StorageError, "this is no word")
    return False


def with_orphan(mark: RepairMark, *, is_so: bool) -> RepairMark:
    """The mark with that word. One that says so may be taken at once, however often it was tried."""
    whole = with_progress(mark, progress_of(mark))
    rest = (*whole.rest[:2], _encode(is_so), *whole.rest[3:])
    if not is_so:
        return msgspec.structs.replace(whole, rest=rest)
    return msgspec.structs.replace(whole, rest=rest, tries=0, is_postponed=False)


def moves_of(mark: RepairMark) -> dict[str, str]:
    """Bookies that the mark names and that give their seats away though they stay, each with the one that gets them
    (P11.6). A part that cannot be read says nothing."""
    with contextlib.suppress(StorageError, IndexError):
        moves = unpack(_decode_moves, mark.rest[3], StorageError, "these are no moves")
        return {bookie_id: target for bookie_id, target in moves.items() if bookie_id in mark.missing}
    return {}


def with_moves(mark: RepairMark, moves: dict[str, str]) -> RepairMark:
    """The mark with these moves, of bookies that it names."""
    whole = mark if len(mark.rest) > 2 else with_orphan(mark, is_so=False)
    return msgspec.structs.replace(whole, rest=(*whole.rest[:3], _encode(moves), *whole.rest[4:]))
