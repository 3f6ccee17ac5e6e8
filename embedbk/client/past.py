"""What stands before the ledger of a handle: its last position, what producers appended there, ledgers that failed.

Decides which entry id a condition asks for, where an append of a producer stands already, and which outstanding entries
do not go to a next ledger. Few handles have any of it. What producers appended before this writer is read back at the
first append that needs it, once for all callers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from embedbk.client.placed import Heir
from embedbk.client.reading import Frames
from embedbk.client.tickets import AppendTerms
from embedbk.client.waiting import Resumed
from embedbk.codec.attributes import producers_in
from embedbk.core.producers import Producers
from embedbk.errors import EmbedbkError, OperationTimeout, UsageError
from embedbk.forking import free_in_children
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY, Position

if TYPE_CHECKING:
    from embedbk.client.owning import Owning

__all__ = ["NO_PAST", "PRODUCERS_LOCK", "Past", "Tenure", "pair"]

# Finding an append and queueing it are one step. Re-entrant: a signal handler may append while its thread does.
PRODUCERS_LOCK = free_in_children(threading.RLock())
_BOUND_LOOK = 64  # After so many entries queued on a condition, the acknowledged ones are forgotten.
_HEIRS_MAX = 16  # So many ledgers that failed are remembered, so that places in them are still known.
_NEVER_NEXT = LEDGER_ID_MAX  # No ledger has so many entries: a condition that is not met.


def pair(given: tuple[int, int], name: str) -> tuple[int, int]:
    if isinstance(given, tuple) and len(given) == 2 and all(type(number) is int for number in given):
        return given
    raise UsageError(f"{name}={given!r}: a pair of whole numbers is allowed; nothing was appended")


@dataclass(frozen=True, slots=True)
class Tenure:
    """What the owner of a log keeps of a takeover or a roll while it writes to the ledger that this gave it. The list
    itself is not kept: it would be much of an idle log."""

    owning: Owning
    epoch: int
    ledger_id: int
    first_offset: int  # The offset of the ledger's entry 0 in the log.
    list_revision: int  # Revision of the list that named the ledger ...
    recorded_bytes: int  # ... and the payload bytes of closed ledgers that it recorded.


@dataclass(slots=True)
class Past:
    """What few handles have: a name, a log, ledgers in front of theirs, producers."""

    what: str = ""  # How messages name the handle, if not by its log or ledger.
    tenure: Tenure | None = None  # Where the ledger is one of a log.
    before: Position | None = None  # The last position before this ledger's first entry, if there is one.
    history: Callable[[], Frames] | None = None  # Reads the tail of that.
    are_producers_known: bool = True
    learning: Resumed[None] | None = None  # The reading back of producers, while it runs.
    noted: Producers | None = None  # None: nobody asked for the producers yet.
    # By entry of this ledger that was queued on a condition: whether that names an id of this ledger. Such a one is
    # not what was asked for in another ledger.
    bound: dict[int, bool] | None = None
    heirs: dict[int, Heir] | None = None  # By ledger before it that failed, the newest ones.

    @property
    def producers(self) -> Producers:
        """The producers whose appends are known. The caller holds PRODUCERS_LOCK."""
        if self.noted is None:
            self.noted = Producers()
        return self.noted

    def current(self, position: Position) -> Position | None:
        """Where the entry for this position stands by now; None: it is in no ledger."""
        heirs = self.heirs or {}
        while (heir := heirs.get(position.ledger_id)) is not None and position.entry_id > heir.last_entry:
            moved = heir.moved(position.entry_id)
            if moved is None:
                return None
            position = Position(heir.appending.ledger_id, moved)
        return position

    def remember(self, ledger_id: int, heir: Heir) -> None:
        """That ledger failed, and this handle's ledger took what was outstanding there."""
        heirs = self.heirs = self.heirs or {}
        heirs[ledger_id] = heir
        while len(heirs) > _HEIRS_MAX:
            del heirs[next(iter(heirs))]
        with PRODUCERS_LOCK:
            self.producers.move(self.current)

    def expected(self, terms: AppendTerms, ledger_id: int) -> int:
        """The entry id that the terms ask for, below 0 for any."""
        if terms.entry_id is not None and terms.after is not None:
            raise UsageError("entry_id= and after= say the same thing in two ways; give one")
        if terms.after is not None:
            pair(terms.after, "after")
            after = self.current(Position(*terms.after)) or Position(*terms.after)
            if after in (self.before, Position(ledger_id, NO_ENTRY)):
                return 0
            is_here = after[0] == ledger_id and after[1] < _NEVER_NEXT
            return after[1] + 1 if is_here else _NEVER_NEXT
        if terms.entry_id is None:
            return NO_ENTRY
        if isinstance(terms.entry_id, bool) or not isinstance(terms.entry_id, int) or terms.entry_id < 0:
            raise UsageError(f"entry_id={terms.entry_id!r}: a whole number from 0 on is allowed")
        return min(terms.entry_id, _NEVER_NEXT)

    def note_bound(self, entry_id: int, lac: int, *, names_id: bool) -> None:
        """This entry was queued on a condition. Entries up to the LAC are forgotten now and then. Held locked."""
        bound = self.bound = self.bound or {}
        bound[entry_id] = names_id
        if len(bound) % _BOUND_LOOK == 0:
            for done in [each for each in bound if each <= lac]:
                del bound[done]

    def refused(self, last_entry: int, *, follows_refused: bool) -> list[int]:
        """Outstanding entries that were to have an id of this ledger, or to stand behind one of these. follows_refused:
        the entry before the ledger's first one is one of these."""
        refused = [NO_ENTRY] if follows_refused else []
        with PRODUCERS_LOCK:
            for entry_id, names_id in sorted((self.bound or {}).items()):
                if entry_id > last_entry and (names_id or refused[-1:] == [entry_id - 1]):
                    refused.append(entry_id)
        return refused[1:] if follows_refused else refused

    async def learn(
        self, what: str, clock_s: Callable[[], float], timeout_s: float | None, until_s: float
    ) -> None:
        """Wait until it is known what producers appended before this writer: what stands there counts as appended. All
        callers that need it read it back together, and continue where one of them ran out of time.

        Raises, always before anything was sent: OperationTimeout, and what reading raises, each definite.
        """
        while not self.are_producers_known:
            with PRODUCERS_LOCK:
                learning = self.learning = self.learning or Resumed(self._read_back(), clock_s)
            try:
                is_over = await learning.within(until_s)
            except EmbedbkError as failed:
                self.learning = None  # The next append begins anew.
                again = type(failed)(
                    f"{what}: what producers appended before it cannot be read back; nothing was appended: "
                    f"{failed.args[0]}",
                    definite=True,
                    hint=failed.hint,
                )
                raise again from failed
            if not is_over:
                raise OperationTimeout(
                    f"{what}: what producers appended before it was not read back within {timeout_s:g} s; "
                    "nothing was appended",
                    definite=True,
                    hint="append again: that goes on from there",
                )
            if not self.are_producers_known:
                self.learning = None  # Another append's reading failed.

    async def _read_back(self) -> None:
        """Read the last entries of the ledgers before."""
        learnt = []
        assert self.history is not None
        async for located in self.history():
            ledger_id = located.frame.ledger_id
            for entry_id, producer in producers_in(located.frame):
                learnt.append((producer, Position(ledger_id, entry_id)))
        with PRODUCERS_LOCK:
            for producer, position in learnt:
                self.producers.note(producer, position)
            self.are_producers_known, self.learning = True, None


NO_PAST = Past()  # One for all handles that have none; never changed.
