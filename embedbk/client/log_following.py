"""Following a log: everything from a place on, and what comes then, ledger behind ledger (P6.6).

Decides where following begins, and when it proceeds to the next ledger: only when the current one is CLOSED and read to
its end. The log's list is followed by watch, never polled; a name that leads to no log yet is waited for. Leaves each
ledger to `reading`, what the list means to `log_places`, and ledgers that are gone to `log_reading`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Literal

from embedbk.client.batches import Located
from embedbk.client.compression import plain
from embedbk.client.handles import ReaderNote
from embedbk.client.log_pages import PageGone, Place
from embedbk.client.log_places import BEHIND_ALL, Start, begins_at, first_in, placed
from embedbk.client.log_reading import LogReading
from embedbk.client.reading import Frames, LedgerReading
from embedbk.client.runtime import FollowedKey, Runtime
from embedbk.client.waiting import Moved
from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.log_identity import LogId, log_name_path
from embedbk.codec.log_list import LogList, LogSegment, decode_log_list, log_key_path
from embedbk.config import check_flag
from embedbk.errors import MetadataConflict, NoSuchLedger, NotEnoughBookies, Truncated
from embedbk.ids import NO_ENTRY, Position

__all__ = ["LogFollowing", "Pull"]

_ASKS_FIRST_S = 5.0


@dataclass(slots=True)
class Pull:
    """What a follower of a log asks for, each time that it asks for more; and where the log begins, which the log
    reports in it."""

    idle_s: float | None = None  # How long to wait while nothing comes; None: without end.
    asks: bool = False  # Ask bookies once for new entries, also if there is no time to wait.
    begins: int | None = None  # The dense offset of the first entry, once that is known.
    note: ReaderNote | None = None  # The note of the handle that follows; None: it is a tail.
    skip_lost: bool = False  # Continue behind entries that were given up (P11.5).


@dataclass(slots=True)
class _Standing:
    """Where a tailing reader stands."""

    place: Place
    segment: LogSegment  # It says where it stands in the log.
    first: int | None  # Where it begins in this ledger; None: behind what is there now.
    seen: int = NO_ENTRY  # The last entry of the ledger up to which it has read, or looked.
    ahead: FollowedKey | None = None  # The metadata of the ledger that the list names behind it.
    looked_at: int = 0  # The revision of the list in which that was looked for.


class LogFollowing:
    """Following one log, whose name need not lead to a log yet."""

    def __init__(self, log: LogReading) -> None:
        self._log = log

    async def tail(
        self, start: Start, idle_s: float | None, note: ReaderNote | None = None, *, skip_lost: bool = False
    ) -> Frames:
        """Everything from start on; start None: entries that come from now on. Ends only after idle_s, not because
        bookies are away for a while. note: the note of the handle that it belongs to; None: it makes its own."""
        check_flag(skip_lost, "skip_lost")
        pull = Pull(idle_s, note=note, skip_lost=skip_lost)
        async with aclosing(self.follow("latest" if start is None else start, pull)) as followed:
            async for located in followed:
                if located is None:
                    return
                yield located

    async def follow(
        self, start: Position | int | Literal["earliest", "latest"], pull: Pull
    ) -> AsyncGenerator[Located | None, None]:
        """Yield everything from start on, without end; None each time that nothing came for `pull.idle_s`, after which
        it continues where it stands. "earliest": from where the log begins; "latest": entries from now on."""
        place_in_list: Start = None if isinstance(start, str) else start
        note = pull.note or ReaderNote("tail", f"log {self._log.given!r}", self._log.runtime.clock_s)
        if pull.note is None:
            self._log.runtime.handles.add(note)
        note.place = start if isinstance(start, int) else None
        followed: FollowedKey | None = None
        stands: _Standing | None = None
        try:
            while not await self._is_there(pull.idle_s, note):
                yield None
            followed = await self._log.runtime.follow(log_key_path(self._log.name))
            while await self._next_listed(followed, None, pull.idle_s, note) is None:
                yield None
            begun, has_read = followed.revision, False
            stands = await self._begin(followed, place_in_list, is_latest=start == "latest")
            while True:
                note.ledger_id = stands.segment.ledger_id
                try:
                    async for located in self._tail_ledger(stands, pull, note, followed):
                        has_read |= located is not None
                        yield located
                except Truncated as gone:
                    if start != "earliest" or has_read or gone.first_offset is None:
                        raise
                    await self._moves_on(followed, begun)  # The log begins elsewhere by now.
                    begun, pull.begins = followed.revision, None
                    stands = await self._begin(followed, None, is_latest=False)
                    continue
                while (place := await self._next_listed(followed, stands, pull.idle_s, note)) is None:
                    yield None
                segment = placed(place.segment, begins_at(stands.segment) + stands.seen + 1)
                assert segment is not None  # What follows one that is read to its end has a place.
                ahead, stands.ahead = stands.ahead, None
                stands = _Standing(place, segment, first_in(segment, place_in_list), ahead=ahead)
        finally:
            if stands is not None and stands.ahead is not None:
                stands.ahead.end()
            if pull.note is None:
                self._log.runtime.handles.discard(note)
            if followed is not None:
                followed.end()

    async def _is_there(self, idle_s: float | None, note: ReaderNote) -> bool:
        """Wait until the name leads to a log, with a pointer or, below the level, without; False: not in time."""
        if isinstance(self._log.name, LogId):
            return True
        pointer = await self._log.runtime.follow(log_name_path(self._log.name))
        listed: FollowedKey | None = None
        try:
            listed = await self._log.runtime.follow(log_key_path(self._log.name), pointer.signal)
            while True:
                seen = pointer.revision, listed.revision
                with contextlib.suppress(NoSuchLedger):  # It is renamed or deleted: that may change again.
                    await self._log.listed_at()
                    return True
                stands = Moved(
                    pointer.signal,
                    partial(_has_moved, pointer, listed, seen, self._log.runtime),
                    idle_s,
                )
                note.waits(
                    "P8.12",
                    "a log of this name",
                    partial(_has_moved, pointer, listed, seen, self._log.runtime),
                )
                if not await stands:
                    return False
                note.goes_on()
                self._log.runtime.check()
                pointer.check()
                listed.check()
        finally:
            note.goes_on()
            pointer.end()
            if listed is not None:
                listed.end()

    def _shown(self, followed: FollowedKey) -> LogList | None:
        """The list as its watch shows it; None: there is none."""
        assert followed.state is not None
        value = followed.state[0]
        return None if value is None else decode_log_list(value, self._log.name)

    async def _begin(self, followed: FollowedKey, start: Start, *, is_latest: bool) -> _Standing:
        """Where a tail begins in a list that is there, as its watch shows it."""
        while True:
            shown, revision = self._shown(followed), followed.revision
            if shown is None or not shown.segments:
                raise NoSuchLedger(f"log {self._log.name!r} was deleted")
            if is_latest:
                return _Standing(*await self._log.newest(shown), None)
            try:
                _, place, first = await self._log.places.located(shown, start)
            except PageGone:
                await self._moves_on(followed, revision)
                continue
            if place is None:
                place = Place(shown.segments, len(shown.segments) - 1)
            return _Standing(place, place.segment, first)

    async def _moves_on(self, followed: FollowedKey, revision: int) -> None:
        """Wait until the watch shows a newer list: a page is gone that the list named at this revision."""
        limit_s = self._log.runtime.settings.operation_timeout_s
        is_newer = await followed.beyond(revision, limit_s)
        self._log.runtime.check()
        if not is_newer:
            raise MetadataConflict(
                f"log {self._log.name!r}: its list names a page that is not there, for {limit_s:g} s"
            )

    async def _tail_ledger(
        self, stands: _Standing, pull: Pull, note: ReaderNote, followed: FollowedKey
    ) -> AsyncGenerator[Located | None, None]:
        """The ledger's entries from first on until it is closed and read to its end; None: nothing came for too
        long. followed: the log's list."""
        ledger = self._begun_ahead(stands)
        # Nothing is asked first about a ledger that was begun ahead: the wait for its first entry asks one bookie,
        # which sends the entry along. A tail that gives up soon asks all: one that is silent hides nothing then.
        is_asked = (
            ledger is None
            or stands.first is None
            or (math.inf if pull.idle_s is None else pull.idle_s) < _ASKS_FIRST_S
        )
        if ledger is None:
            ledger = await self._log.open_ledger(stands.segment, stands.first or 0)
        if ledger is None:
            return
        ledger.note = note
        first, first_offset = stands.first, begins_at(stands.segment)
        try:
            limit: int | None = NO_ENTRY
            while (
                is_asked
                and (limit := await ledger.limit_in_time(pull.idle_s, is_exact=first is None)) is None
            ):
                yield None
            assert limit is not None
            if first is None:
                first = limit + 1
            if first < BEHIND_ALL:
                note.place = first_offset + first
                if pull.begins is None:
                    pull.begins = note.place
            while True:
                if first <= limit:
                    async for located in ledger.frames_in_time(
                        first, limit, first_offset, pull.idle_s, skip_lost=pull.skip_lost
                    ):
                        for each in plain(located):
                            yield each
                    first = limit + 1
                stands.seen = limit
                self._look_ahead(stands, followed)
                while (now_limit := await self._limit_beyond(ledger, first - 1, pull)) is None:
                    yield None
                if now_limit < first:
                    stands.seen = now_limit
                    return  # CLOSED, and read to its end (P6.6).
                limit = now_limit
        except NoSuchLedger:
            await self._log.check_left(stands.segment, stands.seen, stands.first or 0)
        finally:
            ledger.close()

    def _look_ahead(self, stands: _Standing, followed: FollowedKey) -> None:
        """Follow the metadata of the next ledger as soon as the list names it, which a writer that rolls has it do long
        before (P8.2): when this one ends, nothing has to be asked before the next one is read."""
        if followed.revision == stands.looked_at:
            return
        stands.looked_at = followed.revision
        shown, ledger_id = self._shown(followed), stands.segment.ledger_id
        ids = () if shown is None else tuple(segment.ledger_id for segment in shown.segments)
        behind = ids[ids.index(ledger_id) + 1 :] if ledger_id in ids else ()
        if behind and stands.ahead is None:
            stands.ahead = self._log.runtime.begin_following(ledger_key_path(behind[0]))

    def _begun_ahead(self, stands: _Standing) -> LedgerReading | None:
        """The ledger, where its metadata is followed already; None: it has to be opened."""
        ahead, stands.ahead = stands.ahead, None
        if ahead is None:
            return None
        reading: LedgerReading | None = None
        try:
            reading = LedgerReading.following(
                self._log.runtime, stands.segment.ledger_id, self._log.password, ahead
            )
        finally:
            if reading is None:
                ahead.end()
        return reading

    async def _limit_beyond(self, ledger: LedgerReading, entry_id: int, pull: Pull) -> int | None:
        if pull.asks and not ledger.is_closed:
            with contextlib.suppress(NotEnoughBookies):
                await ledger.try_limit()
        return await ledger.wait_beyond(entry_id, pull.idle_s)

    async def _next_listed(
        self, followed: FollowedKey, after: _Standing | None, idle_s: float | None, note: ReaderNote
    ) -> Place | None:
        """The ledger that follows `after` (None: the first), as soon as the list names it; None after idle_s."""
        while True:
            self._log.runtime.check()
            shown, revision = self._shown(followed), followed.revision
            try:
                place = await self._following(shown, after)
            except PageGone:
                await self._moves_on(followed, revision)
                continue
            if place is not None or (shown is not None and shown.seal is not None):
                return place  # None: nothing ever follows the end of a sealed log (P8.9).
            behind = "its first ledger" if after is None else f"the ledger behind {after.segment.ledger_id}"
            note.waits("P6.6", f"{behind} to be listed", partial(_is_beyond, followed, revision))
            try:
                if not await followed.beyond(revision, idle_s):
                    return None
            finally:
                note.goes_on()

    async def _following(self, shown: LogList | None, after: _Standing | None) -> Place | None:
        if after is None:
            return None if shown is None else await self._log.walk.first(shown)
        if shown is None:
            raise self._log.places.deleted(after.segment)
        for index, segment in enumerate(shown.segments):
            if segment.ledger_id == after.segment.ledger_id:
                return Place(shown.segments, index + 1) if index + 1 < len(shown.segments) else None
        if after.place.number is not None:
            with contextlib.suppress(PageGone):
                return await self._log.walk.after(after.place, shown)
        return (await self._log.places.behind(shown, after.segment, after.seen, after.first or 0))[1]


def _has_moved(pointer: FollowedKey, listed: FollowedKey, seen: tuple[int, int], runtime: Runtime) -> bool:
    is_refused = pointer.refusal != "" or listed.refusal != ""
    return (pointer.revision, listed.revision) != seen or is_refused or runtime.is_ended


def _is_beyond(followed: FollowedKey, revision: int) -> bool:
    return followed.revision > revision
