"""The core of a metadata member: requests in, commands to the log, answers out (METADATA.md, P10).

Decides what is proposed, which answers are sent, and what watchers receive. What is not applied yet stands in
`proposals`, what links open in `openings`, what waits in `pending_requests` and `unapplied_reads`, what is answered
then in `answering`, which streams links may have in `streams`, what time alone has proposed in `timed_commands`, and
how a generation begins in `generation_start`; `orders` decides what becomes of an operator's word. The catalog decides
what a command does, and the log (`command_log`) when it counts: a command is applied when it is committed, never
before, so that a deposed leader has nothing to take back, and everything in the catalog may be sent. A request that
changes something is decided when it is applied; an earlier refusal is a courtesy. A request that reads waits until
everything is applied that was committed when it came, and the earlier requests of its session. Only a keep-alive shows
nothing and is answered at once: sessions live through a disk that stands still.

A new leader first logs that it leads. Before that entry is applied it answers no read and renews no session: afterwards
it has applied everything that earlier leaders promised. A leader that is deposed ends the links of its clients. Streams
without a session may lag: every member sends them, from what it has applied.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Self, get_args

from embedbk.codec.metadata_messages import (
    BUSY,
    Acquire,
    AllocIds,
    CloseSession,
    KeepAlive,
    List,
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Operation,
    Refusal,
    Release,
    Result,
    Txn,
    Unwatch,
    Watch,
)
from embedbk.codec.repair_messages import Repairing
from embedbk.errors import StorageError
from embedbk.metadata import raft_vocabulary
from embedbk.metadata.answering import Answering, answer
from embedbk.metadata.catalog import Catalog, check_operation
from embedbk.metadata.command_log import CommandLog, Committed, Entry, ReadIndexed
from embedbk.metadata.commands import (
    BeginGeneration,
    BeginLineage,
    ExpireSession,
    ResumeRepairs,
    Run,
    StartMember,
    StartSession,
    check_level,
    decode_command,
)
from embedbk.metadata.divergence import DIGEST_ENTRIES
from embedbk.metadata.fullness import Fullness, fullness
from embedbk.metadata.generation_start import GenerationStart
from embedbk.metadata.levels import LACKING
from embedbk.metadata.openings import Openings
from embedbk.metadata.orders import Orders
from embedbk.metadata.pending_requests import PendingRequest, PendingRequests
from embedbk.metadata.proposals import Proposals, ProposedCommand
from embedbk.metadata.streams import WATCHES_MAX, Streams
from embedbk.metadata.timed_commands import TimedCommands
from embedbk.metadata.unapplied_reads import UnappliedReads
from embedbk.metadata.vocabulary import (
    CatalogReplaced,
    DropLinks,
    ForgetRequested,
    Halted,
    JournalFailed,
    LinkLost,
    MemberStarted,
    RaiseRequested,
    RandomBits,
    Remark,
    Reply,
    RequestReceived,
    SendEvents,
    StateDamaged,
    Tick,
    TurnEnded,
)

__all__ = ["Member", "MemberEffect", "MemberEvent"]

NONCE_BYTES = 16  # Random bytes of one start.
LISTED_RECORD_BYTES = 1024  # Bytes counted for each record that a waiting list may return.
APPLIED_PER_STEP = 512  # Commands applied in a step; the rest follow later, however many one sync commits.
_OF_STREAMS = (
    Watch,
    Unwatch,
    KeepAlive,
)  # Operations on streams that may lag, if they come without a session.
# Operations that are run as commands.
_CHANGES = (Txn, AllocIds, CloseSession, Acquire, Release, *get_args(Repairing))

MemberEvent = (
    MemberStarted
    | RequestReceived
    | RaiseRequested
    | ForgetRequested
    | LinkLost
    | JournalFailed
    | StateDamaged
    | CatalogReplaced
    | TurnEnded
    | raft_vocabulary.Event  # Tick among them.
)
MemberEffect = Reply | SendEvents | DropLinks | Remark | Halted | raft_vocabulary.Effect


class Member:
    """`step` takes one event, whole, and gives what is to be done, in this order."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        log: CommandLog,
        now_ns: int,
        cluster_token: bytes,
        chance: RandomBits,
        digest_entries: int = DIGEST_ENTRIES,
    ) -> None:
        """catalog: has everything applied up to log.committed_index. digest_entries: those between two comparisons."""
        self.catalog = catalog
        self.log = log
        self.cluster_token = cluster_token
        self._chance = chance
        self._applied_index = log.committed_index
        self._led_term = log.term  # The term in which this member leads; 0: it does not.
        self._started_index = 0  # Nothing is shown before this is applied.
        self._generation = GenerationStart(catalog.level)
        self._committed: deque[Entry] = deque()  # Entries to be applied.
        self._pending = PendingRequests()
        self._proposals = Proposals(log, self._pending)
        self._reads = UnappliedReads()
        self._openings = Openings(log, self._proposals, chance)
        self._orders = Orders(log, self._proposals, self._pending)
        self._streams = Streams(catalog.revision)
        self._timed = TimedCommands(log, self._proposals, catalog.sessions, now_ns, digest_entries)
        self._answering = Answering(
            log, cluster_token, self._proposals, self._openings, self._streams, self._timed
        )
        self._halted = False
        catalog.history.hold = catalog.revision

    def step(self, event: MemberEvent) -> list[MemberEffect]:
        if self._halted:
            return []
        self._timed.lifetimes.notice_absence(event.now_ns)
        effects = self._HANDLERS.get(type(event), Member._on_log)(self, event)
        self._timed.lifetimes.note_waiting(event.now_ns, bool(self._proposals))
        return effects

    @property
    def deadline_ns(self) -> int | None:
        if self._halted:
            return None
        if self._committed or self._streams.watches.is_lagging:
            return 0  # At once.
        deadline_ns = self.log.deadline_ns
        due_ns = self._timed.due_ns(self.catalog.record_table.repairs) if self._led_term else None
        if deadline_ns is None or (due_ns is not None and due_ns < deadline_ns):
            return due_ns
        return deadline_ns

    @property
    def applied_index(self) -> int:
        """The record of the last command in `catalog`; a snapshot taken now stands for the log up to it."""
        return self._applied_index

    @property
    def promised_index(self) -> int:
        """Up to here this leader, or earlier ones, may have sent answers."""
        return max(self._applied_index, self._started_index)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that was reported as committed is applied."""
        return not self._committed

    def copy(self) -> Self:
        return copy.deepcopy(self)

    def _on_started(self, event: MemberStarted) -> list[MemberEffect]:
        effects: list[MemberEffect] = []
        self._generation.ask(event)
        if self.log.term:
            self._begin_to_lead(event.now_ns, effects)
        return effects

    # --- Leadership --------------------------------------------------------------------------------------

    def _on_leader_changed(self, now_ns: int, effects: list[MemberEffect]) -> None:
        before, self._led_term = self._led_term, self.log.term
        if before == self._led_term:
            return
        self._lose_what_was_proposed()
        if before:
            effects.append(DropLinks("another metadata member leads"))
        if self._led_term:
            self._begin_to_lead(now_ns, effects)

    @property
    def _knows_all(self) -> bool:
        """Whether it leads, and has applied everything committed before."""
        return self._led_term > 0 and self._applied_index >= self._started_index

    def _begin_to_lead(self, now_ns: int, effects: list[MemberEffect]) -> None:
        """Log one more link of the chain before anything is answered: every answer waits for earlier log entries."""
        nonce = self._chance.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
        self._proposals.propose(StartMember(nonce), effects)
        if self._generation.is_due:
            self._begin_generation(effects)
        self._started_index = self._proposals.queue[-1].index
        self._timed.begin_to_lead(self.catalog.revision, now_ns)
        self._orders.levels.forget_all()

    def _begin_generation(self, effects: list[MemberEffect]) -> None:
        begin = self._generation.command(self.catalog.level, self._chance)
        if isinstance(begin, str):
            self._halted = True
            effects.append(Halted(begin))
            return
        begins = self._proposals.propose(begin, effects)
        self._generation.note_proposed(begins.index, begins.term)

    # --- Requests ----------------------------------------------------------------------------------------

    def _on_request(self, event: RequestReceived) -> list[MemberEffect]:
        request, link = event.request, event.link
        if request.session == 0 and isinstance(request.operation, _OF_STREAMS):
            may_lag = not self._knows_all
            return self._answering.follow(self.catalog, link, request, request.operation, may_lag=may_lag)
        if not self.log.term:
            return [self._not_leader(link, request)]
        number, operation = request.session, request.operation
        session = self._answering.own_session(self.catalog, link, request)
        if session is not None:
            self._timed.lifetimes.hear(number, event.now_ns)
            if isinstance(operation, KeepAlive):
                self._orders.levels.hear(number, operation.level)
            if isinstance(operation, KeepAlive) and self._may_renew(number, event.now_ns):
                return self._answering.renew(self.catalog, event)
        asked = self._pending.begin(link, request)
        if asked is None:
            return []
        refusal = check_operation(operation, self.catalog.limits) or self._check_level(operation)
        if refusal is not None:
            return [Reply(link, MetadataReply(number, request.sequence, refusal))]
        effects: list[MemberEffect] = []
        if session is not None and isinstance(operation, _CHANGES) and self._may_run(asked.key):
            self._proposals.run(asked, operation, effects)
            return effects
        answers: list[MemberEffect] = []
        opens_another = isinstance(operation, OpenSession) and self._openings.is_new(link, operation)
        if opens_another or not self._must_wait(asked, effects):
            self._answering.serve(self.catalog, asked, event.now_ns, effects, answers)
            if isinstance(operation, Watch):
                effects += self._streams.feed(self.catalog, may_lag=not self._knows_all)
        return effects + answers

    def _check_level(self, operation: Operation) -> Refusal | None:
        """A leader that has not applied the entries from before it began to lead does not know the level: they may
        raise it, and hold this very request, which would be done although it was refused."""
        refusal = check_level(operation, self.catalog.level)
        if refusal is not None and refusal.code == LACKING and not self._knows_all:
            return Refusal(BUSY, f"{refusal.text}; as far as this member has applied its log")
        return refusal

    def _on_raise(self, event: RaiseRequested) -> list[MemberEffect]:
        if not self._led_term:
            return [self._not_leader(event.link, event.request)] if event.request is not None else []
        return self._orders.raise_level(event, self.lacking(event.level))

    def _on_forget(self, event: ForgetRequested) -> list[MemberEffect]:
        if not self._led_term:
            return [self._not_leader(event.link, event.request)]
        return self._orders.forget_ids(event)

    def _not_leader(self, link: int, request: MetadataRequest) -> Reply:
        return Reply(link, MetadataReply(request.session, request.sequence, self.log.not_leader))

    def lacking(self, level: int) -> list[str]:
        """Clients, bookies among them, that keep the level from being raised, as far as this leader knows."""
        return self._orders.lacking(level, self.catalog.sessions, knows_all=self._knows_all)

    def _may_run(self, key: tuple[int, int]) -> bool:
        """Whether an operation of a session was not run yet, as far as is known here, and none that came before it
        waits: those that a new leader received before it knew their session do."""
        return self.catalog.kept_reply(*key) is None and not self._reads.holds_changes_of(key[0])

    def _must_wait(self, asked: PendingRequest, effects: list[MemberEffect]) -> bool:
        """Let a request wait that shows the catalog, until everything is applied that was committed when it came, and
        what its session asked before it."""
        index = self.log.read_index(self._reads.next_token(), effects)
        if index is not None and max(index, self._after(asked)) <= self._applied_index:
            return False
        operation = asked.request.operation
        if isinstance(operation, List):
            asked.bytes = min(operation.limit, self.catalog.limits.list_records_max) * LISTED_RECORD_BYTES
        asked.is_unrun = isinstance(operation, _CHANGES) and self.catalog.kept_reply(*asked.key) is None
        if not self._pending.admit(asked, effects):
            return True
        if index is None:
            self._reads.wait_for_log(asked)
        else:
            self._reads.wait_for(max(index, self._after(asked)), asked)
        return True

    def _after(self, asked: PendingRequest) -> int:
        """The last command of a request's session that is not applied. A client that opens its session again waits
        only for the end of the old one."""
        number = asked.request.session
        if isinstance(asked.request.operation, OpenSession):
            opening = self._openings.last(asked.link)
            number = opening.session if opening and self._proposals.is_expiring(opening.session) else 0
        return max(self._started_index, self._proposals.last_of(number))

    def _may_renew(self, session: int, now_ns: int) -> bool:
        """Whether no leader, this or an earlier one, has proposed the session's end, and no other member leads."""
        is_known = self._applied_index >= self._started_index and not self._proposals.is_expiring(session)
        return is_known and self.log.may_renew(now_ns)

    def fullness(self) -> list[Fullness]:
        """How far its bounds are reached (P10.7)."""
        return fullness(self.catalog, self._streams.watches.total, WATCHES_MAX)

    # --- The log -----------------------------------------------------------------------------------------

    def _on_log(self, event: MemberEvent) -> list[MemberEffect]:
        """Pass events that are not for the member to its log, which may then have news."""
        effects: list[MemberEffect] = []
        answers: list[MemberEffect] = []
        self._timed.log_goes_on()
        for news in self.log.step(event, effects):
            if isinstance(news, Committed):
                self._timed.lifetimes.went_on(event.now_ns)
                self._committed += news.entries
            elif isinstance(news, ReadIndexed):
                self._take_ready(news, event.now_ns, effects, answers)
            else:
                self._on_leader_changed(event.now_ns, effects)
        return self._apply_committed(event.now_ns, effects, answers)

    def _take_ready(
        self, ready: ReadIndexed, now_ns: int, effects: list[MemberEffect], answers: list[MemberEffect]
    ) -> None:
        asked = self._reads.take_ready(ready.token)
        if asked is None:
            return  # The request was put off.
        index = max(ready.index, self._after(asked))
        if index > self._applied_index:
            self._reads.wait_for(index, asked)
        else:
            self._serve_waiting(asked, now_ns, effects, answers)

    def _lose_what_was_proposed(self) -> None:
        """Forget proposals: another leader may commit and answer them, so no answer is sent here. Clients ask again."""
        self._proposals.clear()
        self._reads.clear()
        self._timed.repairs_resumed()
        self._pending.clear()
        self._openings.lose_proposals()

    def _apply_committed(
        self, now_ns: int, effects: list[MemberEffect], answers: list[MemberEffect]
    ) -> list[MemberEffect]:
        """Apply committed entries, a bounded number of them, and answer the requests for them."""
        for _ in range(min(len(self._committed), APPLIED_PER_STEP)):
            entry = self._committed.popleft()
            self._apply(entry, now_ns, effects, answers)
            if self._halted:
                return effects
            if self._reads.by_index:
                for asked in self._reads.take_applied(entry.index):
                    self._serve_waiting(asked, now_ns, effects, answers)
        if self._led_term:
            self._timed.postponing.note(self.catalog.record_table.repairs, self.catalog.revision, now_ns)
        # Events before answers: a client whose change is answered has already seen it in its own watch.
        effects += self._streams.feed(self.catalog, may_lag=not self._knows_all)
        if self.catalog.history.hold != self.catalog.revision:
            self.catalog.history.hold = self.catalog.revision  # Changes that were not sent yet are kept.
            self.catalog.history.trim()
        return effects + answers

    def _serve_waiting(
        self, asked: PendingRequest, now_ns: int, effects: list[MemberEffect], answers: list[MemberEffect]
    ) -> None:
        self._pending.end(asked)
        if not asked.is_gone:
            self._answering.serve(self.catalog, asked, now_ns, effects, answers)

    def _apply(
        self, entry: Entry, now_ns: int, effects: list[MemberEffect], answers: list[MemberEffect]
    ) -> None:
        self._applied_index = entry.index
        proposed = self._take_proposed(entry)
        if not isinstance(entry.body, bytes):
            return
        try:
            command = proposed.command if proposed is not None else decode_command(entry.body)
            result = self.catalog.apply(command, entry.index, entry.term)
        except (
            StorageError
        ) as unknown:  # A later build wrote it: a member that skipped it would have another state.
            self._halted = True
            effects.append(Halted(f"entry {entry.index} of the log: {unknown}"))
            return
        if differs := self._timed.divergence.apply(entry.index, command, self.catalog):
            self._halted = True
            effects.append(Halted(differs))
        match command:
            case Run():
                self._note_run(command, entry.index, is_own=proposed is not None)
            case StartSession():
                result = self._note_opened(command, entry.index, result, proposed, now_ns)
            case ExpireSession(number):
                self._note_expired(number, entry.index, is_own=proposed is not None)
            case ResumeRepairs() if proposed is not None:
                self._timed.repairs_resumed()
            case BeginGeneration() | BeginLineage():
                is_own = self._generation.take_applied(entry.index, entry.term)
                if is_own and isinstance(result, Refusal):  # The halt informs the operator who asked for it.
                    self._halted = True
                    effects.append(Halted(result.text))
        if proposed is not None:
            for asked in proposed.asked:
                self._pending.end(asked)
                if not asked.is_gone:
                    answer(asked, result, answers)

    def _take_proposed(self, entry: Entry) -> ProposedCommand | None:
        """The proposal of this member that this entry commits."""
        if self._proposals.is_overtaken(entry.index, entry.term):
            self._lose_what_was_proposed()
            return None
        return self._proposals.take(entry.index)

    def _note_run(self, run: Run, index: int, *, is_own: bool) -> None:
        if is_own:
            self._proposals.end_run((run.session, run.sequence), index)
        if isinstance(run.operation, CloseSession):
            self._note_end(run.session)

    def _note_opened(
        self, command: StartSession, index: int, result: Result, proposed: ProposedCommand | None, now_ns: int
    ) -> Result:
        """Note the link that the session was opened on; returns the answer for its client."""
        session = None
        if not isinstance(result, Refusal):
            session = self.catalog.sessions[self.catalog.number_of(command, index)]
            if self.log.term:
                grace_ns = self.log.grace_ns if index < self._started_index else 0
                self._timed.lifetimes.grant(session.session, now_ns, grace_ns)
            result = self._answering.opened(self.catalog, session)
            if proposed is not None:
                self._orders.levels.hear(session.session, command.level)
        if proposed is None or proposed.asked[0].is_gone:
            return result
        number = session.session if session is not None else 0
        self._openings.end(proposed.asked[0].link, proposed, number)
        return result

    def _note_expired(self, number: int, index: int, *, is_own: bool) -> None:
        if is_own:
            self._proposals.end_expiry(number, index)
            if number in self.catalog.sessions:
                self._timed.lifetimes.look_again(number)  # The proposed end was void.
        self._note_end(number)

    def _note_end(self, number: int) -> None:
        """Forget what belongs to a session, if it has ended."""
        if number not in self.catalog.sessions:
            self._timed.lifetimes.forget(number)
            self._orders.levels.forget(number)
            self._streams.watches.remove_session(number)

    def _on_failed(self, event: JournalFailed) -> list[MemberEffect]:
        self._halted = True
        return [Halted(f"the metadata journal failed: {event.reason}")]

    def _on_damaged(self, event: StateDamaged) -> list[MemberEffect]:
        self._halted = True
        return [Halted(event.reason)]

    # --- Sessions and links ------------------------------------------------------------------------------

    def _on_tick(self, event: Tick) -> list[MemberEffect]:
        effects = self._on_log(event)
        if self.log.term and not self._halted:
            self._timed.propose(self.catalog, event.now_ns, effects)
        return effects

    def _on_link_lost(self, event: LinkLost) -> list[MemberEffect]:
        """The link's session lives on: its client comes back over another link, or the session expires."""
        link = event.link
        self._streams.lose_link(link)
        self._openings.lose_link(link)
        self._pending.lose_link(link)
        return []

    def _on_replaced(self, event: CatalogReplaced) -> list[MemberEffect]:
        """This member does not lead: no request waits, and all its watchers may lag."""
        self.catalog = event.catalog
        self._committed.clear()
        self._applied_index = event.index
        self._timed.follow_another(self.catalog.sessions, event.now_ns)
        self._streams.follow_another(self.catalog.revision)
        self.catalog.history.hold = self.catalog.revision
        return self._on_log(raft_vocabulary.SnapshotInstalled(event.now_ns, event.index))

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], list[MemberEffect]]]] = {
        MemberStarted: _on_started,
        RequestReceived: _on_request,
        RaiseRequested: _on_raise,
        ForgetRequested: _on_forget,
        LinkLost: _on_link_lost,
        JournalFailed: _on_failed,
        StateDamaged: _on_damaged,
        CatalogReplaced: _on_replaced,
        Tick: _on_tick,
    }
