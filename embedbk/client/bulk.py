"""Reading a log in bulk: as much as there is within bounds, as buffers, waiting for it if asked to (CL22, LG24).

Decides how much one call returns, and where the next one continues. Leaves walking from ledger to ledger, and what a
gap is, to `log_reading`. No object is made for an entry.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from embedbk.client.batches import Batch, Located, batch_of
from embedbk.client.handles import ReaderNote
from embedbk.client.log_following import LogFollowing, Pull
from embedbk.client.log_reading import LogReading
from embedbk.client.record_batches import stream_of
from embedbk.client.runtime import refuse_pickling
from embedbk.client.waiting import run_blocking
from embedbk.config import check_flag, check_seconds
from embedbk.errors import EmbedbkError, UsageError
from embedbk.ids import Position

__all__ = ["BYTES_PER_CALL", "ENTRIES_PER_CALL", "Bulk", "BulkReading", "LogReader", "Place"]

ENTRIES_PER_CALL = 65_536  # What one call returns by default, ...
BYTES_PER_CALL = 1 << 20  # ... in entries and in payload bytes.

Place = Position | int | Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class Bulk:
    """The entries that one call read: they follow each other from where the reader stood, in runs of one ledger each.

    Its length counts entries, so one without any is false: nothing more was there yet. It is an Arrow stream by itself
    (`pyarrow.table(bulk)`, with the columns of `embedbk.arrow.SCHEMA`), in both faces, as it is in memory.
    """

    batches: tuple[Batch, ...]
    next_offset: int | None  # The dense offset behind the last of them; None: the log has no beginning yet.

    def __len__(self) -> int:
        return sum(batch.ids[-1] - batch.ids[0] + 1 for batch in self.batches)

    @property
    def byte_count(self) -> int:
        """Payload bytes of all its entries."""
        return sum(_bytes_of(batch) for batch in self.batches)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return stream_of(iter(self.batches), requested_schema)


class _Wanted(NamedTuple):
    max_entries: int
    max_bytes: int
    min_entries: int
    until_s: float


class BulkReading:
    """A place in a log that moves behind what was read: the logic under `LogReader`, for both faces.

    Whatever ends a call early, the next one continues behind the last entry that was returned.
    """

    def __init__(self, reading: LogReading, start: Place, *, skip_lost: bool = False) -> None:
        check_flag(skip_lost, "skip_lost")
        self._reading = reading
        self._skip_lost = skip_lost
        self._turn = threading.Lock()
        self._note = ReaderNote("log reader", f"log {reading.given!r}", reading.runtime.clock_s)
        self._pull = Pull(note=self._note, skip_lost=skip_lost)
        self._frames: AsyncGenerator[Located | None, None] | None = None
        self._rest: Batch | None = None  # Read, and not given yet.
        self._place: Place = _checked(start)
        self._note.place = start if isinstance(start, int) else None
        self.is_over = False
        reading.runtime.handles.add(self._note)

    @property
    def name(self) -> str:
        return self._reading.name

    @property
    def next_offset(self) -> int | None:
        """The dense offset of the next entry to be given; None: it is not known yet."""
        return self._place if isinstance(self._place, int) else self._pull.begins

    def seek(self, place: Place) -> None:
        place = _checked(place)
        with self._alone():
            self._drop()
            self._place, self._pull = place, Pull(note=self._note, skip_lost=self._skip_lost)
            self._note.place = self.next_offset

    async def read(self, max_entries: int, max_bytes: int, wait_s: float | None, min_entries: int) -> Bulk:
        for name, given in (
            ("max_entries", max_entries), ("max_bytes", max_bytes), ("min_entries", min_entries),
        ):  # fmt: skip
            if isinstance(given, bool) or not isinstance(given, int) or given < 1:
                raise UsageError(f"{name}={given!r}: a whole number from 1 on is allowed")
        check_seconds(wait_s, "wait_s")
        runtime = self._reading.runtime
        until_s = float("inf") if wait_s is None else runtime.clock_s() + wait_s
        with self._alone():
            runtime.check()
            return await self._gather(_Wanted(max_entries, max_bytes, min(min_entries, max_entries), until_s))

    def close(self) -> None:
        """Release what is held for the next call; a call under way in another thread does so at its end."""
        self.is_over = True
        self._reading.runtime.handles.discard(self._note)
        if self._turn.acquire(blocking=False):
            self._drop()
            self._turn.release()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Admit one call at a time: two would divide the entries between them."""
        if self.is_over:
            raise UsageError("this reader was closed", hint="open another one with log.reader()")
        if not self._turn.acquire(blocking=False):
            raise UsageError(
                "another call reads with this reader; nothing was read",
                hint="open a reader for each who reads",
            )
        try:
            yield
        finally:
            if self.is_over:
                self._drop()
            self._turn.release()

    async def _gather(self, wanted: _Wanted) -> Bulk:
        gathered: list[Batch] = []
        count, size = 0, 0
        try:
            while count < wanted.max_entries:
                batch = await self._next(count, wanted)
                if batch is None:
                    break
                taken, self._rest = _split(
                    batch, wanted.max_entries - count, wanted.max_bytes - size, has_some=bool(gathered)
                )
                if taken is None:
                    break
                gathered.append(taken)
                count += taken.ids[-1] - taken.ids[0] + 1
                size += _bytes_of(taken)
        except EmbedbkError:
            self._drop()
            if not gathered:
                raise  # Else it shortens the answer, and the next call meets it.
        except GeneratorExit:
            # CPython 3.11 ends this before the generator that it waits for, which is then "already running" for
            # the code that ends that one: drop it, and it ends with its last reference.
            self._frames = self._rest = None
            raise
        except BaseException:
            self._drop()
            raise
        if gathered:
            self._place = gathered[-1].first_offset + gathered[-1].ids[-1] + 1
        return Bulk(tuple(gathered), self.next_offset)

    async def _next(self, count: int, wanted: _Wanted) -> Batch | None:
        """The next run of entries; None: nothing more is there yet, and there is no time to wait for it."""
        rest, self._rest = self._rest, None
        if rest is not None:
            return rest
        pull = self._pull
        # Enough is there: add only what costs no waiting.
        left_s = (
            max(0.0, wanted.until_s - self._reading.runtime.clock_s()) if count < wanted.min_entries else 0.0
        )
        pull.idle_s = None if left_s == float("inf") else left_s
        pull.asks = count == 0 and left_s == 0.0
        if self._frames is None:
            place = self.next_offset
            self._frames = LogFollowing(self._reading).follow(self._place if place is None else place, pull)
        located = await self._frames.__anext__()
        return None if located is None else batch_of(located)

    def _drop(self) -> None:
        frames, self._frames, self._rest = self._frames, None, None
        if frames is not None:
            _end(frames.aclose)


def _end(close: Callable[[], Any]) -> None:
    """End such a generator, without waiting."""
    try:
        close().send(None)
    except StopIteration:
        return
    raise AssertionError("a generator of frames waited while it was closed")


def _checked(place: Place) -> Place:
    is_number = isinstance(place, int) and not isinstance(place, bool) and place >= 0
    if is_number or isinstance(place, Position) or place in ("earliest", "latest"):
        return place
    raise UsageError(
        f"{place!r} is no place in a log: a Position, an offset from 0 on, 'earliest' or 'latest' are"
    )


def _bytes_of(batch: Batch) -> int:
    return int(batch.ends[-1] - batch.ends[0])


def _split(batch: Batch, entries: int, size: int, *, has_some: bool) -> tuple[Batch | None, Batch | None]:
    """(as many whole entries as fit, the rest). The first entry of a call always fits, however large it is (CL22)."""
    ids, ends = batch.ids, batch.ends
    rows = min(bisect_left(ids, ids[0] + entries), bisect_right(ends, ends[0] + size) - 1)
    if 0 < rows < len(ids) and ids[rows] == ids[rows - 1]:
        rows = bisect_left(ids, ids[rows])  # Not within an atomic batch.
    if rows <= 0:
        if has_some:
            return None, batch
        rows = bisect_right(ids, ids[0])
    if rows == len(ids):
        return batch, None
    taken = batch._replace(ids=ids[:rows], ends=ends[: rows + 1])
    return taken, batch._replace(ids=ids[rows:], ends=ends[rows:])


# --- The blocking face -----------------------------------------------------------------------------------


class LogReader:
    """A place in a log, which moves as it is read from: `with log.reader() as reader: ...`.

    It reads on across ledgers, rolls, recoveries and takeovers, and past truncations behind it. A call that raises
    has returned nothing: the next one begins at the same entry. It keeps nothing from truncation: `log.pin` does.
    """

    def __init__(self, reading: BulkReading) -> None:
        self._reading = reading

    @property
    def next_offset(self) -> int | None:
        """The dense offset of the entry that comes next; None: not known yet, before the first call."""
        return self._reading.next_offset

    def read_bulk(
        self,
        max_entries: int = ENTRIES_PER_CALL,
        max_bytes: int = BYTES_PER_CALL,
        wait_s: float | None = 0.0,
        *,
        min_entries: int = 1,
    ) -> Bulk:
        """The next entries, as buffers, without an object per entry: as many as are there, within the bounds.

        Args:
            max_entries: an atomic batch counts as one.
            max_bytes: payload bytes; the first entry is returned however large it is.
            wait_s: how long to wait while fewer than min_entries are there; None waits without end.
            min_entries: with fewer it waits on, until wait_s is over; a number above max_entries means max_entries.

        Returns:
            A `Bulk`: one without entries is false, and means that nothing more is there yet, also when nobody has
                written to the log.

        Raises:
            Truncated: the next entries were truncated; `first_offset` says where to `seek`.
            Lost: the next entries were given up (P11.5); `next_offset` says where to `seek`.
            NoSuchLedger: the log was deleted. NoSuchEntry: the log has no such place.
            EntryUnreadable: no copy of an acknowledged entry could be read, within wait_s or at the first try.
            UsageError: a bound is not allowed, the reader was closed, or another call is reading with it.
        """
        steps = self._reading.read(max_entries, max_bytes, wait_s, min_entries)
        return run_blocking(steps, "aio.LogReader.read_bulk")

    def seek(self, place: Place) -> None:
        """Go on from another place: a Position, a dense offset, "earliest" (where the log begins) or "latest" (entries
        that come from the next call on)."""
        self._reading.seek(place)

    def close(self) -> None:
        """Release what is held for the next call."""
        self._reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        refuse_pickling(
            "a log reader", "send the client's url, the log's name and `next_offset`, and read on from there"
        )

    def __repr__(self) -> str:
        return f"LogReader({self._reading.name!r}, next_offset={self.next_offset})"
