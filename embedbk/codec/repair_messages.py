"""Requests about ledgers that need repair, and their answers (P11.1; WIRE.md section 5)."""

from __future__ import annotations

import msgspec

from embedbk.codec.field_types import Number, ShortText

__all__ = [
    "REPAIRS_MAX",
    "EndRepairs",
    "FailRepairs",
    "MarkRepairs",
    "Repairing",
    "RepairsEnded",
    "RepairsMarked",
    "RepairsTaken",
    "TakeRepairs",
]

REPAIRS_MAX = 40  # Marks that one request puts, takes or ends.

_Bookies = tuple[ShortText, ...]  # Their ids; `metadata/limits.py` bounds how many.


class MarkRepairs(msgspec.Struct, frozen=True, array_like=True, tag=90):
    """Mark these ledgers, (id, bookies whose copies are missing), as in need of repair (P11.1). A mark that exists
    keeps its time, and adds the bookies that it did not name yet. created_ms: by the client's clock, of new marks; it
    is shown to people and decides nothing."""

    marks: tuple[tuple[Number, _Bookies], ...]
    created_ms: Number = 0


class TakeRepairs(msgspec.Struct, frozen=True, array_like=True, tag=91):
    """Let this session repair the oldest marked ledgers, at most `count`, that no session repairs and none of whose
    missing bookies is in not_with. If there are none, the session waits in the order of asking. count 0: it waits no
    longer. asked: change nothing, and return what came of the request that was made at that revision."""

    count: Number
    not_with: _Bookies = ()
    asked: Number = 0


class EndRepairs(msgspec.Struct, frozen=True, array_like=True, tag=92):
    """These, (ledger id, epoch of the hold, revision of the mark that was worked off), are repaired. A mark that is
    still at that revision is deleted; one that has changed stays for the next repair."""

    ended: tuple[tuple[Number, Number, Number], ...]


class FailRepairs(msgspec.Struct, frozen=True, array_like=True, tag=93):
    """These, (ledger id, epoch of the hold), were not repaired: no session may take them for a while, longer each time.
    postpones False: they are only given back, and the next session may take them at once."""

    failed: tuple[tuple[Number, Number], ...]
    postpones: bool = True


Repairing = MarkRepairs | TakeRepairs | EndRepairs | FailRepairs


class RepairsMarked(msgspec.Struct, frozen=True, array_like=True, tag=94):
    """left: ledgers whose marks stay as they were, because the mark cannot be read or would name too many bookies."""

    revision: int  # The change's, or the catalog's.
    left: tuple[int, ...] = ()


class RepairsTaken(msgspec.Struct, frozen=True, array_like=True, tag=95):
    """The ledgers that a session may repair. epoch: of its hold on each of these ledgers (P9.2); 0: it holds none.
    asked: the revision at which it asked; with epoch 0 it has waited since then, or, where that is 0, it does not wait.
    marks: (ledger id, revision of the mark, position in missing)."""

    epoch: int
    asked: int
    revision: int  # The catalog's.
    marks: tuple[tuple[int, int, int], ...] = ()
    # Sets of bookies whose copies are missing, each set once. The empty set stands for one too large: read the mark.
    missing: tuple[tuple[str, ...], ...] = ()


class RepairsEnded(msgspec.Struct, frozen=True, array_like=True, tag=96):
    """outcomes: one for each ledger, in the order of the request. 0: it was not held under that epoch, and nothing was
    changed; 1: done as asked; 2: given back, because its mark has changed meanwhile."""

    revision: int
    outcomes: tuple[int, ...]
