"""A bookie: persists, fences, answers; knows nothing of quorums (P1, P3.2, P3.4, P5.2f, P7).

Decides: whether a request is taken, and for which record its answer waits. An answer that promises durability is
made by the step that receives `JournalDurable`, never before (`pending_replies`). Leaves to others: the bytes (entry
store, journal), the rows' place in memory (ledger table), which ledgers enter limbo (`limbo_entering`), the search by
which it ends (`limbo_search`), questions for holdings (`holdings_counting`), one number for many ledgers
(`block_numbering`), a copy in the place of another (`copy_replacement`), when a "no" may leave (`denials`), and links.

    request -> checks -> rows changed, records queued (StoreFrame, JournalAppend) -> ... JournalDurable -> Reply
"""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar

from embedbk.codec.frame import Frame, FrameHeader, frame_of, is_same, split
from embedbk.codec.messages import (
    COPIES_MAX,
    AddAnswer,
    AddRequest,
    Control,
    CopyTaken,
    EntryLogsAnswer,
    EntryLogsRequest,
    ErrorAnswer,
    ExplicitLacRequest,
    FenceRequest,
    HoldingsRequest,
    LacRequest,
    LedgerBlocksRequest,
    LogKeepersAnswer,
    LogKeepersRequest,
    ReadRequest,
    ReplaceRequest,
    Status,
    is_answered,
)
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.block_numbering import BlockNumbering
from embedbk.core.bookie_words import (
    AddsTaken,
    BlocksNumbered,
    CollectionBegun,
    CountSettled,
    DecisionsRead,
    DropAllowed,
    EntriesCounted,
    EntriesRead,
    JournalDurable,
    JournalFailed,
    LimboListed,
    LinkLost,
    LossFound,
    OlderMetadata,
    ReadBoundsSet,
    Reply,
    RequestReceived,
    ServeAlone,
    ShareTold,
    TellKeepers,
    TellLogs,
    WritableSet,
)
from embedbk.core.copy_replacement import CopyReplacement
from embedbk.core.drops import Drops
from embedbk.core.fencing import Fencing
from embedbk.core.holdings_counting import HoldingsCounting
from embedbk.core.lac_answers import LacAnswers
from embedbk.core.ledger_standing import refusal_of
from embedbk.core.ledger_table import AnyLedgerRow, AnyLedgerTable
from embedbk.core.limbo_entering import LimboEntering
from embedbk.core.limbo_search import LimboSearch
from embedbk.core.lookups import Lookup, Lookups
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import MetadataFailed
from embedbk.core.parked import Parked, ParkedPolls, Poll
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.read_answering import ReadAnswering
from embedbk.core.read_budget import ReadBudget
from embedbk.core.record_tokens import RecordTokens
from embedbk.core.several import SeveralAdds, why_not_copied
from embedbk.core.upkeep_words import MetadataTold
from embedbk.core.vocabulary import Tick
from embedbk.errors import PeerError, StorageError, ensure

__all__ = ["Bookie"]

_MS = 1_000_000
_NO_KEY = bytes(16)
_NOT_YET = "this bookie does not serve yet"
_BESIDE_OLDER = "this bookie met newer metadata than what answers now, and knows nothing of this ledger"
_UNSETTLED = (
    "this bookie does not know yet whether its directories are the newest, and nothing of this ledger"
)


class Bookie(Machine):
    """One bookie in one disk incarnation."""

    def __init__(
        self,
        incarnation: bytes,
        table: AnyLedgerTable,
        next_token: int,
        *,
        may_have_lost: bool = False,
        is_settled: bool = True,
        parked: ParkedPolls | None = None,
    ) -> None:
        """may_have_lost: acknowledged entries may be gone; limbo comes before anything is served (P7.4). is_settled:
        False: whether these directories are an older copy is not known yet (P7.9). parked: pending long polls for a
        LAC, where C adds and answers them too."""
        self.incarnation = incarnation
        self.table = table
        self.records = RecordTokens(table, next_token)
        self.is_writable = True  # False: normal adds are refused; fences and recovery adds pass (P7.8).
        self.parked: ParkedPolls = Parked() if parked is None else parked
        self.replies = PendingReplies(next_token - 1, self.parked)
        self.looks = Lookups()
        self.lacs = LacAnswers(incarnation, table, self.records, self.replies, self.looks, self.parked)
        self.fencing = Fencing(incarnation, table, self.records, self.replies, self.lacs)
        self.read_budget = ReadBudget()
        self.reads = ReadAnswering(
            incarnation, table, self.replies, self.looks, self.fencing, self.read_budget
        )
        self.replacing = CopyReplacement(incarnation, table, self.records, self.replies, self.looks)
        self.holdings = HoldingsCounting(incarnation, table, self.replies, self.looks)
        self.blocks = BlockNumbering(incarnation, self.replies, self.looks)
        self.is_settled = is_settled
        # Metadata is older than what this bookie met: a client that asks here may go by the older one (P10.5).
        self.is_beside_older = False
        # For metadata, while it can be reached: nothing is served meanwhile.
        self.is_waiting = not is_settled
        self.limbo = LimboSearch(table, self.records, self.replies, self.looks)
        self.entering = LimboEntering(
            table, self.records, self.replies, self.limbo, may_have_lost=may_have_lost
        )
        self.drops = Drops(table, self.records, self.replies, self.looks, self.limbo)

    @property
    def deadline_ns(self) -> int | None:
        return earliest(self.parked.deadline_ns, self.limbo.due_ns, self.reads.due_ns)

    @property
    def failure(self) -> str | None:
        """Why nothing more can be promised: the journal failed, or not every ledger could be put into limbo (P7.6)."""
        return self.replies.failure

    @property
    def is_serving(self) -> bool:
        """False: ledgers of which it may have lost entries are not in limbo yet (P7.4)."""
        return self.entering.is_serving

    @property
    def _may_deny(self) -> bool:
        """Whether it may say "no", and take a ledger of which it has no trace (P7.9, P10.5)."""
        return self.is_settled and not self.is_beside_older

    # Requests.

    def _on_request(self, event: RequestReceived) -> list[Effect]:
        if not self.entering.is_serving:
            # Neither yes nor no: the ledgers of which it may have lost entries are not in limbo yet (P7.4).
            return _refused(event, _NOT_YET)
        if self.is_waiting:
            return self._on_early(event)
        try:
            if not self._may_deny and self._is_unknown(event):
                return _refused(event, _UNSETTLED if not self.is_settled else _BESIDE_OLDER)
            return self._answer(event, event.control)
        except StorageError as full:
            # The ledger table took no further ledger; a row comes before anything else, so nothing was done.
            return _refused(event, str(full))

    def _on_early(self, event: RequestReceived) -> list[Effect]:
        """It will serve in a moment, or be found to be an older copy: a writer retries its add, and need not give the
        bookie up."""
        request = event.control
        if isinstance(request, AddRequest) and not request.recovery and len(event.frames) == 1:
            header = event.frames[0][0]
            return [self._add_reply(event.link, event.request_id, request, header, Status.BUSY)]
        return _refused(event, _NOT_YET)

    def _is_unknown(self, event: RequestReceived) -> bool:
        """Whether the request is about a ledger without a trace here: an older copy may lack the ledger (P7.9), and
        older metadata may ask those that lack it (P10.5)."""
        if isinstance(event.control, AddRequest):
            return any(self.table.get(header.ledger_id) is None for header, _ in event.frames)
        if isinstance(event.control, ReadRequest | HoldingsRequest) and event.control.others:
            return False  # Each ledger has a verdict of its own.
        ledger_id = getattr(event.control, "ledger_id", None)
        return ledger_id is not None and self.table.get(ledger_id) is None

    def _answer(self, event: RequestReceived, request: Control) -> list[Effect]:
        if isinstance(request, AddRequest):
            return self._on_add(event, request)
        if isinstance(request, ReadRequest):
            return self.reads.on_request(event, request, may_deny=self._may_deny)
        if isinstance(request, FenceRequest):
            return self.fencing.on_request(event, request)
        if isinstance(request, LacRequest):
            return self.lacs.on_poll(event, request)
        if isinstance(request, ExplicitLacRequest):
            return self.lacs.on_explicit(event, request)
        if isinstance(request, HoldingsRequest):
            return self.holdings.on_request(event, request, may_deny=self._may_deny)
        if isinstance(request, LedgerBlocksRequest):
            return self.blocks.on_request(event, request, is_settled=self._may_deny)
        if isinstance(request, ReplaceRequest):
            return self.replacing.on_request(event, request)
        if isinstance(request, EntryLogsRequest):
            return self._on_logs(event, request)
        if isinstance(request, LogKeepersRequest):
            return self._on_keepers(event, request)
        return [
            Reply(event.link, event.request_id, ErrorAnswer("a bookie does not take this kind of message"))
        ]

    def _on_logs(self, event: RequestReceived, request: EntryLogsRequest) -> list[Effect]:
        """For people and reports: the sizes of what is on disk, which no decision follows from."""
        if request.incarnation != self.incarnation:
            return [Reply(event.link, event.request_id, EntryLogsAnswer(Status.WRONG_INCARNATION))]
        return [TellLogs(event.link, event.request_id, request.after)]

    def _on_keepers(self, event: RequestReceived, request: LogKeepersRequest) -> list[Effect]:
        """Likewise: what is live in one of them."""
        if request.incarnation != self.incarnation:
            return [Reply(event.link, event.request_id, LogKeepersAnswer(Status.WRONG_INCARNATION))]
        return [TellKeepers(event.link, event.request_id, request.log_id, request.after)]

    def _on_add(self, event: RequestReceived, request: AddRequest) -> list[Effect]:
        if len(event.frames) != 1:
            return self._on_several_adds(event, request)
        header, body = event.frames[0]
        frame = self._checked_frame(event, request, header, body)
        if isinstance(frame, Status):
            return [self._add_reply(event.link, event.request_id, request, header, frame)]
        row, effects = self._row_of_add(request, header)
        # Behind the frame: readers that wait for the LAC must not delay its way to the journal.
        woken: list[Effect] = []
        if header.has_lac and not request.recovery:
            woken = self.lacs.learn(row, header.lac, header.lac_length)
        if frame.first_entry > row.last_entry:
            effects.append(self.records.store(row, frame))
            if request.deferred:
                reply = self._add_reply(event.link, event.request_id, request, header, Status.RECEIVED)
                effects.append(reply)
            self.replies.reply_when(
                row.last_token,
                self._add_reply(event.link, event.request_id, request, header, Status.OK),
                effects,
                event.now_ns,
            )
            return effects + woken
        # Some of it may be held already: compare before anything is answered (P3.4b, P3.4c).
        look = Lookup(event.link, event.request_id, request, row.ledger_id, 0, frame, frame.first_entry)
        effects.append(self.looks.read(look, frame.first_entry, frame.last_entry, FRAME_BYTES_MAX))
        return effects + woken

    def _on_several_adds(self, event: RequestReceived, request: AddRequest) -> list[Effect]:
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
            frame = self._checked_frame(event, request, header, body)
            if isinstance(frame, Status):
                several.take(place, frame)
                continue
            try:
                row, more = self._row_of_add(request, header)
            except StorageError:
                continue  # The ledger table took no further ledger: nothing of this one was done.
            effects += more
            if frame.first_entry > row.last_entry:
                effects.append(self.records.store(row, frame))
                several.take(place, Status.OK, row.last_token)
                continue
            several.left += 1
            look = Lookup(event.link, event.request_id, request, row.ledger_id, 0, frame, frame.first_entry)
            look.adds, look.place = several, place
            effects.append(self.looks.read(look, frame.first_entry, frame.last_entry, FRAME_BYTES_MAX))
        return effects + self._answer_several(event.link, event.request_id, several, event.now_ns)

    def _answer_several(self, link: int, request_id: int, several: SeveralAdds, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        if not several.left:
            reply = Reply(link, request_id, several.answer)
            self.replies.reply_when(several.wait_token, reply, effects, now_ns)
        return effects

    def _checked_frame(
        self, event: RequestReceived, request: AddRequest, header: FrameHeader, body: memoryview
    ) -> Frame | Status:
        """The frame of an add, its entries checked; or why it must not be stored."""
        refusal = self._refuse_add(request, header)
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
        row, effects = self.records.row_with_key(
            header.ledger_id,
            None if _is_copy(request) else header.ledger_key,
            from_reserve=request.recovery,
        )
        self.drops.on_add(row, effects)
        return row, effects

    def _refuse_add(self, request: AddRequest, header: FrameHeader) -> Status | None:
        """Why this add must not be stored, as things stand now; None when it may be."""
        if request.incarnation != self.incarnation:
            return Status.WRONG_INCARNATION
        if self.replies.failure is not None:
            return Status.UNKNOWN
        row = self.table.get(header.ledger_id)
        if row is not None:
            key = self.table.key(row)
            if key is not None and key != header.ledger_key and not _is_copy(request):
                return Status.WRONG_KEY
        if request.recovery:
            return None  # Passes fences and limbo (P5.2d), and a bookie that is read-only (P7.8).
        if row is not None and (refusal := refusal_of(row)) is not None:
            return refusal
        return None if self.is_writable else Status.READ_ONLY

    # What its host has learned.

    def _on_limbo_listed(self, event: LimboListed) -> list[Effect]:
        return self.entering.on_listed(event)

    def _on_count_settled(self, event: CountSettled) -> list[Effect]:
        self.is_settled, self.is_waiting = True, False
        return []

    def _on_older_metadata(self, event: OlderMetadata) -> list[Effect]:
        self.is_beside_older = event.is_older
        return []

    def _on_serve_alone(self, event: ServeAlone) -> list[Effect]:
        self.is_waiting = False
        return []

    def _on_loss_found(self, event: LossFound) -> list[Effect]:
        self.entering.on_loss()
        return []

    def _on_share_told(self, event: ShareTold) -> list[Effect]:
        return self.limbo.on_share(event)

    def _on_collection_begun(self, event: CollectionBegun) -> list[Effect]:
        self.drops.ask(event.ledger_ids)
        return []

    def _on_drop_allowed(self, event: DropAllowed) -> list[Effect]:
        effects = self.drops.on_allowed(event.ledger_id, is_serving=self.is_serving)
        if effects:
            row = self.table.get(event.ledger_id)
            assert row is not None
            effects += self.lacs.wake(row)
        return effects

    # Completions.

    def _on_entries_read(self, event: EntriesRead) -> list[Effect]:
        look = self.looks.end(event.read_id)
        if look is None:
            return []
        row = self.table.get(look.ledger_id)
        assert row is not None
        if isinstance(look.request, ReadRequest):
            return self.reads.found(look, look.request, row, event, may_deny=self._may_deny)
        if isinstance(look.request, Poll):
            return self.lacs.found(look, row, event)
        if look.request is None:
            self.limbo.found(event.frame, event.now_ns)
            return []
        if isinstance(look.request, ReplaceRequest):
            return self.replacing.finish(look, look.request, row, event)
        assert isinstance(look.request, AddRequest)  # Holdings are counted, not read.
        return self._finish_repeated_add(look, look.request, row, event)

    def _on_metadata_told(self, event: MetadataTold) -> list[Effect]:
        return self._end_question(event.now_ns, is_known=not event.doubt)

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        return self._end_question(event.now_ns, is_known=False)

    def _end_question(self, now_ns: int, *, is_known: bool) -> list[Effect]:
        """is_known: metadata is not older than what this bookie met; else nothing is denied (P10.5), nor behind a
        loss that was found meanwhile."""
        may_deny = is_known and self.is_serving and self._may_deny
        return self.reads.on_question_over(now_ns, may_deny=may_deny)

    def _finish_repeated_add(
        self, look: Lookup, request: AddRequest, row: AnyLedgerRow, event: EntriesRead
    ) -> list[Effect]:
        """Compare with what is held: equal is acknowledged once durable, another payload is refused, what is absent
        or fails its own digest is stored (P3.4b, P3.4c)."""
        frame = look.frame
        assert frame is not None
        refusal = None if request.recovery else refusal_of(row)  # It may have been fenced since.
        if self.replies.failure is not None:
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
                return [self.looks.read(look, entry_id, frame.last_entry, FRAME_BYTES_MAX)]
        effects: list[Effect] = []
        if look.missing:
            missing = b"".join(entry for entry_id, entry in split(frame) if entry_id in look.missing)
            effects.append(self.records.store(row, frame_of(memoryview(missing), row.ledger_id)))
        return effects + self._compared(look, request, Status.OK, row.last_token, event.now_ns)

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
        reply = self._add_reply(look.link, look.request_id, request, frame, status)
        if status != Status.OK:
            return [reply]
        self.replies.reply_when(wait_token, reply, effects, now_ns)
        return effects

    def _on_counted(self, event: EntriesCounted) -> list[Effect]:
        return self.holdings.on_counted(event)

    def _on_numbered(self, event: BlocksNumbered) -> list[Effect]:
        return self.blocks.on_numbered(event)

    def _on_decisions(self, event: DecisionsRead) -> list[Effect]:
        return self.replacing.on_decisions(event)

    def _on_taken(self, event: AddsTaken) -> list[Effect]:
        self.records.take_taken(event.next_token)
        return []

    @property
    def awaits_journal(self) -> bool:
        """Whether the next `JournalDurable` has an effect. Else the host may deliver it later, before the next
        event."""
        return bool(self.replies.by_token or self.drops) or self.entering.token is not None

    def _on_durable(self, event: JournalDurable) -> list[Effect]:
        ensure(event.token < self.records.next_token, "the journal made durable what was never queued")
        effects = self.replies.take_durable(event.token, event.now_ns)
        if self.drops:
            effects += self.drops.finished()
        self.entering.on_durable()
        return effects

    def _on_journal_failed(self, event: JournalFailed) -> list[Effect]:
        self.is_writable = False
        return self.replies.fail(event.reason)

    def _on_read_bounds(self, event: ReadBoundsSet) -> list[Effect]:
        self.read_budget.set_bounds(event.bytes_per_s)
        return []

    def _on_writable_set(self, event: WritableSet) -> list[Effect]:
        self.is_writable = event.is_writable and self.replies.failure is None
        return []

    def _on_link_lost(self, event: LinkLost) -> list[Effect]:
        self.parked.forget(event.link)
        return []

    def _on_tick(self, event: Tick) -> list[Effect]:
        effects = self.lacs.on_time(event.now_ns)
        effects += self.limbo.on_time(event.now_ns)
        return effects + self.reads.on_time(event.now_ns)

    def _add_reply(
        self, link: int, request_id: int, request: AddRequest, part: FrameHeader | Frame, status: Status
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

    HANDLERS: ClassVar[Handlers] = {
        RequestReceived: _on_request,
        EntriesRead: _on_entries_read,
        EntriesCounted: _on_counted,
        BlocksNumbered: _on_numbered,
        DecisionsRead: _on_decisions,
        AddsTaken: _on_taken,
        JournalDurable: _on_durable,
        JournalFailed: _on_journal_failed,
        CountSettled: _on_count_settled,
        OlderMetadata: _on_older_metadata,
        MetadataTold: _on_metadata_told,
        MetadataFailed: _on_metadata_failed,
        ServeAlone: _on_serve_alone,
        LossFound: _on_loss_found,
        LimboListed: _on_limbo_listed,
        ShareTold: _on_share_told,
        CollectionBegun: _on_collection_begun,
        DropAllowed: _on_drop_allowed,
        LinkLost: _on_link_lost,
        WritableSet: _on_writable_set,
        ReadBoundsSet: _on_read_bounds,
        Tick: _on_tick,
    }


def _refused(event: RequestReceived, why: str) -> list[Effect]:
    """Nothing of the request was done. To a LAC that wants no answer there is none: its client does not count it among
    what it waits for, nor its link among what is unanswered (P6.2)."""
    if not is_answered(event.control):
        return []
    return [Reply(event.link, event.request_id, ErrorAnswer(why))]


def _is_copy(request: AddRequest) -> bool:
    """Whether it is a copy by repair, which knows no key (P11.2). A normal add that claims so is a normal add
    (P3.5)."""
    return request.is_copy and request.recovery


def _is_in(entry_id: int, ranges: list[tuple[int, int]]) -> bool:
    """Is the entry in one of these ascending (first, last) ranges?"""
    index = bisect_right(ranges, entry_id, key=lambda pair: pair[0]) - 1
    return index >= 0 and entry_id <= ranges[index][1]
