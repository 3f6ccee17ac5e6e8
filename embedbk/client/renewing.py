"""How the writer of a log goes over to a new ledger without an end: it takes the log over from itself (P8.1).

Decides which ledger an append goes to meanwhile. The ledger of before is closed behind all that was appended to it, as
its owner would; then the log is taken over, and goes on under a higher epoch. Appends of that time wait, and none of
them fails for it. A call that appends in several steps is let through first, so that all of it is in one ledger.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from embedbk.client.appending import Appending, Terms
from embedbk.client.waiting import Moved
from embedbk.config import Quorum
from embedbk.core.log import TakenOver
from embedbk.errors import EmbedbkError, NotEnoughBookies, OperationTimeout, UsageError
from embedbk.host.signal import Signal

__all__ = ["Owned", "Succession"]

T = TypeVar("T")


class Owned(NamedTuple):
    """A log that this process took over: the list as it stands, and the handle of its newest ledger."""

    taken: TakenOver
    appending: Appending
    again: Callable[[Quorum], Awaitable[Owned]]  # Take it over once more, as it was, with ledgers like this.


class Succession:
    """The ledgers of one writer, one after the other."""

    def __init__(self, owned: Owned) -> None:
        self.owned = owned
        self._lock = threading.Lock()  # Of what follows.
        self._signal = Signal()
        self._is_renewing = False
        self._rounds = 0  # How often renewing ended.
        self._inside = 0  # Calls under way that may append more than once.
        self._failure: EmbedbkError | None = None  # Why there is no ledger: the one before is closed.
        self._has_ended = False  # Closed or released by its owner.

    @property
    def appending(self) -> Appending:
        return self.owned.appending

    @property
    def is_between(self) -> bool:
        """Whether there is no ledger to append to now."""
        return self._is_renewing or self._failure is not None

    def has_left(self, appending: Appending) -> bool:
        """Whether this handle refused because the log goes, or went, over to another ledger."""
        is_before = self.is_between or appending is not self.owned.appending
        return appending.is_over and is_before and not self._has_ended

    async def through(
        self, step: Callable[[Appending, Terms], Awaitable[T]], terms: Terms, what: str = "appended"
    ) -> T:
        """Append by `step` to the ledger of now, or to the next one when the log is on its way there."""
        runtime = self.appending.runtime
        begun_s = runtime.clock_s()
        appending = await self._enter(terms.timeout_s, what)
        try:
            if terms.timeout_s is not None:
                left_s = terms.timeout_s - (runtime.clock_s() - begun_s)
                terms = terms._replace(timeout_s=max(0.0, left_s))
            return await step(appending, terms)
        finally:
            self._leave()

    async def _enter(self, timeout_s: float | None, what: str) -> Appending:
        until_s = None if timeout_s is None else self.appending.runtime.clock_s() + timeout_s
        while True:
            with self._lock:
                rounds = self._rounds
                if not self._is_renewing:
                    if self._failure is not None and not self._has_ended:
                        failed = self._failure
                        raise type(failed)(
                            f"{self.appending.what} has no ledger; nothing was {what}: {failed.args[0]}",
                            definite=True,
                            hint="call renew() again, or open a new writer",
                        ) from failed
                    self._inside += 1
                    return self.appending
            left_s = None if until_s is None else max(0.0, until_s - self.appending.runtime.clock_s())
            if not await self._behind(rounds, left_s):
                raise OperationTimeout(
                    f"{self.appending.what}: the log was on its way to a new ledger for {timeout_s:g} s; nothing was "
                    f"{what}",
                    definite=True,
                    hint="try again when renew() has ended",
                )

    def _behind(self, rounds: int, timeout_s: float | None) -> Moved:
        """Until the renewal that is under way has ended."""
        return Moved(self._signal, lambda: self._rounds != rounds, timeout_s)

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1
        self._signal.notify()

    async def renew(self, quorum: Quorum) -> None:
        """Close the ledger of now, and go on in a new one.

        Raises:
            UsageError: the writer was closed, or is being renewed; nothing was changed.
            NotEnoughBookies: fewer take entries than the new ledger needs; nothing was changed.
            OperationTimeout: appends did not end, or the ledger is not closed yet: call it again.
            LedgerFenced: another process has the log now. Else: the ledger is closed, and there is no new one yet:
                appends are refused, definitely, until it was called again.
        """
        before = self.appending
        runtime = before.runtime
        runtime.check()
        there = sum(bookie.is_writable for bookie in runtime.bookies)
        if there < quorum.ensemble_size:
            raise NotEnoughBookies(
                f"{before.what} stays with ledger {before.ledger_id}: {quorum.ensemble_size} bookies are asked for, "
                f"and {there} take entries now; nothing was changed",
                definite=True,
                hint="start more bookies, or ask for fewer",
            )
        with self._lock:
            if self._has_ended or (before.is_over and self._failure is None and not self._is_renewing):
                raise UsageError(f"{before.what} was closed or released", hint="open a new writer")
            if self._is_renewing:
                raise UsageError(f"{before.what} is on its way to a new ledger already", hint="wait for it")
            self._is_renewing = True
        try:
            limit = runtime.settings.operation_timeout_s
            if not await Moved(self._signal, lambda: self._inside == 0, limit):
                raise OperationTimeout(
                    f"{before.what}: {self._inside} calls that append did not end within {limit:g} s; it stays with "
                    f"ledger {before.ledger_id}",
                    definite=True,
                    hint="call renew() again",
                )
            await before.close()
            owned = await self.owned.again(quorum)
        except BaseException as failed:
            if before.is_over:
                reason = failed if isinstance(failed, EmbedbkError) else UsageError("renew() was interrupted")
                self._failure = reason
            raise
        else:
            self.owned, self._failure = owned, None
            if self._has_ended:
                owned.appending.release()
        finally:
            with self._lock:
                self._is_renewing = False
                self._rounds += 1
            self._signal.notify()

    async def close(self) -> tuple[Appending, int]:
        """As `Appending.close`, behind a renewal that is under way; also whose last entry it is."""
        while True:
            with self._lock:
                rounds, is_renewing = self._rounds, self._is_renewing
                if not is_renewing:
                    self._has_ended = True
                    break
            await self._behind(rounds, None)
        return self.appending, await self.appending.close()

    def release(self) -> None:
        """As `Appending.release`; what a renewal under way makes is released too."""
        self._has_ended = True
        self.appending.release()
