"""The auditor: finds ledgers with copies on bookies that are gone, or that lack some, and marks them (P11.1, P11.4).

One candidate is elected; two at once do no harm, since marking again changes nothing. Decides when all ledgers are
looked at, and what is judged again.

- A bookie is **away** when a ledger names it in an incarnation that is not registered. It is **gone** when it was away
  for as long as the grace, as seen by this auditor (`away_bookies`); a bookie that comes back before is not (AR02).
  Other bookies that are gone do not make the grace shorter: several bookies are restarted at once as often as one.
- A bookie that **leaves** is registered, and listed as drained (P11.3). Its closed ledgers and older fragments are
  marked at once. While a round finds something that still names it, the next round comes soon, since writers move off
  it meanwhile.
- **A round** looks at all ledgers, page by page, so many per second. It begins when a bookie is gone that no round has
  counted as gone yet, when an operator asks for one, when the bookies changed and something waits to be judged again,
  and every so often. One that an operator asks for is as fast as it goes. The metadata notes how far a round came, and
  the next auditor goes on from there.
- **Registered bookies** are asked, of each CLOSED ledger that a round looks at, whether they hold all that they owe
  (`copies_look`), so many questions per second. A bookie that lacks something is marked as if it were gone; one that
  does not answer is asked again soon. All bookies of a ledger that was closed lately are asked again, too: one that was
  slow, or away, when it was closed lacks its last entries. For that the auditor lists the newest ledgers and reads
  those that were open again, a few at each look (`young_ledgers`). Entries whose copies differ, each whole by itself,
  are named, and never marked for that. Most rounds ask nobody about ledgers of which nothing changed since they were
  found to be sound (`unchanged_blocks`): numbers of their bookies say so, one for up to 1,024 ledgers.
- A ledger that is not closed, and names a bookie in its last fragment that is gone or leaves, is its writer's. The
  auditor looks whether the writer lives, and says in the mark when it has not shown any life for the grace (`orphans`,
  AR08).
- A ledger that could not be repaired is marked again when its circumstances changed (AR10), and never otherwise.

    CANDIDATE ──holds the lock──▶ AUDITING: looks at lock and switch ──a round is due──▶ unrepairables ─▶ pages ─▶
        numbers ─▶ holdings ─▶ marks                              └── else: young ledgers ─▶ holdings ─▶ marks
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.metadata_messages import ABSENT, Acquire, Claimed, Compare, Delete, Put
from embedbk.codec.repair_mark import REPAIR_PREFIX
from embedbk.codec.repair_messages import MarkRepairs, RepairsMarked
from embedbk.codec.repair_state import (
    AUDIT_KEY,
    AUDITOR_LOCK,
    CONTROL_KEY,
    UNREPAIRABLE_PREFIX,
    AuditNote,
    RepairControl,
    decode_audit_note,
    decode_repair_control,
    encode_audit_note,
    encode_repair_control,
    unrepairable_path,
)
from embedbk.codec.tombstone import tombstone_path
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine, earliest
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
from embedbk.core.repair_words import AskQuorum, QuorumAnswered
from embedbk.core.vocabulary import Started, Tag, Tick
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY, Member
from embedbk.metadata.claims import lock_path, waiting_path
from embedbk.repair.away_bookies import AwayBookies
from embedbk.repair.bookie_use import leaving_now, moving
from embedbk.repair.circumstances import circumstances
from embedbk.repair.copies_look import CopiesLook
from embedbk.repair.mark_queue import MarkQueue
from embedbk.repair.orphans import Orphans
from embedbk.repair.standing_marks import StandingMarks
from embedbk.repair.unchanged_blocks import USUAL_BLOCKS, BlockOptions
from embedbk.repair.young_ledgers import YoungLedgers

__all__ = ["Auditor", "AuditorOptions"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class AuditorOptions:
    grace_ns: int = 300 * _SECOND  # Away for so long: gone; where no operator says otherwise.
    round_ns: int = 3_600 * _SECOND  # From the end of a round to the next that nothing else asks for.
    look_ns: int = 2 * _SECOND  # Between two looks at lock and switch.
    page_ledgers: int = 100
    ledgers_per_s: int = 2_000
    retry_ns: int = 10 * _SECOND  # Behind a round that did not come to its end.
    pages_noted: int = 20  # Between two looks at the switch, and two notes of the place, of one round.
    marks_known_max: int = (
        100_000  # Marks that a round remembers; beyond, a ledger may be marked again for nothing.
    )
    away_max: int = 4_096  # Incarnations that are away, and remembered.
    questions_per_s: int = 2_000  # To bookies, what they hold.
    conflicts_max: int = 1_000  # Ledgers with copies that differ, and are remembered.
    settle_ns: int = (
        10 * _SECOND
    )  # From when a ledger is seen as closed: copies that are on their way arrive.
    blocks: BlockOptions = USUAL_BLOCKS

    @property
    def pace_ns(self) -> int:
        return self.page_ledgers * _SECOND // self.ledgers_per_s


class Auditor(Machine):
    """Never ends. One question at a time."""

    def __init__(
        self,
        name: bytes,
        bookies: tuple[BookieInfo, ...],
        options: AuditorOptions = AuditorOptions(),
        wall_offset_ms: int = 0,
    ) -> None:
        """name: of this candidate alone; it is shown to people. wall_offset_ms: the wall clock's time when now_ns is 0,
        for times that are shown to people."""
        self.name = name
        self.wall_offset_ms = wall_offset_ms
        self.bookies = bookies
        self.options = options
        self.questions = 0
        self.asked: Tag = None
        self.due_ns: int | None = None
        self.epoch = 0  # Of its hold on the lock; 0: it is a candidate.
        self.waits_since = 0
        self.control: RepairControl | None = None  # None: it was not read, or cannot be.
        self.note = AuditNote()
        self.away = AwayBookies(options.grace_ns, options.away_max)
        self.leaving: frozenset[Member] = frozenset()  # Drained when it began.
        self.seen: tuple[BookieInfo, ...] = ()  # The bookies when the newest round began.
        self.triggers = 0  # The operators' count of triggers when the newest round began.
        self.round_due_ns: int | None = None
        # Writers and young ledgers were looked at since the last whole round: rounds that follow closely leave them
        # that turn.
        self.has_looked = True
        # State of the round that is under way.
        self.is_round = self.is_whole = self.is_asked_for = False
        self.began_ms = self.pages = 0
        self.standing = StandingMarks(options.marks_known_max)
        self.to_mark = MarkQueue()
        self.page_end = ""  # The last key of the page; empty: the listing is over.
        self.is_last_page = False
        self.looked_at = self.marked = self.unread = 0
        self.look = CopiesLook(options.blocks, options.conflicts_max)
        self.spent_ns = 0  # How long what comes next is put off because of the last questions to bookies.
        self.ahead_ns = 0  # How much faster than its pace this round has listed ledgers.
        self.young = YoungLedgers(options.settle_ns)
        self.unmoved = 0  # Ledgers that name a bookie that leaves.
        self.orphans = Orphans(options.grace_ns)

    @property
    def deadline_ns(self) -> int | None:
        return earliest(self.due_ns, self.look.deadline_ns)

    @property
    def is_auditor(self) -> bool:
        return self.epoch > 0

    # One question at a time.

    def _tag(self, kind: str) -> Tag:
        self.questions += 1
        self.asked, self.due_ns = (kind, self.questions), None
        return self.asked

    def _pause(self, now_ns: int, pause_ns: int) -> list[Effect]:
        self.asked, self.due_ns = None, now_ns + pause_ns
        return []

    def _on_started(self, event: Started) -> list[Effect]:
        return self._stand_for_election()

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.look.is_asking:
            return self._looked(event.now_ns, self.look.step(event))
        if self.due_ns is None or event.now_ns < self.due_ns:
            return []
        if self.is_round and self.look.has_more:
            return self._look(event.now_ns)
        if self.is_round:
            has_to_look = self.pages % self.options.pages_noted == 0
            return [ReadKey(self._tag("switch"), CONTROL_KEY)] if has_to_look else self._next_page()
        if self.epoch:
            return [ReadKey(self._tag("lock"), lock_path(AUDITOR_LOCK))]
        if self.waits_since:
            return [ReadKey(self._tag("place"), waiting_path(AUDITOR_LOCK, self.waits_since))]
        return self._stand_for_election()

    def _stand_for_election(self) -> list[Effect]:
        return [AskQuorum(self._tag("stand"), Acquire(AUDITOR_LOCK, self.name))]

    def _on_quorum(self, event: QuorumAnswered) -> list[Effect]:
        if event.tag != self.asked:
            return []
        if event.tag[0] == "mark":
            return self._on_marked(event)
        result = event.result
        if not isinstance(result, Claimed):
            return self._pause(event.now_ns, self.options.look_ns)
        self.waits_since, self.epoch = result.asked, result.epoch
        return self._begin_audit() if self.epoch else self._pause(event.now_ns, self.options.look_ns)

    def _begin_audit(self) -> list[Effect]:
        """This candidate was elected. It cannot know how long bookies have been away: their grace begins now."""
        self.control, self.round_due_ns = None, None
        self.away = AwayBookies(self.options.grace_ns, self.options.away_max)
        self.orphans = Orphans(self.options.grace_ns)
        self.look.forget_blocks()
        return [ReadKey(self._tag("note"), AUDIT_KEY)]

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if event.tag != self.asked:
            return []
        kind = event.tag[0]
        if kind == "place":
            if event.value is not None:
                return self._pause(event.now_ns, self.options.look_ns)
            return (
                self._stand_for_election()
            )  # Its turn has come, or its session went: asked again it says so.
        if kind == "lock":
            if event.value != self.name or event.revision != self.epoch:
                self.epoch = self.waits_since = 0
                return self._stand_for_election()
            return [ReadKey(self._tag("switch"), CONTROL_KEY)]
        if kind == "note":
            self._take_note(event.value)
            return [ReadKey(self._tag("switch"), CONTROL_KEY)]
        if kind == "young":
            return self._on_young(event)
        if kind == "orphan":
            return self._on_orphan(event)
        return self._on_switch(event)

    def _take_note(self, value: bytes | None) -> None:
        """Where the auditor before was. One that cannot be read is written anew."""
        try:
            self.note = decode_audit_note(value) if value is not None else AuditNote()
        except StorageError:
            self.note = AuditNote()

    def _on_switch(self, event: KeyRead) -> list[Effect]:
        try:
            control = decode_repair_control(event.value) if event.value is not None else RepairControl()
        except StorageError:
            control = None  # Somebody set it, to what this build does not know (P2.5).
        is_first = self.control is None
        self.control = control
        self.orphans.grace_ns = self.away.grace_ns = self._grace_ns
        if control is None or control.is_stopped:
            if self.is_round:
                return self._end_round(event.now_ns, is_done=False)
            ends_ms = None if control is None else control.ends_ms
            if control is not None and ends_ms is not None and self._wall_ms(event.now_ns) >= ends_ms:
                return self._switch_on(event, control)
            return self._pause(event.now_ns, self.options.look_ns)
        if self.is_round:
            return self._note_place(event.now_ns)
        if is_first:
            self.triggers = control.triggers
        return self._look_for_round(event.now_ns, control)

    def _switch_on(self, event: KeyRead, control: RepairControl) -> list[Effect]:
        """The time for which repair was stopped is over. Who changed the switch meanwhile is not overruled."""
        changed = replace(
            control, is_stopped=False, until_ms=0, by="the auditor", changed_ms=self._wall_ms(event.now_ns)
        )
        put = Put(CONTROL_KEY, encode_repair_control(changed))
        return [Transact(self._tag("switch on"), [Compare(CONTROL_KEY, event.revision)], [put])]

    # Bookies.

    @property
    def _grace_ns(self) -> int:
        """As operators say, or as this host is set."""
        grace_ms = 0 if self.control is None else self.control.grace_ms
        return grace_ms * 1_000_000 or self.options.grace_ns

    def _there(self) -> frozenset[Member]:
        return frozenset(info.member for info in self.bookies)

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        before, self.bookies = self._there(), event.bookies
        self.away.see(before, self._there(), event.now_ns)
        return []

    # Rounds.

    def _look_for_round(self, now_ns: int, control: RepairControl) -> list[Effect]:
        gone = self.away.gone_by(now_ns)
        is_due = (
            self.round_due_ns is None
            or (now_ns >= self.round_due_ns and self.has_looked)
            or self.away.is_news(gone)
            or not leaving_now(self.bookies) <= self.leaving
            or control.triggers != self.triggers
        )
        if not is_due and circumstances(b"", self.bookies) != circumstances(b"", self.seen):
            self.seen = self.bookies
            return [ListKeys(self._tag("waiting"), UNREPAIRABLE_PREFIX, UNREPAIRABLE_PREFIX, 1)]
        if not is_due or not self.bookies:
            self.has_looked = True
            self.orphans.begin_look()
            return self._look_at_orphans(now_ns)
        # Where another auditor stopped, unless something happened that all ledgers are to be looked at for.
        is_plain = not gone and not leaving_now(self.bookies)
        goes_on = self.round_due_ns is None and control.triggers == self.triggers and is_plain
        self.is_asked_for = control.triggers != self.triggers
        self.is_round, self.seen = True, self.bookies
        self.away.begin_round(gone)
        self.leaving, self.unmoved = leaving_now(self.bookies), 0
        self.triggers = control.triggers
        self.standing = StandingMarks(self.options.marks_known_max)
        self.began_ms, self.pages = self._wall_ms(now_ns), 0
        self.to_mark.clear()
        self.looked_at = self.marked = self.unread = 0
        after = self.note.after if goes_on else NO_ENTRY
        self.is_whole = after == NO_ENTRY
        self.has_looked = not self.is_whole  # A whole one follows at once.
        self.orphans.begin_round()
        self.look.begin_round(is_asked_for=self.is_asked_for)
        self.ahead_ns = 0
        self.page_end = ledger_key_path(after) if after >= 0 else LEDGERS_PREFIX
        return [self._list("unrepairable", UNREPAIRABLE_PREFIX, UNREPAIRABLE_PREFIX)]

    def _wait(self, now_ns: int) -> list[Effect]:
        """Wait until the next look, or until a bookie that is away counts as gone."""
        look_ns, gone_ns = now_ns + self.options.look_ns, self.away.next_ns(now_ns)
        return self._pause(now_ns, (look_ns if gone_ns is None else min(look_ns, gone_ns)) - now_ns)

    # Ledgers that their writers left.

    def _look_at_orphans(self, now_ns: int) -> list[Effect]:
        key = self.orphans.next_key(now_ns)
        if key is not None:
            return [ReadKey(self._tag("orphan"), key)]
        self.young.begin_look(now_ns)
        return self._look_at_young()

    def _on_orphan(self, event: KeyRead) -> list[Effect]:
        change = self.orphans.take(event.value, event.revision, event.now_ns)
        if change is None:
            return self._look_at_orphans(event.now_ns)
        when, then = change
        return [Transact(self._tag("orphan"), when, [*then])]

    # Ledgers that are new, or were open.

    def _look_at_young(self) -> list[Effect]:
        key = self.young.next_key()
        if key is not None:
            return [ReadKey(self._tag("young"), key)]
        return [self._list("newest", LEDGERS_PREFIX, self.young.newest_key)]

    def _on_young(self, event: KeyRead) -> list[Effect]:
        found = self.young.take(event.value, event.now_ns)
        if found is not None:
            self.look.add(*found)
        return self._look_at_young()

    def _on_newest(self, event: KeysListed) -> list[Effect]:
        self.young.take_newest(event.records, event.now_ns)
        return self._look(event.now_ns)

    # Copies on registered bookies.

    def _look(self, now_ns: int) -> list[Effect]:
        """Ask about the next part of what is left to be looked into."""
        self.spent_ns = 0
        if not self.look.has_more:
            return self._mark(now_ns)
        self.asked, self.due_ns = None, None
        # So many at once, or the questions of a whole block would leave in one moment.
        is_bounded = self.is_round and not self.is_asked_for
        ledgers_max = self.options.page_ledgers if is_bounded else None
        return self._looked(now_ns, self.look.ask(now_ns, self._there(), ledgers_max))

    def _looked(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        """Go on, once nobody is asked any more."""
        if self.look.is_asking:
            return effects
        found = self.look.taken()
        if found is None:
            return self._look(now_ns)
        self.spent_ns = found.questions * _SECOND // self.options.questions_per_s
        for ledger_id, bookies in found.short.items():
            self.to_mark.add(ledger_id, bookies)
        for ledger_id in found.untold:
            self.young.meet(ledger_id, now_ns, is_closed=True)
        return self._mark(now_ns)

    def _on_held(self, event: Answered | SendFailed) -> list[Effect]:
        return self._looked(event.now_ns, self.look.step(event)) if self.look.is_asking else []

    def _list(self, kind: str, prefix: str, after: str) -> Effect:
        return ListKeys(self._tag(kind), prefix, after, self.options.page_ledgers)

    def _on_listed(self, event: KeysListed) -> list[Effect]:
        if event.tag != self.asked:
            return []
        kind = event.tag[0]
        if kind == "waiting":
            if event.records:
                self.round_due_ns = event.now_ns
            return self._pause(event.now_ns, 0 if event.records else self.options.look_ns)
        if kind == "newest":
            return self._on_newest(event)
        if event.has_more and not event.records:
            return self._end_round(event.now_ns, is_done=False)  # A page without keys that others follow.
        if kind == "ledgers":
            return self._on_page(event)
        prefix = UNREPAIRABLE_PREFIX if kind == "unrepairable" else REPAIR_PREFIX
        for key, value in event.records:
            ledger_id = ledger_of_key(key, prefix)
            if ledger_id is not None:
                self._note_record(kind, ledger_id, value)
        if event.has_more:
            return [self._list(kind, prefix, event.records[-1][0])]
        if kind == "unrepairable":
            return [self._list("marks", REPAIR_PREFIX, REPAIR_PREFIX)]
        return self._next_page()

    def _note_record(self, kind: str, ledger_id: int, value: bytes) -> None:
        """Ledgers that cannot be read stay as they are (P2.5)."""
        note = self.standing.note_record if kind == "unrepairable" else self.standing.note_mark
        try:
            note(ledger_id, value)
        except StorageError:
            self.unread += 1

    def _next_page(self) -> list[Effect]:
        return [self._list("ledgers", LEDGERS_PREFIX, self.page_end)]

    def _on_page(self, event: KeysListed) -> list[Effect]:
        for key, value in event.records:
            ledger_id = ledger_of_key(key)
            if ledger_id is None:
                continue
            try:
                metadata = decode_ledger_metadata(value, ledger_id)
            except StorageError:
                self.unread += 1
                self.look.meet(ledger_id, value, None)
                continue
            self._judge(ledger_id, metadata, value, event.now_ns)
            self.look.meet(ledger_id, value, metadata)
        self.pages += 1
        self.ahead_ns += self.options.pace_ns
        self.is_last_page = not event.has_more
        if event.records:
            self.page_end = event.records[-1][0]
        self.asked = None
        last_met = None if self.is_last_page else ledger_of_key(self.page_end) or 0
        return self._looked(event.now_ns, self.look.ask_numbers(event.now_ns, self._there(), last_met))

    def _judge(self, ledger_id: int, metadata: LedgerMetadata, value: bytes, now_ns: int) -> None:
        self.looked_at += 1
        self.young.pass_by(ledger_id)
        if not metadata.is_closed:
            self.young.meet(ledger_id, now_ns, is_closed=False)
            if any(
                member in self.away.gone or member in self.leaving
                for member in metadata.fragments[-1].members
            ):
                self.orphans.meet(ledger_id, metadata, now_ns)
        there = self._there()
        missing: set[str] = set()
        for fragment in metadata.fragments:
            for member in fragment.members:
                if member not in there:
                    self.away.meet(member, now_ns)
                    if member in self.away.gone:
                        missing.add(member.bookie_id)
        if self.leaving:
            missing |= moving(metadata, self.leaving, is_left=self.orphans.is_orphan(ledger_id, now_ns))
            self.unmoved += any(each in self.leaving for part in metadata.fragments for each in part.members)
        judged = self.standing.judge(ledger_id, missing, value, self.bookies, is_asked_for=self.is_asked_for)
        if judged.named is not None and metadata.is_closed:
            self.look.add(ledger_id, metadata, judged.named)
        elif self.to_mark.add(ledger_id, judged.missing, has_record=judged.has_record):
            self.orphans.untell(ledger_id)

    # Marking.

    def _mark(self, now_ns: int) -> list[Effect]:
        marks = self.to_mark.next_marks()
        if not marks:
            return self._clear(now_ns)
        return [AskQuorum(self._tag("mark"), MarkRepairs(marks, self._wall_ms(now_ns)))]

    def _on_marked(self, event: QuorumAnswered) -> list[Effect]:
        result = event.result
        if not isinstance(result, RepairsMarked):
            if not self.to_mark.take_refusal():
                return self._end_round(event.now_ns, is_done=False)
            return self._mark(event.now_ns)
        self.marked += self.to_mark.take_marked(result.left)
        return self._mark(event.now_ns)

    def _clear(self, now_ns: int) -> list[Effect]:
        """Delete the records of unrepairable ledgers that were marked again."""
        ledger_ids = self.to_mark.taken_records()
        if not ledger_ids:
            return self._end_page(now_ns)
        then: list[Put | Delete] = [Delete(unrepairable_path(ledger_id)) for ledger_id in ledger_ids]
        return [Transact(self._tag("clear"), [], then)]

    def _end_page(self, now_ns: int) -> list[Effect]:
        if not self.is_round:
            return self._wait(now_ns)
        # An operator waits for the answer: nothing but one page at a time bounds his round.
        spent_ns = 0 if self.is_asked_for else self.spent_ns
        if self.look.has_more:
            self.ahead_ns -= spent_ns
            return self._pause(now_ns, spent_ns)
        if not self.is_last_page:
            if self.look.has_later or self.is_asked_for:
                return self._pause(
                    now_ns, 0
                )  # The rest of a block is listed first; its time is spent behind it.
            pace_ns, self.ahead_ns = max(spent_ns, self.ahead_ns), 0
            return self._pause(now_ns, pace_ns)
        ledger_id = self.standing.next_unmet() if self.is_whole else None
        if ledger_id is None:
            return self._end_round(now_ns, is_done=True)
        # Nothing is judged again of a ledger that is gone for good; one that can be brought back keeps its record.
        when = [Compare(ledger_key_path(ledger_id), ABSENT), Compare(tombstone_path(ledger_id), ABSENT)]
        return [Transact(self._tag("clear"), when, [Delete(unrepairable_path(ledger_id))])]

    def _note_place(self, now_ns: int) -> list[Effect]:
        ledger_id = ledger_of_key(self.page_end)
        if not self.pages or ledger_id is None:
            return self._next_page()
        self.note = replace(self.note, after=ledger_id, began_ms=self.began_ms)
        return [Transact(self._tag("place"), [], [Put(AUDIT_KEY, encode_audit_note(self.note))])]

    def _wall_ms(self, now_ns: int) -> int:
        return max(0, self.wall_offset_ms + now_ns // 1_000_000)

    def _end_round(self, now_ns: int, *, is_done: bool) -> list[Effect]:
        if not self.is_round:
            return self._pause(now_ns, self.options.look_ns)  # Young ledgers could not be marked.
        self.is_round = False
        self.look.give_up_rest()
        if not is_done:
            self.away.fail_round()
            self.round_due_ns = now_ns + self.options.retry_ns
            return self._pause(now_ns, self.options.look_ns)
        if self.is_whole:
            self.away.end_round()
            self.orphans.end_round()
            self.look.end_whole_round()
        # A round that began where another auditor stopped is followed at once by a whole one. Rounds that wait for
        # writers to move take at most a fifth of the time.
        took_ns = (self._wall_ms(now_ns) - self.began_ms) * 1_000_000
        pause_ns = max(self.options.retry_ns, 4 * took_ns) if self.unmoved else self.options.round_ns
        self.round_due_ns = now_ns + (min(pause_ns, self.options.round_ns) if self.is_whole else 0)
        self.note = replace(
            self.note,
            after=NO_ENTRY,
            rounds=self.note.rounds + 1,
            triggers=self.triggers if self.is_whole else self.note.triggers,
            began_ms=self.began_ms,
            ended_ms=self._wall_ms(now_ns),
            away=tuple(sorted({member.bookie_id for member in self.away.gone})),
            looked_at=self.looked_at,
            marked=self.marked,
            unread=self.unread,
            conflicts=len({*self.look.conflicts, *self.look.unlike}),
        )
        return [Transact(self._tag("noted"), [], [Put(AUDIT_KEY, encode_audit_note(self.note))])]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if event.tag != self.asked:
            return []
        if event.tag[0] == "clear":
            return self._end_page(event.now_ns)
        if event.tag[0] == "place":
            return self._next_page()
        if event.tag[0] == "orphan":
            return self._look_at_orphans(event.now_ns)
        return self._pause(event.now_ns, self.options.look_ns)

    def _on_failed(self, event: MetadataFailed | TransactUnknown | TransactRefused) -> list[Effect]:
        """The metadata gave no answer: this step is given up and begins again later."""
        if event.tag != self.asked:
            return []
        if self.is_round:
            return self._end_round(event.now_ns, is_done=False)
        return self._pause(event.now_ns, self.options.look_ns)

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        QuorumAnswered: _on_quorum,
        KeyRead: _on_read,
        KeysListed: _on_listed,
        Transacted: _on_transacted,
        TransactRefused: _on_failed,
        TransactUnknown: _on_failed,
        MetadataFailed: _on_failed,
        Answered: _on_held,
        SendFailed: _on_held,
        BookiesChanged: _on_bookies,
    }
