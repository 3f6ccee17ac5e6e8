"""When the ledger of a log has become as large or as old as it may: then its next one is prepared, and taken (P8.2).

Decides nothing but the moment. The appending thread looks at bytes and entries, at an entry that was worked out before,
so that an append costs one comparison; a wait of its own looks at the age. Each ledger draws its own bounds a little
around what was asked for, so that logs that began together do not roll together.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from embedbk.client.appending import Appending
from embedbk.client.waiting import Moved
from embedbk.codec.log_list import Begun
from embedbk.config import Roll
from embedbk.forking import free_in_children
from embedbk.host.signal import Signal
from embedbk.host.writing import NEVER_REACHED, Writing
from embedbk.ids import NO_ENTRY

if TYPE_CHECKING:
    from embedbk.client.bounding import LogBytes
    from embedbk.client.renewing import Succession

__all__ = ["MOVING", "PREPARE_AT", "RollBounds"]

# At this share of a bound the next ledger is listed. Earlier, idle logs would hold two each.
PREPARE_AT = 0.8
_JITTER = 0.1  # A share of a bound, to either side.
_LATER = 0.01  # A failed roll is tried again after so much more of a bound.


# Guards the ledgers, bounds and bytes of all writers of logs, for a moment each: locks of its own would be a tenth of
# what an idle one costs. Re-entrant, since the garbage collector may run meanwhile and end a coroutine that nothing
# awaits any more, and that coroutine leaves its log.
MOVING = free_in_children(threading.RLock())


class RollBounds:
    """The bounds of one writer's ledgers. It asks the line to prepare and to roll from any thread, and waits for
    neither. Called by the thread that appended the entry at which they are looked at."""

    __slots__ = (
        "_appending",
        "_bytes",
        "_entries",
        "_is_asked",
        "_is_prepared",
        "_line",
        "_own_at",
        "_roll",
        "_signal",
        "_turn",
        "log_bytes",
    )

    def __init__(self, roll: Roll, line: Succession) -> None:
        self._roll = roll
        self._line = line
        self._signal: Signal | None = None  # Made for ledgers that grow old.
        self._appending: Appending | None = None  # None: ended.
        self._entries = self._bytes = 0  # Bounds of this ledger; 0: none.
        self._is_prepared = False  # It was asked for.
        self._is_asked = False  # A roll by age is under way.
        self._own_at = NEVER_REACHED  # The entry at which the bounds of this ledger are looked at.
        self.log_bytes: LogBytes | None = None  # The log's own bound, which is looked at here as well.
        self._turn = 0  # Counts changes of the bounds: a waiter for an older set waits for nothing.

    def change(self, roll: Roll, appending: Appending) -> None:
        """Other bounds from now on, of this ledger too."""
        if roll != self._roll:
            self._roll = roll
            self.end()
            self.begin(appending)

    def begin(self, appending: Appending) -> None:
        """A ledger that nothing was appended to yet, or new bounds of one."""
        roll, runtime = self._roll, appending.runtime
        if roll.entries is None and roll.bytes is None and roll.age_s is None:
            return
        drawn = runtime.chance.uniform(1 - _JITTER, 1 + _JITTER)
        with MOVING:
            self._appending = appending
            self._entries = max(1, round(roll.entries * drawn)) if roll.entries is not None else 0
            self._bytes = max(1, round(roll.bytes * drawn)) if roll.bytes is not None else 0
            self._is_prepared = self._is_asked = False
            self._turn = turn = self._turn + 1
        self._notify()
        if self._entries or self._bytes:
            appending.writing.on_reached = self
            self._tell(appending, 0)
        if roll.age_s is not None:
            runtime.behind(self._grow_old(appending, roll.age_s * drawn, turn))

    def _notify(self) -> None:
        # A wait that makes one after this look sees the state that moved before it.
        if self._signal is not None:
            self._signal.notify()

    def end(self) -> None:
        """No ledger follows."""
        with MOVING:
            appending, self._appending = self._appending, None
        if appending is not None:
            self._tell(appending, NEVER_REACHED)
        self._notify()

    def look_later(self, appending: Appending) -> None:
        """The roll was not done, or only prepared."""
        with MOVING:
            if appending is not self._appending:
                return
            self._is_asked = False
            if self._entries or self._bytes:
                last = appending.writing.packer.last_entry
                self._tell(appending, last + self._entries_until(appending, self._used(appending) + _LATER))

    def _tell(self, appending: Appending, own_at: int) -> None:
        self._own_at = own_at
        others = NEVER_REACHED if self.log_bytes is None else self.log_bytes.tell_at
        appending.writing.tell_at = min(own_at, others)

    def tell_again(self) -> None:
        """What `log_bytes` is to be told changed."""
        with MOVING:
            if self._appending is not None:
                self._tell(self._appending, self._own_at)

    def __call__(self, writing: Writing) -> None:
        """Called in the thread that appended up to `tell_at`, and not again before `tell_at` is set anew."""
        last = writing.packer.last_entry
        with MOVING:
            appending = self._appending
            if appending is None or appending.writing is not writing:
                return
            is_own = last >= self._own_at
            if is_own:
                self._own_at = NEVER_REACHED
        if is_own:
            self._look(appending)
        if self.log_bytes is not None and last >= self.log_bytes.tell_at:
            self.log_bytes.look()
        else:
            self.tell_again()

    def _look(self, appending: Appending) -> None:
        with MOVING:
            if appending is not self._appending:
                return
            used = self._used(appending)
            is_due, is_near = used >= 1, used >= PREPARE_AT and not self._is_prepared
            if not is_due:
                self._is_prepared = self._is_prepared or is_near
                wanted = 1.0 if self._is_prepared else PREPARE_AT
                last = appending.writing.packer.last_entry
                self._tell(appending, last + self._entries_until(appending, wanted))
            begun = self._nearest(appending)
        if is_due:
            self._line.roll_behind(begun)
        elif is_near:
            self._line.prepare_behind(begun)

    def _parts(self, appending: Appending) -> tuple[float, float]:
        """How much of the bound of entries is used, and of that of bytes."""
        packer = appending.writing.packer
        entries = (packer.last_entry + 1) / self._entries if self._entries else 0.0
        return entries, packer.length / self._bytes if self._bytes else 0.0

    def _used(self, appending: Appending) -> float:
        return max(self._parts(appending))

    def _nearest(self, appending: Appending) -> Begun:
        entries, size = self._parts(appending)
        return Begun.ENTRIES if entries >= size else Begun.BYTES

    def _entries_until(self, appending: Appending, part: float) -> int:
        """So many entries may come before this part of a bound is used, if those to come are at most twice as large as
        those before them."""
        packer = appending.writing.packer
        if packer.last_entry == NO_ENTRY:
            return 1  # None came before: the first one is looked at, as `begin` does.
        counts = []
        if self._entries:
            counts.append(part * self._entries - (packer.last_entry + 1))
        if self._bytes:
            mean = max(1.0, packer.length / (packer.last_entry + 1))
            counts.append((part * self._bytes - packer.length) / (2 * mean))
        return max(1, int(min(counts)))

    async def _grow_old(self, appending: Appending, age_s: float, turn: int) -> None:
        """Wait until the ledger is so old, or not the one of now; one that is still empty stays. A roll that failed is
        asked for again when as much time has passed once more, unless another client has the log."""
        with MOVING:
            signal = self._signal = self._signal or Signal()
        is_over = Moved(signal, lambda: self._appending is not appending or self._turn != turn, age_s)
        while not await is_over and not appending.is_over and self._line.is_writing:
            with MOVING:
                is_due = appending.writing.packer.last_entry != NO_ENTRY and not self._is_asked
                self._is_asked = self._is_asked or is_due
            if is_due:
                self._line.roll_behind(Begun.AGE)
