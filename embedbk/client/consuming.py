"""Consuming a log by a durable cursor (P8.8), for both faces: one consumer at a time, from where the last committed.

Decides when a consumer commits, and what it does when another client moves its cursor: it continues where the cursor
was put. Its lease is a lock, so it ends with its session; commits compare the lease's epoch, so a consumer that lost it
commits nothing (`core.cursor_commit`). An entry counts as consumed when the next one is asked for: at least once.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator

from embedbk.client.batches import Entry, Located
from embedbk.client.cursors import Cursoring, CursorState, check_level
from embedbk.client.handles import ReaderNote
from embedbk.client.locking import Locking
from embedbk.client.log_following import LogFollowing
from embedbk.client.runtime import FollowedKey
from embedbk.client.waiting import Roused, RousingSignal
from embedbk.codec.log_cursors import cursor_lease_name, decode_cursor
from embedbk.config import check_seconds
from embedbk.core.cursor_commit import CommitDone, CursorCommit
from embedbk.errors import CursorLost, EmbedbkError, LockLost, OperationTimeout, UsageError
from embedbk.metadata.claims import lock_path

__all__ = ["Consuming"]


class _Lease(Locking):
    """The lock of one cursor, which no application can name."""

    def __init__(self, cursoring: Cursoring) -> None:
        self.runtime = cursoring.reading.runtime
        self.name = cursor_lease_name(cursoring.reading.name, cursoring.name)
        self.value = self.runtime.owner().encode()
        self.hold = None


class Consuming:
    """One consumer of one cursor. Its steps are taken one at a time, by one thread or task."""

    def __init__(
        self,
        cursoring: Cursoring,
        timeout_s: float | None,
        idle_s: float | None,
        commit_s: float,
    ) -> None:
        """timeout_s: how long to wait while another consumes; idle_s: end when nothing new came for so long; commit_s:
        commit what was consumed when so long has passed since the last commit."""
        check_seconds(timeout_s, "timeout_s")
        check_seconds(idle_s, "idle_s")
        if commit_s is None:
            raise UsageError("commit_s=None: allowed are seconds from 0 on")
        check_seconds(commit_s, "commit_s")
        self.cursoring = cursoring
        self._timeout_s, self._idle_s, self._commit_s = timeout_s, idle_s, commit_s
        self._signal = RousingSignal()
        self._lease: _Lease | None = None
        self._epoch = 0  # The lease's epoch, also once the lease is over.
        self._followed: FollowedKey | None = None
        self._revision = 0  # The cursor's revision as it is known here.
        # Offsets; the entry asked for next follows the one given out.
        self._committed = self._consumed = self._wanted = 0
        self._due_s = 0.0  # When what was consumed is to be committed.
        self._frames: AsyncGenerator[Located, None] | None = None
        self._taking: Roused[None] | None = None
        self._taken: Located | None = None
        self._is_elsewhere = False  # The cursor was moved, and the entries at hand are not the next ones.
        self._is_over = False
        self._note = ReaderNote("consumer", cursoring.what, cursoring.reading.runtime.clock_s)

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def position(self) -> int:
        """The offset behind the last entry that counts as consumed."""
        return self._consumed

    @property
    def committed(self) -> int:
        return self._committed

    async def begin(self) -> None:
        """Get the lease, and start where the cursor stands; make a cursor that is not there at the log's start.

        Raises:
            OperationTimeout: another consumed for all of timeout_s; definite.
            UsageError: this client consumes by it already, or the cluster's level is too low.
        """
        runtime = self.cursoring.reading.runtime
        check_level(self.cursoring.reading)
        if self._lease is not None or self._is_over:
            raise UsageError(f"{self.cursoring.what}: a consumer is entered once; call consume() again")
        await self.cursoring.set(None, None, only_new=True)
        lease = _Lease(self.cursoring)
        runtime.handles.add(self._note)
        try:
            try:
                self._note.waits("P9.3", "its lease, which another consumer has")
                await self._acquire(lease)
            finally:
                self._note.goes_on()
            self._lease, self._epoch = lease, lease.epoch
            assert lease.hold is not None
            lease.hold.signal = self._signal  # Losing it wakes a caller that waits for entries.
            self._followed = await runtime.follow(self.cursoring.path, self._signal)
            self._stand(await self.cursoring.get())  # Read with the lease held: from now on only we commit.
        except BaseException:
            if self._lease is None:
                lease.let_go()
                runtime.handles.discard(self._note)
            else:
                self.let_go()
            raise

    async def _acquire(self, lease: _Lease) -> None:
        try:
            await lease.acquire(self._timeout_s)
        except UsageError as twice:
            if lease.runtime.is_closed or lease.runtime.is_forked:
                raise
            raise UsageError(
                f"{self.cursoring.what} is consumed by this client already; nothing was done",
                hint="one consumer at a time: end the other one, or use another cursor",
            ) from twice
        except LockLost as lost:
            raise CursorLost(
                f"{self.cursoring.what}: the session ended while this client waited for it"
            ) from lost
        except OperationTimeout as busy:
            raise OperationTimeout(
                f"{self.cursoring.what} is consumed by another for more than {self._timeout_s:g} s",
                definite=True,
                hint="log.cursors() says who",
            ) from busy

    def _stand(self, state: CursorState) -> None:
        self._revision = max(self._revision, state.revision)
        self._committed = self._consumed = self._wanted = self._note.place = state.offset
        self._due_s = self._clock_s() + self._commit_s

    def _clock_s(self) -> float:
        return self.cursoring.reading.runtime.clock_s()

    # Going on.

    def again(self) -> None:
        """Return entries that were given out and not consumed again: a new loop begins."""
        if self._wanted != self._consumed:
            self._drop()
            self._wanted = self._consumed

    @property
    def needs_look(self) -> bool:
        """Whether `look` has anything to do; asked for each entry."""
        return self._is_over or self._is_elsewhere or self._is_due() or self._has_news()

    async def next(self) -> Located | None:
        """The next entries, of one frame; the caller calls `passed` for each when it was consumed. None: nothing came
        for idle_s.

        Raises:
            CursorLost: the lease is over. NoSuchCursor: the cursor was deleted.
            What `Log.tail` raises: above all Truncated, where the cursor does not hold the entries at its place.
        """
        self._note.is_driven = True
        try:
            return await self._next()
        finally:
            self._note.is_driven = False

    async def _next(self) -> Located | None:
        while True:
            await self.look()
            if self._frames is None:
                self._frames = LogFollowing(self.cursoring.reading).tail(
                    self._wanted, self._idle_s, self._note
                )
                self._taking = None
            if self._taking is None:
                self._taking = Roused(self._take(self._frames), self._signal, self._clock_s)
            until_s = self._due_s if self._consumed > self._committed else math.inf
            try:
                if not await self._taking.done(self._has_news, until_s):
                    continue
            except BaseException:
                self._taking = self._frames = None  # They have ended.
                raise
            located, self._taken, self._taking = self._taken, None, None
            if located is None:
                self._frames = None
                return None
            first = located.first_offset + located.frame.first_entry
            self._wanted = first + located.frame.entry_count
            self._is_elsewhere = False
            return located

    async def _take(self, frames: AsyncGenerator[Located, None]) -> None:
        try:
            self._taken = await frames.__anext__()
        except StopAsyncIteration:
            self._taken = None

    async def look(self) -> bool:
        """Follow a cursor that was moved, and commit what is due; True if it was moved, so that the entries at hand are
        not the next ones.

        Raises CursorLost, NoSuchCursor.
        """
        lease, followed = self._lease, self._followed
        if self._is_over or lease is None or followed is None:
            raise UsageError(f"{self.cursoring.what}: this consumer has not begun, or was ended")
        self.cursoring.reading.runtime.check()
        assert lease.hold is not None
        if lease.hold.ended:
            raise self._lost(lease.hold.ended)
        if self._is_shown():
            assert followed.state is not None
            value, revision = followed.state
            if value is None:
                raise self.cursoring.missing()
            record = decode_cursor(value, self.cursoring.reading.name, self.cursoring.name)
            if record.epoch == 0:
                self._jump(record.offset, revision)
                return True
            # Our own commit, or that of a client that has the lease by now: our next commit finds out.
            self._revision = revision
        if self._is_due():
            await self.commit()
        return self._is_elsewhere

    def _has_news(self) -> bool:
        lease = self._lease
        is_lost = lease is None or lease.hold is None or bool(lease.hold.ended)
        return is_lost or self._is_shown()

    def _is_shown(self) -> bool:
        """Whether the watch shows something newer of the cursor than is known here."""
        followed = self._followed
        return followed is not None and followed.state is not None and followed.revision > self._revision

    def _is_due(self) -> bool:
        return self._consumed > self._committed and self._clock_s() >= self._due_s

    def passed(self, entry: Entry) -> None:
        """This entry, and all before it, count as consumed; unless a commit since it was given out has found that the
        cursor was moved."""
        if not self._is_elsewhere:
            self._consumed = entry.offset + 1

    def _jump(self, offset: int, revision: int) -> None:
        self._drop()
        self._revision, self._is_elsewhere = revision, True
        self._committed = self._consumed = self._wanted = offset

    def _drop(self) -> None:
        """The entry that was asked for is not the one that comes next."""
        taking, self._taking, self._frames, self._taken = self._taking, None, None, None
        if taking is not None:
            taking.end()

    async def commit(self) -> bool:
        """Put the cursor behind what was consumed; False: another client has moved it, and this consumer follows it.

        Raises CursorLost, NoSuchCursor, MetadataUnavailable.
        """
        lease, cursoring = self._lease, self.cursoring
        if self._is_over or lease is None:
            raise UsageError(f"{cursoring.what}: this consumer has not begun, or was ended")
        self._due_s = self._clock_s() + self._commit_s
        if self._consumed == self._committed:
            return True
        runtime = cursoring.reading.runtime
        core = CursorCommit(
            cursoring.reading.name,
            cursoring.name,
            lock_path(lease.name),
            self._epoch,
            self._revision,
            self._consumed,
            runtime.wall_ms(),
        )
        done: CommitDone = await runtime.run(core, f"committing {cursoring.what}")
        if not done.is_ours:
            self._jump(done.offset, done.revision)
            return False
        self._revision, self._committed = max(self._revision, done.revision), done.offset
        return True

    # Ending.

    async def end(self) -> None:
        """Commit what was consumed, and give the lease to the next consumer that waits for it."""
        try:
            await self.commit()
        except BaseException:
            self.let_go()
            raise
        lease = self._lease
        self._finish()
        try:
            if lease is not None and lease.hold is not None:
                await lease.release()
        except LockLost as lost:
            raise self._lost(str(lost)) from lost

    def let_go(self) -> None:
        """Release the lease, without a commit and without waiting for the outcome."""
        lease = self._lease
        self._finish()
        if lease is not None:
            lease.let_go()

    def _finish(self) -> None:
        self._is_over = True
        self.cursoring.reading.runtime.handles.discard(self._note)
        self._drop()
        followed, self._followed = self._followed, None
        if followed is not None:
            followed.end()

    def _lost(self, why: str) -> EmbedbkError:
        return CursorLost(f"{self.cursoring.what}: the lease of epoch {self.epoch} is over: {why}")
