"""Rounds of the auditor that ask nobody about ledgers of which nothing changed, and those that must (P11.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import (
    HeldRange,
    HoldingsAnswer,
    HoldingsRequest,
    LedgerBlocksAnswer,
    LedgerBlocksRequest,
)
from embedbk.codec.ledger_metadata import LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Claimed
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.repair_state import RepairControl, encode_repair_control
from embedbk.core.client_words import BELOW_LEVEL, Answered, Send, SendFailed
from embedbk.core.machine import Event
from embedbk.host import bookie_requests
from embedbk.ids import Member
from embedbk.metadata.levels import LEVEL
from embedbk.repair.auditor import AuditorOptions
from embedbk.repair.unchanged_blocks import BlockOptions, UnchangedBlocks
from embedbk.testing.clocks import MS
from tests.repair.healed import OPTIONS, healed
from tests.repair.test_auditor import ALL, SECOND, Desk, ledger
from tests.repair.test_filling import held, rot
from tests.repair.test_repaired import closed

ROUND_S = 100


def options(full_rounds: int = 1_000, worth_ledgers: int = 1, blocks_max: int = 100) -> AuditorOptions:
    blocks = BlockOptions(4, worth_ledgers, full_rounds, blocks_max)
    return AuditorOptions(
        grace_ns=10 * SECOND, round_ns=ROUND_S * SECOND, look_ns=SECOND, page_ledgers=3, blocks=blocks
    )


class Bookies(Desk):
    """The desk, with bookies that tell digests, and numbers that change when somebody says so."""

    def __init__(self, ledgers: int = 12, **terms: int) -> None:
        self.changes: dict[tuple[int, str], int] = {}
        self.contents: dict[tuple[int, str], int] = {}
        self.untold: set[str] = set()  # Bookies that do not say their numbers.
        self.failing: str | None = None  # Why no such question leaves.
        self.blocks_asked: list[str] = []
        self.has_digests = True
        self.behind_answer: Callable[[int, str], None] | None = None
        keys = {ledger_key_path(n): encode_ledger_metadata(ledger(n, 1, 2, 3)) for n in range(ledgers)}
        super().__init__(keys=keys, options=options(**terms))

    def answer(self, effect: object) -> Event:
        if isinstance(effect, Send) and isinstance(effect.control, LedgerBlocksRequest):
            self.blocks_asked.append(effect.member.bookie_id)
            if self.failing is not None:
                return SendFailed(self.now_ns, effect.tag, effect.member, self.failing)
        return super().answer(effect)  # type: ignore[arg-type]

    def number(self, member: Member, request: LedgerBlocksRequest) -> LedgerBlocksAnswer:
        if member.bookie_id in self.untold:
            return LedgerBlocksAnswer(Status.OK, [None] * len(request.blocks))
        numbers: list[int | None] = []
        for block in request.blocks:
            ids = [
                block.first_ledger + i for i in range(8 * len(block.mask)) if block.mask[i // 8] >> i % 8 & 1
            ]
            numbers.append(sum((self.changes.get((n, member.bookie_id), 0) + 1) << 8 * (n % 4) for n in ids))
        return LedgerBlocksAnswer(Status.OK, numbers)

    def held(self, effect: Send) -> Event:
        event = super().held(effect)
        request, name = effect.control, effect.member.bookie_id
        if not isinstance(event, Answered) or not isinstance(event.control, HoldingsAnswer):
            return event
        assert isinstance(request, HoldingsRequest)
        own, *others = [
            HeldRange(
                part.status,
                part.ledger_id,
                part.count,
                part.lacking,
                [self.contents.get((part.ledger_id, name), 7)] * (len(asked.cuts) + 1)
                if self.has_digests and not part.lacking
                else [],
            )
            for asked, part in zip(
                (request, *request.others), (event.control, *event.control.others), strict=True
            )
        ]
        if self.behind_answer is not None:
            for part in (own, *others):
                self.behind_answer(part.ledger_id, name)
        answer = HoldingsAnswer(own.status, own.ledger_id, own.count, own.lacking, own.digests, others)
        return Answered(event.now_ns, event.tag, event.member, answer)

    def looked_at(self, seconds: float = ROUND_S + 10) -> list[int]:
        """The ledgers that somebody was asked about in the next round."""
        before = len(self.asked)
        self.run_for(seconds)
        return sorted({ledger_id for ledger_id, _ in self.asked[before:]})


def first_round(**terms: int) -> Bookies:
    desk = Bookies(**terms)
    assert desk.looked_at(20) == list(range(12))
    return desk


def test_what_did_not_change_is_asked_about_by_numbers_alone() -> None:
    """P11.4: "passes over the ledgers of a block": of 12 ledgers three numbers a bookie, in one message."""
    desk = first_round()
    questions = len(desk.blocks_asked)
    assert desk.looked_at() == []
    assert (desk.auditor.look.passed_blocks, desk.auditor.looked_at) == (3, 12)
    # Pages of three ledgers complete a block now and then; each time its three bookies are asked.
    assert len(desk.blocks_asked) - questions == 9
    assert desk.auditor.note.rounds == 2


def test_a_bookie_with_another_number_has_its_block_looked_at() -> None:
    desk = first_round()
    desk.changes[6, "b2"] = 1
    assert desk.looked_at() == [4, 5, 6, 7]
    assert desk.looked_at() == []


def test_metadata_that_changed_has_its_block_looked_at() -> None:
    """P11.4: other seats, a ledger more, and a ledger less: the numbers are the same, and what is owed is not."""
    desk = first_round()
    for owner in (b"x", b"y"):
        changed = ledger(5, 1, 2, 3).with_changes(custom={"owner": owner})
        desk.keys[ledger_key_path(5)] = encode_ledger_metadata(changed)
        assert desk.looked_at() == [4, 5, 6, 7]
    del desk.keys[ledger_key_path(9)]
    desk.keys[ledger_key_path(12)] = encode_ledger_metadata(ledger(12, 1, 2, 3))
    assert desk.looked_at() == [8, 10, 11, 12]
    assert desk.looked_at() == []


def test_a_change_behind_a_question_is_found_in_the_next_round() -> None:
    """P11.4: "numbers first, the look second": b2 loses an entry when it has just said that it holds all."""
    desk = Bookies()

    def lose(ledger_id: int, name: str) -> None:
        if (ledger_id, name) == (6, "b2") and not desk.changes:
            desk.changes[6, "b2"] = 1
            desk.lacking[6, "b2"] = [3]

    desk.behind_answer = lose
    assert desk.looked_at(20) == list(range(12))
    assert desk.marked == []
    assert desk.looked_at() == [4, 5, 6, 7]
    assert desk.marked == [(6, ("b2",))]


def test_a_ledger_that_lacks_differs_or_is_untold_keeps_its_block_from_being_passed_over() -> None:
    """P11.4: only what was seen to be sound is remembered; the numbers stay the same all the while."""
    for spoil in ("lacks", "differs", "cannot tell", "is silent", "no digests"):
        desk = Bookies()
        if spoil == "lacks":
            desk.lacking[6, "b2"] = [3]
        elif spoil == "differs":
            desk.contents[6, "b2"] = 8
        elif spoil == "cannot tell":
            desk.lacking[6, "b2"] = None
        elif spoil == "is silent":
            desk.lacking[6, "b2"], desk.why = None, "the link was lost"
        else:
            desk.has_digests = False
        desk.run_for(20)
        looked_at = set(desk.looked_at())
        assert looked_at >= {4, 5, 6, 7}, spoil
        assert looked_at == {4, 5, 6, 7} or spoil in ("is silent", "no digests"), spoil
        desk.lacking, desk.contents, desk.why, desk.has_digests = {}, {}, "", True
        desk.keys.pop(repair_mark_path(6), None)
        desk.run_for(2 * ROUND_S + 20)
        assert desk.looked_at() == [], spoil


def test_a_bookie_that_does_not_tell_its_number_has_its_ledgers_looked_at() -> None:
    """P11.4: "cannot tell" is never "nothing changed"."""
    desk = first_round()
    desk.untold.add("b3")
    assert [desk.looked_at(), desk.looked_at()] == [list(range(12))] * 2
    desk.untold.clear()
    desk.failing = "the link was lost"
    assert [desk.looked_at(), desk.looked_at()] == [list(range(12))] * 2
    desk.failing = None
    assert desk.looked_at() == list(range(12))  # What was remembered before the doubt is forgotten.
    assert desk.looked_at() == []


def test_a_bookie_that_is_away_has_its_ledgers_looked_at() -> None:
    """What it holds cannot be told; it is not gone yet."""
    desk = first_round()
    desk.run_for(ROUND_S - 24)
    desk.see(*ALL[:2], ALL[3])
    assert desk.looked_at(8) == list(range(12))
    assert desk.marked == []


def test_below_its_level_nobody_is_asked_for_numbers_twice_in_a_round() -> None:
    """P10.8: the audit of a cluster that still has builds from before is what it was."""
    desk = Bookies()
    desk.failing = BELOW_LEVEL
    desk.run_for(20)
    desk.blocks_asked.clear()
    assert desk.looked_at() == list(range(12))
    assert desk.blocks_asked == ["b1", "b2", "b3"]


def test_every_so_many_rounds_everything_is_looked_at() -> None:
    """P11.4: "a full look comes nevertheless"."""
    desk = first_round(full_rounds=3)
    assert [len(desk.looked_at()) for _ in range(6)] == [0, 12, 0, 0, 12, 0]


def test_an_operator_has_everything_looked_at() -> None:
    """P11.1: `embedbk repair trigger`; what that saw counts as a full look."""
    desk = first_round()
    desk.keys["/repair/control"] = encode_repair_control(RepairControl(triggers=1))
    assert desk.looked_at(5) == list(range(12))
    assert desk.looked_at() == []


def test_a_new_auditor_remembers_nothing() -> None:
    desk = first_round()
    desk.lock, desk.claim = (b"me", 9), Claimed(9, 9, 9)  # Its session went, and it was elected again.
    assert desk.looked_at(20) == list(range(12))
    assert desk.auditor.epoch == 9


def test_who_writes_to_an_open_ledger_of_a_block_changes_nothing() -> None:
    """P11.4: a bookie is asked for the number of the CLOSED ledgers that name it, and of no others."""
    desk = Bookies()
    opened = ledger(5, 1, 2, 3).with_changes(state=LedgerState.OPEN, last_entry=None, length=None)
    desk.keys[ledger_key_path(5)] = encode_ledger_metadata(opened)
    desk.run_for(2 * ROUND_S)
    desk.changes[5, "b2"] = 1
    desk.changes[6, "b4"] = 1  # No seat of it.
    assert desk.looked_at() == []


def test_a_block_of_few_ledgers_is_asked_about_by_ledgers() -> None:
    """A number costs its bookie a look at every ledger id of the block."""
    desk = first_round(worth_ledgers=5)
    assert desk.blocks_asked == []
    assert desk.looked_at() == list(range(12))


def test_so_many_blocks_are_remembered_and_the_others_looked_at() -> None:
    desk = first_round(blocks_max=2)
    assert desk.looked_at() == [8, 9, 10, 11]


def test_blocks_that_are_gone_make_room() -> None:
    desk = first_round(blocks_max=2)
    for ledger_id in range(4):
        del desk.keys[ledger_key_path(ledger_id)]
    desk.run_for(ROUND_S + 10)
    desk.run_for(ROUND_S + 10)
    assert desk.looked_at() == []


def test_what_any_look_finds_has_its_block_forgotten() -> None:
    """P11.4: a ledger that was closed lately is looked at between rounds, too."""
    blocks = UnchangedBlocks(BlockOptions(4, 1))
    metadata = ledger(5, 1, 2, 3)
    members = [each.member for each in ALL[:3]]

    def judged() -> set[int]:
        blocks.begin_round()
        blocks.meet(5, encode_ledger_metadata(metadata), metadata, is_to_check=True)
        assert list(blocks.to_ask(blocks.met_until(None))) == [1]
        return blocks.judge([1], {1: dict.fromkeys(members, 9)}, is_full=False)

    assert judged() == set()
    blocks.take_look([5], {5})
    blocks.end_look()
    assert judged() == {1}
    blocks.take_look([6], set())
    assert judged() == set()


def test_a_ledger_that_is_not_looked_at_keeps_its_block_from_being_remembered() -> None:
    """What is marked already is not looked at in the round that marks it."""
    blocks = UnchangedBlocks(BlockOptions(4, 1))
    for ledger_id, is_to_check in ((4, True), (5, False)):
        metadata = ledger(ledger_id, 1, 2, 3)
        blocks.meet(ledger_id, encode_ledger_metadata(metadata), metadata, is_to_check=is_to_check)
    assert blocks.to_ask([1]) == {}


def test_a_cluster_below_the_level_is_audited_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.8: no bookie of a build before is asked what it does not know, and every ledger is looked at."""
    blocks = BlockOptions(4, 1, 1_000)
    auditor = replace(OPTIONS.auditor, round_ns=2_000 * MS, settle_ns=500 * MS, blocks=blocks)
    with healed(bookies=3) as story:
        closed(story, 12)
        table = bookie_requests._LEVEL_NEEDED
        needed = {each: LEVEL + 1 if each is LedgerBlocksRequest else table[each] for each in table}
        monkeypatch.setattr(bookie_requests, "_LEVEL_NEEDED", needed)
        service = story.repairer(options=replace(OPTIONS, auditor=auditor))
        assert story.cluster.run_until(lambda: service.auditor.note.rounds >= 2)
        sends = story.sends_of("healer")
        rounds = service.auditor.note.rounds
        assert story.cluster.run_until(lambda: service.auditor.note.rounds >= rounds + 2)
        assert [send for send in sends if isinstance(send.control, HoldingsRequest)]
        assert service.auditor.look.passed_blocks == 0


def test_rot_is_repaired_though_hardly_a_round_is_full() -> None:
    """I55, P11.4: in a whole cluster: what a scrubber finds is not passed over, and behind its repair all is again."""
    blocks = BlockOptions(4, 1, 1_000)
    auditor = replace(OPTIONS.auditor, round_ns=2_000 * MS, settle_ns=500 * MS, blocks=blocks)
    with healed(bookies=3) as story:
        ledger_ids = [closed(story, 12) for _ in range(6)]
        service = story.repairer(options=replace(OPTIONS, auditor=auditor))
        assert story.cluster.run_until(lambda: service.auditor.look.passed_blocks >= 2)
        sends = story.sends_of("healer")
        rounds = service.auditor.note.rounds
        assert story.cluster.run_until(lambda: service.auditor.note.rounds >= rounds + 2)
        assert not [send for send in sends if isinstance(send.control, HoldingsRequest)]
        rot(story, "b2", ledger_ids[2], 7)
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] == 1)
        assert held(story, "b2", ledger_ids[2]) == list(range(12))
        passed = service.auditor.look.passed_blocks
        assert story.cluster.run_until(lambda: service.auditor.look.passed_blocks >= passed + 4)
