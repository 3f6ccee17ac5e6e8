"""Cursors and consumers, the blocking face (P8.8). Their logic stands in `cursors` and `consuming`."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from embedbk.client.batches import Entry, entries_of
from embedbk.client.consuming import Consuming
from embedbk.client.cursors import Cursoring, CursorState
from embedbk.client.log_places import Start
from embedbk.client.runtime import refuse_pickling
from embedbk.client.waiting import run_blocking

__all__ = ["Consumer", "Cursor"]


class Consumer:
    """One consumer of a cursor, within its block; iterate over it once or several times.

    An entry counts as consumed when the loop asks for the next one, and what was consumed is committed every `commit_s`
    seconds, while the loop waits, and at the end of the block: so each entry comes **at least once**, and again where a
    consumer died or its block was left by an exception before that. Not thread-safe.
    """

    def __init__(self, consuming: Consuming) -> None:
        self._consuming = consuming

    @property
    def epoch(self) -> int:
        """The fencing token of this lease: higher than that of every earlier consumer. 0: no lease is held."""
        return self._consuming.epoch

    @property
    def position(self) -> int:
        """The offset behind the last entry that counts as consumed."""
        return self._consuming.position

    @property
    def committed(self) -> int:
        """The offset before which everything is committed, as far as this consumer knows."""
        return self._consuming.committed

    def commit(self) -> bool:
        """Commit what counts as consumed, now. False: the cursor was moved, and this consumer continues there.

        Raises:
            CursorLost: this consumer does not hold the lease any more; nothing was committed.
            NoSuchCursor: it was deleted. MetadataUnavailable, OperationTimeout: it may be committed or not.
        """
        return run_blocking(self._consuming.commit(), "aio.Consumer.commit")

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries behind the cursor, and then later ones; without end, or until nothing came for
        idle_s.

        Raises:
            CursorLost, NoSuchCursor: as `commit`.
            Truncated: the next entries are gone, as the cursor did not hold them; `first_offset` says where the log
                begins, and `Cursor.set` goes on there. Also what `Log.tail` raises.
        """
        consuming = self._consuming
        consuming.again()
        while (located := run_blocking(consuming.next(), "aio.Consumer")) is not None:
            for entry in entries_of(located):
                yield entry
                consuming.passed(entry)
                if consuming.needs_look and run_blocking(consuming.look(), "aio.Consumer"):
                    break

    def __enter__(self) -> Self:
        """Wait for the lease. Raises OperationTimeout, definite: another consumed for all of timeout_s."""
        run_blocking(self._consuming.begin(), "aio.Consumer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit what was consumed if the block ended well; after an exception, commit nothing more."""
        if kind is None:
            try:
                run_blocking(self._consuming.end(), "aio.Consumer")
            except BaseException:
                self._consuming.let_go()  # Interrupted before that, too: the next consumer waits for the lease.
                raise
        else:
            self._consuming.let_go()

    def __reduce__(self) -> Any:
        refuse_pickling("a consumer", "open the log there and call consume()")


class Cursor:
    """A durable cursor of a log by its name; nothing is asked for, and nothing made, before one of its calls."""

    def __init__(self, cursoring: Cursoring) -> None:
        self._cursoring = cursoring

    @property
    def name(self) -> str:
        return self._cursoring.name

    def get(self) -> CursorState:
        """Where it stands. Raises NoSuchCursor."""
        return run_blocking(self._cursoring.get(), "aio.Cursor.get")

    def set(self, place: Start = None, *, revision: int | None = None) -> CursorState:
        """Put it to a place (a Position or an offset; None: the log's start), forward or back. A cursor that is not
        there is made, with the terms that `Log.cursor` was given, and holds by them from now on. A running consumer
        goes on there. An offset beyond the log's end is taken as well, since what is acknowledged elsewhere may not be
        seen here yet: what is appended before it counts as consumed.

        revision: only if it was not moved since `get` or `set` returned this one; 0: only if there is none.

        Raises:
            MetadataConflict, definite: it has another revision, or changed again and again; it stays where it is.
            Truncated: the place is below the log's start, which is `first_offset`.
            UsageError: this is no place, the log has 100 cursors, or the cluster's level is below 6.
            NoSuchLedger: there is no such log.
        """
        return run_blocking(self._cursoring.set(place, revision), "aio.Cursor.set")

    def delete(self, *, revision: int | None = None) -> bool:
        """Delete the cursor: it holds nothing from now on, and a running consumer gets NoSuchCursor. False: there is
        none. revision: as in `set`."""
        return run_blocking(self._cursoring.delete(revision), "aio.Cursor.delete")

    def consume(
        self, *, timeout_s: float | None = None, idle_s: float | None = None, commit_s: float = 1.0
    ) -> Consumer:
        """A consumer, to be used as a block; it makes the cursor, at the log's start, if it is not there.

            with log.cursor("billing").consume() as entries:
                for entry in entries:
                    ...

        One consumer has a cursor at a time, over all clients; one that died frees it when its session ends. Several
        wait in the order in which they came.

        Args:
            timeout_s: how long to wait while another consumes; None: no limit.
            idle_s: the loop ends when nothing new came for so long; None: never.
            commit_s: what was consumed is committed when so long has passed since the last commit; 0: with each entry;
                `math.inf`: only by `Consumer.commit` and at the end of the block.
        """
        return Consumer(Consuming(self._cursoring, timeout_s, idle_s, commit_s))

    def __reduce__(self) -> Any:
        refuse_pickling(
            "a cursor handle", "send the client's url and the names of log and cursor, and open it there"
        )

    def __repr__(self) -> str:
        return f"Cursor({self._cursoring.reading.name!r}, {self.name!r})"
