"""How the writer of a log proceeds to a next ledger: by rolling (P8.2), or by taking the log over from itself (P8.1).

Decides which ledger an append goes to meanwhile. Rolling: the next ledger is listed while appends go on; then they go
to its handle, which sends nothing before all that was appended to the ledger before is durable; that one is closed
behind it, and no further roll begins before that stands in the list. Renewing: the ledger of now is closed, and the log
goes on under a higher epoch. Appends of that time wait, and none of them fails for it. A call that appends in several
steps is let through first, so that all of it is in one ledger. A ledger that failed is replaced (`replacing`): appends
wait, what is outstanding goes to the next ledger first, and who waited for it waits there.

    one ledger --roll: the next is listed--> two, appends go to the first --hold, release--> appends go to the second,
    which sends nothing --all of the first is durable--> it sends --close the first, record its end--> one ledger
                        --the first failed--> what the second took goes behind what is outstanding, in a third
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from embedbk.client.appending import Appending
from embedbk.client.bounding import BytesBound, LogBytes, bound_of, bounded, spliced_bytes
from embedbk.client.keeping import keep
from embedbk.client.ledger import alike
from embedbk.client.log_settings import record_of
from embedbk.client.owning import Joined, Owned, Owning
from embedbk.client.past import Tenure
from embedbk.client.replacing import Replacing, Unreplaced
from embedbk.client.roll_bounds import MOVING, RollBounds
from embedbk.client.runtime import FollowedKey
from embedbk.client.tickets import AppendTerms
from embedbk.client.waiting import Moved
from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import Begun, Durability, log_owner_path
from embedbk.codec.log_settings import Compression
from embedbk.codec.metadata_messages import ABSENT
from embedbk.config import NEVER_ROLL, Quorum, Roll
from embedbk.core.adding_waits import AddsWait
from embedbk.core.log_listing import TakenOver
from embedbk.core.log_splicing import Splice, Spliced
from embedbk.errors import (
    EmbedbkError,
    LedgerClosed,
    LedgerFenced,
    NotEnoughBookies,
    OperationTimeout,
    UsageError,
)
from embedbk.host.operations import HandedOver
from embedbk.host.signal import Signal
from embedbk.ids import NO_ENTRY

__all__ = ["Succession"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class OwnTerms(NamedTuple):
    """How a writer was opened: its terms apply where the log's settings are silent."""

    quorum: Quorum
    durability: Durability
    digest: DigestType
    roll: Roll
    compression: Compression | None


class _Failing(Exception):
    """The ledger failed under a writer that was about to leave it: replacing it comes first."""


@dataclass(frozen=True, slots=True)
class _LedgerFailed:
    """Called when the ledger of this handle failed. A function of its own for each idle writer would be larger."""

    line: Succession
    appending: Appending

    def __call__(self) -> None:
        self.line.note_failed(self.appending)


class Succession:
    """The ledgers of one writer, one after the other."""

    # There may be very many writers, nearly all of them idle.
    __slots__ = (
        "_asked_roll",
        "_before_failed",
        "_bounds",
        "_closers",
        "_draining",
        "_failure",
        "_has_ended",
        "_inside",
        "_is_busy",
        "_is_closing_before",
        "_is_held",
        "_is_let_go",
        "_is_renewing",
        "_prepared",
        "_replacing",
        "_rounds",
        "_signal",
        "_since_ns",
        "appending",
        "follows",
        "own",
        "owning",
        "retains_at_s",
    )

    def __init__(self, owning: Owning, owned: Owned, roll: Roll = NEVER_ROLL) -> None:
        self.owning = owning
        self.appending = owned.appending  # The handle of the current ledger.
        self._signal = Signal()
        # MOVING guards the fields below.
        self._is_busy = False  # One of renew, roll, prepare and close is under way.
        self._closers = 0  # Calls of close() that wait for their turn.
        self._is_renewing = False
        self._is_held = False  # Appends wait for the next ledger.
        self._since_ns = 0  # Since when they do, or there is no ledger.
        self._is_closing_before = False  # The ledger before is not recorded as closed yet.
        # The handle before takes no more appends, and is not done; so what the current one takes is not sent yet.
        self._draining: Appending | None = None
        self._rounds = 0  # How often holding ended.
        self._inside = 0  # Calls under way that may append more than once.
        self._prepared: TakenOver | None = None  # The ledger to which nothing was sent.
        self._failure: EmbedbkError | None = None  # Why there is no ledger: the one before is closed.
        self._before_failed: EmbedbkError | None = None  # Why the ledger before could not be closed.
        self._has_ended = False  # Closed or released by its owner.
        self._is_let_go = False  # Released, or the last ledger is closed: none follows.
        self._replacing: Replacing | None = None  # Made when the first ledger fails.
        owning.signal = self._signal
        self._asked_roll = (
            roll  # It is what was asked for; `bounded` says what the bound of bytes makes of it.
        )
        self._bounds = RollBounds(roll, self)
        self._watch(self.appending)
        self._bounds.begin(self.appending)
        traits = owning.traits
        own = OwnTerms(owning.quorum, traits.durability, traits.digest, roll, traits.compression)
        self.own = alike(own)
        self.follows = ABSENT  # Revision of the settings that it goes by.
        self.retains_at_s = 0.0  # When retention is looked at next, by the runtime's clock.
        keep(self)

    @property
    def taken(self) -> Tenure:
        """By what the log is this writer's, for the ledger of now."""
        return self.appending.tenure

    @property
    def log_bytes(self) -> LogBytes:
        """Made when the log has a bound, or goes on in another ledger than its first: a log that gets a bound later
        has bytes by then that no list records yet."""
        with MOVING:
            found = self._bounds.log_bytes
            if found is None:
                found = self._bounds.log_bytes = LogBytes(self, self._bounds)
            return found

    @property
    def bound(self) -> BytesBound | None:
        """How many bytes the log may have; None: as many as come."""
        log_bytes = self._bounds.log_bytes
        return None if log_bytes is None else log_bytes.bound

    @property
    def has_ended(self) -> bool:
        """Closed or released by its owner."""
        return self._has_ended

    @property
    def is_writing(self) -> bool:
        """Whether the log may be this writer's still, and it is not about to end."""
        return not self._has_ended and not self.owning.is_lost

    def roll_by(self, roll: Roll) -> None:
        """Other bounds from now on, of the ledger of now as well."""
        self._asked_roll = roll
        if not self._has_ended:
            self._bounds.change(bounded(roll, self.bound), self.appending)

    def bound_by(self, bound: BytesBound | None) -> None:
        """How many bytes the log may have from now on. Its ledgers become small enough for that too."""
        if not self._has_ended:
            if bound is not None or self.bound is not None:
                self.log_bytes.keep(bound)
            self.roll_by(self._asked_roll)

    @property
    def is_busy(self) -> bool:
        """Whether it is about to leave its ledger, or prepares that."""
        return self._is_busy

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

    @property
    def is_let_go(self) -> bool:
        """Released, or its last ledger is closed."""
        return self._is_let_go

    def waits(self) -> AddsWait | None:
        """What appends wait for beside the ledger of now; None: for nothing but that. On the host's thread."""
        if self.owning.is_lost:
            return AddsWait("P8.4", "nothing any more: another client has the log", self.owning.lost_ns)
        if self._failure is not None:
            text = f"renew() to be called, as there is no ledger ({self._failure.args[0]})"
            return AddsWait("P8.2", text, self._since_ns)
        draining = self._draining
        if self._is_undecided or self._is_held or draining is not None:
            of = self.appending if draining is None else draining
            writing = of.writing
            if writing.failure is not None:
                return AddsWait(
                    "P8.2",
                    f"the ledger behind the one that failed: {writing.failure.args[0]}",
                    self._since_ns,
                )
            text = f"all that was appended to ledger {of.ledger_id} to be durable, and the next ledger"
            return AddsWait("P8.2", text, self._since_ns)
        if self._has_ended and self._is_closing_before:
            return AddsWait("P8.2", "the ledger before to be recorded as closed", self._since_ns)
        return None

    def has_left(self, appending: Appending, refused: UsageError) -> bool:
        """Whether this handle refused because the log moves, or moved, to another ledger."""
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
            appending = await self._enter(terms.timeout_s, what)
            try:
                if timeout_s is not None:
                    left_s = timeout_s - (runtime.clock_s() - begun_s)
                    terms = terms._replace(timeout_s=max(0.0, left_s))
                return await step(appending, terms)
            except HandedOver:
                if terms.timeout_s == 0.0:
                    raise self._too_late(timeout_s, what) from None
            finally:
                self._leave()

    async def _enter(self, timeout_s: float | None, what: str) -> Appending:
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

    def _leave(self) -> None:
        with MOVING:
            self._inside -= 1
        self._signal.notify()

    # One at a time.

    async def _take_turn(
        self, timeout_s: float | None, *, replaces: bool = False, closes: bool = False
    ) -> None:
        """replaces: to replace a ledger that failed, which comes before all else. closes: to end, which comes before
        what would only go on: a roll may wait for bookies until its time is over, and its bound asks for the next one
        meanwhile."""

        def is_free() -> bool:
            if self._is_busy or (self._closers and not (replaces or closes)):
                return False
            return replaces or not self._is_undecided

        while True:
            with MOVING:
                if is_free():
                    self._is_busy = True
                    return
            if not await Moved(self._signal, is_free, timeout_s):
                raise OperationTimeout(
                    f"{self.appending.what} is on its way to another ledger since {timeout_s:g} s; nothing was done",
                    definite=True,
                    hint="try again in a moment",
                )

    def _end_turn(self) -> None:
        with MOVING:
            self._is_busy = False
        self._signal.notify()

    async def _before_is_closed(self, timeout_s: float | None) -> None:
        """Wait until the ledger before is recorded as closed, or could not be closed (P8.2 iv)."""

        def is_free() -> bool:
            return not self._is_closing_before or self._is_undecided

        is_in_time = await Moved(self._signal, is_free, timeout_s)
        if self._is_undecided:
            raise _Failing
        if not is_in_time:
            raise OperationTimeout(
                f"{self.appending.what}: the ledger before {self.appending.ledger_id} is not recorded as closed yet, "
                f"after {timeout_s:g} s; nothing was done",
                definite=True,
                hint="appends go on; try again when the metadata answers",
            )

    # Rolling.

    async def roll(self, begun: Begun = Begun.REQUEST, of: Appending | None = None) -> None:
        """Go on in a next ledger, which is listed while appends go on; nothing is done where the one of now is empty.

        of: only while this is the ledger of now.

        Raises:
            UsageError: the writer was closed; nothing was changed.
            NotEnoughBookies, MetadataUnavailable, LogFull: there is no next ledger; the writer stays with this one.
            OperationTimeout: the ledger before, or calls that append, did not end: call it again.
            LedgerFenced: another process has the log now.
        """
        limit = self.appending.runtime.settings.operation_timeout_s
        while True:
            await self._take_turn(limit)
            try:
                await self._roll(begun, of, limit)
                return
            except _Failing:
                of = of or self.appending  # Another ledger follows it, as was asked for.
            finally:
                self._end_turn()

    async def _roll(self, begun: Begun, of: Appending | None, limit: float) -> None:
        self._check_open()
        await self._before_is_closed(limit)
        is_empty = self.appending.writing.packer.last_entry == NO_ENTRY
        if of not in (None, self.appending) or (is_empty and self._failure is None):
            return
        if self._failure or self._before_failed or not self.owning.can_prepare:
            await self._go_over(self.owning.quorum)
            return
        if self._prepared is None:
            self._prepared = await self.owning.prepare(self.appending, begun)
        before = self.appending
        await self._switch(self._prepared)
        await Moved(self._signal, lambda: self._draining is not before or self._is_undecided)
        if self._is_undecided:
            raise _Failing

    async def prepare(self, begun: Begun, of: Appending) -> None:
        """Have the next ledger listed behind this one, for a roll to come (P8.2 i); raises as `roll` does."""
        limit = self.appending.runtime.settings.operation_timeout_s
        await self._take_turn(limit)
        try:
            await self._before_is_closed(limit)
            is_wanted = self._prepared is None and of is self.appending and not self._has_ended
            if is_wanted and self._before_failed is None and self.owning.can_prepare:
                self._prepared = await self.owning.prepare(self.appending, begun)
        except _Failing:
            pass  # What replaces a ledger that failed takes one that is prepared, or makes its own.
        finally:
            self._end_turn()

    async def _switch(self, prepared: TakenOver) -> None:
        """Nothing is sent to the next ledger before all adds of this one are done (P8.2 ii): else an append to the next
        one is acknowledged, while one sent before it dies with this one. Appends go to its handle at once, which keeps
        them until then."""
        before = self.appending
        await self._hold()
        try:
            await self._nobody_inside()
            before.leave()
            owned = self.owning.follow(before, prepared, before.writing.packer.last_entry)
            owned.appending.writing.wait_behind(before.writing)
            before.runtime.wake_writing(owned.appending.writing)  # All may be done by now.
            with MOVING:
                self._draining, self._is_closing_before = before, True
            self._go_on_in(owned)
            before.runtime.behind(self._end_before(before, owned.appending))
        except _Failing:
            raise
        except BaseException as failed:
            self._note_failed(before, failed, "roll()")
            raise
        finally:
            self._release_hold()

    async def _end_before(self, before: Appending, following: Appending) -> None:
        """Once all adds of the ledger before are done, close it; what failed before that is replaced."""
        is_reached = await before.is_reached(following)
        if not is_reached and before.writing.failure is not None:
            return
        with MOVING:
            self._draining, self._is_closing_before = None, is_reached
            self._prepared = None
        self._signal.notify()
        if is_reached:
            await self._close_before(before, following.tenure.epoch)

    async def _close_before(self, before: Appending, epoch: int) -> None:
        """Close the ledger before, and record its end (P8.2 iii, iv); only the next roll waits for it."""
        try:
            while True:
                try:
                    last_entry = await before.close_behind()
                    break
                except OperationTimeout as late:
                    logger.warning("%s: %s", before.what, late)
            await self.owning.record(epoch, before.ledger_id, last_entry, before.writing.length)
        except EmbedbkError as failed:
            self._before_failed = failed
            if not isinstance(failed, LedgerFenced):  # Else appends report it.
                logger.warning(
                    "%s: ledger %d is not recorded as closed: %s", before.what, before.ledger_id, failed
                )
        finally:
            self._is_closing_before = False
            self._signal.notify()

    def prepare_behind(self, begun: Begun) -> None:
        self.appending.runtime.behind(self._by_bounds(self.prepare, begun))

    def roll_behind(self, begun: Begun) -> None:
        """Roll, because a bound asks for it; no call waits for it."""
        self.appending.runtime.behind(self._by_bounds(self.roll, begun))

    async def _by_bounds(self, step: Callable[[Begun, Appending], Awaitable[None]], begun: Begun) -> None:
        """Roll because a bound asks for it; no call waits for it. When it fails the writer stays with its ledger, and
        the bounds ask again later."""
        appending = self.appending
        try:
            await step(begun, appending)
        except EmbedbkError as failed:
            if not self._has_ended and not isinstance(failed, LedgerFenced):
                logger.warning(
                    "%s stays with ledger %d beyond its bound of %s: %s",
                    appending.what,
                    appending.ledger_id,
                    begun.name.lower(),
                    failed,
                )
        finally:
            if appending is self.appending:
                self._bounds.look_later(appending)

    # Splicing.

    async def splice(self, wanted: Splice, spliced_ms: int) -> Spliced:
        """Put ready-made ledgers behind all that was appended, and continue in a next ledger behind them (P8.5);
        appends wait meanwhile. spliced_ms: the time of their entries, unless the last entry in front of them is
        younger.

        Raises:
            UsageError, StorageError, WrongPassword, LogAtBound: why none of it was spliced; the writer can be used as
                before.
            What `renew` raises.
        """
        limit = self.appending.runtime.settings.operation_timeout_s
        while True:
            await self._take_turn(limit)
            try:
                self._check_open()
                await self._before_is_closed(limit)
                await self._check_room(wanted)
                await self._go_over(self.owning.quorum, Joined(wanted, spliced_ms))
                return self.owning.spliced()
            except _Failing:
                continue
            finally:
                self._end_turn()

    async def _check_room(self, wanted: Splice) -> None:
        """Raises LogAtBound where the log may not have as many bytes more, by its settings as they are now."""
        runtime = self.owning.runtime
        bound = bound_of(*await record_of(runtime, self.owning.name))
        self.bound_by(bound)
        if bound is not None:
            await self.log_bytes.check_room(bound, await spliced_bytes(runtime, wanted.ledger_ids))

    # Taking the log over from ourselves.

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
        with MOVING:
            self._check_open()
            if self._is_renewing:
                raise UsageError(f"{before.what} is on its way to a new ledger already", hint="wait for it")
            self._is_renewing = True
        try:
            limit = runtime.settings.operation_timeout_s
            await self._take_turn(limit)
            try:
                await self._before_is_closed(limit)
                await self._go_over(quorum)
            except _Failing:
                raise OperationTimeout(
                    f"{before.what}: its ledger failed, and another one, of the sizes of before, takes its place; "
                    "call it again",
                    definite=True,
                ) from None
            finally:
                self._end_turn()
        finally:
            self._is_renewing = False

    async def _go_over(self, quorum: Quorum, joined: Joined | None = None) -> None:
        before = self.appending
        await self._hold()
        try:
            await self._nobody_inside()
            await self._closed(before)
            if self._replacing is not None:
                self._replacing.pauses.begin_anew()
            self.owning.quorum = alike(quorum)
            self.own = alike(self.own._replace(quorum=quorum))
            if joined is not None:
                floor_ms = before.writing.packer.time_ms
                joined = joined._replace(spliced_ms=max(joined.spliced_ms, floor_ms))
            owned = await self.owning.take_over(renews=self.taken.epoch, joined=joined)
            owned.appending.remember_producers_of(before)
            self._prepared = self._before_failed = None  # The prepared ledger closed empty.
            self._go_on_in(owned)
        except _Failing:
            raise
        except BaseException as failed:
            self._note_failed(before, failed, "renew()")
            raise
        finally:
            self._release_hold()

    async def _closed(self, before: Appending) -> None:
        """Behind all that was appended to it. One that failed, and was not replaced, a takeover closes if need be."""
        before.leave()
        if before.writing.failure is None:
            if not await before.drained():
                raise _Failing
            await before.close_behind()
            return
        with contextlib.suppress(LedgerFenced, LedgerClosed):
            await before.close_behind()

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
        await self._take_turn(None, replaces=True)
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
            self._end_turn()

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
        # Who waits there appended nothing yet, and goes to the next one; its ledger may be taken for that.
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
            self._release_hold()
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

    # For rolling and renewing.

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
            raise _Failing
        if not is_in_time:
            raise OperationTimeout(
                f"{before.what}: {self._inside} calls that append did not end within {limit:g} s; it stays with "
                f"ledger {before.ledger_id}",
                definite=True,
                hint="try again in a moment",
            )

    def _go_on_in(self, owned: Owned) -> None:
        self._watch(owned.appending)
        before = self.appending
        self.appending, self._failure = owned.appending, None
        if self._is_let_go:
            owned.appending.release()
        elif not self._has_ended:
            self._bounds.begin(owned.appending)
        if not self._has_ended:
            self.log_bytes.follow(before, owned.taken)

    def _note_failed(self, before: Appending, failed: BaseException, call: str) -> None:
        if before.is_over:
            was_interrupted = UsageError(f"{call} was interrupted")
            self._failure = failed if isinstance(failed, EmbedbkError) else was_interrupted

    def _release_hold(self) -> None:
        with MOVING:
            self._is_held = False
            self._rounds += 1
        self._signal.notify()

    # Losing the log.

    async def lost(self, timeout_s: float | None) -> bool:
        """Wait until another client has the log; False: not within timeout_s, or it was closed or released by us."""
        runtime = self.owning.runtime
        if self.owning.is_lost or self._has_ended:
            return self.owning.is_lost
        followed = await runtime.follow(log_owner_path(self.owning.name), self._signal)
        try:
            await Moved(
                self._signal,
                lambda: self._is_lost(followed) or self._has_ended or runtime.is_ended,
                timeout_s,
            )
            runtime.check()
            return self._is_lost(followed)
        finally:
            followed.end()

    def _is_lost(self, followed: FollowedKey) -> bool:
        """Whether the log was lost, by its ledger or the epoch. While we take the log over from ourselves, the newest
        epoch may be ours."""
        if self.owning.is_lost:
            return True
        with MOVING:
            if self._is_held:
                return False
            is_newer = followed.revision > self.taken.epoch
        return is_newer and followed.state is not None and not self.owning.has_put(followed.state[0])

    # Ending.

    async def close(self) -> tuple[Appending, int]:
        """As `Appending.close`, behind what is under way; also whose last entry it is."""
        while True:
            self._closers += 1
            try:
                await self._take_turn(None, closes=True)
            finally:
                self._closers -= 1
                self._signal.notify()
            try:
                self._end()
                await self._before_is_closed(None)
                last = await self._close_last()
                await self._close_prepared()
                return self.appending, last
            except _Failing:
                continue  # What is outstanding moves to a next ledger, which is closed behind it.
            except OperationTimeout:
                raise  # It is waited for again.
            except EmbedbkError:
                self._is_let_go = True
                raise
            finally:
                self._end_turn()

    async def _close_last(self) -> int:
        appending = self.appending
        if self._is_let_go:
            return appending.lac
        if not appending.is_over:
            appending.leave()
        # One that fails before all of it is acknowledged is replaced, not closed; unless it was not replaced.
        if appending.writing.failure is None and not await appending.drained():
            raise _Failing
        last = await appending.close_behind()
        self._is_let_go = True
        return last

    async def _close_prepared(self) -> None:
        """Nothing was sent to it: closed by us it needs no recovery by who takes the log over, and leaves the list."""
        if self._prepared is None:
            return
        prepared = self.owning.follow(self.appending, self._prepared, self.appending.lac).appending
        self._prepared = None
        try:
            await prepared.close()
        except EmbedbkError as failed:
            logger.info("%s: the ledger it had prepared is left open: %s", self.appending.what, failed)

    def release(self) -> None:
        """As `Appending.release`; what a renewal under way makes is released too."""
        self._is_let_go = True
        self._end()
        with MOVING:
            draining, appending = self._draining, self.appending
        if draining is not None:
            draining.abandon()
        appending.release()

    def _end(self) -> None:
        self._has_ended, self._since_ns = True, self.owning.runtime.now_ns()
        self._bounds.end()
        self._signal.notify()
