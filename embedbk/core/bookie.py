"""A bookie: persists, fences, answers; knows nothing of quorums (P1, P3.2, P3.4, P5.2f, P7).

Decides whether a request is taken at all, and whether anything may be denied: by what its host has learned of these
directories and of metadata. An answer that promises durability is made by the step that receives `JournalDurable`,
never before (`pending_replies`). Leaves to others what is taken: adds (`add_storing`), reads (`read_answering`), fences
(`fencing`), LACs and their readers (`lac_answers`), questions for holdings (`holdings_counting`), one number for many
ledgers (`block_numbering`), a copy in the place of another (`copy_replacement`); which ledgers enter limbo
(`limbo_entering`), the search by which it ends (`limbo_search`), and which are dropped (`drops`); the rows' place in
memory (ledger table), the bytes (entry store, journal), and links.

    request -> checks -> rows changed, records queued (StoreFrame, JournalAppend) -> ... JournalDurable -> Reply
"""

from __future__ import annotations

from typing import ClassVar

from embedbk.codec.add_messages import AddRequest, FenceRequest, ReplaceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_log_messages import (
    EntryLogsAnswer,
    EntryLogsRequest,
    LogKeepersAnswer,
    LogKeepersRequest,
)
from embedbk.codec.holdings_messages import HoldingsRequest, LedgerBlocksRequest
from embedbk.codec.lac_messages import ExplicitLacRequest, LacRequest, is_answered
from embedbk.codec.messages import Control, ErrorAnswer
from embedbk.codec.read_messages import ReadRequest
from embedbk.core.add_storing import AddStoring, add_reply
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
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.core.limbo_entering import LimboEntering
from embedbk.core.limbo_search import LimboSearch
from embedbk.core.lookups import Lookups
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import MetadataFailed
from embedbk.core.parked import Parked, ParkedPolls, Poll
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.read_answering import ReadAnswering
from embedbk.core.read_budget import ReadBudget
from embedbk.core.record_tokens import RecordTokens
from embedbk.core.upkeep_words import MetadataTold
from embedbk.core.vocabulary import Tick
from embedbk.errors import StorageError, ensure

__all__ = ["Bookie"]

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
        self.adds = AddStoring(
            incarnation, table, self.records, self.replies, self.looks, self.lacs, self.drops
        )

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
            return [add_reply(event.link, event.request_id, request, header, Status.BUSY)]
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
            return self.adds.on_request(event, request, is_writable=self.is_writable)
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
        return self.adds.found(look, look.request, row, event)

    def _on_metadata_told(self, event: MetadataTold) -> list[Effect]:
        return self._end_question(event.now_ns, is_known=not event.doubt)

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        return self._end_question(event.now_ns, is_known=False)

    def _end_question(self, now_ns: int, *, is_known: bool) -> list[Effect]:
        """is_known: metadata is not older than what this bookie met; else nothing is denied (P10.5), nor behind a
        loss that was found meanwhile."""
        may_deny = is_known and self.is_serving and self._may_deny
        return self.reads.on_question_over(now_ns, may_deny=may_deny)

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
