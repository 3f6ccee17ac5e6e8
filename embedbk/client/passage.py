"""Which ledger of a log's writer an append goes to: the one of now, or the next one once the writer is there (P8.2).

Decides when an append waits for that, and when it is refused. A call that appends in several steps is let through
first, so that all of it is in one ledger: a step that leaves a ledger holds new calls back, and waits until no call is
inside. How a writer gets to its next ledger, `renewing` decides; what becomes of one that failed, `outliving`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from embedbk.client.appending import Appending
from embedbk.client.owning import Owning
from embedbk.client.roll_bounds import MOVING
from embedbk.client.tickets import AppendTerms
from embedbk.client.waiting import Moved
from embedbk.errors import EmbedbkError, OperationTimeout, UsageError
from embedbk.host.signal import Signal
from embedbk.host.writing import HandedOver
from embedbk.ids import NO_ENTRY

__all__ = ["LedgerFailing", "Passage"]

T = TypeVar("T")


class LedgerFailing(Exception):
    """The ledger failed under a writer that was about to leave it: replacing it comes first."""


class Passage:
    """What all appends to a log by one writer go through."""

    # There may be very many writers, nearly all of them idle.
    __slots__ = (
        "_draining",
        "_failure",
        "_has_ended",
        "_inside",
        "_is_held",
        "_rounds",
        "_signal",
        "_since_ns",
        "appending",
        "owning",
    )

    def __init__(self, owning: Owning, appending: Appending) -> None:
        self.owning = owning
        self.appending = appending  # The handle of the current ledger.
        self._signal = Signal()
        # MOVING guards the fields below.
        self._is_held = False  # Appends wait for the next ledger.
        self._since_ns = 0  # Since when they do, or there is no ledger.
        # The handle before takes no more appends, and is not done; so what the current one takes is not sent yet.
        self._draining: Appending | None = None
        self._rounds = 0  # How often holding ended.
        self._inside = 0  # Calls under way that may append more than once.
        self._failure: EmbedbkError | None = None  # Why there is no ledger: the one before is closed.
        self._has_ended = False  # Closed or released by its owner.

    @property
    def has_ended(self) -> bool:
        """Closed or released by its owner."""
        return self._has_ended

    @property
    def is_held(self) -> bool:
        """Whether it leaves its ledger now, for which it waits until nobody is in the middle of an append."""
        return self._is_held

    @property
    def is_between(self) -> bool:
        """Whether there is no ledger to append to now."""
        return self._is_held or self._is_undecided or self._failure is not None

    @property
    def _is_undecided(self) -> bool:
        """A ledger failed, and the one that follows it is not known yet."""
        draining = self._draining
        return self.appending.writing.is_undecided or (draining is not None and draining.writing.is_undecided)

    @property
    def newest(self) -> Appending:
        """The handle of the entry that was queued last, if that is done or under way; else of the current ledger."""
        with MOVING:
            is_empty = self.appending.writing.packer.last_entry == NO_ENTRY
            return self._draining if is_empty and self._draining is not None else self.appending

    def has_left(self, appending: Appending, refused: UsageError) -> bool:
        """Whether this handle refused because the log moves, or moved, to another ledger. What it queued it did not
        refuse, whatever became of it: appended again, it may be there twice."""
        if refused.ticket is not None:
            return False
        if isinstance(refused, HandedOver):
            return not self._has_ended
        is_before = self.is_between or appending is not self.appending
        is_left = appending.is_over or appending.writing.failure is not None
        return is_left and is_before and not self._has_ended

    async def through(
        self,
        step: Callable[[Appending, AppendTerms], Awaitable[T]],
        terms: AppendTerms,
        what: str = "appended",
    ) -> T:
        """Append by `step` to the ledger of now, or to the next one when the log is on its way there."""
        runtime = self.appending.runtime
        begun_s, timeout_s = runtime.clock_s(), terms.timeout_s
        while True:
            inside: list[int] = []
            try:
                appending = await self._enter(terms.timeout_s, what, inside)
                if timeout_s is not None:
                    left_s = timeout_s - (runtime.clock_s() - begun_s)
                    terms = terms._replace(timeout_s=max(0.0, left_s))
                return await step(appending, terms)
            except HandedOver as left:
                if left.ticket is not None:
                    raise  # A part of it was queued: made again, it would be there twice.
                if terms.timeout_s == 0.0:
                    raise self._too_late(timeout_s, what) from None
            finally:
                if inside:
                    with MOVING:
                        self._inside -= 1
                    self._signal.notify()

    async def _enter(self, timeout_s: float | None, what: str, inside: list[int]) -> Appending:
        """inside: it is no longer empty once this call counts. The code calls nothing in between, or where the call
        leaves: a signal handler may raise where a function begins and behind each call, and every roll waits for the
        calls that count."""
        until_s = None if timeout_s is None else self.appending.runtime.clock_s() + timeout_s
        while True:
            with MOVING:
                rounds = self._rounds
                if not self._is_held and not self._is_undecided:
                    if self._failure is not None and not self._has_ended:
                        failed = self._failure
                        raise type(failed)(
                            f"{self.appending.what} has no ledger; nothing was {what}: {failed.args[0]}",
                            definite=True,
                            hint="call renew() again, or open a new writer",
                        ) from failed
                    self._inside += 1
                    inside += (1,)
                    return self.appending
            left_s = None if until_s is None else max(0.0, until_s - self.appending.runtime.clock_s())
            if not await Moved(self._signal, lambda: self._rounds != rounds, left_s):  # noqa: B023
                raise self._too_late(timeout_s, what)

    def _too_late(self, timeout_s: float | None, what: str) -> OperationTimeout:
        return OperationTimeout(
            f"{self.appending.what}: the log was on its way to a new ledger for {timeout_s:g} s; nothing was {what}",
            definite=True,
            hint="try again in a moment",
        )

    # What a step calls that leaves the current ledger.

    def _check_open(self) -> None:
        if self._has_ended or (self.appending.is_over and self._failure is None and not self._is_held):
            raise UsageError(f"{self.appending.what} was closed or released", hint="open a new writer")

    async def _hold(self) -> None:
        with MOVING:
            self._check_open()
            self._is_held, self._since_ns = True, self.owning.runtime.now_ns()

    async def _nobody_inside(self) -> None:
        before = self.appending
        limit = before.runtime.settings.operation_timeout_s

        def is_free() -> bool:
            return self._inside == 0 or before.writing.is_undecided

        is_in_time = await Moved(self._signal, is_free, limit)
        if before.writing.is_undecided:
            raise LedgerFailing
        if not is_in_time:
            raise OperationTimeout(
                f"{before.what}: {self._inside} calls that append did not end within {limit:g} s; it stays with "
                f"ledger {before.ledger_id}",
                definite=True,
                hint="try again in a moment",
            )
