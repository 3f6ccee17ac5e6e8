"""Moving copies of CLOSED ledgers to bookies where they are better off: with more room, or in another rack (P11.6).

Elected is the host of the auditor (P11.1): the balancer reads that lock, whose value is its own host's, and stands for
nothing itself. It decides which copies move where, and how many bytes a second; a worker copies them under a mark, as
it copies what is lost (P11.2), and a copy that has moved goes by the collector's rule (P7.7). Nothing is moved that is
written to, that is marked, or that nobody could repair.

- **A pass** goes through all ledgers, page by page. It begins when some bookie has much less room than the mean, or,
  where bookies say their racks, when a bookie is somewhere new; and every so often.
- **Room**: a bookie that has less than `gives_below` of the mean room of all gives copies away until it has the mean,
  by its own count, and the one with the most room takes them. Its room rises only when its collector and compactor
  were there: so a pass counts what it moves, and the next one begins much later.
- **Racks**: where the seats of a fragment span fewer racks than they could, the seat moves that gains the most. No move
  makes them span fewer.
- A mark is made by a transaction that compares that there is none, that the ledger is as it was judged, and that it is
  not called beyond repair. Only so many are there at a time, and the next ones wait for the bytes of the last.

    LOOKING at lock and switch ──a pass is due──▶ a page of ledgers ─▶ marks, one by one ─▶ the pause that their bytes
        ask for, and for old marks to end ─▶ the lock again ─▶ the next page ─▶ ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    Fragment,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.codec.repair_mark import (
    MARK_VERSION,
    MarkProgress,
    RepairMark,
    encode_repair_mark,
    is_missing_set,
    repair_mark_path,
    with_moves,
    with_progress,
)
from embedbk.codec.repair_state import AUDITOR_LOCK, CONTROL_KEY, unrepairable_path
from embedbk.config import ANYWHERE, Placement
from embedbk.core.client_words import BookieInfo, BookiesChanged
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.metadata_words import (
    KeyRead,
    KeysListed,
    ListKeys,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.placement import span_of
from embedbk.core.vocabulary import Started, Tag, Tick
from embedbk.errors import StorageError
from embedbk.ids import Member
from embedbk.metadata.claims import lock_path
from embedbk.repair.target_choice import placement_with_racks
from embedbk.repair.worker import is_switched_off

__all__ = ["Balancer", "BalancerOptions"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class BalancerOptions:
    bytes_per_s: int = 8 << 20  # Copies of so many bytes are to move.
    look_ns: int = 10 * _SECOND  # Between two looks at the lock.
    round_ns: int = 3_600 * _SECOND  # From the end of a pass to the next one.
    page_ledgers: int = 100
    ledgers_per_s: int = 2_000  # That are looked at.
    gives_below: float = 0.8  # A bookie with less than this part of the mean room gives copies away.
    bytes_min: int = 1 << 30  # So far below the mean at least.
    marks_max: int = 64  # Made and not worked off yet.

    @property
    def pace_ns(self) -> int:
        return self.page_ledgers * _SECOND // self.ledgers_per_s


class _Wanted(NamedTuple):
    """One ledger's mark that is to be made. size: bytes that move."""

    ledger_id: int
    revision: int
    moves: dict[str, str]
    why: str
    size: int


def bytes_of(metadata: LedgerMetadata, number: int) -> int:
    """What one seat of a fragment holds, about: payload bytes."""
    fragments = metadata.fragments
    is_last = number + 1 == len(fragments)
    end = (metadata.length or 0) if is_last else fragments[number + 1].length_before
    quorum = metadata.quorum
    return max(0, end - fragments[number].length_before) * quorum.write_quorum // quorum.ensemble_size


def _may_take(info: BookieInfo) -> bool:
    return info.is_writable and not info.is_leaving and not info.is_quarantined


class Rooms:
    """What the bookies of one pass may give and take, by what they had when it began. One that is read-only, as where
    it has little room, may give."""

    def __init__(self, bookies: Sequence[BookieInfo], gives_below: float, bytes_min: int) -> None:
        # A bookie that cannot tell its room registers 0.
        known = [info for info in bookies if info.free_bytes and not info.is_leaving]
        mean = sum(info.free_bytes for info in known) // max(1, len(known))
        self.gives: dict[str, int] = {}
        self.takes: dict[str, int] = {}
        for info in known:
            away = info.free_bytes - mean
            if -away >= bytes_min and info.free_bytes < gives_below * mean:
                self.gives[info.member.bookie_id] = -away
            elif away > 0 and _may_take(info):
                self.takes[info.member.bookie_id] = away

    @property
    def is_uneven(self) -> bool:
        return bool(self.gives and self.takes)

    def taker(self, gives: str, size: int, seated: set[str]) -> str | None:
        """Who gets that many bytes of this bookie: the one with the most room left, of those without a seat there."""
        if self.gives.get(gives, 0) < size or not size:
            return None
        able = [(room, name) for name, room in self.takes.items() if room >= size and name not in seated]
        return max(able)[1] if able else None

    def note(self, gives: str, takes: str, size: int) -> None:
        for rooms, name in ((self.gives, gives), (self.takes, takes)):
            if name in rooms:
                rooms[name] -= size


class Balancer(Machine):
    """Never ends. One question at a time."""

    def __init__(
        self,
        name: bytes,
        bookies: Sequence[BookieInfo],
        options: BalancerOptions = BalancerOptions(),
        placement: Placement = ANYWHERE,
        wall_offset_ms: int = 0,
    ) -> None:
        """name: the auditor's of this host. placement: as repair keeps it. wall_offset_ms: the wall clock's time when
        now_ns is 0."""
        self.name = name
        self.bookies = tuple(bookies)
        self.options = options
        self.placement = placement
        self.wall_offset_ms = wall_offset_ms
        self.questions = 0
        self.asked: Tag = None
        self.due_ns: int | None = None
        self.round_due_ns = 0
        self.free_ns = 0  # Before that no mark is made.
        self.page_end = ""  # The last ledger of the last page; empty: no pass is under way.
        self.has_more = False
        self.rooms = Rooms((), 0.0, 0)
        self.seen: frozenset[tuple[str, str]] = frozenset()  # The racks for which all ledgers were looked at.
        self.wanted: list[_Wanted] = []  # What the page that was read asks for.
        self.marked: dict[int, None] = {}  # Ledgers whose marks may still be there, the oldest first.
        self.moved = 0  # Marks that were made.
        self.passes = 0  # That came to their end.

    @property
    def deadline_ns(self) -> int | None:
        return self.due_ns

    def _tag(self, kind: str) -> Tag:
        self.questions += 1
        self.asked, self.due_ns = ("balancer", kind, self.questions), None
        return self.asked

    def _pause(self, now_ns: int, pause_ns: int) -> list[Effect]:
        self.asked, self.due_ns = None, now_ns + pause_ns
        return []

    def _on_started(self, event: Started) -> list[Effect]:
        return self._pause(event.now_ns, self.options.look_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.due_ns is None or event.now_ns < self.due_ns:
            return []
        return [ReadKey(self._tag("lock"), lock_path(AUDITOR_LOCK))]

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if event.tag != self.asked or self.asked is None:
            return []
        kind = self.asked[1]
        if kind == "lock":
            return self._on_lock(event)
        if kind == "switch":
            return self._on_switch(event)
        return self._on_old_mark(event)

    def _on_lock(self, event: KeyRead) -> list[Effect]:
        if event.value != self.name:
            return self._end_pass(event.now_ns, self.options.look_ns)
        return [ReadKey(self._tag("switch"), CONTROL_KEY)]

    def _on_switch(self, event: KeyRead) -> list[Effect]:
        if is_switched_off(event.value) or not self.bookies:
            return self._end_pass(event.now_ns, self.options.look_ns)
        if not self.page_end and not self._is_due(event.now_ns):
            return self._pause(event.now_ns, self.options.look_ns)
        return self._go_on(event.now_ns)

    # A pass.

    def _racks(self) -> frozenset[tuple[str, str]]:
        """Which bookie says that it is where; empty: none says so."""
        if not any(info.location for info in self.bookies):
            return frozenset()
        return frozenset((info.member.bookie_id, info.location) for info in self.bookies)

    def _is_due(self, now_ns: int) -> bool:
        """Begin a pass where one is due. For room one comes that often and no oftener, as room rises late."""
        racks = self._racks()
        if now_ns < self.round_due_ns and racks <= self.seen:
            return False
        options = self.options
        self.rooms = Rooms(self.bookies, options.gives_below, options.bytes_min)
        if now_ns < self.round_due_ns:
            self.rooms.gives.clear()
        if not self.rooms.is_uneven and not racks:
            return False
        self.seen, self.has_more, self.page_end = racks, True, LEDGERS_PREFIX
        return True

    def _end_pass(self, now_ns: int, pause_ns: int) -> list[Effect]:
        """The pass is over, or this host is not elected any more."""
        self.page_end, self.wanted = "", []
        return self._pause(now_ns, pause_ns)

    def _go_on(self, now_ns: int) -> list[Effect]:
        if len(self.marked) >= self.options.marks_max:
            return [ReadKey(self._tag("old mark"), repair_mark_path(next(iter(self.marked))))]
        if now_ns < self.free_ns:
            return self._pause(now_ns, min(self.free_ns - now_ns, self.options.look_ns))
        if self.wanted:
            return self._mark(now_ns)
        if self.has_more:
            return [ListKeys(self._tag("page"), LEDGERS_PREFIX, self.page_end, self.options.page_ledgers)]
        self.passes += 1
        self.round_due_ns = now_ns + self.options.round_ns
        return self._end_pass(now_ns, self.options.look_ns)

    def _on_old_mark(self, event: KeyRead) -> list[Effect]:
        """Some mark has to end before the next one is made; workers may be slow, or switched off."""
        oldest = next(iter(self.marked))
        del self.marked[oldest]
        if event.value is not None:
            self.marked[oldest] = None  # Asked for last from now on.
            return self._pause(event.now_ns, self.options.look_ns)
        return self._go_on(event.now_ns)

    def _on_listed(self, event: KeysListed) -> list[Effect]:
        if event.tag != self.asked or self.asked is None:
            return []
        self.has_more = event.has_more and bool(event.records)
        for (key, value), revision in zip(event.records, event.revisions, strict=True):
            self.page_end = key
            ledger_id = ledger_of_key(key)
            if ledger_id is None:
                continue
            try:
                metadata = decode_ledger_metadata(value, ledger_id)
            except StorageError:
                continue  # What cannot be read stays as it is (P2.5).
            if (wanted := self._judge(metadata, revision)) is not None:
                self.wanted.append(wanted)
        return self._pause(event.now_ns, self.options.pace_ns)

    # One ledger.

    def _judge(self, metadata: LedgerMetadata, revision: int) -> _Wanted | None:
        if not metadata.is_closed or metadata.freed is not None:
            return None
        placement = placement_with_racks(self.placement, self.bookies)
        there = {info.member for info in self.bookies}
        if not all(there.issuperset(fragment.members) for fragment in metadata.fragments):
            return None  # Repair comes first.
        moves: dict[str, str] = {}
        whys: dict[str, None] = {}
        size = 0
        for number, fragment in enumerate(metadata.fragments):
            share = bytes_of(metadata, number)
            for gives, takes, why in self._moves(metadata, fragment, placement, share):
                if moves.setdefault(gives, takes) == takes:
                    whys[why], size = None, size + share
                    self.rooms.note(gives, takes, share)
        if not is_missing_set(tuple(sorted(moves))):
            return None
        return _Wanted(metadata.ledger_id, revision, moves, "; ".join(whys), size)

    def _moves(
        self, metadata: LedgerMetadata, fragment: Fragment, placement: Placement, share: int
    ) -> Iterator[tuple[str, str, str]]:
        """(who gives its seat away, who gets it, why)."""
        better = self._better_rack(metadata, fragment, placement)
        if better is not None:
            yield better
            return
        seats = fragment.members
        seated = {member.bookie_id for member in seats}
        for seat in sorted(
            range(len(seats)), key=lambda each: -self.rooms.gives.get(seats[each].bookie_id, 0)
        ):
            member = seats[seat]
            takes = self.rooms.taker(member.bookie_id, share, seated)
            target = next((info.member for info in self.bookies if info.member.bookie_id == takes), None)
            if takes is None or target is None:
                continue
            changed = (*seats[:seat], target, *seats[seat + 1 :])
            if self._span(changed, metadata, placement) >= self._span(seats, metadata, placement):
                yield member.bookie_id, takes, f"from {member.bookie_id} to {takes}, which has more room"
                return

    def _better_rack(
        self, metadata: LedgerMetadata, fragment: Fragment, placement: Placement
    ) -> tuple[str, str, str] | None:
        """The one move that lets the fragment's write sets span the most racks more; None: none does."""
        if placement.domain == "none":
            return None
        seats, seated = fragment.members, {member.bookie_id for member in fragment.members}
        most, found = self._span(seats, metadata, placement), None
        takers = [info for info in self.bookies if _may_take(info)]
        for seat, member in enumerate(seats):
            for info in takers:
                if info.member.bookie_id in seated:
                    continue
                changed = (*seats[:seat], info.member, *seats[seat + 1 :])
                if (span := self._span(changed, metadata, placement)) > most:
                    takes = info.member.bookie_id
                    most, found = span, (member.bookie_id, takes)
        if found is None:
            return None
        return (*found, f"from {found[0]} to {found[1]}, so that the copies are in more racks")

    def _span(self, seats: Sequence[Member], metadata: LedgerMetadata, placement: Placement) -> int:
        return span_of(seats, self.bookies, metadata.quorum, placement)

    # Marks.

    def _mark(self, now_ns: int) -> list[Effect]:
        wanted = self.wanted[0]
        key = repair_mark_path(wanted.ledger_id)
        plain = RepairMark(MARK_VERSION, tuple(sorted(wanted.moves)), self._wall_ms(now_ns))
        mark = with_moves(with_progress(plain, MarkProgress((), wanted.why)), wanted.moves)
        when = [
            Compare(key, ABSENT),
            Compare(ledger_key_path(wanted.ledger_id), wanted.revision),
            Compare(unrepairable_path(wanted.ledger_id), ABSENT),
        ]
        return [Transact(self._tag("mark"), when, [Put(key, encode_repair_mark(mark))])]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if event.tag != self.asked or self.asked is None:
            return []
        wanted = self.wanted.pop(0)
        if event.is_done:
            self._note_marked(event.now_ns, wanted)
        return self._go_on(event.now_ns)

    def _note_marked(self, now_ns: int, wanted: _Wanted) -> None:
        self.moved += 1
        self.marked[wanted.ledger_id] = None
        self.free_ns = max(self.free_ns, now_ns) + wanted.size * _SECOND // self.options.bytes_per_s

    def _on_unknown(self, event: TransactUnknown) -> list[Effect]:
        """It may be there, or come yet: it counts as made."""
        if event.tag != self.asked or self.asked is None:
            return []
        self._note_marked(event.now_ns, self.wanted.pop(0))
        return self._pause(event.now_ns, self.options.look_ns)

    def _on_failed(self, event: MetadataFailed | TransactRefused) -> list[Effect]:
        """No answer, or no room in the metadata: from here on at the next look."""
        if event.tag != self.asked or self.asked is None:
            return []
        return self._pause(event.now_ns, self.options.look_ns)

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = event.bookies
        return []

    def _wall_ms(self, now_ns: int) -> int:
        return max(0, self.wall_offset_ms + now_ns // 1_000_000)

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        KeyRead: _on_read,
        KeysListed: _on_listed,
        Transacted: _on_transacted,
        TransactRefused: _on_failed,
        TransactUnknown: _on_unknown,
        MetadataFailed: _on_failed,
        BookiesChanged: _on_bookies,
    }
