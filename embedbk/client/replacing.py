"""A ledger failed under the writer of a log, and the log is this writer's still: a next one takes its place (P8.2).

Decides in which order: the failed ledger is closed first, by its own handle, since only that settles what it had under
way in the metadata (an ensemble change, P2.2), so that where it ended is known before anything moves; then the next one
is made and listed, by one compare-and-set with that end (`core.log_replacing`). One entry that does all of it would be
no safer: a crash in between leaves a closed ledger at the end of the list, or one to which nothing was sent, as a roll
does. Decides how often in a row, with which pauses. What appends do meanwhile, `outliving` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from embedbk.client.appending import Appending
from embedbk.client.owning import Owned, Owning
from embedbk.client.waiting import Moved
from embedbk.core.log_listing import TakenOver
from embedbk.errors import (
    EmbedbkError,
    LedgerClosed,
    LedgerFenced,
    MetadataConflict,
    NoSuchLedger,
    OperationTimeout,
    RecoveryInconclusive,
    StorageError,
)
from embedbk.host.signal import Signal
from embedbk.ids import NO_ENTRY

__all__ = ["FRUITLESS_MAX", "Pauses", "Replaced", "Replacing", "Unreplaced"]

FRUITLESS_MAX = 5  # Ledgers in a row in which nothing was acknowledged: then the writer has failed.
_PAUSE_S = 0.1  # Before the second one that fails soon; doubled each time.
_PAUSE_S_MAX = 2.0
_CALM_S = 10.0  # Behind so long in one ledger, the pauses begin anew.
# A ledger that was listed late takes the place of one that was made just now; and a recovery may wait for bookies
# that are away, each time with its own patience.
_TRIES_MAX = 3


class Replaced(NamedTuple):
    """The ledger that comes next, and where the one before it ended."""

    owned: Owned
    last_entry: int


class Unreplaced(Exception):
    """There is no next ledger. error: what waiting appends receive; definite where what is outstanding is certainly in
    no ledger. ended: where the failed one is certainly closed; None: not known."""

    def __init__(self, error: EmbedbkError, ended: int | None) -> None:
        super().__init__(error.args[0])
        self.error = error
        self.ended = ended


class Pauses:
    """How often one writer's ledgers are replaced. Else a cluster that is gone makes ledgers without end (L14)."""

    __slots__ = ("_fruitless", "_since_s", "_soon")

    def __init__(self) -> None:
        self._fruitless = 0  # In a row.
        self._soon = 0  # That failed soon, in a row.
        self._since_s = 0.0  # When the last one was asked for.

    def before_next_s(self, now_s: float, *, has_acknowledged: bool) -> float | None:
        """Seconds to wait before the next ledger, now that one failed; None: no further one."""
        self._fruitless = 0 if has_acknowledged else self._fruitless + 1
        if self._fruitless >= FRUITLESS_MAX:
            return None
        is_soon = self._soon > 0 and now_s - self._since_s < _CALM_S
        self._soon = self._soon + 1 if is_soon else 1
        pause_s = 0.0 if self._soon == 1 else min(_PAUSE_S_MAX, _PAUSE_S * 2.0 ** (self._soon - 2))
        self._since_s = now_s + pause_s
        return pause_s

    def begin_anew(self) -> None:
        """By an application that asks for it."""
        self._fruitless = 0


class Replacing:
    """Replaces failed ledgers of one writer of one log."""

    __slots__ = ("owning", "pauses")

    def __init__(self, owning: Owning) -> None:
        self.owning = owning
        self.pauses = Pauses()

    async def next_behind(
        self, before: Appending, signal: Signal, is_given_up: Callable[[], bool], *, by_takeover: bool
    ) -> Replaced:
        """The ledger to continue in, to which no append goes yet.

        by_takeover: by taking the log over from itself, since a ledger before the failed one is not closed either, or
        the cluster's level allows nothing else.

        Raises:
            Unreplaced: there is none.
        """
        runtime = self.owning.runtime
        failure = before.writing.failure
        assert failure is not None
        ended: int | None = None
        try:
            ended = await self._closed(before)
            pause_s = self.pauses.before_next_s(runtime.clock_s(), has_acknowledged=before.lac != NO_ENTRY)
            if pause_s is None:
                raise type(failure)(f"{FRUITLESS_MAX} ledgers failed one after the other")
            if pause_s:
                await Moved(signal, is_given_up, pause_s)
            if by_takeover:
                return await self._taken_over(before)
            for _ in range(_TRIES_MAX):
                core = await self.owning.replacement(before, ended)
                try:
                    taken = await self.owning.replace(core)
                    break
                except (MetadataConflict, RecoveryInconclusive) as late:
                    not_yet = late
                finally:
                    ended = core.ended  # Also where a recovery found it, and nothing follows.
            else:
                raise not_yet
        except EmbedbkError as why:
            told = _told(self.owning.explain(failure), why, is_definite=ended is not None)
            raise Unreplaced(told, ended) from why
        last_entry = _end_before(taken, before)
        return Replaced(self.owning.follow(before, taken, last_entry), last_entry)

    async def _closed(self, before: Appending) -> int | None:
        """Where its own handle has closed it; None: others have, or are about to."""
        try:
            return await before.close_behind()
        except (LedgerFenced, LedgerClosed, NoSuchLedger):
            return None

    async def _taken_over(self, before: Appending) -> Replaced:
        following = await self.owning.take_over(renews=before.tenure.epoch)
        last_entry = _end_before(following.taken, before)
        self.owning.continue_over(following, before, last_entry)
        return Replaced(following, last_entry)


def _end_before(taken: TakenOver, before: Appending) -> int:
    """Where the failed ledger ended, by the place of the next one: offsets are dense (I93)."""
    last_entry = taken.first_offset - before.tenure.first_offset - 1
    if last_entry < before.lac:
        raise StorageError(  # Somebody's word in the metadata (P2.5), by no rule (P5.3).
            f"{before.what}: ledger {before.ledger_id} ends at {last_entry}, and {before.lac} was acknowledged"
        )
    return last_entry


def _told(failure: EmbedbkError, why: EmbedbkError, *, is_definite: bool) -> EmbedbkError:
    """The error that waiting appends receive: why there is no next ledger, where that is known."""
    if isinstance(why, LedgerFenced):
        return LedgerFenced(why.args[0], definite=is_definite)
    kind = type(failure) if isinstance(why, OperationTimeout | MetadataConflict) else type(why)
    return kind(
        f"{failure.args[0]}; and no next ledger takes its place: {why.args[0]}",
        definite=is_definite,
        hint="renew() tries again; what failed definitely can be appended again",
    )
