"""How the writer of a log proceeds to a next ledger: by rolling (P8.2), or by taking the log over from itself (P8.1).

Decides when a writer leaves its ledger, and what comes before that. Rolling: the next ledger is listed while appends go
on; then they go to its handle, which sends nothing before all that was appended to the ledger before is durable; that
one is closed behind it, and no further roll begins before that stands in the list. Renewing: the ledger of now is
closed, and the log goes on under a higher epoch. Appends of that time wait, and none of them fails for it (`passage`).
What becomes of a ledger that fails meanwhile, `outliving` decides.

    one ledger --roll: the next is listed--> two, appends go to the first --hold, release--> appends go to the second,
    which sends nothing --all of the first is durable--> it sends --close the first, record its end--> one ledger
                        --the first failed--> what the second took goes behind what is outstanding, in a third
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from embedbk.client.appending import Appending
from embedbk.client.bounding import BytesBound, LogBytes, bound_of, bounded, spliced_bytes
from embedbk.client.creating import alike
from embedbk.client.keeping import keep
from embedbk.client.log_settings import record_of
from embedbk.client.outliving import Outliving
from embedbk.client.owning import Joined, Owned, Owning
from embedbk.client.passage import LedgerFailing
from embedbk.client.past import Tenure
from embedbk.client.roll_bounds import MOVING, RollBounds
from embedbk.client.runtime import FollowedKey
from embedbk.client.waiting import Moved
from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import Durability
from embedbk.codec.log_list import Begun, log_owner_path
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


class Succession(Outliving):
    """The ledgers of one writer, one after the other."""

    __slots__ = (
        "_asked_roll",
        "_bounds",
        "_is_renewing",
        "follows",
        "own",
        "retains_at_s",
    )

    def __init__(self, owning: Owning, owned: Owned, roll: Roll = NEVER_ROLL) -> None:
        super().__init__(owning, owned.appending)
        self._is_renewing = False  # MOVING guards it.
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
            turn = object()
            try:
                await self._take_turn(turn, limit)
                await self._roll(begun, of, limit)
                return
            except LedgerFailing:
                of = of or self.appending  # Another ledger follows it, as was asked for.
            finally:
                if self._turn_of is turn:
                    self._turn_of = None
                self._signal.notify()

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
            raise LedgerFailing

    async def prepare(self, begun: Begun, of: Appending) -> None:
        """Have the next ledger listed behind this one, for a roll to come (P8.2 i); raises as `roll` does."""
        limit = self.appending.runtime.settings.operation_timeout_s
        turn = object()
        try:
            await self._take_turn(turn, limit)
            await self._before_is_closed(limit)
            is_wanted = self._prepared is None and of is self.appending and not self._has_ended
            if is_wanted and self._before_failed is None and self.owning.can_prepare:
                self._prepared = await self.owning.prepare(self.appending, begun)
        except LedgerFailing:
            pass  # What replaces a ledger that failed takes one that is prepared, or makes its own.
        finally:
            if self._turn_of is turn:
                self._turn_of = None
            self._signal.notify()

    async def _switch(self, prepared: TakenOver) -> None:
        """Nothing is sent to the next ledger before all adds of this one are done (P8.2 ii): else an append to the next
        one is acknowledged, while one sent before it dies with this one. Appends go to its handle at once, which keeps
        them until then."""
        before = self.appending
        try:
            await self._hold()
            try:
                await self._nobody_inside()
                before.leave()
                owned = self.owning.follow(before, prepared, before.writing.packer.last_entry)
                owned.appending.writing.wait_behind(before.writing)
                before.runtime.wake_writing(owned.appending.writing)  # All may be done by now.
                try:
                    with MOVING:
                        self._draining, self._is_closing_before = before, True
                    self._go_on_in(owned)
                    before.runtime.behind(self._end_before(before, owned.appending, prepared))
                except BaseException:  # Interrupted, in front of that or behind it; it is done once.
                    before.runtime.behind(self._end_before(before, owned.appending, prepared))
                    raise
            except LedgerFailing:
                raise
            except BaseException as failed:
                self._note_failed(before, failed, "roll()")
                raise
        finally:
            with MOVING:  # No function of its own: a signal handler may raise where one begins.
                self._is_held, self._rounds = False, self._rounds + 1
            self._signal.notify()

    async def _end_before(self, before: Appending, following: Appending, listed: TakenOver) -> None:
        """Once all adds of the ledger before are done, close it; what failed before that is replaced. listed: as what
        the list names the following one."""
        is_reached = await before.is_reached(following)
        if not is_reached and before.writing.failure is not None:
            return
        with MOVING:
            if self._draining is not before:
                return
            self._draining, self._is_closing_before = None, is_reached
            self._prepared = None
        self._signal.notify()
        if is_reached:
            await self._close_before(before, listed)

    async def _close_before(self, before: Appending, following: TakenOver) -> None:
        """Close the ledger before, and record its end (P8.2 iii, iv); only the next roll waits for it."""
        try:
            end = self.owning.end_of(before.ledger_id, following)
            while True:
                try:
                    last_entry = await before.close_behind(end)
                    break
                except OperationTimeout as late:
                    logger.warning("%s: %s", before.what, late)
            await self.owning.record(before, end, last_entry)
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
            turn = object()
            try:
                await self._take_turn(turn, limit)
                self._check_open()
                await self._before_is_closed(limit)
                await self._check_room(wanted)
                await self._go_over(self.owning.quorum, Joined(wanted, spliced_ms))
                return self.owning.spliced()
            except LedgerFailing:
                continue
            finally:
                if self._turn_of is turn:
                    self._turn_of = None
                self._signal.notify()

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
        turn, is_ours = object(), False
        try:
            with MOVING:
                self._check_open()
                if self._is_renewing:
                    raise UsageError(
                        f"{before.what} is on its way to a new ledger already", hint="wait for it"
                    )
                self._is_renewing = is_ours = True
            limit = runtime.settings.operation_timeout_s
            await self._take_turn(turn, limit)
            await self._before_is_closed(limit)
            await self._go_over(quorum)
        except LedgerFailing:
            raise OperationTimeout(
                f"{before.what}: its ledger failed, and another one, of the sizes of before, takes its place; "
                "call it again",
                definite=True,
            ) from None
        finally:
            if is_ours:
                self._is_renewing = False
            if self._turn_of is turn:
                self._turn_of = None
            self._signal.notify()

    async def _go_over(self, quorum: Quorum, joined: Joined | None = None) -> None:
        before = self.appending
        try:
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
            except LedgerFailing:
                raise
            except BaseException as failed:
                self._note_failed(before, failed, "renew()")
                raise
        finally:
            with MOVING:  # No function of its own: a signal handler may raise where one begins.
                self._is_held, self._rounds = False, self._rounds + 1
            self._signal.notify()

    async def _closed(self, before: Appending) -> None:
        """Behind all that was appended to it. One that failed, and was not replaced, a takeover closes if need be."""
        before.leave()
        if before.writing.failure is None:
            if not await before.drained():
                raise LedgerFailing
            await before.close_behind()
            return
        with contextlib.suppress(LedgerFenced, LedgerClosed):
            await before.close_behind()

    # For rolling and renewing.

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
                lambda: (
                    self._is_lost(followed) or self._has_ended or followed.refusal != "" or runtime.is_ended
                ),
                timeout_s,
            )
            runtime.check()
            if not (self._is_lost(followed) or self._has_ended):
                followed.check()
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
            turn = object()
            try:
                self._closers += 1
                try:
                    await self._take_turn(turn, None, closes=True)
                finally:
                    self._closers -= 1
                    self._signal.notify()
                self._end()
                await self._before_is_closed(None)
                last = await self._close_last()
                await self._close_prepared()
                return self.appending, last
            except LedgerFailing:
                continue  # What is outstanding moves to a next ledger, which is closed behind it.
            except OperationTimeout:
                raise  # It is waited for again.
            except EmbedbkError:
                self._is_let_go = True
                raise
            finally:
                if self._turn_of is turn:
                    self._turn_of = None
                self._signal.notify()

    async def _close_last(self) -> int:
        appending = self.appending
        if self._is_let_go:
            return appending.lac
        if not appending.is_over:
            appending.leave()
        # One that fails before all of it is acknowledged is replaced, not closed; unless it was not replaced.
        if appending.writing.failure is None and not await appending.drained():
            raise LedgerFailing
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
