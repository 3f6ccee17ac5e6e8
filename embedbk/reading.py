"""What every reading handle does, whichever face shows it: entries of one ledger, of a log, and the tail (P6).

Decides up to where may be read: the last entry of a closed ledger, else the LAC (P6.2); and when a reader of a log goes
on to the next ledger: only when the one it reads is CLOSED and read to its end (P6.6). Which copies are asked is
decided in `core.reader`. Metadata of open ledgers and the lists of logs are followed by watch, never polled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, NamedTuple

from embedbk.codec import kernels
from embedbk.codec.attributes import Producer, parts_of, producer_of
from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES
from embedbk.codec.frame import Frame
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    LogSegment,
    decode_ledger_metadata,
    decode_log_list,
    ledger_key_path,
    log_key_path,
)
from embedbk.codec.packer_twin import Buffer
from embedbk.config import FRAME_BYTES_MAX, LAC_WAIT_MS_MAX
from embedbk.core.lac_reader import LacRead, LacWait
from embedbk.core.reader import RangeRead, ReadOptions
from embedbk.core.recovery import Recovery, RecoveryOptions
from embedbk.errors import NoSuchEntry, NoSuchLedger, Truncated, UsageError
from embedbk.host.operations import OneResult
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY, Position
from embedbk.password import Password
from embedbk.runtime import Followed, Runtime
from embedbk.waiting import Moved

__all__ = [
    "Batch",
    "Entry",
    "LedgerReading",
    "LogReading",
    "Segment",
    "Start",
    "batch_of",
    "entries_of",
    "record_batch_maker",
]

_PAUSE_S = 0.1  # Before bookies are asked again that could tell no LAC.

Start = Position | int | None  # A position, or a dense offset.


class Entry:
    """One entry. `data` is a memoryview on the block it was read in, which lives as long as it is referenced."""

    __slots__ = ("_attributes", "data", "entry_id", "ledger_id", "offset")

    def __init__(
        self, ledger_id: int, entry_id: int, offset: int, data: memoryview, attributes: Buffer = b""
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.offset = offset  # Dense, in the log it was read from; in a ledger by itself, the entry id.
        self.data = data
        self._attributes = attributes

    @property
    def parts(self) -> list[memoryview]:
        """The records of an atomic batch; an entry that is none is one record."""
        ends = parts_of(self._attributes) or (len(self.data),)
        return [self.data[begin:end] for begin, end in zip((0, *ends), ends, strict=False)]

    @property
    def producer(self) -> Producer | None:
        """(producer id, sequence) under which it was appended, None without."""
        return producer_of(self._attributes)

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"Entry({self.ledger_id}, {self.entry_id}, offset={self.offset}, {len(self.data)} bytes)"

    def __reduce__(self) -> Any:
        given = (self.ledger_id, self.entry_id, self.offset, bytes(self.data), bytes(self._attributes))
        return _rebuilt, given


def _rebuilt(ledger_id: int, entry_id: int, offset: int, data: bytes, attributes: bytes) -> Entry:
    return Entry(ledger_id, entry_id, offset, memoryview(data), attributes)


class Batch(NamedTuple):
    """A run of entries of one ledger as buffers: record i is data[ends[i] : ends[i + 1]], of entry ids[i].

    An entry is one record, an atomic batch as many as it has parts.

    The layout is that of an Arrow int64 and an Arrow binary array.
    """

    ledger_id: int
    first_offset: (
        int  # Dense offset in the log of the ledger's entry 0: the offset of entry i is this + ids[i].
    )
    ids: memoryview  # int64
    ends: memoryview  # int32, one more than ids
    data: memoryview

    @property
    def entry_count(self) -> int:
        return len(self.ids)


def record_batch_maker() -> Callable[[Located], Any]:
    """What makes an Arrow record batch of a frame.

    Raises UsageError where pyarrow is not installed.
    """
    try:
        from embedbk import arrow
    except ImportError as missing:
        raise UsageError(
            "record batches need pyarrow, which is not installed", hint="pip install 'embedbk[arrow]'"
        ) from missing
    return lambda located: arrow.record_batch(batch_of(located))


class Segment(NamedTuple):
    """One ledger of a log, as far as it may be read now."""

    ledger_id: int
    first_offset: int
    last_entry: int  # The last of a closed ledger, else the LAC; NO_ENTRY when there is none.
    is_closed: bool


class Located(NamedTuple):
    """A frame, and the dense offset of its ledger's entry 0."""

    frame: Frame
    first_offset: int


Frames = AsyncGenerator[Located, None]


def entries_of(located: Located) -> Iterator[Entry]:
    frame, first_offset = located
    body, ledger_id = frame.body, frame.ledger_id
    ids, spans = kernels.offsets(body)
    begins, sizes = spans[::2].tolist(), spans[1::2].tolist()
    if len(body) != ENTRY_OVERHEAD_BYTES * len(ids) + sum(sizes):
        yield from _with_attributes(located, ids.tolist(), begins, sizes)
        return
    for entry_id, begin, size in zip(ids.tolist(), begins, sizes, strict=True):
        yield Entry(ledger_id, entry_id, first_offset + entry_id, body[begin : begin + size])


def _with_attributes(
    located: Located, ids: list[int], begins: list[int], sizes: list[int]
) -> Iterator[Entry]:
    """The same where some have attributes: those stand between the entry's header and its payload."""
    frame, first_offset = located
    at = 0
    for entry_id, begin, size in zip(ids, begins, sizes, strict=True):
        attributes = frame.body[at + ENTRY_HEADER.size : begin]
        data = frame.body[begin : begin + size]
        yield Entry(frame.ledger_id, entry_id, first_offset + entry_id, data, attributes)
        at = begin + size + ENTRY_OVERHEAD_BYTES - ENTRY_HEADER.size


def batch_of(located: Located) -> Batch:
    frame, first_offset = located
    ids, ends, data = kernels.values(frame.body)
    return Batch(frame.ledger_id, first_offset, ids, ends, data)


class LedgerReading:
    """One ledger, for reading: the logic under `LedgerReader`, and what a log is read by."""

    def __init__(self, runtime: Runtime, metadata: LedgerMetadata, revision: int, password: Password) -> None:
        self.runtime = runtime
        self._password = password
        self.ledger_id = metadata.ledger_id
        self.lac = NO_ENTRY  # The highest that was heard; reading an open ledger ends there.
        self.is_over = False
        self._metadata = metadata
        self._revision = revision
        self._followed: Followed | None = None
        self._came_along: Frame | None = None  # With the LAC that was heard last.
        # Where in a write set asking begins: readers spread over the copies.
        self._turn = runtime.chance.getrandbits(16)

    @staticmethod
    async def open(runtime: Runtime, ledger_id: int, password: Password, *, recover: bool) -> LedgerReading:
        """Raises NoSuchLedger, WrongPassword, and with recover what recovery can raise."""
        check_ledger_id(ledger_id)
        key = ledger_key_path(ledger_id)
        value, revision = await runtime.get(key, f"opening ledger {ledger_id}")
        if value is None:
            raise no_such_ledger(ledger_id)
        metadata = decode_ledger_metadata(value)
        password.check(metadata)
        if recover and not metadata.is_closed:
            metadata, revision = await recovered(runtime, metadata, revision, password)
        reading = LedgerReading(runtime, metadata, revision, password)
        if not metadata.is_closed:
            reading._followed = await runtime.follow(key)
        return reading

    @property
    def metadata(self) -> LedgerMetadata:
        """As the watch shows it; CLOSED never changes its end, so nothing follows it then.

        Raises NoSuchLedger once the ledger was deleted.
        """
        followed = self._followed
        if followed is not None and followed.state is not None:
            value, revision = followed.state
            if value is None and revision > self._revision:
                raise no_such_ledger(self.ledger_id)
            if value is not None and revision > self._revision:
                self._metadata, self._revision = decode_ledger_metadata(value), revision
            if self._metadata.is_closed:
                self._stop_following()
        return self._metadata

    @property
    def is_closed(self) -> bool:
        return self.metadata.is_closed

    async def limit(self) -> int:
        """Up to where may be read now: the last entry, or the LAC as an ack quorum knows it (P6.2)."""
        self.check()
        metadata = self.metadata
        if not metadata.is_closed:
            lac, _, _ = await self.runtime.run(LacRead(metadata), f"asking for the LAC of {self.ledger_id}")
            self._hear(lac)
            metadata = self.metadata
        return self._known_limit(metadata)

    async def try_limit(self) -> int:
        """As `limit`, but content with the first bookie that has news (CL26)."""
        self.check()
        metadata = self.metadata
        if not metadata.is_closed:
            core = LacRead(metadata, above=self.lac)
            lac, _, _ = await self.runtime.run(core, f"asking for the LAC of {self.ledger_id}")
            self._hear(lac)
            metadata = self.metadata
        return self._known_limit(metadata)

    async def last(self) -> Located:
        """The last entry that may be read now (CL24). Raises NoSuchEntry while there is none."""
        limit = await self.limit()
        if limit == NO_ENTRY:
            raise NoSuchEntry(f"ledger {self.ledger_id} has no entry that may be read yet")
        frames = self.frames(limit, limit)
        try:
            return await anext(frames)
        finally:
            await frames.aclose()

    def _hear(self, lac: int) -> None:
        """A LAC that was told. What this handle shows never falls: bookies do not know the newest all at once (I11)."""
        self.lac = max(self.lac, lac)

    def _known_limit(self, metadata: LedgerMetadata) -> int:
        limit = self.lac if metadata.last_entry is None else metadata.last_entry
        self.runtime.on_limit(self, self.ledger_id, limit, is_closed=metadata.is_closed)
        return limit

    async def wait_beyond(self, entry_id: int, idle_s: float | None) -> int | None:
        """Until something above entry_id may be read, or the ledger is closed; gives the limit, None after idle_s."""
        waited = _Waited(self.runtime, idle_s)
        while True:
            self.check()
            metadata = self.metadata
            limit = self._known_limit(metadata)
            if limit > entry_id or metadata.is_closed:
                return limit
            if waited.is_over():
                return None
            await self._hear_lac(metadata, entry_id, waited)

    async def _hear_lac(self, metadata: LedgerMetadata, entry_id: int, waited: _Waited) -> None:
        """One long poll for the LAC, which newer metadata ends: its bookie may have been replaced."""
        followed, revision = self._followed, self._revision
        assert followed is not None
        core = LacWait(
            metadata,
            entry_id,
            waited.limit_ms(LAC_WAIT_MS_MAX),
            self._turn % metadata.ensemble_size,
            bytes_max=FRAME_BYTES_MAX,
            mac_key=self._password.mac_key,
        )
        wait = OneResult(core)
        wait.future.add_done_callback(lambda _: followed.signal.notify())
        self.runtime.start(wait)
        try:
            await Moved(
                followed.signal,
                lambda: (
                    wait.future.done() or followed.revision > revision
                ),  # Done, too, when the client ends.
                waited.left_s(),
            )
        finally:
            if not wait.future.done():
                self.runtime.forget(wait)
        if not wait.future.done():
            return
        lac, _, is_fenced = wait.future.result()
        self._hear(lac)
        if lac > entry_id:
            self._came_along = core.frame
            return
        self._turn += (
            1  # Where there was news the same bookie is asked again: its writer knows that somebody waits.
        )
        # Fenced: what comes next is the metadata's to say. Else nobody had news, or nobody could be asked.
        pause_s = waited.left_s() if is_fenced else _PAUSE_S
        await followed.beyond(revision, pause_s)

    async def frames(
        self, first: int, last: int, first_offset: int = 0, *, is_unconfirmed: bool = False
    ) -> Frames:
        """The entries first..last in order, which must be below the limit but for unconfirmed ones (P6.3)."""
        self.check()
        along, self._came_along = self._came_along, None
        if along is not None and along.first_entry == first and along.last_entry <= last:
            yield Located(along, first_offset)
            first = along.last_entry + 1
            if first > last:
                return
        core = RangeRead(
            self.metadata,
            first,
            last,
            self._turn,
            ReadOptions(ahead_bytes=self.runtime.settings.read_ahead_bytes),
            health=self.runtime.read_health,
            repair_key=None if is_unconfirmed else self._password.key,
            is_unconfirmed=is_unconfirmed,
            mac_key=self._password.mac_key,
        )
        reading = self.runtime.read(core)
        try:
            while True:
                if not reading.has_news():
                    await Moved(reading.signal, reading.has_news)
                frame = reading.take()
                self._hear(core.lac)  # Every answer carries one (CL28).
                if frame is None:
                    return
                yield Located(frame, first_offset)
        finally:
            if not reading.is_over:
                self.runtime.forget(reading)

    async def read(self, first: int, last: int | None) -> Frames:
        """first..last, both included; last None: as far as may be read now.

        Raises:
            UsageError: the range is none, or passes what may be read.
        """
        limit = await self.limit()
        if last is None:
            last = limit
            if first > limit >= first - 1:
                return  # Empty, or read to its end: nothing more.
        if not 0 <= first <= last <= limit:
            what = "last entry" if self.is_closed else "last add confirmed"
            raise UsageError(
                f"entries {first}..{last} of ledger {self.ledger_id} were asked for: allowed is 0 <= first <= last "
                f"<= {limit}, its {what}"
            )
        async for located in self.frames(first, last):
            yield located

    async def read_unconfirmed(self, first: int, last: int | None) -> Frames:
        """As far as any bookie holds entries, acknowledged or not (P6.3); a closed ledger ends at its last entry."""
        self.check()
        metadata = self.metadata
        bound = metadata.last_entry if metadata.last_entry is not None else LEDGER_ID_MAX
        last = bound if last is None else min(last, bound)
        if first < 0:
            raise UsageError(
                f"entries from {first} of ledger {self.ledger_id} were asked for: ids begin at 0"
            )
        if first <= last:
            async for located in self.frames(first, last, is_unconfirmed=not metadata.is_closed):
                yield located

    def close(self) -> None:
        self.is_over = True
        self._stop_following()

    def _stop_following(self) -> None:
        followed, self._followed = self._followed, None
        if followed is not None:
            followed.end()

    def check(self) -> None:
        self.runtime.check()
        if self.is_over:
            raise UsageError(
                f"this reader of ledger {self.ledger_id} was closed", hint="open the ledger again"
            )


class LogReading:
    """One log, for reading."""

    def __init__(self, runtime: Runtime, name: str, password: Password) -> None:
        self.runtime = runtime
        self.name = name
        self.password = password

    async def listed(self) -> tuple[LogSegment, ...]:
        """The log's list of ledgers; raises NoSuchLedger when nobody ever wrote to the log."""
        value, _ = await self.runtime.get(log_key_path(self.name), f"reading the list of log {self.name!r}")
        if value is None:
            raise NoSuchLedger(
                f"there is no log {self.name!r}", hint="check the name; its first writer makes it"
            )
        return decode_log_list(value).segments

    async def segments(self) -> list[Segment]:
        found: list[Segment] = []
        for segment in await self.listed():
            if segment.last_entry is not None:
                found.append(Segment(segment.ledger_id, segment.first_offset, segment.last_entry, True))
                continue
            ledger = await self._open(segment)
            try:
                limit = await ledger.limit()
                found.append(Segment(segment.ledger_id, segment.first_offset, limit, ledger.is_closed))
            finally:
                ledger.close()
        return found

    async def read(self, start: Start, end: Start) -> Frames:
        """From start (included) to end (left out), as far as may be read when each ledger is reached."""
        segments = await self.listed()
        index, first = _locate(self.name, segments, start)
        end_index, end_entry = _locate_end(self.name, segments, end)
        for number in range(index, min(len(segments), end_index + 1)):
            segment = segments[number]
            ledger = await self._open(segment)
            try:
                last = await ledger.limit()
                is_whole = ledger.is_closed and last == ledger.metadata.last_entry
                if number == end_index:
                    last = min(last, end_entry - 1)
                if first <= last:
                    async for located in ledger.frames(first, last, segment.first_offset):
                        yield located
            finally:
                ledger.close()
            if not is_whole:
                return  # What may follow in this ledger comes before the next one (P6.6).
            if number + 1 < len(segments):
                first = _first_in(segments[number + 1], start)

    async def tail(self, start: Start, idle_s: float | None) -> Frames:
        """From start on, and everything that comes; start None: what comes from now on. Ends only after idle_s."""
        followed = await self.runtime.follow(log_key_path(self.name))
        try:
            segment = await self._next_listed(followed, None, idle_s)
            if segment is None:
                return
            segments = _segments(followed)
            if start is None:
                segment, first = segments[-1], None
            else:
                index, first = _locate(self.name, segments, start)
                segment = segments[min(index, len(segments) - 1)]
            while segment is not None:
                async for located in self._tail_ledger(segment, first, idle_s):
                    if located is None:
                        return
                    yield located
                segment = await self._next_listed(followed, segment, idle_s)
                if segment is not None:
                    first = _first_in(segment, start)
        finally:
            followed.end()

    async def _tail_ledger(
        self, segment: LogSegment, first: int | None, idle_s: float | None
    ) -> AsyncGenerator[Located | None, None]:
        """Its entries from first on until it is closed and read to its end; None: idle for too long."""
        ledger = await self._open(segment)
        try:
            limit = await ledger.limit()
            if first is None:
                first = limit + 1
            while True:
                if first <= limit:
                    async for located in ledger.frames(first, limit, segment.first_offset):
                        yield located
                    first = limit + 1
                now_limit = await ledger.wait_beyond(first - 1, idle_s)
                if now_limit is None:
                    break
                if now_limit < first:
                    return  # CLOSED, and read to its end (P6.6).
                limit = now_limit
            yield None
        finally:
            ledger.close()

    async def _next_listed(
        self, followed: Followed, after: LogSegment | None, idle_s: float | None
    ) -> LogSegment | None:
        """The segment behind `after` (None: the first), as soon as the list names one; None after idle_s."""
        while True:
            self.runtime.check()
            segments, revision = _segments(followed), followed.revision
            number = 0
            if after is not None:
                ids = [segment.ledger_id for segment in segments]
                if after.ledger_id not in ids:
                    raise Truncated(
                        f"log {self.name!r}: ledger {after.ledger_id} is below the start of its list now",
                        hint="read on from the start of the log",
                    )
                number = ids.index(after.ledger_id) + 1
            if number < len(segments):
                return segments[number]
            if not await followed.beyond(revision, idle_s):
                return None

    async def _open(self, segment: LogSegment) -> LedgerReading:
        try:
            return await LedgerReading.open(self.runtime, segment.ledger_id, self.password, recover=False)
        except NoSuchLedger as gone:
            raise Truncated(
                f"log {self.name!r}: ledger {segment.ledger_id} of its list was deleted",
                hint="read on from the start of the log",
            ) from gone


async def recovered(
    runtime: Runtime, metadata: LedgerMetadata, revision: int, password: Password
) -> tuple[LedgerMetadata, int]:
    """The metadata of the ledger, CLOSED by recovery (P5.2)."""
    chance = runtime.new_chance()
    options = RecoveryOptions(placement=runtime.placement)
    nonce = chance.getrandbits(63)
    core = Recovery(
        metadata, revision, password.key, nonce, runtime.bookies, chance, options, password.mac_key
    )
    result: tuple[LedgerMetadata, int] = await runtime.run(core, f"recovering ledger {metadata.ledger_id}")
    return result


def check_ledger_id(ledger_id: int) -> None:
    if not isinstance(ledger_id, int) or isinstance(ledger_id, bool) or not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise UsageError(f"ledger id {ledger_id!r} is not allowed: a whole number of 0 to {LEDGER_ID_MAX}")


def no_such_ledger(ledger_id: int) -> NoSuchLedger:
    return NoSuchLedger(f"there is no ledger {ledger_id}", hint="bk.ledgers() lists those that exist")


def _segments(followed: Followed) -> tuple[LogSegment, ...]:
    assert followed.state is not None
    value = followed.state[0]
    return decode_log_list(value).segments if value is not None else ()


def _locate(name: str, segments: tuple[LogSegment, ...], start: Start) -> tuple[int, int]:
    """(index of the segment, entry in it) where reading begins; an index past the end: nothing is there yet."""
    if start is None or not segments:
        return 0, 0
    if isinstance(start, Position):
        for index, segment in enumerate(segments):
            if segment.ledger_id == start.ledger_id:
                return index, start.entry_id
        if start.ledger_id < segments[0].ledger_id:
            raise Truncated(
                f"log {name!r}: ledger {start.ledger_id} is below its start, ledger {segments[0].ledger_id}",
                hint="read from the start of the log",
            )
        raise NoSuchEntry(f"log {name!r} has no ledger {start.ledger_id}")
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise UsageError(f"{start!r} is no place in a log: a Position, or an offset from 0 on")
    if start < segments[0].first_offset:
        raise Truncated(
            f"log {name!r}: offset {start} is below its start, offset {segments[0].first_offset}",
            hint="read from the start of the log",
        )
    index = max(i for i, segment in enumerate(segments) if segment.first_offset <= start)
    return index, start - segments[index].first_offset


def _first_in(segment: LogSegment, start: Start) -> int:
    """Where reading begins in a segment behind the one it began in: above 0 only for an offset still ahead."""
    return max(0, start - segment.first_offset) if isinstance(start, int) else 0


def _locate_end(name: str, segments: tuple[LogSegment, ...], end: Start) -> tuple[int, int]:
    return (len(segments), 0) if end is None else _locate(name, segments, end)


class _Waited:
    """How long a reader may still be idle."""

    def __init__(self, runtime: Runtime, idle_s: float | None) -> None:
        self._clock = runtime.clock_s
        self._until = None if idle_s is None else self._clock() + idle_s

    def left_s(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - self._clock())

    def limit_ms(self, most: int) -> int:
        left = self.left_s()
        return most if left is None else min(most, int(left * 1000) + 1)

    def is_over(self) -> bool:
        return self.left_s() == 0.0
