"""Who is gone, when all ledgers are looked at, and what is marked: the auditor by its events (P11.1, AR02, AR10)."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import (
    HeldRange,
    HoldingsAnswer,
    HoldingsRequest,
    LedgerBlocksAnswer,
    LedgerBlocksRequest,
)
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import Acquire, Claimed, Refusal
from embedbk.codec.repair_mark import (
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    is_orphan,
    repair_mark_path,
)
from embedbk.codec.repair_messages import MarkRepairs, RepairsMarked
from embedbk.codec.repair_state import (
    AuditNote,
    RepairControl,
    Unrepairable,
    decode_audit_note,
    encode_audit_note,
    encode_repair_control,
    encode_unrepairable,
    unrepairable_path,
)
from embedbk.core.client_words import BELOW_LEVEL, Answered, BookieInfo, BookiesChanged, Send, SendFailed
from embedbk.core.machine import Effect, Event
from embedbk.core.metadata_words import (
    KeyRead,
    KeysListed,
    ListKeys,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
)
from embedbk.core.repair_words import AskQuorum, QuorumAnswered
from embedbk.core.vocabulary import Started, Tick
from embedbk.ids import Member
from embedbk.repair.auditor import Auditor, AuditorOptions
from embedbk.repair.circumstances import circumstances

SECOND = 1_000_000_000
OPTIONS = AuditorOptions(
    grace_ns=10 * SECOND, round_ns=1_000 * SECOND, look_ns=SECOND, page_ledgers=2, pages_noted=2
)


def info(number: int, incarnation: int = 0) -> BookieInfo:
    return BookieInfo(Member(f"b{number}", bytes([incarnation]) * 16), True)


ALL = tuple(info(number) for number in (1, 2, 3, 4))


def ledger(ledger_id: int, *numbers: int) -> LedgerMetadata:
    seats = tuple((f"b{number}", bytes(16)) for number in numbers)
    return LedgerMetadata(
        METADATA_VERSION, ledger_id, 3, 3, 2, LedgerState.CLOSED, 9, 90, b"v", 1, {}, (Fragment(0, 0, seats),)
    )


class Desk:
    """The auditor, and a metadata quorum that answers it from a dict."""

    def __init__(
        self,
        bookies: tuple[BookieInfo, ...] = ALL,
        keys: dict[str, bytes] | None = None,
        options: AuditorOptions = OPTIONS,
    ) -> None:
        self.auditor = Auditor(b"me", bookies, options, wall_offset_ms=1_000)
        self.keys = keys or {}
        self.marked: list[tuple[int, tuple[str, ...]]] = []
        self.pages = 0
        self.lock: tuple[bytes, int] = (b"me", 7)
        self.claim = Claimed(7, 7, 7)
        self.fails = False
        self.keys_max = 1_000_000
        self.asked_marks: list[int] = []
        self.asked: list[tuple[int, str]] = []
        self.lacking: dict[tuple[int, str], list[int] | None] = {}  # None: it does not answer, and why.
        self.why = ""  # Why a bookie that does not say is not reached; empty: it answers that it cannot tell.
        self.now_ns = 0
        self.step(Started(0))

    def step(self, event: Event) -> None:
        todo: list[Effect] = self.auditor.step(event)
        while todo:
            todo = [more for effect in todo for more in self.auditor.step(self.answer(effect))]

    def answer(self, effect: Effect) -> Event:
        now = self.now_ns
        if isinstance(effect, AskQuorum):
            if isinstance(effect.operation, Acquire):
                return QuorumAnswered(now, effect.tag, self.claim)
            assert isinstance(effect.operation, MarkRepairs)
            self.asked_marks.append(len(effect.operation.marks))
            if len(self.keys) + len(effect.operation.marks) > self.keys_max:
                return QuorumAnswered(now, effect.tag, Refusal("UNAVAILABLE", "no room"))
            self.marked += effect.operation.marks
            for ledger_id, missing in effect.operation.marks:
                self.keys[repair_mark_path(ledger_id)] = encode_repair_mark(RepairMark(1, missing))
            return QuorumAnswered(now, effect.tag, RepairsMarked(9))
        if isinstance(effect, Send):
            return self.held(effect)
        if isinstance(effect, ReadKey):
            if effect.key.startswith("/locks/"):
                return KeyRead(now, effect.tag, *self.lock)
            return KeyRead(now, effect.tag, self.keys.get(effect.key), 1)
        if isinstance(effect, ListKeys):
            if self.fails:
                return MetadataFailed(now, effect.tag, "away")
            self.pages += effect.prefix == "/ledgers/"
            found = [
                (k, v)
                for k, v in sorted(self.keys.items())
                if k.startswith(effect.prefix) and k > effect.after
            ]
            return KeysListed(now, effect.tag, found[: effect.limit], len(found) > effect.limit)
        assert isinstance(effect, Transact)
        for change in effect.then:
            if hasattr(change, "value"):
                self.keys[change.key] = change.value
            else:
                self.keys.pop(change.key, None)
        return Transacted(now, effect.tag, True, 9)

    def held(self, effect: Send) -> Event:
        """Each bookie holds all that it is asked about, unless something else was said of it."""
        request = effect.control
        if isinstance(request, LedgerBlocksRequest):
            return Answered(self.now_ns, effect.tag, effect.member, self.number(effect.member, request))
        assert isinstance(request, HoldingsRequest)
        told: list[HeldRange] = []
        for part in (request, *request.others):
            self.asked.append((part.ledger_id, effect.member.bookie_id))
            lacking = self.lacking.get((part.ledger_id, effect.member.bookie_id), [])
            if lacking is None and self.why:
                return SendFailed(self.now_ns, effect.tag, effect.member, self.why)
            if lacking is None:
                told.append(HeldRange(Status.UNKNOWN, part.ledger_id))
                continue
            count = part.last_entry - part.first_entry + 1 - len(lacking)
            told.append(HeldRange(Status.OK, part.ledger_id, count, [(each, each) for each in lacking]))
        own, *others = told
        answer = HoldingsAnswer(own.status, own.ledger_id, own.count, own.lacking, own.digests, others)
        return Answered(self.now_ns, effect.tag, effect.member, answer)

    def number(self, member: Member, request: LedgerBlocksRequest) -> LedgerBlocksAnswer:
        return LedgerBlocksAnswer(Status.UNKNOWN)

    def run_for(self, seconds: float) -> None:
        end = self.now_ns + int(seconds * SECOND)
        while self.auditor.deadline_ns is not None and self.auditor.deadline_ns <= end:
            self.now_ns = max(self.now_ns, self.auditor.deadline_ns)
            self.step(Tick(self.now_ns))
        self.now_ns = end

    def see(self, *bookies: BookieInfo) -> None:
        self.step(BookiesChanged(self.now_ns, bookies))


def three_ledgers() -> dict[str, bytes]:
    return {
        ledger_key_path(number): encode_ledger_metadata(ledger(number, *seats))
        for number, seats in ((1, (1, 2, 3)), (2, (2, 3, 4)), (3, (1, 3, 4)))
    }


def test_a_bookie_is_gone_behind_the_grace_and_not_before() -> None:
    """AR02: its ledgers are marked when it was away for the grace, and only those."""
    desk = Desk(keys=three_ledgers())
    desk.run_for(5)
    desk.see(*ALL[1:])
    desk.run_for(9.9)
    assert desk.marked == []
    desk.run_for(0.2)
    assert desk.marked == [(1, ("b1",)), (3, ("b1",))]
    desk.run_for(100)
    assert len(desk.marked) == 2


def test_where_many_marks_have_no_room_a_few_are_made() -> None:
    """P10.7: "UNAVAILABLE" marks none of them. In metadata that is nearly full lost copies were never made again,
    as all marks of a page were asked for at once, for ever (seed 37000972)."""
    desk = Desk(
        keys={ledger_key_path(each): encode_ledger_metadata(ledger(each, 1, 2, 3)) for each in (1, 2, 3)}
    )
    desk.run_for(5)
    desk.keys_max = len(desk.keys) + 1
    desk.see(*ALL[1:])
    desk.run_for(10.1)
    for number in (1, 2, 3):
        assert desk.marked == [(each, ("b1",)) for each in range(1, number + 1)]
        del desk.keys[repair_mark_path(number)]
        desk.keys[ledger_key_path(number)] = encode_ledger_metadata(ledger(number, 4, 2, 3))
        desk.run_for(30)
    assert desk.asked_marks[:2] == [2, 1]


def test_who_comes_back_is_not_gone_and_its_grace_begins_anew() -> None:
    """AR02, AR11: also when all ledgers are looked at meanwhile, for other reasons."""
    desk = Desk(keys=three_ledgers())
    for number in range(3):
        desk.see(*ALL[1:])
        desk.keys["/repair/control"] = encode_repair_control(RepairControl(triggers=number))
        desk.run_for(9)
        desk.see(*ALL)
        desk.run_for(9)
    assert desk.marked == []


def test_several_at_once_have_the_whole_grace_each() -> None:
    """AR02: what else is gone does not shorten it."""
    desk = Desk(keys=three_ledgers())
    desk.see(*ALL[1:])
    desk.run_for(6)
    desk.see(*ALL[2:])
    desk.run_for(5)
    assert {missing for _, missing in desk.marked} == {("b1",)}
    desk.run_for(6)
    assert (2, ("b2",)) in desk.marked


def test_an_incarnation_that_is_replaced_is_gone_though_its_name_is_there() -> None:
    """P7.2: the ledgers name another disk. It was away before this auditor came, too: then its grace begins with it."""
    desk = Desk((info(1, 5), *ALL[1:]), three_ledgers())
    desk.run_for(9)
    assert desk.marked == []
    desk.run_for(2)
    assert desk.marked == [(1, ("b1",)), (3, ("b1",))]


def test_incarnations_that_no_ledger_names_do_not_use_up_what_is_remembered() -> None:
    """P11.1: "marks those with copies on bookies that were away for the grace". Where bookies come back with empty
    disks again and again, an auditor remembered those that were gone for ever, up to its bound, and then no other."""
    desk = Desk(
        keys={ledger_key_path(1): encode_ledger_metadata(ledger(1, 1, 2, 3))},
        options=dataclasses.replace(OPTIONS, away_max=4, round_ns=60 * SECOND),
    )
    for incarnation in range(1, 9):
        desk.see(*ALL[:3], info(4, incarnation))
        desk.run_for(100)
    assert desk.marked == [] and len(desk.auditor.away.since) <= 4
    desk.see(*ALL[1:3], info(4, 8))
    desk.run_for(200)
    assert desk.marked == [(1, ("b1",))]


def test_who_is_drained_is_marked_at_once_and_looked_for_again_while_a_ledger_names_it() -> None:
    """P11.3: what nobody writes to at once; what a writer moves off later soon behind that, and not for ever."""
    keys = three_ledgers()
    open_one = replace(ledger(4, 1, 2, 3), state=LedgerState.OPEN, last_entry=None, length=None)
    keys[ledger_key_path(4)] = encode_ledger_metadata(open_one)
    desk = Desk(keys=keys)
    desk.run_for(5)
    desk.see(ALL[0]._replace(is_writable=False, is_leaving=True), *ALL[1:])
    desk.run_for(2)
    assert desk.marked == [(1, ("b1",)), (3, ("b1",))]
    moved = (*open_one.fragments, Fragment(5, 50, tuple((f"b{each}", bytes(16)) for each in (4, 2, 3))))
    desk.keys[ledger_key_path(4)] = encode_ledger_metadata(replace(open_one, fragments=moved))
    desk.run_for(12)
    assert desk.marked[2:] == [(4, ("b1",))]
    for number in (1, 3, 4):
        desk.keys[ledger_key_path(number)] = encode_ledger_metadata(ledger(number, 2, 3, 4))
    desk.run_for(12)
    rounds = desk.auditor.note.rounds
    desk.run_for(500)
    assert desk.auditor.note.rounds == rounds


def test_what_could_not_be_repaired_is_marked_when_something_changed() -> None:
    """AR10: not in a round of the same circumstances, however many come; then when a bookie came, and its record goes
    behind its mark."""
    keys = three_ledgers()
    value = keys[ledger_key_path(1)]
    judged = circumstances(value, ALL[1:])
    keys[unrepairable_path(1)] = encode_unrepairable(Unrepairable(1, 0, 4, ("b1",), "why", judged))
    desk = Desk(ALL[1:], keys)
    desk.run_for(5_000)
    assert [each for each, _ in desk.marked] == [3]
    desk.see(*ALL[1:], info(5))
    desk.run_for(5)
    assert (1, ("b1",)) in desk.marked
    assert unrepairable_path(1) not in desk.keys


def test_an_operators_word_has_everything_judged_again() -> None:
    """AR10: `embedbk repair trigger`."""
    keys = three_ledgers()
    judged = circumstances(keys[ledger_key_path(1)], ALL)
    keys[unrepairable_path(1)] = encode_unrepairable(Unrepairable(1, 0, 4, ("b1",), "why", judged))
    desk = Desk(ALL, keys)
    desk.run_for(50)
    assert desk.marked == []
    desk.keys["/repair/control"] = encode_repair_control(RepairControl(triggers=1))
    desk.run_for(2)
    assert desk.marked == [(1, ("b1",))]


def test_a_record_of_a_deleted_ledger_goes() -> None:
    keys = three_ledgers()
    keys[unrepairable_path(9)] = encode_unrepairable(Unrepairable(1, 0, 4, ("b1",), "why", bytes(16)))
    desk = Desk(ALL, keys)
    desk.run_for(5)
    assert unrepairable_path(9) not in desk.keys
    assert desk.marked == []


def test_nothing_is_marked_while_it_is_switched_off_or_by_a_candidate() -> None:
    """P11.1, P9.3."""
    desk = Desk(
        keys={**three_ledgers(), "/repair/control": encode_repair_control(RepairControl(is_stopped=True))}
    )
    desk.see(*ALL[1:])
    desk.run_for(50)
    assert (desk.marked, desk.pages) == ([], 0)
    candidate = Desk(keys=three_ledgers())
    candidate.lock = (b"another", 8)
    candidate.claim = Claimed(0, 9, 9)
    candidate.run_for(3)
    assert not candidate.auditor.is_auditor
    candidate.see(*ALL[1:])
    candidate.run_for(50)
    assert candidate.marked == []


def test_a_round_that_fails_is_begun_again() -> None:
    """Cannot tell is never no: ledgers that were not listed are looked at later."""
    desk = Desk(keys=three_ledgers())
    desk.run_for(5)
    desk.fails = True
    desk.see(*ALL[1:])
    desk.run_for(30)
    assert desk.marked == []
    desk.fails = False
    desk.run_for(15)
    assert len(desk.marked) == 2


def test_the_next_auditor_goes_on_where_the_last_one_stopped() -> None:
    """P11.1: the rest of the round first, then everything, since what was before it was not looked at by this one."""
    desk = Desk(keys={**three_ledgers(), "/repair/audit": encode_audit_note(AuditNote(after=2, rounds=5))})
    assert desk.auditor.looked_at == 1
    desk.run_for(2)
    note = decode_audit_note(desk.keys["/repair/audit"])
    assert (note.rounds, note.looked_at, note.after) == (7, 3, -1)


def test_a_strange_key_stops_nothing() -> None:
    """P2.5: bytes that are no ledger, no mark and no record; a refused election is asked for again."""
    keys = {
        **three_ledgers(),
        "/ledgers/zz": b"x",
        ledger_key_path(5): b"x",
        "/ur/zz": b"x",
        unrepairable_path(2): b"x",
    }
    desk = Desk(keys=keys)
    desk.claim = Refusal("LACKING", "level")  # type: ignore[assignment]
    desk.see(*ALL[1:])
    desk.run_for(12)
    assert desk.marked == [(1, ("b1",)), (3, ("b1",))]


def test_a_bookie_that_lacks_entries_is_marked_though_it_is_there() -> None:
    """P11.1, P11.4: "a bookie that is there and lacks entries is marked"; whoever has all of them is not."""
    desk = Desk(keys=three_ledgers())
    desk.lacking = {(1, "b2"): [4], (3, "b1"): [0, 9], (3, "b4"): [2]}
    desk.keys["/repair/control"] = encode_repair_control(RepairControl(triggers=1))
    desk.run_for(5)
    assert sorted(desk.marked) == [(1, ("b2",)), (3, ("b1", "b4"))]


def test_who_does_not_say_is_not_marked_and_is_asked_again() -> None:
    """P11.4: "cannot tell" is never "no". What it did not say is asked soon, not in an hour."""
    desk = Desk(keys=three_ledgers())
    desk.run_for(50)
    desk.asked.clear()
    desk.lacking = {(1, "b2"): None}
    desk.keys["/repair/control"] = encode_repair_control(RepairControl(triggers=1))
    desk.run_for(3)
    assert desk.marked == []
    desk.asked.clear()
    desk.lacking = {(1, "b2"): [7]}
    desk.run_for(20)
    assert desk.marked == [(1, ("b2",))]
    assert {ledger_id for ledger_id, _ in desk.asked} == {1}


def test_below_its_level_nobody_is_asked_and_nothing_is_asked_again() -> None:
    """P10.8: bookies of a build before do not know the question."""
    desk = Desk(keys=three_ledgers())
    desk.why, desk.lacking = BELOW_LEVEL, {(each, f"b{n}"): None for each in (1, 2, 3) for n in (1, 2, 3, 4)}
    desk.keys["/repair/control"] = encode_repair_control(RepairControl(triggers=1))
    desk.run_for(3)
    asked = len(desk.asked)
    desk.run_for(500)
    assert (len(desk.asked), desk.marked) == (asked, [])


def test_a_ledger_that_was_closed_lately_is_asked_about_soon() -> None:
    """P11.4: one that was open when it was looked at, and one that is new; each once, and not before it has settled."""
    keys = three_ledgers()
    opened = ledger(2, 2, 3, 4).with_changes(state=LedgerState.OPEN, last_entry=None, length=None)
    closed = keys[ledger_key_path(2)]
    keys[ledger_key_path(2)] = encode_ledger_metadata(opened)
    desk = Desk(keys=keys)
    desk.run_for(100)
    desk.asked.clear()
    desk.lacking = {(2, "b3"): [9], (5, "b2"): [9]}
    desk.keys[ledger_key_path(2)] = closed
    desk.keys[ledger_key_path(5)] = encode_ledger_metadata(ledger(5, 1, 2, 3))
    desk.run_for(9)
    assert desk.asked == []
    desk.run_for(10)
    assert sorted(desk.marked) == [(2, ("b3",)), (5, ("b2",))]
    desk.run_for(500)
    assert len(desk.asked) == 6


def test_what_others_lack_is_found_beside_a_mark_and_beside_what_nobody_can_repair() -> None:
    """P11.4, AR10: a mark may stand for days, as of a bookie without room, and in a cluster of three nobody can take
    the seat of a lost one. What is named already is not marked again."""
    keys = three_ledgers()
    keys[repair_mark_path(1)] = encode_repair_mark(RepairMark(1, ("b2",)))
    judged = circumstances(keys[ledger_key_path(2)], ALL)
    keys[unrepairable_path(2)] = encode_unrepairable(Unrepairable(1, 0, 4, ("b3",), "why", judged))
    desk = Desk(ALL, keys)
    desk.lacking = {(1, "b2"): [4], (2, "b3"): [4]}
    desk.keys["/repair/control"] = encode_repair_control(RepairControl(triggers=0))
    desk.run_for(1_100)
    assert desk.marked == []
    desk.lacking |= {(1, "b3"): [4], (2, "b4"): [4]}
    desk.run_for(1_100)
    assert sorted(desk.marked) == [(1, ("b3",)), (2, ("b4",))]
    assert unrepairable_path(2) in desk.keys


def test_questions_are_bounded_per_second() -> None:
    """P11.4: a round over many ledgers asks so many questions per second, and not more."""
    keys = {ledger_key_path(n): encode_ledger_metadata(ledger(n, 1, 2, 3)) for n in range(1_000)}
    desk = Desk(keys=keys)
    desk.run_for(1)
    page = 3 * OPTIONS.page_ledgers  # Questions of a page leave together.
    assert OPTIONS.questions_per_s - page <= len(desk.asked) <= OPTIONS.questions_per_s + page
    desk.run_for(10)
    assert len(desk.asked) == 3_000


def test_a_round_that_an_operator_asks_for_waits_for_answers_alone() -> None:
    """P11.1: "or as fast as it goes where an operator asks"; the next one that nobody asks for takes its time again."""
    keys = {ledger_key_path(n): encode_ledger_metadata(ledger(n, 1, 2, 3)) for n in range(1_000)}
    desk = Desk(keys=keys)
    desk.run_for(10)
    assert len(desk.asked) == 3_000
    desk.keys["/repair/control"] = encode_repair_control(RepairControl(triggers=1))
    desk.run_for(OPTIONS.look_ns / SECOND)
    assert len(desk.asked) == 6_000
    desk.run_for(OPTIONS.round_ns / SECOND)
    assert 6_000 < len(desk.asked) < 9_000


def test_who_is_elected_counts_the_grace_of_a_silent_writer_itself() -> None:
    """AR08, P11.2: the mark of an open ledger that names a bookie that is gone says so when the grace is over, as this
    auditor saw it, and no more when its writer shows life; of one that names no writer never."""
    keys = three_ledgers()
    for ledger_id, writer in ((1, "a" * 16), (2, "b" * 16), (3, "")):
        opened = ledger(ledger_id, 1, 2, 3).with_changes(
            state=LedgerState.OPEN, last_entry=None, length=None, writer=writer
        )
        keys[ledger_key_path(ledger_id)] = encode_ledger_metadata(opened)
    keys[f"/living/{'b' * 16}"] = b"host"
    desk = Desk(ALL[1:], keys)
    desk.run_for(11)
    assert {ledger_id for ledger_id, _ in desk.marked} == {1, 2, 3}
    desk.run_for(8)
    assert words(desk) == [False, False, False]
    desk.run_for(5)
    assert words(desk) == [True, False, False]
    desk.keys[f"/living/{'a' * 16}"] = b"host"
    desk.run_for(2)
    assert words(desk) == [False, False, False]
    assert len(desk.auditor.orphans) == 2
    for ledger_id in (1, 2):
        desk.keys[ledger_key_path(ledger_id)] = encode_ledger_metadata(ledger(ledger_id, 2, 3, 4))
    desk.run_for(2_000)
    assert len(desk.auditor.orphans) == 0


def words(desk: Desk) -> list[bool]:
    return [is_orphan(decode_repair_mark(desk.keys[repair_mark_path(each)])) for each in (1, 2, 3)]
