"""Which adds a bookie stores, and what it answers to them (P3.2, P3.4, P3.5, P11.2).

Decides whether a frame is stored: by incarnation, key, fence, limbo, and what is held already; and for which record the
answer waits. Leaves to others: whether normal adds are taken at all (`space`), what an add of a dropped ledger does
(`drops`), who waits for the LAC that it carries (`lac_answers`), and the bytes (entry store, journal).

    request -> checks -> beyond the last entry? ─ yes ─▶ StoreFrame ... JournalDurable -> Reply
                                                ─ no ──▶ ReadEntries ... EntriesRead -> compared: stored, or refused
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from embedbk.codec.add_messages import COPIES_MAX, AddAnswer, AddRequest, CopyTaken
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import Frame, FrameHeader, frame_of, is_same, split
from embedbk.codec.messages import ErrorAnswer
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.bookie_words import EntriesRead, Reply, RequestReceived
from embedbk.core.drops import Drops
from embedbk.core.lac_answers import LacAnswers
from embedbk.core.ledger_standing import refusal_of
from embedbk.core.ledger_table import AnyLedgerRow, AnyLedgerTable
from embedbk.core.lookups import Lookup, Lookups
from embedbk.core.machine import Effect
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.record_tokens import RecordTokens
from embedbk.core.several import SeveralAdds, why_not_copied
from embedbk.errors import PeerError, StorageError

__all__ = ["AddStoring", "add_reply"]


class AddStoring:
    """Stores adds. It has no state of its own: an add that is compared with what is held is an open lookup.

    is_writable: False: normal adds are refused; recovery adds pass (P7.8)."""

    __slots__ = ("_drops", "_incarnation", "_lacs", "_looks", "_records", "_replies", "_table")

    def __init__(
        self,
        incarnation: bytes,
        table: AnyLedgerTable,
        records: RecordTokens,
        replies: PendingReplies,
        looks: Lookups,
        lacs: LacAnswers,
        drops: Drops,
    ) -> None:
        self._incarnation = incarnation
        self._table = table
        self._records = records
        self._replies = replies
        self._looks = looks
        self._lacs = lacs
        self._drops = drops

    def getstate(self) -> dict[str, Any]:
        """The state for digests: none that is not the bookie's."""
        return {}

    def on_request(self, event: RequestReceived, request: AddRequest, *, is_writable: bool) -> list[Effect]:
        if len(event.frames) != 1:
            return self._on_several(event, request, is_writable=is_writable)
        header, body = event.frames[0]
        frame = self._checked_frame(event, request, header, body, is_writable=is_writable)
        if isinstance(frame, Status):
            return [add_reply(event.link, event.request_id, request, header, frame)]
        row, effects = self._row_of_add(request, header)
        # Behind the frame: readers that wait for the LAC must not delay its way to the journal.
        woken: list[Effect] = []
        if header.has_lac and not request.recovery:
            woken = self._lacs.learn(row, header.lac, header.lac_length)
        if frame.first_entry > row.last_entry:
            effects.append(self._records.store(row, frame))
            if request.deferred:
                reply = add_reply(event.link, event.request_id, request, header, Status.RECEIVED)
                effects.append(reply)
            self._replies.reply_when(
                row.last_token,
                add_reply(event.link, event.request_id, request, header, Status.OK),
                effects,
                event.now_ns,
            )
            return effects + woken
        # Some of it may be held already: compare before anything is answered (P3.4b, P3.4c).
        look = Lookup(event.link, event.request_id, request, row.ledger_id, 0, frame, frame.first_entry)
        effects.append(self._looks.read(look, frame.first_entry, frame.last_entry, FRAME_BYTES_MAX))
        return effects + woken

    def found(self, look: Lookup, request: AddRequest, row: AnyLedgerRow, event: EntriesRead) -> list[Effect]:
        """Compare with what is held: equal is acknowledged once durable, another payload is refused, what is absent
        or fails its own digest is stored (P3.4b, P3.4c)."""
        frame = look.frame
        assert frame is not None
        refusal = None if request.recovery else refusal_of(row)  # It may have been fenced since.
        if self._replies.failure is not None:
            refusal = Status.UNKNOWN
        if refusal is not None:
            return self._compared(look, request, refusal, 0, event.now_ns)
        found = event.frame
        # The most frequent case: a recovery writes back what is here. It need not be looked at entry by entry.
        is_held = found is not None and is_same(found.body, frame.body)
        held = dict(split(found)) if found is not None and not is_held else {}
        for entry_id, entry in () if is_held else split(frame):
            if entry_id < look.first_entry:
                continue
            stored = held.get(entry_id)
            if stored is not None:
                if not is_same(stored, entry):
                    return self._compared(look, request, Status.CONFLICT, 0, event.now_ns)
            elif entry_id == look.first_entry or _is_in(entry_id, event.absent):
                look.missing.add(entry_id)
            else:
                # Not mentioned: unreadable here, or beyond what one lookup gives, and then it may be another
                # payload (P3.4c). A lookup always settles its first entry, so look it up as the first.
                look.first_entry = entry_id
                return [self._looks.read(look, entry_id, frame.last_entry, FRAME_BYTES_MAX)]
        effects: list[Effect] = []
        if look.missing:
            missing = b"".join(entry for entry_id, entry in split(frame) if entry_id in look.missing)
            effects.append(self._records.store(row, frame_of(memoryview(missing), row.ledger_id)))
        return effects + self._compared(look, request, Status.OK, row.last_token, event.now_ns)

    def _on_several(self, event: RequestReceived, request: AddRequest, *, is_writable: bool) -> list[Effect]:
        """Copies of several ledgers, each judged and stored as if it had come by itself (P11.2); the answer waits until
        the last of them is durable."""
        if refused := why_not_copied(request, event.frames, COPIES_MAX):
            return [Reply(event.link, event.request_id, ErrorAnswer(refused))]
        copies = [
            CopyTaken(Status.UNKNOWN, header.ledger_id, header.first_entry, header.last_entry)
            for header, _ in event.frames
        ]
        several = SeveralAdds(request, copies)
        effects: list[Effect] = []
        for place, (header, body) in enumerate(event.frames):
            frame = self._checked_frame(event, request, header, body, is_writable=is_writable)
            if isinstance(frame, Status):
                several.take(place, frame)
                continue
            try:
                row, more = self._row_of_add(request, header)
            except StorageError:
                continue  # The ledger table took no further ledger: nothing of this one was done.
            effects += more
            if frame.first_entry > row.last_entry:
                effects.append(self._records.store(row, frame))
                several.take(place, Status.OK, row.last_token)
                continue
            several.left += 1
            look = Lookup(event.link, event.request_id, request, row.ledger_id, 0, frame, frame.first_entry)
            look.adds, look.place = several, place
            effects.append(self._looks.read(look, frame.first_entry, frame.last_entry, FRAME_BYTES_MAX))
        return effects + self._answer_several(event.link, event.request_id, several, event.now_ns)

    def _answer_several(self, link: int, request_id: int, several: SeveralAdds, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        if not several.left:
            reply = Reply(link, request_id, several.answer)
            self._replies.reply_when(several.wait_token, reply, effects, now_ns)
        return effects

    def _checked_frame(
        self,
        event: RequestReceived,
        request: AddRequest,
        header: FrameHeader,
        body: memoryview,
        *,
        is_writable: bool,
    ) -> Frame | Status:
        """The frame of an add, its entries checked; or why it must not be stored."""
        refusal = self._refusal(request, header, is_writable=is_writable)
        if refusal is not None:
            return refusal
        if event.is_beyond_room:
            return Status.BUSY  # Alive, and nothing of it was done: the client may ask again (P7.8).
        try:
            frame = frame_of(body, header.ledger_id)
        except PeerError:
            return Status.BAD_FRAME
        found = (frame.first_entry, frame.last_entry, frame.entry_count)
        is_as_said = found == (header.first_entry, header.last_entry, header.entry_count)
        return frame if is_as_said else Status.BAD_FRAME

    def _row_of_add(self, request: AddRequest, header: FrameHeader) -> tuple[AnyLedgerRow, list[Effect]]:
        """The ledger's row, in which an add may be stored now."""
        row, effects = self._records.row_with_key(
            header.ledger_id,
            None if _is_copy(request) else header.ledger_key,
            from_reserve=request.recovery,
        )
        self._drops.on_add(row, effects)
        return row, effects

    def _refusal(self, request: AddRequest, header: FrameHeader, *, is_writable: bool) -> Status | None:
        """Why this add must not be stored, as things stand now; None when it may be."""
        if request.incarnation != self._incarnation:
            return Status.WRONG_INCARNATION
        if self._replies.failure is not None:
            return Status.UNKNOWN
        row = self._table.get(header.ledger_id)
        if row is not None:
            key = self._table.key(row)
            if key is not None and key != header.ledger_key and not _is_copy(request):
                return Status.WRONG_KEY
        if request.recovery:
            return None  # Passes fences and limbo (P5.2d), and a bookie that is read-only (P7.8).
        if row is not None and (refusal := refusal_of(row)) is not None:
            return refusal
        return None if is_writable else Status.READ_ONLY

    def _compared(
        self, look: Lookup, request: AddRequest, status: Status, wait_token: int, now_ns: int
    ) -> list[Effect]:
        """The verdict on a frame that was compared with what is held, by itself or among several copies. wait_token:
        the record that makes an OK true."""
        frame, effects = look.frame, list[Effect]()
        assert frame is not None
        if look.adds is not None:
            look.adds.take(look.place, status, wait_token)
            look.adds.left -= 1
            return self._answer_several(look.link, look.request_id, look.adds, now_ns)
        reply = add_reply(look.link, look.request_id, request, frame, status)
        if status != Status.OK:
            return [reply]
        self._replies.reply_when(wait_token, reply, effects, now_ns)
        return effects


def add_reply(
    link: int, request_id: int, request: AddRequest, part: FrameHeader | Frame, status: Status
) -> Reply:
    """The answer names the handle, the seating and the kind of add, so that it counts for nothing else (P3.8)."""
    answer = AddAnswer(
        status,
        request.nonce,
        request.seating,
        request.recovery,
        part.ledger_id,
        part.first_entry,
        part.last_entry,
    )
    return Reply(link, request_id, answer)


def _is_copy(request: AddRequest) -> bool:
    """Whether it is a copy by repair, which knows no key (P11.2). A normal add that claims so is a normal add
    (P3.5)."""
    return request.is_copy and request.recovery


def _is_in(entry_id: int, ranges: list[tuple[int, int]]) -> bool:
    """Is the entry in one of these ascending (first, last) ranges?"""
    index = bisect_right(ranges, entry_id, key=lambda pair: pair[0]) - 1
    return index >= 0 and entry_id <= ranges[index][1]
