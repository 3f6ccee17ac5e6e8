"""Events and effects of cores that repair: what they ask of the metadata beside keys, and the repairs they begin."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from embedbk.codec.log_cursors import CursorHold
from embedbk.codec.metadata_messages import Acquire, Release, Result
from embedbk.codec.repair_messages import Repairing
from embedbk.core.vocabulary import Tag

__all__ = [
    "AskQuorum",
    "BeginRepair",
    "BeginSmallRepairs",
    "HeldMark",
    "QuorumAnswered",
    "RepairOutcome",
    "RepairOver",
    "Retained",
    "SmallRepaired",
    "SmallRepairsOver",
]


class AskQuorum(Struct):
    """Let the metadata do this. Followed by exactly one `QuorumAnswered`, unless the core ended meanwhile."""

    tag: Tag
    operation: Repairing | Acquire | Release


class QuorumAnswered(Struct):
    """The outcome of `AskQuorum`: its result, or a refusal; one of a lost session may be done all the same."""

    now_ns: int
    tag: Tag
    result: Result


class BeginRepair(Struct):
    """Repair this ledger, held under this epoch, whose mark has this revision."""

    ledger_id: int
    epoch: int
    mark_revision: int


class HeldMark(NamedTuple):
    """A marked ledger that is held under this epoch, and the revision of its mark."""

    ledger_id: int
    epoch: int
    mark_revision: int


class BeginSmallRepairs(Struct):
    """Repair those of these ledgers that are small, side by side."""

    held: tuple[HeldMark, ...]


class RepairOutcome(Struct, frozen=True):
    """How the repair of a ledger ended. copies: entries, counted once for each bookie that got them; filled: those of
    them that a bookie got which has its seat for long. moved: seats that bookies gave away which stay (P11.6)."""

    ledger_id: int
    kind: str  # "repaired", "nothing missing", "deferred", "postponed", "unrepairable", "lost".
    copies: int = 0
    copied_bytes: int = 0
    why: str = ""
    filled: int = 0
    moved: int = 0


class RepairOver(Struct):
    """A repair that was begun has ended, whichever way; its hold is given back, or was lost."""

    now_ns: int
    outcome: RepairOutcome


class SmallRepaired(Struct, frozen=True):
    """How repairs side by side ended. alone: ledgers that are held as before, and are to be repaired each by itself.
    refused: transactions of several ledgers that were asked again in halves."""

    outcomes: tuple[RepairOutcome, ...]
    alone: tuple[HeldMark, ...]
    refused: int = 0


class SmallRepairsOver(Struct):
    """Repairs that were begun side by side have ended."""

    now_ns: int
    result: SmallRepaired


class Retained(Struct):
    """Ledgers left the front of a log by its retention. For the host, which logs it; otherwise no one would know."""

    log: str  # Its id.
    reached: int  # The offset at which it begins now.
    ledgers: int
    expired: tuple[str, ...]  # Pins that were taken away, as their time was over.
    ended: tuple[tuple[str, CursorHold], ...]  # Cursors that hold no more, by their own bounds.
