"""Reading a ledger, for both faces (P6).

Decides how far may be read: to the last entry of a closed ledger, else to the LAC (P6.2). Leaves to others which copies
are asked (`core.reader`), which answers on the LAC count (`core.lac_reader`), what is known of the metadata
(`followed_metadata`), and how ledgers make up a log (`log_reading`).
"""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

from embedbk.client.archived import FrameSource
from embedbk.client.batches import Located
from embedbk.client.compression import plain
from embedbk.client.followed_metadata import FollowedMetadata
from embedbk.client.handles import ReaderNote
from embedbk.client.ledger_ids import check_ledger_id, no_such_ledger
from embedbk.client.password import Password
from embedbk.client.runtime import FollowedKey, Runtime
from embedbk.client.waiting import Moved
from embedbk.codec.digest import check_tags
from embedbk.codec.frame import Frame, merge
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.read_messages import ReadClass
from embedbk.config import FRAME_BYTES_MAX, LAC_WAIT_MS_MAX, check_flag
from embedbk.core.lac_reader import LacRead, LacWait
from embedbk.core.reader import RangeRead, ReadOptions
from embedbk.core.recovery import Recovery, RecoveryOptions
from embedbk.errors import (
    ArchiveUnreadable,
    EntryUnreadable,
    Lost,
    NoSuchEntry,
    NotEnoughBookies,
    PeerError,
    UsageError,
)
from embedbk.host.operations import OneResult
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = ["Frames", "LedgerReading"]

logger = logging.getLogger(__name__)

# Before bookies are asked again that could tell no LAC, or had nothing that could be read, ...
_PAUSE_S = 0.1
_PAUSE_S_MAX = 1.0  # ... which is asked for ever later.
# As `Settings.reads_as` calls them.
_READ_CLASSES = {"catch-up": ReadClass.CATCH_UP, "batch": ReadClass.BATCH}


Frames = AsyncGenerator[Located, None]


class LedgerReading:
    """One ledger, for reading: the logic under `LedgerReader`, and what a log is read by."""

    def __init__(self, runtime: Runtime, metadata: LedgerMetadata, revision: int, password: Password) -> None:
        self.runtime = runtime
        self._password = password
        self.ledger_id = metadata.ledger_id
        self.lac = NO_ENTRY  # The highest LAC received; reading an open ledger ends there.
        self._lac_length: int | None = None  # Payload bytes up to that LAC, if they came with it.
        self.is_over = False
        self.note: ReaderNote | None = None  # Where the reading handle notes what it waits for.
        self._known = FollowedMetadata(metadata, revision)
        self._came_along: Frame | None = None  # Entries that came with the last LAC.
        # Where in a write set asking begins: readers spread over the copies.
        self._turn = runtime.chance.getrandbits(16)

    @staticmethod
    async def open(runtime: Runtime, ledger_id: int, password: Password, *, recover: bool) -> LedgerReading:
        """Raises NoSuchLedger, WrongPassword, and with recover what recovery can raise."""
        check_ledger_id(ledger_id)
        check_flag(recover, "recover")
        key = ledger_key_path(ledger_id)
        value, revision = await runtime.get(key, f"opening ledger {ledger_id}")
        if value is None:
            raise no_such_ledger(ledger_id)
        metadata = decode_ledger_metadata(value, ledger_id)
        password.check(metadata)
        if recover and not metadata.is_closed:
            metadata, revision = await recovered(runtime, metadata, revision, password)
        reading = LedgerReading(runtime, metadata, revision, password)
        if not metadata.is_closed:
            reading._known.followed = await runtime.follow(key)
        return reading

    @staticmethod
    def following(
        runtime: Runtime, ledger_id: int, password: Password, followed: FollowedKey
    ) -> LedgerReading | None:
        """A ledger whose metadata is followed already, which ends with the reading; None: it is another's, or nothing
        of it was shown yet. Raises WrongPassword."""
        value, revision = followed.state or (None, 0)
        if followed.key != ledger_key_path(ledger_id) or value is None:
            return None
        metadata = decode_ledger_metadata(value, ledger_id)
        password.check(metadata)
        reading = LedgerReading(runtime, metadata, revision, password)
        reading._known.followed = followed
        return reading

    def show(self) -> None:
        """It is a handle of its own: `Client.handles` shows it until it is closed."""
        self.note = ReaderNote("ledger reader", f"ledger {self.ledger_id}", self.runtime.clock_s)
        self.note.ledger_id = self.ledger_id
        self.runtime.handles.add(self.note)

    def has_beyond(self, entry_id: int) -> bool:
        """Whether this client knows already of something above entry_id, or of other metadata than this reader took.
        From any thread; changes nothing."""
        return self._known.has_newer or max(self.lac, self.runtime.own_lac(self.ledger_id).lac) > entry_id

    @property
    def metadata(self) -> LedgerMetadata:
        """As the watch shows it. Raises NoSuchLedger once the ledger was deleted."""
        return self._known.now()

    @property
    def is_closed(self) -> bool:
        return self.metadata.is_closed

    async def limit(self) -> int:
        """Up to where may be read now: the last entry, or the LAC as an ack quorum knows it (P6.2)."""
        self.check()
        return await self._ask_limit(above=None)

    async def try_limit(self) -> int:
        """As `limit`, but content with the first bookie that has news (CL26)."""
        self.check()
        return await self._ask_limit(above=self.lac)

    async def _ask_limit(self, above: int | None) -> int:
        metadata = self.metadata
        # Its writer is in this client: no bookie knows a newer LAC, so none is asked (P6.2).
        if not metadata.is_closed and not self.runtime.own_lac(self.ledger_id).is_newest:
            core = LacRead(metadata, above=above)
            lac, length, _ = await self.runtime.run(core, f"asking for the LAC of {self.ledger_id}")
            self._hear(lac, length)
            metadata = self.metadata
        return self._known_limit(metadata)

    async def limit_in_time(self, idle_s: float | None, *, is_exact: bool) -> int | None:
        """As `limit`, for a tail: it waits for bookies that are away, at most idle_s (None then). Unless it has to be
        exact, the known LAC is enough where too few of them answer: a waiting tail receives later ones."""
        waited = _Waited(self.runtime, idle_s)
        while True:
            try:
                return await self.limit()
            except NotEnoughBookies:
                if not is_exact:
                    return self._known_limit(self.metadata)
            if waited.is_over():
                return None
            with self._noted("P6.2", "enough bookies to tell how far it may be read"):
                await self._pause(_PAUSE_S)

    async def last(self) -> Located:
        """The last entry that may be read now (CL24). Raises NoSuchEntry while there is none."""
        limit = await self.limit()
        if limit == NO_ENTRY:
            raise NoSuchEntry(f"ledger {self.ledger_id} has no entry that may be read yet")
        frames = self.frames(limit, limit)
        try:
            (located,) = plain(await anext(frames))
            return located
        finally:
            await frames.aclose()

    def _hear(self, lac: int, length: int | None = None) -> None:
        """Take a LAC that was received, perhaps with the bytes up to it. The LAC that this handle shows never falls:
        bookies do not all learn the newest at once (I11)."""
        if lac > self.lac or (lac == self.lac and self._lac_length is None):
            self.lac, self._lac_length = lac, length

    def length_at(self, limit: int) -> int | None:
        """Payload bytes up to an entry that was reported as the limit; None where they were not reported."""
        if limit == NO_ENTRY:
            return 0
        known = self._known.latest
        if limit == known.last_entry:
            return known.length
        return self._lac_length if limit == self.lac else None

    def _known_limit(self, metadata: LedgerMetadata) -> int:
        # A client reads at once what it wrote itself.
        self._hear(self.runtime.own_lac(self.ledger_id).lac)
        limit = self.lac if metadata.last_entry is None else metadata.last_entry
        self.runtime.on_limit(self, self.ledger_id, limit, is_closed=metadata.is_closed)
        return limit

    async def wait_beyond(self, entry_id: int, idle_s: float | None) -> int | None:
        """Wait until something above entry_id may be read, or the ledger is closed; return the limit, None after
        idle_s."""
        waited, note, is_noted = _Waited(self.runtime, idle_s), self.note, False
        try:
            while True:
                self.check()
                metadata = self.metadata
                limit = self._known_limit(metadata)
                if limit > entry_id or metadata.is_closed:
                    return limit
                if waited.is_over():
                    return None
                if note is not None and not is_noted:
                    is_noted, is_there = True, partial(self.has_beyond, entry_id)
                    note.waits("P6.2", f"entry {entry_id + 1} of the ledger to be acknowledged", is_there)
                await self._hear_lac(metadata, entry_id, waited)
        finally:
            if note is not None and is_noted:
                note.goes_on()

    @contextlib.contextmanager
    def _noted(self, rule: str, text: str, is_there: Callable[[], bool] | None = None) -> Iterator[None]:
        note = self.note
        if note is not None:
            note.waits(rule, text, is_there)
        try:
            yield
        finally:
            if note is not None:
                note.goes_on()

    async def _hear_lac(self, metadata: LedgerMetadata, entry_id: int, waited: _Waited) -> None:
        """One long poll for the LAC, which newer metadata ends: its bookie may have been replaced."""
        followed, revision = self._known.followed, self._known.revision
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
                # Done, too, when the client ends.
                lambda: wait.future.done() or followed.revision > revision or followed.refusal != "",
                waited.left_s(),
            )
        finally:
            if not wait.future.done():
                self.runtime.forget(wait)
        followed.check()
        if not wait.future.done():
            return
        lac, _, is_fenced = wait.future.result()
        self._hear(lac)
        if lac > entry_id:
            self._came_along = core.frame
            return
        # Where there was news the same bookie is asked again: its writer knows that a reader waits.
        self._turn += 1
        # Fenced: the metadata decides what comes next. Else no bookie had news, or none could be asked.
        pause_s = waited.left_s() if is_fenced else _PAUSE_S
        await followed.beyond(revision, pause_s)

    async def frames(
        self,
        first: int,
        last: int,
        first_offset: int = 0,
        *,
        is_unconfirmed: bool = False,
        skip_lost: bool = False,
    ) -> Frames:
        """The entries first..last in order, as they are stored, which must be below the limit but for unconfirmed ones
        (P6.3): of bookies, and where these gave their copies up, of files (P8.14).

        Raises Lost at the first entry that was given up (P11.5); with skip_lost it goes on behind the gap."""
        self.check()
        along, self._came_along = self._came_along, None
        if along is not None and along.first_entry == first and along.last_entry <= last:
            first = along.last_entry + 1
            if self.note is not None:
                self.note.place = first_offset + first
            yield Located(along, first_offset)
        freed: LedgerMetadata | None = None  # What the read of bookies found, who have nothing any more.
        while first <= last:
            metadata = freed or self.metadata
            if is_unconfirmed and metadata.last_entry is not None:
                # Closed meanwhile: nothing behind its end is read, and all before it must be there.
                is_unconfirmed, last = False, min(last, metadata.last_entry)
                continue
            if metadata.freed is not None:
                try:
                    async with aclosing(self._archived(metadata, first, last, first_offset)) as archived:
                        async for located in archived:
                            first = located.frame.last_entry + 1
                            yield located
                    return
                except ArchiveUnreadable:
                    if not await self._known.is_back(self.runtime, metadata):
                        raise
                    freed = None
                    continue
            core = RangeRead(
                metadata,
                first,
                last,
                self._turn,
                ReadOptions(
                    ahead_bytes=self.runtime.settings.read_ahead_bytes,
                    reads_as=_READ_CLASSES[self.runtime.settings.reads_as],
                ),
                health=self.runtime.read_health,
                repair_key=None if is_unconfirmed else self._password.key,
                is_unconfirmed=is_unconfirmed,
                mac_key=self._password.mac_key,
            )
            reading = self.runtime.read(core)
            try:
                while True:
                    frame = await self._next_frame(reading, "P6.1", first)
                    self._hear(core.lac)  # Every answer carries one (CL28).
                    if frame is None and core.metadata.freed is not None and first <= last:
                        freed = core.metadata  # Its bookies gave their copies up meanwhile.
                        self._known.take_freed(freed)
                        break
                    if frame is None and is_unconfirmed and self.metadata.fragments != metadata.fragments:
                        break  # Who denied the next entry need not be of its write set any more.
                    if frame is None:
                        return
                    first = frame.last_entry + 1
                    if self.note is not None:
                        self.note.goes_on()
                        self.note.place = first_offset + first
                    yield Located(frame, first_offset)
            except Lost as gap:
                gap.first_offset = first_offset + gap.first_entry
                gap.next_offset = first_offset + gap.last_entry + 1
                if not skip_lost:
                    raise
                first = gap.last_entry + 1
            finally:
                if self.note is not None:
                    self.note.goes_on()
                self._known.take_lost(core.metadata)
                if not reading.is_over:
                    self.runtime.forget(reading)

    async def _next_frame(self, reading: FrameSource, rule: str, entry_id: int) -> Frame | None:
        if not reading.has_news():
            if self.note is not None:
                self.note.waits(rule, f"a copy of entry {entry_id} of the ledger", reading.has_news)
            await Moved(reading.signal, reading.has_news)
        return reading.take()

    async def _archived(self, metadata: LedgerMetadata, first: int, last: int, first_offset: int) -> Frames:
        """The entries first..last of files, as `frames`: each has its tag, too.

        Raises ArchiveUnreadable.
        """
        reading = self.runtime.read_archived(metadata, first, last)
        try:
            while (frame := await self._next_frame(reading, "P8.14", first)) is not None:
                try:
                    check_tags(frame, metadata.digest, self._password.mac_key)
                except PeerError as wrong:
                    assert metadata.freed is not None
                    raise ArchiveUnreadable(
                        f"what the archive in {metadata.freed.path!r} has of it is not what its writer wrote: {wrong}"
                    ) from wrong
                first = frame.last_entry + 1
                if self.note is not None:
                    self.note.goes_on()
                    self.note.place = first_offset + first
                yield Located(frame, first_offset)
        finally:
            if self.note is not None:
                self.note.goes_on()
            reading.close()

    async def frames_in_time(
        self, first: int, last: int, first_offset: int, idle_s: float | None, *, skip_lost: bool = False
    ) -> Frames:
        """As `frames`, of a tail: what no bookie gives just now is asked for again.

        Raises EntryUnreadable when nothing came for idle_s (None: operation_timeout_s, as what is damaged everywhere
        never comes).
        """
        limit_s = self.runtime.settings.operation_timeout_s if idle_s is None else idle_s
        waited, pause_s = _Waited(self.runtime, limit_s), _PAUSE_S
        while first <= last:
            try:
                async for located in self.frames(first, last, first_offset, skip_lost=skip_lost):
                    first = located.frame.last_entry + 1
                    waited, pause_s = _Waited(self.runtime, limit_s), _PAUSE_S
                    yield located
                return  # To the last one, or to the end of a gap that is passed over.
            except EntryUnreadable as unread:
                if unread.definite:
                    raise  # Nothing that comes back changes it.
                if waited.is_over():
                    raise
                with self._noted("P6.6", f"a copy of entry {first} of the ledger that can be read"):
                    await self._pause(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _pause(self, pause_s: float) -> None:
        runtime = self.runtime
        await Moved(runtime.signal, lambda: runtime.is_ended or self.is_over, pause_s)
        self.check()

    async def read(self, first: int, last: int | None, *, skip_lost: bool = False) -> Frames:
        """first..last, both included; last None: as far as may be read now.

        Raises:
            Lost: as `frames`.
            UsageError: the range is none, or passes what may be read.
        """
        check_flag(skip_lost, "skip_lost")
        first, last = _range_of(first, last)
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
        async for located in self.frames(first, last, skip_lost=skip_lost):
            for each in plain(located):
                yield each

    async def read_unconfirmed(self, first: int, last: int | None) -> Frames:
        """As far as any bookie holds entries, acknowledged or not (P6.3); a closed ledger ends at its last entry."""
        first, last = _range_of(first, last)
        self.check()
        metadata = self.metadata
        bound = metadata.last_entry if metadata.last_entry is not None else LEDGER_ID_MAX
        last = bound if last is None else min(last, bound)
        if first < 0:
            raise UsageError(
                f"entries from {first} of ledger {self.ledger_id} were asked for: ids begin at 0"
            )
        if first > last:
            return
        async with aclosing(self.frames(first, last, is_unconfirmed=not metadata.is_closed)) as frames:
            async for located in frames:
                end = self.metadata.last_entry
                if end is None or located.frame.last_entry <= end:
                    for each in plain(located):
                        yield each
                    continue
                # Closed meanwhile, as this handle knows: no reader gets what lies beyond (I38).
                below = merge([located.frame], located.frame.first_entry, end)
                if below is not None:
                    for each in plain(Located(below, located.first_offset)):
                        yield each
                return

    def close(self) -> None:
        self.is_over = True
        self._known.stop_following()
        if self.note is not None and self.note.kind == "ledger reader":
            self.runtime.handles.discard(self.note)

    def check(self) -> None:
        self.runtime.check()
        if self.is_over:
            raise UsageError(
                f"this reader of ledger {self.ledger_id} was closed", hint="open the ledger again"
            )


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
    began_s = runtime.clock_s()
    result: tuple[LedgerMetadata, int] = await runtime.run(core, f"recovering ledger {metadata.ledger_id}")
    logger.info(
        "ledger %d is recovered: closed at entry %s, %s bytes (%.3f s)",
        metadata.ledger_id,
        result[0].last_entry,
        result[0].length,
        runtime.clock_s() - began_s,
    )
    return result


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


def _range_of(first: Any, last: Any) -> tuple[int, int | None]:
    """Ids as callers give them, numbers of other libraries too. Raises UsageError: one of them is no whole number."""
    return _whole("first", first), None if last is None else _whole("last", last)


def _whole(name: str, given: Any) -> int:
    try:
        if isinstance(given, bool):
            raise TypeError
        return operator.index(given)
    except TypeError:
        raise UsageError(f"{name}={given!r:.80}: the id of an entry is allowed, a whole number") from None
