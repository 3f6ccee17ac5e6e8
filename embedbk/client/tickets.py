"""One append as its caller sees it: what it asks for, its ticket, and what became of it (P3.6).

A ticket is light: acknowledgements come in entry order (P3.3), so the handle's LAC answers every ticket and none keeps
a future. What a ticket is asked is answered by the handle (`appending.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from embedbk.client.runtime import refuse_pickling
from embedbk.client.waiting import run_async, run_blocking
from embedbk.config import check_seconds
from embedbk.ids import Position

if TYPE_CHECKING:
    from embedbk.client.appending import Appending

__all__ = ["PLAIN", "AppendTerms", "Fate", "Ticket", "terms_of"]


class Fate(enum.Enum):
    """Whether an append survived (P3.6)."""

    SURVIVED = "survived"  # It is in the ledger, for good.
    LOST = "lost"  # It is not, and never will be.
    UNKNOWN = "unknown"  # The ledger is not closed, so either may still happen.


class AppendTerms(NamedTuple):
    """The conditions and limits that a caller gives one append."""

    timeout_s: float | None = None
    entry_id: int | None = None
    after: Position | None = None
    producer: tuple[int, int] | None = None


PLAIN = AppendTerms()


def terms_of(
    timeout_s: float | None, entry_id: int | None, after: Position | None, producer: tuple[int, int] | None
) -> AppendTerms:
    """PLAIN where nothing was asked, which is the fast way."""
    if timeout_s is None and entry_id is None and after is None and producer is None:
        return PLAIN
    check_seconds(timeout_s, "timeout_s")
    return AppendTerms(timeout_s, entry_id, after, producer)


class Ticket:
    """An entry on its way. `result()` blocks until it is acknowledged; under asyncio, await the ticket."""

    __slots__ = ("_appending", "_copies", "_entry_id")

    def __init__(self, appending: Appending, entry_id: int) -> None:
        self._appending = appending
        self._entry_id = entry_id
        self._copies = 0  # That bookies have said since.

    @property
    def entry_id(self) -> int:
        return self._appending.now(self._entry_id)[1]

    @property
    def position(self) -> Position:
        """Where the entry stands if it survives; given before it is acknowledged. Until then it is another one when the
        ledger of a log fails, and what was outstanding goes to the next one (P8.2)."""
        handle, entry_id = self._appending.now(self._entry_id)
        return Position(handle.ledger_id, entry_id)

    @property
    def offset(self) -> int:
        """The dense offset of the entry in its log; of a ledger by itself, its id. As `position`, it may be another one
        until it is acknowledged: what goes to a next ledger closes up where some of it is refused there (P8.2)."""
        handle, entry_id = self._appending.now(self._entry_id)
        return handle.first_offset + entry_id

    @property
    def epoch(self) -> int | None:
        """The fencing token under which it was appended (P9.2); None: to a ledger by itself."""
        return self._appending.now(self._entry_id)[0].epoch

    def done(self) -> bool:
        """Whether `result()` would answer at once."""
        handle, entry_id = self._appending.now(self._entry_id)
        return handle.writing.is_settled(entry_id)

    @property
    def durability(self) -> str | None:
        """ "synced" on the disks of the ack quorum; "received" in its memory only (P3.2); None: not acknowledged."""
        handle, entry_id = self._appending.now(self._entry_id)
        if handle.writing.lac >= entry_id:
            return "synced"
        return "received" if handle.writing.received >= entry_id else None

    @property
    def copies(self) -> int:
        """On so many disks it is, as this ticket knows: 0 before it is synced on its ack quorum, then Qa, and more once
        `at_least` has asked."""
        handle, entry_id = self._appending.now(self._entry_id)
        if handle.writing.lac < entry_id:
            return 0
        return max(self._copies, handle.writing.metadata.quorum.ack_quorum)

    def at_least(self, copies: int, timeout_s: float | None = None) -> int:
        """Wait until the entry is on so many disks, for who wants more than the ack quorum; `copies` then. Its bookies
        are asked, so only who calls it pays for it; the handle may be closed by then.

        Args:
            copies: 1 to the write quorum of its ledger.
            timeout_s: for the whole call; None: no limit.

        Raises:
            UsageError: copies is not allowed, or the cluster's level is below 10 and more than the ack quorum is asked.
            OperationTimeout: so many are not known in time; who lacks it or does not tell is named. The entry is on its
                way or acknowledged as before.
            What `result` raises.
        """
        return run_blocking(self._at_least(copies, timeout_s), "at_least_async of the ticket")

    async def at_least_async(self, copies: int, timeout_s: float | None = None) -> int:
        """As `at_least`, awaited."""
        return await run_async(self._at_least(copies, timeout_s))

    async def _at_least(self, copies: int, timeout_s: float | None) -> int:
        check_seconds(timeout_s, "timeout_s")
        if isinstance(copies, bool) or not isinstance(copies, int) or not 1 <= copies <= self.copies:
            self._copies = await self._appending.on_disks(self._entry_id, copies, timeout_s)
        return self.copies

    def result(self, timeout_s: float | None = None) -> Position:
        """The position, once the entry is acknowledged: durable on its ack quorum, unless sync is deferred.

        Raises:
            LedgerFenced, LedgerClosed, NotEnoughBookies: the handle failed; the entry may or may not survive (P3.6).
            OperationTimeout: timeout_s passed; the entry is still on its way.

        Both carry this ticket again, as `ticket`.
        """
        if timeout_s is None:
            return self._appending.wait_blocking(self._entry_id, "the ticket itself")
        check_seconds(timeout_s, "timeout_s")
        return run_blocking(self._appending.acknowledged(self._entry_id, timeout_s), "the ticket itself")

    def fate(self) -> Fate:
        """Whether the entry survived, also after an error: definite once the ledger's CLOSED metadata is read (P3.6).

        Raises:
            NoSuchLedger: the ledger was deleted meanwhile.
            MetadataUnavailable: no member could be asked; try again.
        """
        return run_blocking(self._appending.fate(self._entry_id), "fate_async of the ticket")

    async def fate_async(self) -> Fate:
        """As `fate`, awaited."""
        return await run_async(self._appending.fate(self._entry_id))

    def __await__(self) -> Generator[Any, None, Position]:
        return (yield from run_async(self._appending.acknowledged(self._entry_id)).__await__())

    def __reduce__(self) -> Any:
        refuse_pickling("a ticket", "send its position")

    def __repr__(self) -> str:
        return f"Ticket({self.position.ledger_id}, {self.entry_id}, {'settled' if self.done() else 'on its way'})"
