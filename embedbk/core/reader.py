"""Reading ranges of entries (P6.1).

Decides: which bookie is asked for what, what counts as a failed copy, when a read has failed for good. A copy that is
missing or damaged where an entry must be is a failed copy, never an end, and is written again from a good one (RP32);
all readers get the same bytes in the same order (P6.4). Leaves to others: up to which entry may be read (the handle
knows the last entry, or asks `core/lac_reader.py` for the LAC), and where the metadata comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import check_tags
from embedbk.codec.frame import Frame, encode_frame_header, frame_of, merge
from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata, decode_changed_metadata, ledger_key_path
from embedbk.codec.lost_entries import gap_at, is_lost, next_lost
from embedbk.codec.read_messages import ReadAnswer, ReadClass, ReadRequest
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.client_words import Answered, Consumed, EntriesReady, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import KeyRead, MetadataFailed, ReadKey
from embedbk.core.quorum import write_set
from embedbk.core.read_health import ReadHealth
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import EmbedbkError, EntryUnreadable, Lost, NoSuchLedger, PeerError, StorageError
from embedbk.ids import NO_ENTRY

__all__ = ["RangeRead", "ReadOptions"]

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    # No answer for this long: ask another copy as well (RP27). Only until answers were measured (core/read_health.py).
    speculative_ns: int = 300 * _MS
    timeout_ns: int = 5_000 * _MS  # No answer for this long: a failed copy.
    # Bytes asked for, here, or given to the user and not consumed yet; above it nothing more is asked for.
    ahead_bytes: int = 8 << 20
    # So many of these are asked for at a time, once a read turned out to be sequential (RP29).
    pipeline_bytes: int = 4 << 20
    sequential_answers: int = 2  # So many answers that were full in a row make it so.
    chunk_entries: int = 8192  # Most entries of one striped request round.
    retry_ns: int = 200 * _MS  # Pause before the second and last round over all copies.
    repairs_max: int = 64  # In one read: further bad copies are left to the auditor (RP32).
    # What a read is for once it is sequential; a job says BATCH, and is one from its first entry on (P6.7).
    reads_as: ReadClass = ReadClass.CATCH_UP


@dataclass(slots=True)
class _Part:
    """The ids of one residue class (unstriped: all ids) of a chunk that is being read, and the seats that were
    asked."""

    residue: int
    seats: list[int]  # Not asked yet, best first.
    asked: dict[int, int] = field(default_factory=dict)  # Seat -> when. Empty once an answer was good.
    reads_as: ReadClass = ReadClass.TAIL  # What it was asked for as, last.
    # Seat -> when it may be asked again: its bookie has read for this class what it may in a second (P6.7).
    waiting: dict[int, int] = field(default_factory=dict)
    frames: list[Frame] | None = None  # The good answer.
    no_count: int = 0  # Seats that answered for certain that they do not have its first entry.
    bad_seats: list[int] = field(default_factory=list)  # Answered, and their copy is missing or damaged.


@dataclass(slots=True, eq=False)
class _Chunk:
    """A run of ids within one fragment that is asked for at once, or came and waits for what is before it."""

    number: int
    first: int
    last: int
    fragment: Fragment
    parts: list[_Part]
    frame: Frame | None = None  # From `first` on, without gaps; it may end before `last`.

    @property
    def is_asked(self) -> bool:
        return self.frame is None


class RangeRead(Machine):
    """Reads entries first..last of one ledger, in order, from any bookie of each write set (P6.1).

    Gives EntriesReady frames without gaps, then Ended. The user's pace comes back as Consumed. It ends early where the
    ledger's bookies gave their copies up (P8.14): `metadata` says so then.

    One chunk at a time is asked for, as much as one answer holds. After some full answers the read counts as
    sequential: then further chunks, of as many entries as fit into one answer each, are asked for ahead, so that disk,
    wire and user work at the same time. Only the first chunk decides that a read has failed, or is at its end: one
    ahead that cannot be had is given up, and asked for again when it is its turn.
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
                that every bookie of its write set denies to have (P6.3). Nothing is repaired.
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
        self.lac = NO_ENTRY  # The highest LAC of any answer (CL28).
        self.repairs_asked = 0
        self.repaired = 0  # Copies that a bookie confirmed to have again.
        self.round = 0  # Number of the newest chunk: answers to chunks that are dropped count for nothing.
        self.chunks: list[_Chunk] = []  # They hold consecutive ids from next_entry on.
        self.full_answers = 0  # In a row: the bookie had more than it could give.
        self.entry_bytes = 0  # Average size of an entry in the newest frame, rounded up.
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
        for chunk in self.chunks:
            for part in chunk.parts:
                if part.asked:
                    due = earliest(due, min(part.asked.values()) + self.options.timeout_ns)
                if part.asked and part.seats:
                    due = earliest(due, max(part.asked.values()) + self._patience_ns)
                if part.waiting:
                    due = earliest(due, min(part.waiting.values()))
        return due

    @property
    def _patience_ns(self) -> int:
        return self.health.patience_ns(self.options.speculative_ns)

    def _on_started(self, event: Started) -> list[Effect]:
        return self._ask_more(event.now_ns)

    # Requests: which entries, to which seats.

    def _ask_more(self, now_ns: int) -> list[Effect]:
        """Ask for the next chunk, and for as many behind it as a sequential read may have on their way."""
        if self.next_entry > self.last:
            self.is_over = True
            return [Ended()]
        lost = self.metadata.lost
        if lost and not self.chunks and (gap := gap_at(lost, self.next_entry)) is not None:
            return self._fail(self._lost(*gap))
        effects: list[Effect] = []
        # Else it waits to learn where the copies are now.
        while (
            not (self.is_over or self.is_reading_metadata or self.retry_at is not None) and self._has_room()
        ):
            first = self.chunks[-1].last + 1 if self.chunks else self.next_entry
            if first > self.last or (lost and is_lost(lost, first)):
                break  # What is lost is reported when everything before it was given.
            chunk = self._open_chunk(first, self._chunk_last(first), now_ns)
            self.chunks.append(chunk)
            effects += self._ask_parts(chunk, now_ns)
        return effects

    def _has_room(self) -> bool:
        asked = sum(chunk.is_asked for chunk in self.chunks)
        here = sum(len(chunk.frame.body) for chunk in self.chunks if chunk.frame is not None)
        if self.unread_bytes + here + asked * FRAME_BYTES_MAX >= self.options.ahead_bytes:
            return False
        if not self.chunks:
            return True
        return self._is_sequential and (asked + 1) * FRAME_BYTES_MAX <= self.options.pipeline_bytes

    @property
    def _is_sequential(self) -> bool:
        return self.full_answers >= self.options.sequential_answers and not self.is_unconfirmed

    def _chunk_last(self, first: int) -> int:
        """The last entry of a chunk: the read's, the fragment's, or as much as is known to fit into one answer."""
        starts = [f.first_entry for f in self.metadata.fragments if f.first_entry > first]
        last = min(self.last, starts[0] - 1) if starts else self.last
        if self.metadata.lost and (gap := next_lost(self.metadata.lost, first, last)) is not None:
            last = gap - 1
        if self._is_sequential:
            last = min(last, first + max(1, FRAME_BYTES_MAX // self.entry_bytes) - 1)
        return min(last, first + self.options.chunk_entries - 1) if self.is_striped else last

    def _open_chunk(self, first: int, last: int, now_ns: int) -> _Chunk:
        self.round += 1
        fragment = self.metadata.fragment_of(first)
        count = self.quorum.ensemble_size if self.is_striped else 1
        residues = sorted({e % count for e in range(first, min(last, first + count - 1) + 1)})
        parts = [_Part(residue, self._seat_order(fragment, residue, now_ns)) for residue in residues]
        return _Chunk(self.round, first, last, fragment, parts)

    def _seat_order(self, fragment: Fragment, residue: int, now_ns: int) -> list[int]:
        """The seats, best first: the working ones, then those that failed lately, then those that failed in this read
        (RP28, RP29)."""
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

    def _ask_parts(self, chunk: _Chunk, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for part in chunk.parts:
            effects += self._ask(chunk, part, now_ns)
        return effects

    def _ask(self, chunk: _Chunk, part: _Part, now_ns: int) -> list[Effect]:
        """Ask the next copy for a part; when none is left, none is open and none said "later", all copies failed."""
        if not part.seats:
            return [] if part.asked or part.waiting else self._all_failed(chunk, part, now_ns)
        seat = part.seats.pop(0)
        part.asked[seat], part.reads_as = now_ns, self._reads_as
        member = chunk.fragment.members[seat]
        modulus, residues = (self.quorum.ensemble_size, 1 << part.residue) if self.is_striped else (1, 1)
        request = ReadRequest(
            member.incarnation,
            self.ledger_id,
            chunk.first,
            chunk.last,
            FRAME_BYTES_MAX // len(chunk.parts),
            modulus=modulus,
            residues=residues,
            reads_as=part.reads_as,
        )
        return [Send(member, request, ("read", chunk.number, part.residue, seat))]

    @property
    def _reads_as(self) -> ReadClass:
        is_batch = self.options.reads_as == ReadClass.BATCH
        return self.options.reads_as if is_batch or self._is_sequential else ReadClass.TAIL

    # Answers.

    def _on_answered(self, event: Answered) -> list[Effect]:
        _, number, residue, seat = event.tag
        if event.tag[0] == "repair":
            self.repaired += isinstance(event.control, AddAnswer) and event.control.status == Status.OK
            return []
        chunk, part = self._find(number, residue)
        if chunk is None or part is None or seat not in part.asked:
            return []
        answer = event.control
        # No bookie has a bound for the tail, so a copy failed that is put off there.
        is_bounded = part.reads_as != ReadClass.TAIL
        if is_bounded and isinstance(answer, ReadAnswer) and answer.status == Status.BUSY:
            return self._ask_later(chunk, part, seat, answer.wait_ms, event.now_ns)
        if not isinstance(answer, ReadAnswer) or answer.status not in (Status.OK, Status.NO_SUCH_LEDGER):
            status = getattr(answer, "status", Status.UNKNOWN)
            return self._copy_failed(chunk, part, seat, Status(status).name, event.now_ns)
        self.lac = max(self.lac, answer.lac)
        try:
            if len(event.frames) > 1:
                raise PeerError(f"{len(event.frames)} frames in an answer that has one at most")
            frames = [frame_of(body, self.ledger_id) for _, body in event.frames]
            for frame in frames:
                check_tags(frame, self.metadata.digest, self.mac_key)
        except PeerError as broken:
            part.bad_seats.append(seat)
            return self._copy_failed(chunk, part, seat, str(broken), event.now_ns)
        return self._take(chunk, part, seat, frames, answer, event.now_ns)

    def _ask_later(self, chunk: _Chunk, part: _Part, seat: int, wait_ms: int, now_ns: int) -> list[Effect]:
        """The bookie has read for this class what it may (P6.7): no copy failed. Another one may have time."""
        del part.asked[seat]
        part.waiting[seat] = now_ns + max(wait_ms, 1) * _MS
        return self._ask(chunk, part, now_ns)

    def _find(self, number: int, residue: int) -> tuple[_Chunk | None, _Part | None]:
        """The part that an answer under this tag is for, as long as it is wanted."""
        chunk = next((chunk for chunk in self.chunks if chunk.number == number), None)
        if chunk is None or self.is_over or not chunk.is_asked:
            return None, None
        found = (part for part in chunk.parts if part.residue == residue and part.frames is None)
        return chunk, next(found, None)

    def _take(
        self,
        chunk: _Chunk,
        part: _Part,
        seat: int,
        frames: list[Frame],
        answer: ReadAnswer,
        now_ns: int,
    ) -> list[Effect]:
        first = chunk.first
        if self.is_striped:
            first += (part.residue - first) % self.quorum.ensemble_size
        if not any(frame.first_entry == first for frame in frames):
            return self._no_copy(chunk, part, seat, first, answer, now_ns)
        self._note_good(chunk.fragment.members[seat].bookie_id, now_ns - part.asked[seat], now_ns)
        part.frames = frames
        part.asked.clear()  # Do not wait for the other seats that were asked for it.
        part.waiting.clear()
        return [*self._repair(chunk, part), *self._finish_chunk(chunk, now_ns)]

    def _note_good(self, bookie_id: str, took_ns: int, now_ns: int) -> None:
        """A bookie gives its answers one after the other: for the next one its time begins now, or reading ahead would
        look like slowness, and be asked for twice."""
        self.sticky = bookie_id
        self.health.note_good(bookie_id, took_ns)
        for chunk in self.chunks:
            for part in chunk.parts:
                for seat in part.asked:
                    if chunk.fragment.members[seat].bookie_id == bookie_id:
                        part.asked[seat] = now_ns

    def _no_copy(
        self, chunk: _Chunk, part: _Part, seat: int, entry_id: int, answer: ReadAnswer, now_ns: int
    ) -> list[Effect]:
        """A bookie answered without the entry: where the entry must be, this copy is missing or damaged (P6.1)."""
        part.bad_seats.append(seat)
        is_absent = any(first <= entry_id <= last for first, last in answer.absent)
        part.no_count += answer.status == Status.NO_SUCH_LEDGER or is_absent
        return self._copy_failed(chunk, part, seat, f"no copy of entry {entry_id}", now_ns)

    def _repair(self, chunk: _Chunk, part: _Part) -> list[Effect]:
        """Have good copies written again where they were bad: by recovery adds, verbatim, whose outcomes nothing waits
        for. Only entries up to the LAC or the last entry are repaired, so nothing new becomes true by it (RP32)."""
        if self.repair_key is None:
            return []
        effects: list[Effect] = []
        for seat in part.bad_seats:
            member = chunk.fragment.members[seat]
            for frame in part.frames or ():
                if self.repairs_asked < self.options.repairs_max:
                    self.repairs_asked += 1
                    request = AddRequest(member.incarnation, 0, 0, recovery=True)
                    header = encode_frame_header(frame, self.repair_key)
                    tag = ("repair", chunk.number, part.residue, seat)
                    effects.append(Send(member, request, tag, [(header, frame)]))
        return effects

    def _finish_chunk(self, chunk: _Chunk, now_ns: int) -> list[Effect]:
        """With the last of its parts a chunk is put into order; then what is at its turn goes to the user."""
        if any(part.frames is None for part in chunk.parts):
            return []
        frames = [frame for part in chunk.parts for frame in part.frames or ()]
        frame = frames[0] if len(frames) == 1 else None
        if (
            frame is None
            or frame.has_gaps
            or frame.first_entry != chunk.first
            or frame.last_entry > chunk.last
        ):
            # The common case of one dense frame is handed over whole; the others are put together in C.
            frame = merge(frames, chunk.first, chunk.last) if frames else None
        if frame is None:
            assert self.is_unconfirmed
            self.is_over = True
            return [Ended()]
        chunk.frame = frame
        chunk.parts = []
        self.entry_bytes = -(-len(frame.body) // frame.entry_count)
        effects: list[Effect] = []
        if frame.last_entry < chunk.last:
            self.full_answers += 1
            effects += self._ask_rest(chunk, frame.last_entry + 1, now_ns)
        return [*effects, *self._give(), *self._ask_more(now_ns)]

    def _ask_rest(self, chunk: _Chunk, first: int, now_ns: int) -> list[Effect]:
        """Ask for the entries that did not fit into the answer. Behind the last chunk they are asked for like all
        others."""
        last, chunk.last = chunk.last, first - 1
        if chunk is self.chunks[-1]:
            return []
        rest = self._open_chunk(first, last, now_ns)
        self.chunks.insert(self.chunks.index(chunk) + 1, rest)
        return self._ask_parts(rest, now_ns)

    def _give(self) -> list[Effect]:
        effects: list[Effect] = []
        while self.chunks and (frame := self.chunks[0].frame) is not None:
            assert frame.first_entry == self.next_entry
            del self.chunks[0]
            self.next_entry = frame.last_entry + 1
            self.unread_bytes += len(frame.body)
            self.second_round, self.retry_at = False, None
            effects.append(EntriesReady(frame))
        return effects

    # Failures.

    def _copy_failed(self, chunk: _Chunk, part: _Part, seat: int, reason: str, now_ns: int) -> list[Effect]:
        """Ask another copy; this one goes to the end of the order (P6.1, RP28)."""
        part.asked.pop(seat, None)
        bookie_id = chunk.fragment.members[seat].bookie_id
        self.bad_seats.add((bookie_id, chunk.fragment.first_entry))
        self.reasons[bookie_id] = reason
        self.health.note_failed(bookie_id, now_ns)
        return self._ask(chunk, part, now_ns)

    def _all_failed(self, chunk: _Chunk, part: _Part, now_ns: int) -> list[Effect]:
        """All copies failed. Repair may have moved them: read the metadata again and try once more, then fail
        (P6.1)."""
        self.full_answers = 0
        if chunk is not self.chunks[0]:
            del self.chunks[self.chunks.index(chunk) :]
            return []
        self.chunks = []
        if self.is_unconfirmed and part.no_count == self.quorum.write_quorum:
            return self._end_unconfirmed(chunk, part, now_ns)
        if self.second_round:
            told = ", ".join(f"{bookie}: {reason}" for bookie, reason in sorted(self.reasons.items()))
            return self._fail(
                EntryUnreadable(
                    f"ledger {self.ledger_id}, entry {self.next_entry}: no bookie of its write set gave a valid copy "
                    f"({told})",
                    hint="it may be readable again when these bookies are back",
                )
            )
        self.second_round = True
        self.retry_at = now_ns + self.options.retry_ns
        return []

    def _end_unconfirmed(self, chunk: _Chunk, part: _Part, now_ns: int) -> list[Effect]:
        """No bookie has this part's first entry: a read beyond the LAC ends there, when the other parts came (P6.3)."""
        self.chunks = [chunk]
        part.frames = []
        return self._finish_chunk(chunk, now_ns)

    def _lost(self, first: int, last: int) -> Lost:
        """Ask no bookie for what an operator gave up."""
        word = next(each for each in self.metadata.lost if is_lost((each,), first))
        which = f"entries {first} to {last}" if first < last else f"entry {first}"
        why = f" ({word.why})" if word.why else ""
        error = Lost(
            f"ledger {self.ledger_id}: {which} were given up by {word.by or 'an operator'}{why}, and are lost for good",
            hint=f"read on from {last + 1}, or with skip_lost=True",
        )
        error.ledger_id, error.first_entry, error.last_entry = self.ledger_id, first, last
        error.first_offset, error.next_offset = first, last + 1
        return error

    def _fail(self, error: EmbedbkError) -> list[Effect]:
        self.is_over = True
        return [Ended(error)]

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        kind, number, residue, seat = event.tag
        chunk, part = self._find(number, residue) if kind == "read" else (None, None)
        if chunk is None or part is None or seat not in part.asked:
            return []
        return self._copy_failed(chunk, part, seat, event.reason, event.now_ns)

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        self.is_reading_metadata = False
        if self.is_over:
            return []
        if event.value is None:
            return self._fail(NoSuchLedger(f"ledger {self.ledger_id} was deleted"))
        try:
            self.metadata = decode_changed_metadata(event.value, self.metadata)
        except StorageError as unread:
            return self._fail(unread)
        # Closed meanwhile, it may have another shape (P2.6); no chunk of the old one is left.
        self.quorum = self.metadata.quorum
        if self.metadata.freed is not None:
            # No bookie is asked for what they gave up: the client reads on in files (P8.14).
            self.is_over, self.chunks = True, []
            return [Ended()]
        self.bad_seats.clear()
        if self.is_unconfirmed and self.metadata.last_entry is not None:
            # Closed meanwhile: entries beyond its end are not read, entries below it must be there (I38).
            self.last, self.is_unconfirmed = min(self.last, self.metadata.last_entry), False
        return self._ask_more(event.now_ns)

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        self.is_reading_metadata = False
        return self._ask_more(event.now_ns)  # The copies named before are tried once more all the same.

    def _on_consumed(self, event: Consumed) -> list[Effect]:
        self.unread_bytes -= event.byte_count
        return [] if self.is_over else self._ask_more(event.now_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.is_over:
            return []
        if self.retry_at is not None and event.now_ns >= self.retry_at:
            self.retry_at = None
            self.is_reading_metadata = True
            return [ReadKey("read", ledger_key_path(self.ledger_id))]
        effects: list[Effect] = []
        for chunk in list(self.chunks):
            for part in chunk.parts:
                if chunk in self.chunks:  # Where all copies of a part failed it begins again, or is given up.
                    effects += self._look_at_time(chunk, part, event.now_ns)
        return effects

    def _look_at_time(self, chunk: _Chunk, part: _Part, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        due = [seat for seat, when in part.waiting.items() if now_ns >= when]
        if due:
            part.seats = due + part.seats
            for seat in due:
                del part.waiting[seat]
            if not part.asked:
                effects += self._ask(chunk, part, now_ns)
        newest = max(part.asked.values(), default=None)
        if newest is not None and part.seats and now_ns >= newest + self._patience_ns:
            effects += self._ask(chunk, part, now_ns)
        for seat, when in list(part.asked.items()):
            if chunk in self.chunks and now_ns >= when + self.options.timeout_ns:
                effects += self._copy_failed(chunk, part, seat, "no answer in time", now_ns)
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
