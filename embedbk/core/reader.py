"""Reading: ranges of entries (P6.1), and the LAC of a ledger that is not closed (P6.2).

Decides: which bookie is asked for what, what counts as a failed copy, when a read has failed for good. A copy that is
missing or damaged where an entry must be is a failed copy, never an end, and is written again from a good one (RP32);
all readers get the same bytes in the same order (P6.4). Leaves to others: up to which entry may be
read (the handle knows the last entry, or the LAC), and where the metadata comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from embedbk.codec.digest import check_tags
from embedbk.codec.frame import Frame, encode_frame_header, frame_of, split
from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.messages import (
    AddAnswer,
    AddRequest,
    LacAnswer,
    LacRequest,
    ReadAnswer,
    ReadRequest,
    Status,
)
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.machine import Handlers, Machine, earliest
from embedbk.core.quorum import has_coverage, write_set
from embedbk.core.read_health import ReadHealth
from embedbk.core.vocabulary import (
    Answered,
    Consumed,
    Effect,
    Ended,
    EntriesReady,
    KeyRead,
    MetadataFailed,
    ReadKey,
    Send,
    SendFailed,
    Started,
    Tick,
)
from embedbk.errors import EmbedbkError, EntryUnreadable, NoSuchLedger, PeerError, RecoveryInconclusive
from embedbk.ids import NO_ENTRY

__all__ = ["LacRead", "LacWait", "RangeRead", "ReadOptions"]

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    # No answer for this long: ask another copy as well (RP27). Only until answers were measured (core/read_health.py).
    speculative_ns: int = 300 * _MS
    timeout_ns: int = 5_000 * _MS  # No answer for this long: a failed copy.
    ahead_bytes: int = 8 << 20  # Given to the user and not consumed yet; above it nothing more is asked for.
    chunk_entries: int = 8192  # Most entries of one striped request round.
    retry_ns: int = 200 * _MS  # Pause before the second and last round over all copies.
    repairs_max: int = 64  # Of one read: further bad copies are left to the auditor (RP32).


@dataclass(slots=True)
class _Part:
    """The ids of one residue class (unstriped: all ids) of the chunk that is being read, and who was asked for it."""

    residue: int
    seats: list[int]  # Not asked yet, best first.
    asked: dict[int, int] = field(default_factory=dict)  # Seat -> when. Empty once an answer was good.
    frames: list[Frame] | None = None  # Striped: the good answer.
    no_count: int = 0  # Seats that say for certain that they do not have its first entry.
    bad_seats: list[int] = field(default_factory=list)  # Answered, and their copy is missing or damaged.


class RangeRead(Machine):
    """Reads entries first..last of one ledger, in order, from any bookie of each write set (P6.1).

    Gives EntriesReady frames without gaps, then Ended. The user's pace comes back as Consumed.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        first: int,
        last: int,
        chance_seat: int,
        options: ReadOptions = ReadOptions(),
        *,
        health: ReadHealth | None = None,
        repair_key: bytes | None = None,
        is_unconfirmed: bool = False,
        mac_key: bytes = b"",
    ) -> None:
        """
        Args:
            mac_key: of the ledger's tags, where it has any; a copy without a right one is a failed copy (P3.1).
            health: shared by all reads of a client.
            repair_key: the ledger key; a bad or missing copy is then written again from a good one (RP32).
            is_unconfirmed: entries above the LAC are asked for. The read ends, without an error, at the first entry
                that every bookie of its write set says it does not have (P6.3). Nothing is repaired.
        """
        assert 0 <= first <= last
        assert repair_key is None or not is_unconfirmed
        self.metadata = metadata
        self.mac_key = mac_key
        self.quorum = metadata.quorum
        self.next_entry = first
        self.last = last
        self.options = options
        self.prefer = chance_seat  # The seat that asking begins with: readers spread over the copies.
        self.sticky: str | None = None  # The bookie that gave the last good answer: asked next, too (RP29).
        self.health = health or ReadHealth()
        self.repair_key = repair_key
        self.is_unconfirmed = is_unconfirmed
        self.repairs_asked = 0
        self.repaired = 0
        self.lac = NO_ENTRY  # The highest that an answer carried (P6.2).
        self.round = 0  # Rises with every chunk; answers of an earlier one count for nothing.
        self.parts: list[_Part] = []
        self.unread_bytes = 0  # Given and not consumed.
        self.bad_seats: set[tuple[str, int]] = set()  # Failed in this read; asked last from now on.
        self.reasons: dict[str, str] = {}
        self.retry_at: int | None = None
        self.is_reading_metadata = False
        self.second_round = False  # All copies failed once; the metadata was read again.
        self.is_over = False

    @property
    def ledger_id(self) -> int:
        return self.metadata.ledger_id

    @property
    def is_striped(self) -> bool:
        return self.quorum.ensemble_size > self.quorum.write_quorum

    @property
    def deadline_ns(self) -> int | None:
        if self.is_over:
            return None
        due = self.retry_at
        for part in self.parts:
            if part.asked:
                due = earliest(due, min(part.asked.values()) + self.options.timeout_ns)
            if part.asked and part.seats:
                due = earliest(due, max(part.asked.values()) + self._patience_ns)
        return due

    @property
    def _patience_ns(self) -> int:
        return self.health.patience_ns(self.options.speculative_ns)

    def _on_started(self, event: Started) -> list[Effect]:
        return self._next_chunk(event.now_ns)

    def _next_chunk(self, now_ns: int) -> list[Effect]:
        if self.next_entry > self.last:
            self.is_over = True
            return [Ended()]
        is_waiting = self.is_reading_metadata or self.retry_at is not None  # For where the copies are now.
        if self.parts or is_waiting or self.unread_bytes >= self.options.ahead_bytes:
            return []
        self.round += 1
        self.chunk_last = self._chunk_last()
        count = self.quorum.ensemble_size if self.is_striped else 1
        residues = sorted(
            {e % count for e in range(self.next_entry, min(self.chunk_last, self.next_entry + count - 1) + 1)}
        )
        self.parts = [_Part(residue, self._seat_order(residue, now_ns)) for residue in residues]
        effects: list[Effect] = []
        for part in self.parts:
            effects += self._ask(part, now_ns)
        return effects

    def _fragment(self) -> Fragment:
        return self.metadata.fragment_of(self.next_entry)

    def _chunk_last(self) -> int:
        """The last entry this chunk may hold: the read's, the fragment's, or a bounded number of a striped ledger."""
        starts = [f.first_entry for f in self.metadata.fragments if f.first_entry > self.next_entry]
        last = min(self.last, starts[0] - 1) if starts else self.last
        return min(last, self.next_entry + self.options.chunk_entries - 1) if self.is_striped else last

    def _seat_order(self, residue: int, now_ns: int) -> list[int]:
        """Best first: whoever failed in this read last, before them who failed lately, first who works (RP28, RP29)."""
        fragment = self._fragment()
        names = [member.bookie_id for member in fragment.members]
        # Striped, each residue begins one seat further, so that the parts of a chunk come from different bookies.
        seats = write_set(residue, self.quorum) if self.is_striped else tuple(range(len(names)))
        turn = self.prefer % len(seats)
        return sorted(
            [*seats[turn:], *seats[:turn]],
            key=lambda seat: (
                (names[seat], fragment.first_entry) in self.bad_seats,
                self.health.has_failed(names[seat], now_ns),
                names[seat] != self.sticky and not self.is_striped,
            ),
        )

    def _ask(self, part: _Part, now_ns: int) -> list[Effect]:
        """Ask the next copy for a part; when none is left and none is open, all copies failed."""
        if not part.seats:
            return [] if part.asked else self._all_failed(part, now_ns)
        seat = part.seats.pop(0)
        part.asked[seat] = now_ns
        member = self._fragment().members[seat]
        modulus, residues = (self.quorum.ensemble_size, 1 << part.residue) if self.is_striped else (1, 1)
        request = ReadRequest(
            member.incarnation,
            self.ledger_id,
            self.next_entry,
            self.chunk_last,
            FRAME_BYTES_MAX // len(self.parts),
            modulus=modulus,
            residues=residues,
        )
        return [Send(member, request, ("read", self.round, part.residue, seat))]

    def _on_answered(self, event: Answered) -> list[Effect]:
        _, number, residue, seat = event.tag
        if event.tag[0] == "repair":
            self.repaired += isinstance(event.control, AddAnswer) and event.control.status == Status.OK
            return []
        part = self._part(number, residue)
        if part is None or seat not in part.asked:
            return []
        answer = event.control
        if not isinstance(answer, ReadAnswer) or answer.status not in (Status.OK, Status.NO_SUCH_LEDGER):
            status = getattr(answer, "status", Status.UNKNOWN)
            return self._copy_failed(part, seat, Status(status).name, event.now_ns)
        self.lac = max(self.lac, answer.lac)
        try:
            frames = [frame_of(body, self.ledger_id) for _, body in event.frames]
            for frame in frames:
                check_tags(frame, self.metadata.digest, self.mac_key)
        except PeerError as broken:
            part.bad_seats.append(seat)
            return self._copy_failed(part, seat, str(broken), event.now_ns)
        return self._take(part, seat, frames, answer, event.now_ns)

    def _part(self, number: int, residue: int) -> _Part | None:
        if number != self.round or self.is_over:
            return None
        return next((part for part in self.parts if part.residue == residue and part.frames is None), None)

    def _take(
        self, part: _Part, seat: int, frames: list[Frame], answer: ReadAnswer, now_ns: int
    ) -> list[Effect]:
        if not self.is_striped:
            # The common case: one dense frame from the first id on is handed over whole.
            frame = next(
                (f for f in frames if f.first_entry == self.next_entry and f.last_entry <= self.chunk_last),
                None,
            )
            if frame is None or frame.has_gaps:
                frame = self._dense_prefix(dict(pair for f in frames for pair in split(f)))
            if frame is None:
                return self._no_copy(part, seat, self.next_entry, answer, now_ns)
            self._note_good(part, seat, now_ns)
            return [*self._repair(part, [frame]), *self._give(frame, now_ns)]
        first = self.next_entry + (part.residue - self.next_entry) % self.quorum.ensemble_size
        if first not in self._entries_of(part.residue, frames):
            return self._no_copy(part, seat, first, answer, now_ns)
        self._note_good(part, seat, now_ns)
        return [*self._repair(part, frames), *self._finish_part(part, frames, now_ns)]

    def _note_good(self, part: _Part, seat: int, now_ns: int) -> None:
        self.sticky = self._fragment().members[seat].bookie_id
        self.health.note_good(self.sticky, now_ns - part.asked[seat])

    def _no_copy(
        self, part: _Part, seat: int, entry_id: int, answer: ReadAnswer, now_ns: int
    ) -> list[Effect]:
        """It answered, and not with the entry: where the entry must be, this copy is missing or damaged (P6.1)."""
        part.bad_seats.append(seat)
        is_absent = any(first <= entry_id <= last for first, last in answer.absent)
        part.no_count += answer.status == Status.NO_SUCH_LEDGER or is_absent
        return self._copy_failed(part, seat, f"no copy of entry {entry_id}", now_ns)

    def _repair(self, part: _Part, frames: list[Frame]) -> list[Effect]:
        """Have what was found good written again where it was bad: a recovery add, verbatim, whose outcome nobody waits
        for. Only what may be read is below the LAC or the last entry, so nothing new becomes true by it (RP32)."""
        if self.repair_key is None:
            return []
        effects: list[Effect] = []
        for seat in part.bad_seats:
            member = self._fragment().members[seat]
            for frame in frames:
                if self.repairs_asked < self.options.repairs_max:
                    self.repairs_asked += 1
                    request = AddRequest(member.incarnation, 0, 0, recovery=True)
                    header = encode_frame_header(frame, self.repair_key)
                    tag = ("repair", self.round, part.residue, seat)
                    effects.append(Send(member, request, tag, [(header, frame)]))
        return effects

    def _finish_part(self, part: _Part, frames: list[Frame], now_ns: int) -> list[Effect]:
        """Striped: what is known of one residue; with the last of them, their entries are put into order."""
        part.frames = frames
        part.asked.clear()  # Whoever else was asked for it is not waited for.
        if any(other.frames is None for other in self.parts):
            return []
        merged: dict[int, memoryview] = {}
        for other in self.parts:
            merged |= self._entries_of(other.residue, other.frames or [])
        frame = self._dense_prefix(merged)
        if frame is None:
            assert self.is_unconfirmed
            self.is_over = True
            return [Ended()]
        return self._give(frame, now_ns)

    def _entries_of(self, residue: int, frames: list[Frame]) -> dict[int, memoryview]:
        size = self.quorum.ensemble_size
        return {e: body for frame in frames for e, body in split(frame) if e % size == residue}

    def _dense_prefix(self, entries: dict[int, memoryview]) -> Frame | None:
        """The entries from next_entry on without a gap, as one frame."""
        run: list[memoryview] = []
        while (entry := entries.get(self.next_entry + len(run))) is not None and self.next_entry + len(
            run
        ) <= self.last:
            run.append(entry)
        return frame_of(memoryview(b"".join(run)), self.ledger_id) if run else None

    def _give(self, frame: Frame, now_ns: int) -> list[Effect]:
        assert frame.first_entry == self.next_entry
        self.next_entry = frame.last_entry + 1
        self.unread_bytes += len(frame.body)
        self.parts, self.second_round, self.retry_at = [], False, None
        return [EntriesReady(frame), *self._next_chunk(now_ns)]

    def _copy_failed(self, part: _Part, seat: int, reason: str, now_ns: int) -> list[Effect]:
        """Another copy is asked; this one goes to the end of the order (P6.1, RP28)."""
        part.asked.pop(seat, None)
        fragment = self._fragment()
        bookie_id = fragment.members[seat].bookie_id
        self.bad_seats.add((bookie_id, fragment.first_entry))
        self.reasons[bookie_id] = reason
        self.health.note_failed(bookie_id, now_ns)
        return self._ask(part, now_ns)

    def _all_failed(self, part: _Part, now_ns: int) -> list[Effect]:
        """Repair may have moved the copies: read the metadata again and try once more, then fail (P6.1)."""
        if self.is_unconfirmed and part.no_count == self.quorum.write_quorum:
            return self._finish_part(
                part, [], now_ns
            )  # Nobody has it: a read beyond the LAC ends there (P6.3).
        if self.second_round:
            told = ", ".join(f"{bookie}: {reason}" for bookie, reason in sorted(self.reasons.items()))
            return self._fail(
                EntryUnreadable(
                    f"ledger {self.ledger_id}, entry {self.next_entry}: no bookie of its write set gave a valid copy "
                    f"({told})",
                    hint="it may be readable again when these bookies are back",
                )
            )
        self.parts, self.second_round = [], True
        self.retry_at = now_ns + self.options.retry_ns
        return []

    def _fail(self, error: EmbedbkError) -> list[Effect]:
        self.is_over = True
        return [Ended(error)]

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        kind, number, residue, seat = event.tag
        part = self._part(number, residue) if kind == "read" else None
        if part is None or seat not in part.asked:
            return []
        return self._copy_failed(part, seat, event.reason, event.now_ns)

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        self.is_reading_metadata = False
        if self.is_over:
            return []
        if event.value is None:
            return self._fail(NoSuchLedger(f"ledger {self.ledger_id} was deleted"))
        self.metadata = decode_ledger_metadata(event.value)
        self.bad_seats.clear()
        return self._next_chunk(event.now_ns)

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        self.is_reading_metadata = False
        return self._next_chunk(event.now_ns)  # The copies named before are tried once more all the same.

    def _on_consumed(self, event: Consumed) -> list[Effect]:
        self.unread_bytes -= event.byte_count
        return [] if self.is_over else self._next_chunk(event.now_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.is_over:
            return []
        if self.retry_at is not None and event.now_ns >= self.retry_at:
            self.retry_at = None
            self.is_reading_metadata = True
            return [ReadKey("read", ledger_key_path(self.ledger_id))]
        effects: list[Effect] = []
        for part in self.parts:
            newest = max(part.asked.values(), default=None)
            if newest is not None and part.seats and event.now_ns >= newest + self._patience_ns:
                effects += self._ask(part, event.now_ns)
            for seat, when in list(part.asked.items()):
                if event.now_ns >= when + self.options.timeout_ns:
                    effects += self._copy_failed(part, seat, "no answer in time", event.now_ns)
                    if not self.parts:
                        return effects  # All copies of one part failed: the whole chunk begins again.
        return effects

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        KeyRead: _on_key_read,
        MetadataFailed: _on_metadata_failed,
        Consumed: _on_consumed,
        Tick: _on_tick,
    }


class LacRead(Machine):
    """Asks the last fragment's bookies for the LAC without fencing, until coverage (P6.2).

    Ends with (lac, length up to it, is any of them fenced). What it gives is a lower bound of the true LAC, and not
    below any LAC that was published to an ack quorum before it began. With `above` it ends with the first answer
    beyond that LAC (CL26).
    """

    def __init__(
        self, metadata: LedgerMetadata, options: ReadOptions = ReadOptions(), *, above: int | None = None
    ) -> None:
        self.metadata = metadata
        self.above = above
        self.options = options
        fragment = metadata.fragments[-1]
        self.best = (fragment.first_entry - 1, fragment.length_before)
        self.is_fenced = False
        self.answered = 0
        self.failed: dict[int, str] = {}
        self.until_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.until_ns

    def _on_started(self, event: Started) -> list[Effect]:
        self.until_ns = event.now_ns + self.options.timeout_ns
        return [
            Send(member, LacRequest(member.incarnation, self.metadata.ledger_id), ("lac", seat))
            for seat, member in enumerate(self.metadata.fragments[-1].members)
        ]

    def _on_answered(self, event: Answered) -> list[Effect]:
        seat, answer = event.tag[1], event.control
        if self.until_ns is None:
            return []
        known = isinstance(answer, LacAnswer) and answer.status in (Status.OK, Status.NO_SUCH_LEDGER)
        if not known or not isinstance(answer, LacAnswer):
            return self._seat_failed(seat, Status(getattr(answer, "status", Status.UNKNOWN)).name)
        if answer.lac > self.best[0]:
            self.best = (answer.lac, answer.lac_length)
        self.is_fenced = self.is_fenced or answer.is_fenced
        self.answered |= 1 << seat
        is_news = self.above is not None and self.best[0] > self.above
        if not is_news and not has_coverage(self.answered, self.metadata.quorum):
            return []
        self.until_ns = None
        return [Ended(None, (*self.best, self.is_fenced))]

    def _seat_failed(self, seat: int, reason: str) -> list[Effect]:
        self.failed[seat] = reason
        left = (1 << self.metadata.ensemble_size) - 1 & ~sum(1 << failed for failed in self.failed)
        return [] if has_coverage(left, self.metadata.quorum) else self._inconclusive()

    def _inconclusive(self) -> list[Effect]:
        self.until_ns = None
        members = self.metadata.fragments[-1].members
        told = ", ".join(
            f"{members[seat].bookie_id}: {reason}" for seat, reason in sorted(self.failed.items())
        )
        return [
            Ended(
                RecoveryInconclusive(
                    f"ledger {self.metadata.ledger_id}: too few bookies told their LAC ({told or 'no answer in time'})"
                )
            )
        ]

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return self._seat_failed(event.tag[1], event.reason) if self.until_ns is not None else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        due = self.until_ns is not None and event.now_ns >= self.until_ns
        return self._inconclusive() if due else []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }


class LacWait(Machine):
    """Waits until the LAC of an open ledger passes a value, or the ledger is fenced, or the time is over (P6.2).

    One bookie's word is enough to raise the LAC, so one is asked at a time, and another when it does not answer.
    Ends with (lac, length, is_fenced); lac is NO_ENTRY where nobody told anything new. `frame` then holds the entries
    behind after_lac, as far as they came along: what is missing there is read as ever.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        after_lac: int,
        wait_ms: int,
        chance_seat: int,
        options: ReadOptions = ReadOptions(),
        *,
        bytes_max: int = 0,
        mac_key: bytes = b"",
    ) -> None:
        """
        Args:
            bytes_max: above 0, the entries themselves are wanted along, up to so many bytes of them. Not of a striped
                ledger: there no bookie has a run of them.
            mac_key: of the ledger's tags, where it has any.
        """
        self.metadata = metadata
        self.after_lac = after_lac
        self.wait_ms = wait_ms
        self.options = options
        self.bytes_max = 0 if metadata.ensemble_size > metadata.write_quorum else bytes_max
        self.mac_key = mac_key
        self.frame: Frame | None = None
        self.turn = chance_seat
        self.tries = 0
        self.ask_until_ns: int | None = None
        self.is_over = False

    @property
    def deadline_ns(self) -> int | None:
        return None if self.is_over else self.ask_until_ns

    def _on_started(self, event: Started) -> list[Effect]:
        return self._ask(event.now_ns)

    def _ask(self, now_ns: int) -> list[Effect]:
        members = self.metadata.fragments[-1].members
        if self.tries >= len(members):
            return self._end(NO_ENTRY, 0, is_fenced=False)
        member = members[(self.turn + self.tries) % len(members)]
        self.tries += 1
        self.ask_until_ns = now_ns + self.wait_ms * _MS + self.options.timeout_ns
        request = LacRequest(
            member.incarnation, self.metadata.ledger_id, self.after_lac, self.wait_ms, self.bytes_max
        )
        return [Send(member, request, ("wait", self.tries))]

    def _on_answered(self, event: Answered) -> list[Effect]:
        answer = event.control
        if self.is_over or event.tag[1] != self.tries:
            return []
        if not isinstance(answer, LacAnswer) or answer.status not in (Status.OK, Status.NO_SUCH_LEDGER):
            return self._ask(event.now_ns)
        if event.frames and self.bytes_max:
            self._take(event.frames[0][1], answer.lac)
        return self._end(answer.lac, answer.lac_length, is_fenced=answer.is_fenced)

    def _take(self, body: memoryview, lac: int) -> None:
        """Keep what goes on without a gap and may be read. A copy with a fault in it is left to the range read, which
        asks another and has this one repaired."""
        try:
            frame = frame_of(body, self.metadata.ledger_id)
            check_tags(frame, self.metadata.digest, self.mac_key)
        except PeerError:
            return
        if frame.first_entry == self.after_lac + 1 and frame.last_entry <= lac and not frame.has_gaps:
            self.frame = frame

    def _end(self, lac: int, length: int, *, is_fenced: bool) -> list[Effect]:
        self.is_over = True
        return [Ended(None, (lac, length, is_fenced))]

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return [] if self.is_over or event.tag[1] != self.tries else self._ask(event.now_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        due = not self.is_over and self.ask_until_ns is not None and event.now_ns >= self.ask_until_ns
        return self._ask(event.now_ns) if due else []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
