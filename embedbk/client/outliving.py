"""A log's writer outlives its ledgers: it takes one step at a time, and a ledger that failed is replaced first (P8.2).

Decides whose turn it is: to replace a ledger that failed comes before all else, and to end before what would only go
on. Decides what becomes of entries that a failed ledger leaves outstanding, and of those that were kept for the next
one: appends wait, what is outstanding goes to the next ledger first, and who waited for it waits there. In which order
the next ledger is made, `replacing` decides; where appends go meanwhile, `passage`.

    one ledger --it failed--> what is outstanding goes to the next one
    two, the second sends nothing yet --the first failed--> what the second took goes behind that, in a third
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import dataclass

from embedbk.client.appending import Appending
from embedbk.client.owning import Owned, Owning
from embedbk.client.passage import LedgerFailing, Passage
from embedbk.client.replacing import Replacing, Unreplaced
from embedbk.client.roll_bounds import MOVING
from embedbk.client.waiting import Moved
from embedbk.core.log_listing import TakenOver
from embedbk.errors import EmbedbkError, LedgerClosed, LedgerFenced, OperationTimeout, UsageError
from embedbk.ids import NO_ENTRY

__all__ = ["Outliving"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LedgerFailed:
    """Called when the ledger of this handle failed. A function of its own for each idle writer would be larger."""

    line: Outliving
    appending: Appending

    def __call__(self) -> None:
        self.line.note_failed(self.appending)


class Outliving(Passage):
    """What a writer does behind a ledger that failed, and how its steps take turns."""

    __slots__ = (
        "_before_failed",
        "_closers",
        "_is_closing_before",
        "_is_let_go",
        "_prepared",
        "_replacing",
        "_turn_of",
    )

    def __init__(self, owning: Owning, appending: Appending) -> None:
        super().__init__(owning, appending)
        # MOVING guards the fields below.
        self._turn_of: object | None = None  # The one of renew, roll, prepare and close that is under way.
        self._closers = 0  # Calls of close() that wait for their turn.
        self._is_closing_before = False  # The ledger before is not recorded as closed yet.
        self._prepared: TakenOver | None = None  # The ledger to which nothing was sent.
        self._before_failed: EmbedbkError | None = None  # Why the ledger before could not be closed.
        self._is_let_go = False  # Released, or the last ledger is closed: none follows.
        self._replacing: Replacing | None = None  # Made when the first ledger fails.

    @abstractmethod
    def _go_on_in(self, owned: Owned) -> None:
        """Appends go to this ledger from now on."""

    @property
    def is_busy(self) -> bool:
        """Whether it is about to leave its ledger, or prepares that."""
        return self._turn_of is not None

    @property
    def is_let_go(self) -> bool:
        """Released, or its last ledger is closed."""
        return self._is_let_go

    # One at a time.

    async def _take_turn(
        self, turn: object, timeout_s: float | None, *, replaces: bool = False, closes: bool = False
    ) -> None:
        """turn: the caller's own, by which it gives the turn back, whatever stops it: by an assignment, as a signal
        handler may raise where a function begins.

        replaces: to replace a ledger that failed, which comes before all else. closes: to end, which comes before what
        would only go on: a roll may wait for bookies until its time is over, and its bound asks for the next one
        meanwhile."""

        def is_free() -> bool:
            if self._turn_of is not None or (self._closers and not (replaces or closes)):
                return False
            return replaces or not self._is_undecided

        while True:
            with MOVING:
                if is_free():
                    self._turn_of = turn
                    return
            if not await Moved(self._signal, is_free, timeout_s):
                raise OperationTimeout(
                    f"{self.appending.what} is on its way to another ledger since {timeout_s:g} s; nothing was done",
                    definite=True,
                    hint="try again in a moment",
                )

    async def _before_is_closed(self, timeout_s: float | None) -> None:
        """Wait until the ledger before is recorded as closed, or could not be closed (P8.2 iv)."""

        def is_free() -> bool:
            return not self._is_closing_before or self._is_undecided

        is_in_time = await Moved(self._signal, is_free, timeout_s)
        if self._is_undecided:
            raise LedgerFailing
        if not is_in_time:
            raise OperationTimeout(
                f"{self.appending.what}: the ledger before {self.appending.ledger_id} is not recorded as closed yet, "
                f"after {timeout_s:g} s; nothing was done",
                definite=True,
                hint="appends go on; try again when the metadata answers",
            )

    # Replacing a ledger that failed.

    def _watch(self, appending: Appending) -> None:
        appending.writing.on_failed = _LedgerFailed(self, appending)

    def note_failed(self, appending: Appending) -> None:
        """On the host's thread."""
        self._since_ns = appending.runtime.now_ns()
        appending.runtime.behind(self._replace_behind(appending))
        self._signal.notify()

    async def _replace_behind(self, before: Appending) -> None:
        """No call does it as a part of itself: who gives up waiting ends nothing of others."""
        turn = object()
        await self._take_turn(turn, None, replaces=True)
        kept = self._step_back(before)  # Nothing of it was sent.
        try:
            if self._is_let_go or before is not self.appending:
                nothing = LedgerClosed("this handle was closed", definite=True)  # Is outstanding.
                self._give_up(before, kept, None, nothing)
            elif not await self._is_left_to_another():
                await self._replace(before, kept)
        except Unreplaced as unreplaced:
            self._failure = unreplaced.error
            self._give_up(before, kept, unreplaced.ended, unreplaced.error)
            if isinstance(unreplaced.error, LedgerFenced):
                self.owning.lose()  # Appends report it.
            else:
                logger.warning("%s has no ledger: %s", before.what, unreplaced.error)
        except BaseException as failed:
            was_interrupted = UsageError(
                f"{before.what} was on its way to a new ledger: {failed!r}", definite=False
            )
            self._failure = was_interrupted
            self._give_up(before, kept, None, was_interrupted)
            raise
        finally:
            self._turn_of = None
            self._signal.notify()

    def _step_back(self, failed: Appending) -> Appending | None:
        """The handle that took appends behind the one that failed, and sent none of them; None: there is none, or it
        took none."""
        with MOVING:
            if self._draining is not failed or self.appending.writing.behind is None:
                return None  # All of it was done, so that the next one sends by now.
            kept, self.appending, self._draining = self.appending, failed, None
            self._is_closing_before = False
        failure = failed.writing.failure
        assert failure is not None
        kept.writing.set_aside(failure)
        kept.let_go()
        if kept.writing.packer.last_entry != NO_ENTRY:
            return kept
        # A caller that waits there appended nothing yet, and goes to the next ledger, which may be this very one.
        kept.runtime.call_if_open(lambda: kept.writing.hand_over(NO_ENTRY))
        return None

    async def _is_left_to_another(self) -> bool:
        """Wait until the ledger before the failed one is recorded as closed. True: it failed too, before it was done,
        and its replacement comes first, which takes what is outstanding in both."""

        def is_over() -> bool:
            draining = self._draining
            return not self._is_closing_before or (draining is not None and draining.writing.is_undecided)

        await Moved(self._signal, is_over)
        return self._is_closing_before

    async def _replace(self, before: Appending, kept: Appending | None) -> None:
        """kept: what it took goes behind what is outstanding. Its ledger is closed empty, so that no entry has had one
        place in it, and then another one."""
        by_takeover = self._before_failed is not None or kept is not None or not self.owning.can_prepare
        self._is_held = True  # A newer epoch may be ours meanwhile.
        try:
            self._replacing = self._replacing or Replacing(self.owning)
            following, last_entry = await self._replacing.next_behind(
                before, self._signal, lambda: self._is_let_go, by_takeover=by_takeover
            )
            self._watch(following.appending)
            if not before.hand_over_to(following.appending, last_entry):
                following.appending.release()
                if kept is not None:
                    self._decide(kept, None, LedgerClosed("this handle was released", definite=True))
                return
            if kept is not None:
                kept.hand_over_to(following.appending, NO_ENTRY, front=before)
                self._decide(kept, NO_ENTRY, None)
            self._decide(before, last_entry, None)
            before.runtime.wake_writing(following.appending.writing)
            self._prepared = self._before_failed = None
            self._go_on_in(following)
        finally:
            with MOVING:  # No function of its own: a signal handler may raise where one begins.
                self._is_held, self._rounds = False, self._rounds + 1
            self._signal.notify()
        logger.warning(
            "%s: ledger %d failed behind entry %d, and ledger %d takes its place: %s",
            before.what,
            before.ledger_id,
            last_entry,
            following.appending.ledger_id,
            before.writing.failure,
        )

    def _give_up(
        self, before: Appending, kept: Appending | None, ended: int | None, error: EmbedbkError
    ) -> None:
        """Nothing takes what is outstanding; what was only kept is certainly nowhere."""
        self._decide(before, ended, error)
        if kept is not None:
            self._decide(kept, None, type(error)(error.args[0], definite=True, hint=error.hint))

    def _decide(self, before: Appending, last_entry: int | None, error: EmbedbkError | None) -> None:
        """Settle what was outstanding: it fails with the error, or moves to the next ledger."""
        writing, runtime = before.writing, before.runtime

        def decide() -> None:
            if last_entry is not None:
                runtime.node.own_lacs.note_end(before.ledger_id, last_entry)
            if error is None:
                assert last_entry is not None
                writing.hand_over(last_entry)
            else:
                writing.give_up(error, NO_ENTRY if last_entry is None else last_entry)
            with MOVING:
                self._rounds += 1
            self._signal.notify()

        runtime.call_if_open(decide)
