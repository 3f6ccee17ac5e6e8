"""A bookie: persists, fences, answers; knows nothing of quorums (P1, P3.2, P3.4, P5.2f, P7).

Decides: whether a request is taken, and in which step its answer may leave. An answer that promises durability is
made by the step that receives `JournalDurable`, never before. Leaves to others: the bytes (entry store,
journal), the rows' place in memory (ledger table), the search by which limbo ends (`limbo_search`), and links.

    request -> checks -> rows changed, records queued (StoreFrame, JournalAppend) -> ... JournalDurable -> Reply
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec.structs import replace

from embedbk.codec.copy_decision import CopyDecision
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.frame import Frame, FrameHeader, encode_frame_header, frame_of, is_same, split
from embedbk.codec.journal_records import (
    HELD_AGAIN,
    LIMBO_BEGINS,
    LIMBO_ENDS,
    RecordKind,
    encode_explicit_lac,
    encode_gone,
)
from embedbk.codec.messages import (
    AddAnswer,
    AddRequest,
    Control,
    EntryLogsAnswer,
    EntryLogsRequest,
    ErrorAnswer,
    ExplicitLacAnswer,
    ExplicitLacRequest,
    FenceAnswer,
    FenceRequest,
    HeldRange,
    HoldingsAnswer,
    HoldingsRange,
    HoldingsRequest,
    LacAnswer,
    LacRequest,
    ReadAnswer,
    ReadClass,
    ReadRequest,
    ReplaceAnswer,
    ReplaceRequest,
    Status,
)
from embedbk.config import FRAME_BYTES_MAX, LAC_WAIT_MS_MAX
from embedbk.core.bookie_words import (
    AddsTaken,
    CollectionBegun,
    CountEntries,
    CountSettled,
    DecisionsRead,
    DropAllowed,
    DropEntries,
    EntriesCounted,
    EntriesRead,
    JournalAppend,
    JournalDurable,
    JournalFailed,
    LimboListed,
    LinkLost,
    LossFound,
    ReadBoundsSet,
    ReadDecisions,
    ReadEntries,
    Reply,
    RequestReceived,
    ServeAlone,
    ShareTold,
    StoreFrame,
    TellLogs,
    WritableSet,
)
from embedbk.core.drops import Drops
from embedbk.core.held_count import HeldCount, why_not_counted
from embedbk.core.ledger_table import AnyLedgerRow, AnyLedgerTable
from embedbk.core.limbo import gone_of
from embedbk.core.limbo_search import LimboSearch
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.parked import Parked, ParkedPolls, Poll
from embedbk.core.read_budget import ReadBudget, read_class
from embedbk.core.vocabulary import Tick
from embedbk.errors import PeerError, StorageError, ensure
from embedbk.ids import NO_ENTRY

__all__ = ["Bookie"]

_MS = 1_000_000
_NO_KEY = bytes(16)
_UNSETTLED = (
    "this bookie does not know yet whether its directories are the newest, and nothing of this ledger"
)


@dataclass(slots=True)
class _Look:
    """A lookup in the entry store that a request waits for."""

    link: int
    request_id: int
    # None: the bookie itself asked, for a share (P7.4).
    request: AddRequest | ReadRequest | HoldingsRequest | ReplaceRequest | Poll | None
    ledger_id: int
    wait_token: int  # The answer also waits until this record is durable.
    frame: Frame | None = None  # The repeated add's frame.
    first_entry: int = 0  # Where the lookup began; before it all was compared already.
    missing: set[int] = field(default_factory=set)  # Entries of the frame to be stored. Asked by key only.
    held: HeldCount | None = None  # It is for this place of a question for holdings.
    place: int = 0


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
        self.next_token = next_token  # The journal numbers its records the same way.
        self.durable = next_token - 1
        self.is_writable = True  # False: normal adds are refused; fences and recovery adds pass (P7.8).
        self.failure: str | None = None  # The journal failed: nothing more can be promised (P7.6).
        self.replies: dict[int, list[Reply]] = {}  # Journal token -> answers that wait for it.
        self.looks: dict[int, _Look] = {}
        self.next_look = 1
        self.parked: ParkedPolls = Parked() if parked is None else parked
        self.is_serving = not may_have_lost
        self.is_settled = is_settled  # False: no "no", and no ledger that is not known (P7.9).
        # For metadata, while it can be reached: nothing is served meanwhile.
        self.is_waiting = not is_settled
        self.read_budget = ReadBudget()
        self.limbo_token: int | None = None  # While not serving: the last record that limbo waits for.
        self.limbo = LimboSearch(table.limbo())
        self.drops = Drops()

    @property
    def deadline_ns(self) -> int | None:
        return earliest(self.parked.deadline_ns, self.limbo.due_ns)

    # Requests.

    def _on_request(self, event: RequestReceived) -> list[Effect]:
        if not self.is_serving:
            # Neither yes nor no: the ledgers of which it may have lost entries are not in limbo yet (P7.4).
            return [Reply(event.link, event.request_id, ErrorAnswer("this bookie does not serve yet"))]
        if self.is_waiting:
            return self._on_early(event)
        if not self.is_settled and self._is_unknown(event):
            return [Reply(event.link, event.request_id, ErrorAnswer(_UNSETTLED))]
        try:
            return self._answer(event, event.control)
        except StorageError as full:
            # The ledger table took no further ledger; a row comes before anything else, so nothing was done.
            return [Reply(event.link, event.request_id, ErrorAnswer(str(full)))]

    def _on_early(self, event: RequestReceived) -> list[Effect]:
        """It will serve in a moment, or be found to be an older copy: a writer retries its add, and need not give the
        bookie up."""
        request = event.control
        if isinstance(request, AddRequest) and not request.recovery and len(event.frames) == 1:
            header = event.frames[0][0]
            return [self._add_reply(event.link, event.request_id, request, header, Status.BUSY)]
        return [Reply(event.link, event.request_id, ErrorAnswer("this bookie does not serve yet"))]

    def _is_unknown(self, event: RequestReceived) -> bool:
        """Whether the request is about a ledger without a trace here: an older copy may lack the ledger (P7.9)."""
        if isinstance(event.control, AddRequest):
            return any(self.table.get(header.ledger_id) is None for header, _ in event.frames)
        ledger_id = getattr(event.control, "ledger_id", None)
        return ledger_id is not None and self.table.get(ledger_id) is None

    def _answer(self, event: RequestReceived, request: Control) -> list[Effect]:
        if isinstance(request, AddRequest):
            return self._on_add(event, request)
        if isinstance(request, ReadRequest):
            return self._on_read(event, request)
        if isinstance(request, FenceRequest):
            return self._on_fence(event, request)
        if isinstance(request, LacRequest):
            return self._on_lac_request(event, request)
        if isinstance(request, ExplicitLacRequest):
            return self._on_explicit_lac(event, request)
        if isinstance(request, HoldingsRequest):
            return self._on_holdings(event, request)
        if isinstance(request, ReplaceRequest):
            return self._on_replace(event, request)
        if isinstance(request, EntryLogsRequest):
            return self._on_logs(event, request)
        return [
            Reply(event.link, event.request_id, ErrorAnswer("a bookie does not take this kind of message"))
        ]

    def _on_logs(self, event: RequestReceived, request: EntryLogsRequest) -> list[Effect]:
        """For people and reports: the sizes of what is on disk, which no decision follows from."""
        if request.incarnation != self.incarnation:
            return [Reply(event.link, event.request_id, EntryLogsAnswer(Status.WRONG_INCARNATION))]
        return [TellLogs(event.link, event.request_id, request.after)]

    def _on_add(self, event: RequestReceived, request: AddRequest) -> list[Effect]:
        if len(event.frames) != 1:
            return [
                Reply(
                    event.link,
                    event.request_id,
                    ErrorAnswer(f"an add has one frame, not {len(event.frames)}"),
                )
            ]
        header, body = event.frames[0]
        refusal = self._refuse_add(request, header)
        if refusal is None and event.is_beyond_room:
            refusal = Status.BUSY  # Alive, and nothing of it was done: the client may ask again (P7.8).
        if refusal is not None:
            return [self._add_reply(event.link, event.request_id, request, header, refusal)]
        try:
            frame = frame_of(body, header.ledger_id)
        except PeerError:
            return [self._add_reply(event.link, event.request_id, request, header, Status.BAD_FRAME)]
        if (frame.first_entry, frame.last_entry, frame.entry_count) != (
            header.first_entry,
            header.last_entry,
            header.entry_count,
        ):
            return [self._add_reply(event.link, event.request_id, request, header, Status.BAD_FRAME)]
        row, effects = self._row_with_key(
            header.ledger_id,
            None if _is_copy(request) else header.ledger_key,
            from_reserve=request.recovery,
        )
        # Metadata was read before this add, so the answer does not cover it (P7.7).
        self.drops.touch(row.ledger_id)
        if row.is_dropped:
            effects.append(self._hold_again(row))
        # Behind the frame: readers that wait for the LAC must not delay its way to the journal.
        woken: list[Effect] = []
        if header.has_lac and not request.recovery:
            woken = self._learn_lac(row, header.lac, header.lac_length)
        if frame.first_entry > row.last_entry:
            effects.append(self._store(row, frame))
            if request.deferred:
                reply = self._add_reply(event.link, event.request_id, request, header, Status.RECEIVED)
                effects.append(reply)
            self._reply_when(
                row.last_token,
                self._add_reply(event.link, event.request_id, request, header, Status.OK),
                effects,
                event.now_ns,
            )
            return effects + woken
        # Some of it may be held already: compare before anything is answered (P3.4b, P3.4c).
        look = _Look(event.link, event.request_id, request, row.ledger_id, 0, frame, frame.first_entry)
        effects.append(self._look(look, frame.first_entry, frame.last_entry, FRAME_BYTES_MAX))
        return effects + woken

    def _refuse_add(self, request: AddRequest, header: FrameHeader) -> Status | None:
        """Why this add must not be stored, as things stand now; None when it may be."""
        if request.incarnation != self.incarnation:
            return Status.WRONG_INCARNATION
        if self.failure is not None:
            return Status.UNKNOWN
        row = self.table.get(header.ledger_id)
        if row is not None:
            key = self.table.key(row)
            if key is not None and key != header.ledger_key and not _is_copy(request):
                return Status.WRONG_KEY
        if request.recovery:
            return None  # Passes fences and limbo (P5.2d), and a bookie that is read-only (P7.8).
        if row is not None and (refusal := _refusal(row)) is not None:
            return refusal
        return None if self.is_writable else Status.READ_ONLY

    def _row_with_key(
        self, ledger_id: int, key: bytes | None, *, from_reserve: bool
    ) -> tuple[AnyLedgerRow, list[Effect]]:
        """The ledger's row, its key bound; the birth is queued before anything of it can be acknowledged (P3.2). key
        None: no key is bound, and the ledger is born without one, as by a fence."""
        known = self.table.get(ledger_id)
        row = known or self.table.create(ledger_id, from_reserve=from_reserve)
        if key is None:
            return row, [self._append(row, RecordKind.BIRTH, b"")] if known is None else []
        if self.table.key(row) is not None:
            return row, []
        self.table.set_key(row, key)
        return row, [self._append(row, RecordKind.BIRTH, key)]

    def _store(self, row: AnyLedgerRow, frame: Frame) -> StoreFrame:
        row.last_entry = max(row.last_entry, frame.last_entry)
        row.last_token = self._take_token(row)
        return StoreFrame(row.last_token, frame)

    def _append(self, row: AnyLedgerRow, kind: RecordKind, body: bytes) -> JournalAppend:
        row.last_token = self._take_token(row)
        return JournalAppend(row.last_token, kind, row.ledger_id, body)

    def _take_token(self, row: AnyLedgerRow) -> int:
        self.table.mark_dirty(row)
        token = self.next_token
        self.next_token += 1
        return token

    def _on_fence(self, event: RequestReceived, request: FenceRequest) -> list[Effect]:
        status, effects = self._fence(request.incarnation, request.ledger_id, request.ledger_key)
        if status != Status.OK:
            return [Reply(event.link, event.request_id, FenceAnswer(status, request.ledger_id))]
        row = self.table.get(request.ledger_id)
        assert row is not None
        # Limbo's answer counts for coverage but gives no LAC: what it has forgotten may be higher (P5.2b, P7.4).
        lac, length = (row.lac, row.lac_length) if _knows_all(row) else (NO_ENTRY, 0)
        answer = FenceAnswer(Status.OK, row.ledger_id, lac, length)
        self._reply_when(row.last_token, Reply(event.link, event.request_id, answer), effects, event.now_ns)
        return effects

    def _fence(self, incarnation: bytes, ledger_id: int, key: bytes) -> tuple[Status, list[Effect]]:
        """Set the flag where the add path checks it, in the step that queues its record (P5.2f).

        It creates an unknown ledger, bound to no password (P3.5, I20). The answer must wait for `last_token`: the
        fence's own record, or a later one; and with it everything accepted before the flag.
        """
        if incarnation != self.incarnation:
            return Status.WRONG_INCARNATION, []
        if self.failure is not None:
            return Status.UNKNOWN, []
        row = self.table.get(ledger_id) or self.table.create(ledger_id, from_reserve=True)
        bound = self.table.key(row)
        if bound is not None and bound != key:
            return Status.WRONG_KEY, []
        if row.is_fenced:
            return Status.OK, []
        row.is_fenced = 1
        effects: list[Effect] = [self._append(row, RecordKind.FENCE, bound or b"")]
        return Status.OK, effects + self._wake_parked(row)

    def _on_read(self, event: RequestReceived, request: ReadRequest) -> list[Effect]:
        sane = (
            0 <= request.first_entry <= request.last_entry
            and 0 < request.modulus <= 64
            and request.bytes_max > 0
        )
        if not sane:
            return [Reply(event.link, event.request_id, ErrorAnswer("a read of an impossible range"))]
        effects: list[Effect] = []
        if request.fence:
            status, effects = self._fence(request.incarnation, request.ledger_id, request.ledger_key)
        else:
            status = Status.OK if request.incarnation == self.incarnation else Status.WRONG_INCARNATION
        row = self.table.get(request.ledger_id)
        if status == Status.OK and row is None:
            status = Status.NO_SUCH_LEDGER
        if status != Status.OK or row is None:
            return [Reply(event.link, event.request_id, ReadAnswer(status, request.ledger_id))]
        # Looked up after the flag is set, counting every add accepted before it; a fenced read is answered, also
        # negatively, only when all of that and the fence are durable (P5.2f).
        wait_token = row.last_token if request.fence else 0
        look = _Look(event.link, event.request_id, request, row.ledger_id, wait_token)
        if wait_ms := self.read_budget.take(event.now_ns, _class_of(look)):
            answer = ReadAnswer(Status.BUSY, request.ledger_id, wait_ms=wait_ms)
            return [Reply(event.link, event.request_id, answer)]
        bytes_max = min(request.bytes_max, FRAME_BYTES_MAX)
        effects.append(
            self._look(
                look, request.first_entry, request.last_entry, bytes_max, request.modulus, request.residues
            )
        )
        return effects

    def _look(
        self, look: _Look, first: int, last: int, bytes_max: int, modulus: int = 1, residues: int = 1
    ) -> ReadEntries:
        read_id = self.next_look
        self.next_look += 1
        self.looks[read_id] = look
        link = look.link if isinstance(look.request, ReadRequest | Poll) else None
        return ReadEntries(
            read_id, look.ledger_id, first, last, bytes_max, modulus, residues, link, _class_of(look)
        )

    def _on_replace(self, event: RequestReceived, request: ReplaceRequest) -> list[Effect]:
        """Replace one copy by an operator's word, if it is still the one that the word is about (P11.5)."""
        if len(event.frames) != 1:
            refused = ErrorAnswer(f"a replacement has one frame, not {len(event.frames)}")
            return [Reply(event.link, event.request_id, refused)]
        row, status, frame = self.table.get(request.ledger_id), Status.OK, None
        try:
            frame = frame_of(event.frames[0][1], request.ledger_id)
        except PeerError:
            status = Status.BAD_FRAME
        if frame is not None and (frame.first_entry, frame.last_entry) != (
            request.entry_id,
            request.entry_id,
        ):
            status = Status.BAD_FRAME
        if request.incarnation != self.incarnation:
            status = Status.WRONG_INCARNATION
        elif self.failure is not None:
            status = Status.UNKNOWN
        elif row is None or row.is_dropped:
            status = Status.NO_SUCH_LEDGER
        # One at a time: of two that are looked up together each would meet the copy that it may replace.
        elif any(_is_replacing(look, request) for look in self.looks.values()):
            status = Status.BUSY
        if status != Status.OK or row is None:
            return [Reply(event.link, event.request_id, _replaced(status, request))]
        read_id = self.next_look
        self.next_look += 1
        self.looks[read_id] = _Look(
            event.link, event.request_id, request, row.ledger_id, row.last_token, frame
        )
        return [ReadDecisions(read_id, request.ledger_id, request.entry_id)]

    def _on_decisions(self, event: DecisionsRead) -> list[Effect]:
        """Any peer that reaches this bookie can ask for it, so only the decision in the metadata counts."""
        look = self.looks.pop(event.read_id, None)
        if look is None:
            return []
        request, frame = look.request, look.frame
        assert isinstance(request, ReplaceRequest) and frame is not None
        status = Status.UNKNOWN
        if event.decisions is not None and self.failure is None:
            meant = (self.incarnation, request.replaces, entry_digest(frame.body))
            status = Status.OK if _is_decided(event.decisions, meant) else Status.WRONG_KEY
        if status != Status.OK:
            return [Reply(look.link, look.request_id, _replaced(status, request))]
        return [self._look(look, request.entry_id, request.entry_id, FRAME_BYTES_MAX)]

    def _finish_replacing(
        self, look: _Look, request: ReplaceRequest, row: AnyLedgerRow, event: EntriesRead
    ) -> list[Effect]:
        frame, effects = look.frame, list[Effect]()
        assert frame is not None
        if self.failure is not None:
            return [Reply(look.link, look.request_id, _replaced(Status.UNKNOWN, request))]
        held = dict(split(event.frame)) if event.frame is not None else {}
        stored = held.get(request.entry_id)
        digest = entry_digest(stored) if stored is not None else 0
        if stored is None or (stored != frame.body and digest != request.replaces):
            return [Reply(look.link, look.request_id, _replaced(Status.CONFLICT, request, digest))]
        if stored != frame.body:
            effects.append(self._store(row, frame))
        reply = Reply(look.link, look.request_id, _replaced(Status.OK, request, entry_digest(frame.body)))
        self._reply_when(row.last_token, reply, effects, event.now_ns)
        return effects

    def _on_holdings(self, event: RequestReceived, request: HoldingsRequest) -> list[Effect]:
        """Count the entries held durably (P11.4); the answer waits until everything accepted is durable."""
        if refused := why_not_counted(request):
            return [Reply(event.link, event.request_id, ErrorAnswer(refused))]
        status = Status.NO_SUCH_LEDGER
        if request.incarnation != self.incarnation:
            status = Status.WRONG_INCARNATION
        elif self.failure is not None:
            status = Status.UNKNOWN
        asked: tuple[HoldingsRequest | HoldingsRange, ...] = (request, *request.others)
        held = HeldCount([HeldRange(status, part.ledger_id) for part in asked], 0)
        effects: list[Effect] = []
        for place, part in enumerate(asked):
            row = self.table.get(part.ledger_id)
            if row is None or status != Status.NO_SUCH_LEDGER:
                continue
            read_id = self.next_look
            self.next_look += 1
            look = _Look(event.link, event.request_id, request, row.ledger_id, row.last_token)
            look.held, look.place = held, place
            self.looks[read_id] = look
            span = (part.first_entry, part.last_entry, part.modulus, part.residues)
            effects.append(CountEntries(read_id, row.ledger_id, *span, part.cuts, request.wants))
        held.left = len(effects)
        return effects or [Reply(event.link, event.request_id, held.answer)]

    def _on_counted(self, event: EntriesCounted) -> list[Effect]:
        look = self.looks.pop(event.read_id, None)
        if look is None or look.held is None:
            return []
        held = look.held
        part = HeldRange(Status.UNKNOWN, look.ledger_id)
        if event.count is not None:
            part = HeldRange(Status.OK, look.ledger_id, event.count, event.lacking, event.digests)
        held.take(look.place, part, look.wait_token)
        if held.left:
            return []
        effects: list[Effect] = []
        self._reply_when(
            held.wait_token, Reply(look.link, look.request_id, held.answer), effects, event.now_ns
        )
        return effects

    def _on_lac_request(self, event: RequestReceived, request: LacRequest) -> list[Effect]:
        if request.incarnation != self.incarnation:
            answer = LacAnswer(Status.WRONG_INCARNATION, request.ledger_id)
            return [Reply(event.link, event.request_id, answer)]
        row = self.table.get(request.ledger_id)
        # A poll for a ledger without entries waits like one for an idle ledger: the first entry wakes the reader.
        is_idle = row is None or (_knows_all(row) and row.lac <= request.after_lac and not row.is_fenced)
        until_ns = event.now_ns + min(request.wait_ms, LAC_WAIT_MS_MAX) * _MS
        bytes_max = min(request.bytes_max, FRAME_BYTES_MAX)
        poll = Poll(event.link, event.request_id, request.ledger_id, request.after_lac, bytes_max, until_ns)
        if request.wait_ms > 0:
            self.parked.note_asked(request.ledger_id, event.now_ns)
        if request.wait_ms > 0 and is_idle and self.parked.park(poll):
            if row is not None:
                row.is_awaited = 1
            return []
        return [self._answer_poll(poll, row)]

    def _answer_poll(self, poll: Poll, row: AnyLedgerRow | None) -> Effect:
        """Answer a poll with the present LAC; where it wants the entries as well, they are looked up first."""
        if row is not None and _knows_all(row) and poll.bytes_max > 0 and row.lac > poll.after_lac:
            look = _Look(poll.link, poll.request_id, poll, row.ledger_id, 0)
            return self._look(look, poll.after_lac + 1, row.lac, poll.bytes_max)
        return Reply(poll.link, poll.request_id, self._lac_answer(poll.ledger_id, row))

    def _lac_answer(self, ledger_id: int, row: AnyLedgerRow | None) -> LacAnswer:
        if row is None:
            return LacAnswer(Status.NO_SUCH_LEDGER, ledger_id)
        if not _knows_all(row):
            return LacAnswer(Status.IN_LIMBO, ledger_id)
        return LacAnswer(Status.OK, ledger_id, row.lac, row.lac_length, bool(row.is_fenced))

    def _on_explicit_lac(self, event: RequestReceived, request: ExplicitLacRequest) -> list[Effect]:
        status = Status.OK
        row = self.table.get(request.ledger_id)
        bound = self.table.key(row) if row is not None else None
        if request.incarnation != self.incarnation:
            status = Status.WRONG_INCARNATION
        elif self.failure is not None:
            status = Status.UNKNOWN
        elif bound is not None and bound != request.ledger_key:
            status = Status.WRONG_KEY
        elif row is not None and (refusal := _refusal(row)) is not None:
            status = refusal
        elif bound is None and request.is_hint:
            status = Status.NO_SUCH_LEDGER
        is_awaited = self.parked.is_followed(request.ledger_id, event.now_ns)
        answer = ExplicitLacAnswer(status, request.ledger_id, is_awaited)
        reply = Reply(event.link, event.request_id, answer)
        if status != Status.OK:
            return [reply] if request.wants_answer else []
        row, effects = self._row_with_key(request.ledger_id, request.ledger_key, from_reserve=False)
        if request.is_hint:
            woken = self._learn_lac(row, request.lac, request.lac_length)
            return [*woken, reply] if request.wants_answer else woken
        if request.lac >= row.lac:  # Also of one that is known by a hint: that is in memory only.
            effects.append(
                self._append(
                    row, RecordKind.EXPLICIT_LAC, encode_explicit_lac(request.lac, request.lac_length)
                )
            )
            effects += self._learn_lac(row, request.lac, request.lac_length)
        if request.wants_answer:
            self._reply_when(row.last_token, reply, effects, event.now_ns)
        return effects

    def _learn_lac(self, row: AnyLedgerRow, lac: int, length: int) -> list[Effect]:
        """Take a newer LAC and answer the polls that wait for it. It never falls (I11)."""
        if lac <= row.lac:
            return []
        row.lac, row.lac_length = lac, length
        return self._wake_parked(row)

    def _wake_parked(self, row: AnyLedgerRow) -> list[Effect]:
        polls = self.parked.wake(row.ledger_id, row.lac, is_fenced=bool(row.is_fenced))
        row.is_awaited = int(self.parked.is_awaited(row.ledger_id))
        return [self._answer_poll(poll, row) for poll in polls]

    # Limbo (P7.4).

    def _on_limbo_listed(self, event: LimboListed) -> list[Effect]:
        """Every such ledger is fenced and in limbo, with or without a local trace, before anything is served (I32).

        A closed one is only fenced again. (W is paused; recovery fenced b1 b2 and closed; b2 loses all it had: with its
        fence forgotten, b2 and b3 would acknowledge W's next entry, which is beyond the end for ever.) Every other one
        with a trace here is fenced too: the closing change may have taken this bookie out of its only fragment. Without
        a trace, a closed one of others is as a dropped one: fenced, in limbo, no data (P7.3), an id in a range. So is
        one that is gone. (W is paused; recovery fenced all seats and closed its ledger empty, whose key was then
        deleted; b2 forgets its fence, and W's next entry would be acknowledged.) One that a lost future made is in
        limbo, with a trace or without: no listing says whether it named this bookie. (b1 and b2 acknowledged e0, b1 is
        gone, b2 forgets e0: an adoption of the ledger would get "no" from b2 and b3, and end it before e0.)
        """
        if self.is_serving or self.limbo_token is not None or self.failure is not None:
            return []
        effects: list[Effect] = []
        try:
            named = [*event.not_closed, *event.closed]
            others = sorted(set(self.table.ids()) - set(named))
            told = event.told
            for number, ledger_id in enumerate([*named, *others]):
                row = self.table.get(ledger_id) or self.table.create(ledger_id, from_reserve=True)
                if not row.is_fenced:
                    row.is_fenced = 1
                    effects.append(self._append(row, RecordKind.FENCE, self.table.key(row) or b""))
                is_owed = number < len(event.not_closed) or (
                    number >= len(named) and told is not None and told.is_spared(ledger_id)
                )
                if not row.in_limbo and is_owed:
                    row.in_limbo = 1
                    self.limbo.enter(ledger_id)
                    effects.append(self._append(row, RecordKind.LIMBO, LIMBO_BEGINS))
            for ledger_id in event.elsewhere:
                if self.table.get(ledger_id) is None:
                    row = self.table.create(ledger_id, from_reserve=True)
                    row.is_fenced = row.in_limbo = row.is_dropped = 1
                    effects.append(self._append(row, RecordKind.DROP, b""))
            if told is not None:
                known = {*named, *event.elsewhere, *event.open_elsewhere, *self.table.ids()}
                for first, last in gone_of(told, known, self.table.ranges()):
                    effects.append(self._drop_range(first, last))
        except StorageError as full:
            self.failure = f"not every ledger could be put into limbo: {full}"
            return effects
        if effects:
            self.limbo_token = self.next_token - 1
        else:
            self.is_serving = True
        return effects

    def _drop_range(self, first: int, last: int) -> JournalAppend:
        self.table.drop_range(first, last)
        token = self.next_token
        self.next_token += 1
        return JournalAppend(token, RecordKind.GONE, first, encode_gone(last))

    def _on_count_settled(self, event: CountSettled) -> list[Effect]:
        self.is_settled, self.is_waiting = True, False
        return []

    def _on_serve_alone(self, event: ServeAlone) -> list[Effect]:
        self.is_waiting = False
        return []

    def _on_loss_found(self, event: LossFound) -> list[Effect]:
        """Serve nothing from now on until limbo is durable: as after a start that knew of the loss."""
        self.is_serving, self.limbo_token = False, None
        return []

    def _on_share_told(self, event: ShareTold) -> list[Effect]:
        """Limbo ends when every entry of the share was found."""
        return self._search(event.now_ns) if self.limbo.add(event.ledger_id, event.parts) else []

    def _search(self, now_ns: int) -> list[Effect]:
        """Look up the next entries that limbo misses, or end the limbo of a ledger whose share was found whole."""
        self.limbo.due_ns = None
        ledger_id = self.limbo.current
        if ledger_id is None:
            return []
        row = self.table.get(ledger_id)
        assert row is not None
        if self.failure is not None or not row.in_limbo or row.is_dropped:
            self.limbo.end(now_ns)
            return []
        part = self.limbo.part
        if part is None:
            row.in_limbo = 0
            self.limbo.leave(ledger_id)
            self.limbo.end(now_ns)
            return [self._append(row, RecordKind.LIMBO, LIMBO_ENDS)]
        look = _Look(0, 0, None, ledger_id, 0)
        return [
            self._look(look, part.first_entry, part.last_entry, FRAME_BYTES_MAX, part.modulus, part.residues)
        ]

    # Dropping (P7.3, P7.7).

    def _on_collection_begun(self, event: CollectionBegun) -> list[Effect]:
        rows = [row for each in event.ledger_ids if (row := self.table.get(each)) is not None]
        self.drops.ask((row.ledger_id, row.last_token) for row in rows if not row.is_dropped)
        return []

    def _on_drop_allowed(self, event: DropAllowed) -> list[Effect]:
        """Drop a ledger for which no add came since metadata was asked (P7.7).

        Else: metadata says that no fragment names b1; a mark makes b1 the target of a repair, its entries are copied
        here, acknowledged, and published; then they are dropped for what was read before.
        """
        row = self.table.get(event.ledger_id)
        token = self.drops.answered(event.ledger_id)
        if token is None or row is None or row.last_token != token or row.is_dropped:
            return []
        if self.failure is not None or not self.is_serving:
            return []
        if token > self.durable:
            return []  # Answers wait for it: they would acknowledge what was dropped meanwhile (I34, I40).
        if any(look.ledger_id == row.ledger_id and look.frame is not None for look in self.looks.values()):
            return []  # An add that looks what is held: what it finds must still be there when it is acknowledged.
        row.is_fenced = row.in_limbo = row.is_dropped = 1
        self.limbo.leave(row.ledger_id)
        effects: list[Effect] = [self._append(row, RecordKind.DROP, b"")]
        self.drops.queue(row.last_token, row.ledger_id)
        return effects + self._wake_parked(row)

    def _hold_again(self, row: AnyLedgerRow) -> JournalAppend:
        """Recovery brings entries of a dropped ledger: it is in limbo, until its share is found whole (P7.3, P7.4)."""
        row.is_dropped = 0
        self.limbo.enter(row.ledger_id)
        return self._append(row, RecordKind.LIMBO, HELD_AGAIN)

    def _finished_drops(self, token: int) -> Iterator[DropEntries]:
        for ledger_id in self.drops.durable(token):
            row = self.table.get(ledger_id)
            if row is not None and row.is_dropped:
                yield DropEntries(ledger_id)

    # Completions.

    def _on_entries_read(self, event: EntriesRead) -> list[Effect]:
        look = self.looks.pop(event.read_id, None)
        if look is None:
            return []
        row = self.table.get(look.ledger_id)
        assert row is not None
        if isinstance(look.request, ReadRequest):
            self.read_budget.settle(_class_of(look), len(event.frame.body) if event.frame else 0)
            return self._finish_read(look, row, event)
        if isinstance(look.request, Poll):
            return [
                Reply(look.link, look.request_id, self._lac_answer(row.ledger_id, row), _framed(event.frame))
            ]
        if look.request is None:
            self.limbo.found(event.frame, event.now_ns)
            return []
        if isinstance(look.request, ReplaceRequest):
            return self._finish_replacing(look, look.request, row, event)
        assert isinstance(look.request, AddRequest)  # Holdings are counted, not read.
        return self._finish_repeated_add(look, look.request, row, event)

    def _finish_read(self, look: _Look, row: AnyLedgerRow, event: EntriesRead) -> list[Effect]:
        # In limbo, or after its data was dropped, what is missing is unknown, never absent (P7.1, P7.3, P7.4).
        absent, lac, length = (
            (event.absent, row.lac, row.lac_length) if _knows_all(row) else ([], NO_ENTRY, 0)
        )
        if not self.is_settled:
            absent = []  # In an older copy they may be missing (P7.9).
        answer = ReadAnswer(Status.OK, row.ledger_id, absent, lac, length)
        effects: list[Effect] = []
        reply = Reply(look.link, look.request_id, answer, _framed(event.frame))
        self._reply_when(look.wait_token, reply, effects, event.now_ns)
        return effects

    def _finish_repeated_add(
        self, look: _Look, request: AddRequest, row: AnyLedgerRow, event: EntriesRead
    ) -> list[Effect]:
        """Compare with what is held: equal is acknowledged once durable, another payload is refused, what is absent
        or fails its own digest is stored (P3.4b, P3.4c)."""
        frame = look.frame
        assert frame is not None
        refusal = None if request.recovery else _refusal(row)  # It may have been fenced since.
        if self.failure is not None:
            refusal = Status.UNKNOWN
        if refusal is not None:
            return [self._add_reply(look.link, look.request_id, request, frame, refusal)]
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
                    return [self._add_reply(look.link, look.request_id, request, frame, Status.CONFLICT)]
            elif entry_id == look.first_entry or _is_in(entry_id, event.absent):
                look.missing.add(entry_id)
            else:
                # Not mentioned: unreadable here, or beyond what one lookup gives, and then it may be another
                # payload (P3.4c). A lookup always settles its first entry, so look it up as the first.
                look.first_entry = entry_id
                return [self._look(look, entry_id, frame.last_entry, FRAME_BYTES_MAX)]
        effects: list[Effect] = []
        if look.missing:
            missing = b"".join(entry for entry_id, entry in split(frame) if entry_id in look.missing)
            effects.append(self._store(row, frame_of(memoryview(missing), row.ledger_id)))
        reply = self._add_reply(look.link, look.request_id, request, frame, Status.OK)
        self._reply_when(row.last_token, reply, effects, event.now_ns)
        return effects

    def _on_taken(self, event: AddsTaken) -> list[Effect]:
        ensure(event.next_token >= self.next_token, "journal tokens never fall")
        self.next_token = event.next_token
        return []

    @property
    def awaits_journal(self) -> bool:
        """Whether the next `JournalDurable` has an effect. Else the host may deliver it later, before the next
        event."""
        return bool(self.replies or self.drops) or self.limbo_token is not None

    def _on_durable(self, event: JournalDurable) -> list[Effect]:
        ensure(event.token < self.next_token, "the journal made durable what was never queued")
        effects: list[Effect] = []
        if self.replies:
            for token in range(self.durable + 1, event.token + 1):
                effects += [self._leaving(reply, event.now_ns) for reply in self.replies.pop(token, ())]
        self.durable = max(self.durable, event.token)
        effects += self._finished_drops(self.durable)
        if self.limbo_token is not None and self.limbo_token <= self.durable:
            self.limbo_token, self.is_serving = None, True
        return effects

    def _reply_when(self, token: int, reply: Reply, effects: list[Effect], now_ns: int) -> None:
        """Let the answer leave when the record is durable, which may be now."""
        if token <= self.durable:
            effects.append(self._leaving(reply, now_ns))
        elif self.failure is not None:
            effects.append(_as_unknown(reply))  # It never will be durable (P7.6).
        else:
            self.replies.setdefault(token, []).append(reply)

    def _leaving(self, reply: Reply, now_ns: int) -> Reply:
        """The reply as it leaves now: the answer to an add reports to its writer whether a reader waits here (P6.2)."""
        answer = reply.control
        if isinstance(answer, AddAnswer) and self.parked.is_followed(answer.ledger_id, now_ns):
            return Reply(reply.link, reply.request_id, replace(answer, is_followed=True))
        return reply

    def _on_journal_failed(self, event: JournalFailed) -> list[Effect]:
        """Answer everything pending as unknown, never as "no": nothing can be promised any more (P5.2f, P7.6)."""
        self.failure = event.reason
        self.is_writable = False
        effects: list[Effect] = []
        for token in sorted(self.replies):
            effects += [_as_unknown(reply) for reply in self.replies[token]]
        self.replies.clear()
        return effects

    def _on_read_bounds(self, event: ReadBoundsSet) -> list[Effect]:
        self.read_budget.set_bounds(event.bytes_per_s)
        return []

    def _on_writable_set(self, event: WritableSet) -> list[Effect]:
        self.is_writable = event.is_writable and self.failure is None
        return []

    def _on_link_lost(self, event: LinkLost) -> list[Effect]:
        self.parked.forget(event.link)
        return []

    def _on_tick(self, event: Tick) -> list[Effect]:
        effects: list[Effect] = []
        if self.parked.deadline_ns is not None and event.now_ns >= self.parked.deadline_ns:
            over = self.parked.expire(event.now_ns)
            effects += [self._answer_poll(poll, self.table.get(poll.ledger_id)) for poll in over]
        if self.limbo.due_ns is not None and event.now_ns >= self.limbo.due_ns:
            effects += self._search(event.now_ns)
        return effects

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
        DecisionsRead: _on_decisions,
        AddsTaken: _on_taken,
        JournalDurable: _on_durable,
        JournalFailed: _on_journal_failed,
        CountSettled: _on_count_settled,
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


def _knows_all(row: AnyLedgerRow) -> bool:
    """Whether nothing of the ledger may have been lost here. Else no entry is absent for certain (P7.4)."""
    return not row.in_limbo and not row.is_dropped


def _class_of(look: _Look) -> ReadClass:
    """What a lookup is made for (P6.7): a recovery, a poll and the bookie itself wait for no budget."""
    request = look.request
    if not isinstance(request, ReadRequest) or request.fence:
        return ReadClass.TAIL
    return read_class(request.reads_as)


def _is_replacing(look: _Look, request: ReplaceRequest) -> bool:
    other = look.request
    same = (request.ledger_id, request.entry_id)
    return isinstance(other, ReplaceRequest) and (other.ledger_id, other.entry_id) == same


def _is_decided(decisions: Sequence[CopyDecision], meant: tuple[bytes, int, int]) -> bool:
    """Whether the newest word says that on this disk the copy with this digest gives way to the one with that."""
    return any(
        (copy.incarnation, copy.digest, decision.chosen.digest) == meant
        for decision in decisions[-1:]
        for copy in decision.replaced
    )


def _replaced(status: Status, request: ReplaceRequest, held: int = 0) -> ReplaceAnswer:
    return ReplaceAnswer(status, request.ledger_id, request.entry_id, held)


def _is_copy(request: AddRequest) -> bool:
    """Whether it is a copy by repair, which knows no key (P11.2). A normal add that claims so is a normal add
    (P3.5)."""
    return request.is_copy and request.recovery


def _refusal(row: AnyLedgerRow) -> Status | None:
    """Why no normal add of this ledger is taken, be the entry held already or not (P3.4a).

    Limbo comes first: it is fenced as well, but for the writer it is an ordinary failure of one bookie (P7.4).
    """
    if row.in_limbo and not row.is_dropped:
        return Status.IN_LIMBO
    return Status.FENCED if row.is_fenced or row.is_dropped else None


def _framed(frame: Frame | None) -> list[tuple[bytes, Frame]]:
    """The entries found, as an answer carries them."""
    return [] if frame is None else [(encode_frame_header(frame, _NO_KEY), frame)]


def _is_in(entry_id: int, ranges: list[tuple[int, int]]) -> bool:
    """Is the entry in one of these ascending (first, last) ranges?"""
    index = bisect_right(ranges, entry_id, key=lambda pair: pair[0]) - 1
    return index >= 0 and entry_id <= ranges[index][1]


def _as_unknown(reply: Reply) -> Reply:
    """The same answer with the status UNKNOWN, which is neither yes nor no."""
    control: Control = reply.control
    if isinstance(control, AddAnswer):
        control = AddAnswer(
            Status.UNKNOWN,
            control.nonce,
            control.seating,
            control.recovery,
            control.ledger_id,
            control.first_entry,
            control.last_entry,
        )
    elif isinstance(control, ReplaceAnswer):
        control = ReplaceAnswer(Status.UNKNOWN, control.ledger_id, control.entry_id)
    elif isinstance(control, HoldingsAnswer):
        others = [HeldRange(Status.UNKNOWN, each.ledger_id) for each in control.others]
        control = HoldingsAnswer(Status.UNKNOWN, control.ledger_id, others=others)
    elif isinstance(control, FenceAnswer | ReadAnswer | ExplicitLacAnswer):
        control = type(control)(Status.UNKNOWN, control.ledger_id)
    return Reply(reply.link, reply.request_id, control)
