"""What the data source asks of embedbk: which ranges a log has, and the entries of one range.

`plan` runs once, on the driver; `read` runs in the executors, each with its own client, straight from the bookies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import embedbk
from embedbk.client.batches import Batch
from embedbk.errors import EntryUnreadable
from embedbk.ids import Position

__all__ = ["LedgerRange", "ReadPlace", "plan", "read"]


@dataclass(frozen=True, slots=True)
class ReadPlace:
    """Which log of which cluster; plain data, for it travels to the executors."""

    cluster: str
    log: str
    password: bytes = b""


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """Entries first_entry..last_entry, both included, of one ledger of a log."""

    ledger_id: int
    first_entry: int
    last_entry: int

    @property
    def entry_count(self) -> int:
        return self.last_entry - self.first_entry + 1


def plan(place: ReadPlace) -> list[LedgerRange]:
    """What may be read of the log now, a range for each ledger that has entries.

    What is confirmed never changes, so whoever reads these ranges later, and again, reads the same.
    """
    with embedbk.open(place.cluster) as bk:
        segments = bk.log(place.log, password=place.password).segments()
    return [LedgerRange(part.ledger_id, 0, part.last_entry) for part in segments if part.last_entry >= 0]


def read(place: ReadPlace, part: LedgerRange) -> Iterator[Batch]:
    """The entries of one range, in order and all of them.

    Raises:
        EntryUnreadable: fewer could be read than were planned; reading again may help.
    """
    start, end = Position(part.ledger_id, part.first_entry), Position(part.ledger_id, part.last_entry + 1)
    count = 0
    with embedbk.open(place.cluster) as bk:
        for batch in bk.log(place.log, password=place.password).read_batches(start, end):
            count += len(batch.ids)
            yield batch
    # A LAC may be heard lower than it was at planning, where the bookie that knew it is gone: no rows may be lost.
    if count != part.entry_count:
        raise EntryUnreadable(
            f"log {place.log!r}, ledger {part.ledger_id}: {count} of the entries "
            f"{part.first_entry}..{part.last_entry} could be read, which were confirmed when the read was planned",
            hint="read again when more bookies of the ledger answer",
        )
