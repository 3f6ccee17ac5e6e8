"""An operator's word which copy of an entry is right, as it stands in the metadata (P11.5): one key per entry.

Copies that differ and are each whole by themselves are replaced by such a word alone. It says what was held where, so
that no other copy than those is replaced, and it stays: who decided what, when and why. A later word about the same
entry is put behind the earlier ones.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.codec.repair_mark import WHY_CHARS_MAX
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import INCARNATION_BYTES, LEDGER_ID_MAX, NAME_PATTERN

__all__ = [
    "DECIDED_PREFIX",
    "DECISIONS_MAX",
    "CopyDecision",
    "DecidedCopy",
    "decided_of_ledger",
    "decided_path",
    "decode_copy_decisions",
    "encode_copy_decisions",
]

DECIDED_PREFIX = "/decided/"
DECISIONS_MAX = 16  # About one entry; of more the newest are kept.
_VERSION = 1

_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]  # msgspec refuses the rest while it decodes.
_Digest = Annotated[int, msgspec.Meta(ge=0)]  # Any 64 bits.
_BookieId = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
_Text = Annotated[str, msgspec.Meta(max_length=WHY_CHARS_MAX)]


class DecidedCopy(msgspec.Struct, frozen=True, array_like=True):
    """The copy of one bookie, as it was when the operator decided."""

    bookie_id: _BookieId
    incarnation: _Incarnation
    digest: _Digest


class CopyDecision(msgspec.Struct, frozen=True, array_like=True):
    """chosen: the copy that is right. replaced: those that others hold, and that it takes the place of. is_done: all of
    them were. decided_ms: by the operator's clock, for people, like by and why."""

    chosen: DecidedCopy
    replaced: Annotated[tuple[DecidedCopy, ...], msgspec.Meta(min_length=1, max_length=64)]
    by: _Text = ""
    why: _Text = ""
    decided_ms: _Count = 0
    is_done: bool = False


class _Decisions(msgspec.Struct, frozen=True, array_like=True):
    version: int
    decisions: Annotated[tuple[CopyDecision, ...], msgspec.Meta(min_length=1, max_length=DECISIONS_MAX)]


_decoder = msgspec.msgpack.Decoder(_Decisions)


def decided_of_ledger(ledger_id: int) -> str:
    """The prefix of the decision keys of one ledger."""
    return f"{DECIDED_PREFIX}{ledger_id:016x}/"


def decided_path(ledger_id: int, entry_id: int) -> str:
    return f"{decided_of_ledger(ledger_id)}{entry_id:016x}"


def encode_copy_decisions(decisions: tuple[CopyDecision, ...]) -> bytes:
    """Encode decisions, the newest last."""
    return msgspec.msgpack.encode(_Decisions(_VERSION, decisions[-DECISIONS_MAX:]))


def decode_copy_decisions(value: bytes) -> tuple[CopyDecision, ...]:
    """Raises StorageError for bytes that are no decisions of a version that this code knows."""
    found = unpack(_decoder, value, StorageError, f"these {len(value)} bytes are no decisions about copies")
    if found.version != _VERSION:
        raise StorageError(
            f"decisions about copies have version {found.version}; this embedbk knows {_VERSION}"
        )
    return found.decisions
