"""Which ledgers of one client have bookies that missed acknowledged entries, and when these are sent again (P8.7).

Decides when it looks, and how long it waits where some copies could not be made: twice as long each time. A log goes on
in a next ledger instead (`keeping`), and repair does the rest; a ledger that an application created itself has nothing
but this until it is closed. All of it runs on the host's thread, one ledger after the other.
`repair.open_ledger_fill` asks and copies.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from embedbk.core.pausing import Pausing
from embedbk.errors import EmbedbkError
from embedbk.host.awaited import Awaited
from embedbk.host.operations import OneResult
from embedbk.host.writing import Writing
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.open_ledger_fill import FillOutcome, OpenLedgerFill

if TYPE_CHECKING:
    from embedbk.client.runtime import Runtime

__all__ = ["MissedCopies"]

logger = logging.getLogger("embedbk.client.ledger")

_DOUBLINGS_MAX = 5  # The pause between two tries of one ledger is at most 32 times as long as the first one.


class MissedCopies:
    """The ledgers of one client of which a bookie may lack acknowledged entries."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # Each with how often it was tried since it was noticed.
        self._noticed: dict[Writing, int] = {}
        self._due: list[Writing] = []  # In this round.
        self._is_armed = False
        self._pace = CopyPace(runtime.settings.repair_bytes_per_s)

    def notice(self, writing: Writing) -> None:
        """A bookie of this handle's ledger may lack acknowledged entries from now on (CopiesMissed)."""
        self._noticed[writing] = 0
        if not self._is_armed:
            self._pause()

    def _pause(self) -> None:
        """Wait for the next round, if there is anything to do in it."""
        self._is_armed = bool(self._noticed)
        if not self._is_armed:
            return
        doublings = min(*self._noticed.values(), _DOUBLINGS_MAX)
        pause = OneResult(Pausing(int(self._runtime.fill_look_s * 1e9) << doublings))
        pause.future.add_done_callback(self._passed)
        self._start(pause)

    def _start(self, operation: OneResult) -> None:
        try:
            self._runtime.start(operation)
        except EmbedbkError:
            self._is_armed = False  # The client was closed.

    def _passed(self, ended: Awaited[Any]) -> None:
        if ended.exception() is None:
            self._due = list(self._noticed)
            self._next()

    def _next(self) -> None:
        while self._due:
            writing = self._due.pop(0)
            if writing.is_over or writing.error is not None:
                # Repair looks after what is closed, and nobody appends to what failed.
                self._noticed.pop(writing, None)
                continue
            self._begin(writing)
            return
        self._pause()

    def _begin(self, writing: Writing) -> None:
        runtime, tries = self._runtime, self._noticed[writing]
        self._noticed[writing] = tries + 1
        core = OpenLedgerFill(
            writing.metadata, writing.lac, runtime.bookies, runtime.core_chance.getrandbits(63), self._pace
        )
        fill = OneResult(core)

        def filled(ended: Awaited[Any]) -> None:
            if ended.exception() is None:
                self._end(writing, tries, ended.result())

        fill.future.add_done_callback(filled)
        self._start(fill)

    def _end(self, writing: Writing, tries: int, outcome: FillOutcome) -> None:
        ledger_id = writing.metadata.ledger_id
        if outcome.copies:
            self._runtime.on_filled(ledger_id, outcome.copies)
        # Noticed anew meanwhile: what was missed since then this try did not ask for.
        if not outcome.left and self._noticed.get(writing) == tries + 1:
            del self._noticed[writing]
            writing.has_missed = False
        elif outcome.left and not tries:
            logger.warning(
                "ledger %d keeps fewer copies of some entries, and tries again to make them: %s",
                ledger_id,
                "; ".join(outcome.left),
            )
        self._next()
