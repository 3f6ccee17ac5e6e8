"""The keys of repair beside the marks: the switch, the auditor's progress, and the ledgers that cannot be repaired.

There is one key each for the first two, and one for each ledger of which a fragment cannot be repaired now. While that
key exists no bookie drops a copy of the ledger, as while it is marked (P7.7): a copy that a stopped repair made may be
the last good one.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from embedbk.codec.repair_mark import WHY_CHARS_MAX
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "AUDITOR_LOCK",
    "AUDIT_KEY",
    "CONTROL_KEY",
    "AuditNote",
    "RepairControl",
    "UNREPAIRABLE_PREFIX",
    "Unrepairable",
    "decode_audit_note",
    "decode_repair_control",
    "decode_unrepairable",
    "encode_audit_note",
    "encode_repair_control",
    "encode_unrepairable",
    "unrepairable_path",
]

CONTROL_KEY, AUDIT_KEY = "/repair/control", "/repair/audit"
UNREPAIRABLE_PREFIX = "/unrepairable/"
AUDITOR_LOCK = "embedbk.auditor"
_STATE_VERSION = 1

_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_Entry = Annotated[int, msgspec.Meta(ge=NO_ENTRY, le=LEDGER_ID_MAX)]
_Text = Annotated[str, msgspec.Meta(max_length=WHY_CHARS_MAX)]


class RepairControl(msgspec.Struct, frozen=True, array_like=True):
    """The operators' switch. triggers: how often a round over all ledgers was asked for. changed_ms, by, why: of the
    last change, or of the stop while it is stopped, for people. grace_ms: how long a bookie is away before it counts
    as gone; 0: as the auditor's host is set. From LEVEL_OF_GRACES on. until_ms: the auditor ends the stop then; 0: an
    operator does. From LEVEL_OF_KEEPERS on."""

    version: int = _STATE_VERSION
    is_stopped: bool = False
    triggers: _Count = 0
    changed_ms: _Count = 0
    by: _Text = ""
    why: _Text = ""
    grace_ms: _Count = 0
    until_ms: _Count = 0

    @property
    def ends_ms(self) -> int | None:
        """When the auditor switches repair on again; None: it does not."""
        return self.until_ms if self.is_stopped and self.until_ms else None


class AuditNote(msgspec.Struct, frozen=True, array_like=True):
    """How far the auditor is. after: the last ledger of this round that was looked at; NO_ENTRY: between two rounds.
    began_ms, ended_ms: of the last round that began, and of the last one that ended, for people. away: bookies that
    were away for longer than the grace, as of this note. looked_at, marked: ledgers of the last round that ended.
    conflicts: ledgers in which copies of an entry differ, from each other or from what their writer published, as far
    as this auditor has seen. triggers: RepairControl.triggers, as the last round over all ledgers that ended had found
    it when it began; from LEVEL_OF_GRACES on."""

    version: int = _STATE_VERSION
    after: _Entry = NO_ENTRY
    rounds: _Count = 0
    began_ms: _Count = 0
    ended_ms: _Count = 0
    away: tuple[str, ...] = ()
    looked_at: _Count = 0
    marked: _Count = 0
    unread: _Count = 0
    conflicts: _Count = 0
    triggers: _Count = 0


class Unrepairable(msgspec.Struct, frozen=True, array_like=True):
    """A fragment of a ledger that cannot be repaired until something changes. first_entry: of the fragment. entry_id:
    without a good copy; NO_ENTRY where something else is lacking. judged: of what it was judged by
    (`repair/circumstances.py`); it is judged again when that is another. since_ms: for people."""

    version: int
    first_entry: _Count
    entry_id: _Entry
    missing: tuple[str, ...]
    why: _Text
    judged: bytes
    since_ms: _Count = 0


_encode = msgspec.msgpack.Encoder().encode
_control = msgspec.msgpack.Decoder(RepairControl)
_note = msgspec.msgpack.Decoder(AuditNote)
_unrepairable = msgspec.msgpack.Decoder(Unrepairable)


def unrepairable_path(ledger_id: int) -> str:
    return f"{UNREPAIRABLE_PREFIX}{ledger_id:016x}"


def encode_repair_control(control: RepairControl) -> bytes:
    return _encode(control)


def encode_audit_note(note: AuditNote) -> bytes:
    return _encode(note)


def encode_unrepairable(found: Unrepairable) -> bytes:
    return _encode(found)


def decode_repair_control(value: bytes) -> RepairControl:
    """Raises StorageError for bytes that are none of a version that this code knows."""
    return _known(unpack(_control, value, StorageError, f"these {len(value)} bytes are no switch of repair"))


def decode_audit_note(value: bytes) -> AuditNote:
    """Raises StorageError for bytes that are none of a version that this code knows."""
    return _known(unpack(_note, value, StorageError, f"these {len(value)} bytes are no auditor's place"))


def decode_unrepairable(value: bytes) -> Unrepairable:
    """Raises StorageError for bytes that are none of a version that this code knows."""
    what = f"these {len(value)} bytes are no ledger that cannot be repaired"
    return _known(unpack(_unrepairable, value, StorageError, what))


_Kept = TypeVar("_Kept", RepairControl, AuditNote, Unrepairable)


def _known(kept: _Kept) -> _Kept:
    if kept.version != _STATE_VERSION:
        raise StorageError(
            f"{type(kept).__name__} has version {kept.version}; this embedbk knows {_STATE_VERSION}"
        )
    return kept
