"""What a bookie owes of a closed ledger, and what its answer means: the check by its events (P11.4)."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import HOLDINGS_IDS_MAX, HeldRange, HoldingsAnswer, HoldingsRequest
from embedbk.codec.ledger_metadata import METADATA_VERSION, Fragment, LedgerMetadata, LedgerState
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.read_messages import ReadAnswer
from embedbk.config import Quorum
from embedbk.core.client_words import BELOW_LEVEL, Answered, Send, SendFailed
from embedbk.core.quorum import write_set
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import PeerError
from embedbk.ids import Member
from embedbk.repair.holdings import Checked, CheckOptions, HoldingCheck
from embedbk.repair.owed import Owed, held_by, owed_by_seat, owed_parts

SECOND = 1_000_000_000


def metadata(
    quorum: Quorum, last: int, *fragments: tuple[int, tuple[int, ...]], ledger_id: int = 7
) -> LedgerMetadata:
    made = tuple(
        Fragment(first, 0, tuple((f"b{number}", bytes(16)) for number in numbers))
        for first, numbers in fragments
    )
    sizes = (quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum)
    return LedgerMetadata(METADATA_VERSION, ledger_id, *sizes, LedgerState.CLOSED, last, 9, b"v", 1, {}, made)


def member(number: int) -> Member:
    return Member(f"b{number}", bytes(16))


def ids_of(parts: list[Owed]) -> list[int]:
    return [
        each
        for part in parts
        for each in range(part.first, part.last + 1)
        if part.residues >> each % part.modulus & 1
    ]


def test_a_bookie_owes_the_entries_of_its_write_sets_and_no_others() -> None:
    """P1, P3.7, by chance and entry by entry: whatever the stripes, the changes of the ensemble and the bounds."""
    chance = random.Random(11)
    for _ in range(150):
        size = chance.randint(1, 6)
        write = chance.randint(1, size)
        quorum = Quorum(size, write, chance.randint(1, write))
        starts = sorted({0, *(chance.randint(1, 60) for _ in range(chance.randint(0, 3)))})
        made = [(first, tuple(chance.sample(range(8), size))) for first in starts]
        last = starts[-1] + chance.randint(-1, 40)
        found = metadata(quorum, last, *made)
        for number in range(8):
            wanted = []
            for entry_id in range(last + 1):
                fragment = max(
                    (each for each in found.fragments if each.first_entry <= entry_id),
                    key=lambda f: f.first_entry,
                )
                holders = [fragment.members[seat] for seat in write_set(entry_id, quorum)]
                wanted += [entry_id] if member(number) in holders else []
            ids_max = chance.choice([1, 5, 1000])
            parts = list(owed_parts(found, member(number), ids_max))
            assert ids_of(parts) == wanted
            assert sum(part.entries for part in parts) == len(wanted)
            assert all(part.last - part.first < ids_max and part.entries for part in parts)


def test_fragments_behind_each_other_are_one_question() -> None:
    """P11.4: one small question where a bookie kept its seat."""
    found = metadata(Quorum(3, 3, 2), 29, (0, (1, 2, 3)), (10, (1, 4, 3)), (20, (4, 1, 3)))
    assert list(owed_parts(found, member(1), 1000)) == [Owed(0, 29, 1, 1, 30)]
    assert list(owed_parts(found, member(2), 1000)) == [Owed(0, 9, 1, 1, 10)]
    assert list(owed_parts(found, member(4), 1000)) == [Owed(10, 29, 1, 1, 20)]
    assert list(owed_by_seat(found, 1, 0, 1000)) == [Owed(10, 19, 1, 1, 10)]


OWED = Owed(10, 19, 1, 1, 10)


@pytest.mark.parametrize(
    ("answer", "held"),
    [
        (HoldingsAnswer(Status.OK, 7, 10), (10, [])),
        (HoldingsAnswer(Status.OK, 7, 8, [(12, 13)]), (8, [(12, 13)])),
        (HoldingsAnswer(Status.OK, 7, 8, [(0, 10), (19, 99)]), (8, [(10, 10), (19, 19)])),
        (HoldingsAnswer(Status.NO_SUCH_LEDGER, 7), (0, [(10, 19)])),
    ],
)
def test_an_answer_counts_for_what_was_asked(
    answer: HoldingsAnswer, held: tuple[int, list[tuple[int, int]]]
) -> None:
    assert held_by(answer, 7, OWED) == held


@pytest.mark.parametrize(
    "answer",
    [
        HoldingsAnswer(Status.UNKNOWN, 7),
        HoldingsAnswer(Status.WRONG_INCARNATION, 7),
        HoldingsAnswer(Status.IN_LIMBO, 7),
        HoldingsAnswer(Status.OK, 8, 10),  # Of another ledger.
        HoldingsAnswer(Status.OK, 7, 11),  # More than there are.
        HoldingsAnswer(Status.OK, 7, 10, [(12, 12)]),  # All, and one lacks.
        HoldingsAnswer(Status.OK, 7, 3),  # Some lack, and none is named.
        HoldingsAnswer(Status.OK, 7, 3, [(0, 9), (30, 40)]),  # None of those that were asked for.
        ErrorAnswer("this bookie does not serve yet"),
        ReadAnswer(Status.OK, 7),
    ],
)
def test_an_answer_that_says_nothing_is_neither_yes_nor_no(answer: object) -> None:
    """P7.1, P11.4, P2.5."""
    with pytest.raises(PeerError):
        held_by(answer, 7, OWED)


class Asked:
    """A check, and bookies that answer what they are told to."""

    def __init__(
        self, *ledgers: LedgerMetadata, there: tuple[int, ...] = (1, 2, 3, 4), **options: int
    ) -> None:
        options = {"together": 1} | options
        named = {each.ledger_id: each for each in ledgers}
        self.check = HoldingCheck(named, frozenset(map(member, there)), CheckOptions(**options))
        self.now_ns = 0
        self.out: list[Send] = []
        self.result: Checked | None = None
        self.take(self.check.step(Started(0)))

    def take(self, effects: list[object]) -> None:
        for effect in effects:
            if isinstance(effect, Ended):
                assert self.result is None
                self.result = effect.result
            else:
                assert isinstance(effect, Send)
                self.out.append(effect)

    def answer(self, count: int | None = None, lacking: list[tuple[int, int]] | None = None) -> None:
        """The oldest question: with all that is asked for, or with this."""
        send = self.out.pop(0)
        request = send.control
        assert isinstance(request, HoldingsRequest)
        count = request.last_entry - request.first_entry + 1 if count is None else count
        control = HoldingsAnswer(Status.OK, request.ledger_id, count, lacking or [])
        self.take(self.check.step(Answered(self.now_ns, send.tag, send.member, control)))

    def answer_all(self, parts: int = 1_000, **statuses: Status) -> None:
        """The oldest message: so many of its parts, each with all that is asked for, or as a bookie's status says."""
        send = self.out.pop(0)
        request = send.control
        assert isinstance(request, HoldingsRequest)
        status = statuses.get(send.member.bookie_id, Status.OK)
        own, *others = [
            HeldRange(status, each.ledger_id, each.last_entry - each.first_entry + 1)
            for each in (request, *request.others)
        ][:parts]
        control = HoldingsAnswer(own.status, own.ledger_id, own.count, others=others)
        self.take(self.check.step(Answered(self.now_ns, send.tag, send.member, control)))

    def fail(self, reason: str) -> None:
        send = self.out.pop(0)
        self.take(self.check.step(SendFailed(self.now_ns, send.tag, send.member, reason)))

    def tick(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)
        self.take(self.check.step(Tick(self.now_ns)))


THREE = Quorum(3, 3, 2)
ONE = metadata(THREE, 9, (0, (1, 2, 3)))
OTHER = metadata(THREE, 9, (0, (2, 3, 4)), ledger_id=8)


def test_every_seat_is_asked_once_and_all_is_well_where_all_say_so() -> None:
    asked = Asked(ONE, OTHER)
    assert len(asked.out) == 6
    for _ in range(6):
        asked.answer()
    assert asked.result == Checked({}, {}, 6)


def test_who_lacks_something_is_named_with_how_much() -> None:
    asked = Asked(ONE)
    asked.answer()
    asked.answer(7, [(3, 5)])
    asked.answer()
    assert asked.result is not None
    assert asked.result.untold == {}
    assert {name: each.copies for name, each in asked.result.short[7].items()} == {"b2": 3}


def test_so_many_are_asked_at_once() -> None:
    asked = Asked(ONE, OTHER, at_once=2)
    for left in (2, 2, 2, 2, 2, 1):
        assert len(asked.out) == left
        asked.answer()
    assert asked.result == Checked({}, {}, 6)


def test_who_is_silent_or_cannot_be_reached_is_asked_nothing_more_and_did_not_say() -> None:
    """One bookie that is away costs a check one time limit, not one for each ledger."""
    asked = Asked(ONE, OTHER, at_once=1)
    asked.answer()
    asked.tick(4.9)
    assert asked.result is None
    asked.tick(0.2)  # b2 is late.
    asked.out.pop(0)
    asked.fail("no link")  # b3.
    asked.answer()  # b4 of the other ledger: b2 and b3 are asked nothing there.
    assert asked.result is not None
    assert asked.result.short == {}
    assert asked.result.untold == {
        7: {"b2": "no answer in time", "b3": "no link"},
        8: {"b2": "no answer in time", "b3": "no link"},
    }
    assert asked.result.asked == 4


def test_who_is_not_there_did_not_say() -> None:
    asked = Asked(ONE, there=(1, 2))
    asked.answer()
    asked.answer()
    assert asked.result == Checked({}, {7: {"b3": "it is not there"}}, 2)


def test_below_its_level_the_check_is_over_at_once() -> None:
    """P10.8."""
    asked = Asked(ONE, OTHER, at_once=1)
    asked.fail(BELOW_LEVEL)
    assert asked.result == Checked({}, {7: {"b1": BELOW_LEVEL}}, 1)


def test_a_long_ledger_is_asked_part_by_part_and_no_further_than_where_something_lacks() -> None:
    """P11.4: who only wants to know whether something lacks asks no more of that bookie; who counts asks all."""
    for is_brief, asked_of_it in ((True, 1), (False, 4)):
        asked = Asked(metadata(Quorum(1, 1, 1), 39, (0, (1,))), ids_max=10, at_once=1, is_brief=is_brief)
        while asked.out:
            asked.answer(4, [(asked.out[0].control.first_entry, asked.out[0].control.first_entry + 5)])  # type: ignore[attr-defined]
        assert asked.result is not None
        assert (asked.result.asked, asked.result.short[7]["b1"].copies) == (asked_of_it, 6 * asked_of_it)


def test_an_answer_that_comes_late_counts_for_nothing() -> None:
    asked = Asked(ONE)
    first = asked.out[0]
    asked.tick(6)
    assert asked.result is not None
    assert (
        asked.check.step(
            Answered(asked.now_ns, first.tag, first.member, HoldingsAnswer(Status.OK, 7, 1, [(1, 9)]))
        )
        == []
    )
    assert asked.result.short == {}


def test_nothing_to_ask_is_over_at_once() -> None:
    assert Asked().result == Checked({}, {}, 0)
    assert Asked(metadata(THREE, -1, (0, (1, 2, 3)))).result == Checked({}, {}, 0)


# Several questions in one message.

FIVE = [metadata(THREE, 9, (0, (1, 2, 3)), ledger_id=number) for number in range(20, 25)]


def asked_of(asked: Asked) -> list[tuple[str, list[int]]]:
    """For each message that is on its way: its bookie, and the ledgers that it asks about."""
    found = []
    for send in asked.out:
        request = send.control
        assert isinstance(request, HoldingsRequest)
        found.append((send.member.bookie_id, [each.ledger_id for each in (request, *request.others)]))
    return found


def test_questions_to_a_bookie_leave_together() -> None:
    """P11.4: one message to each bookie for many small ledgers."""
    asked = Asked(*FIVE, together=64)
    every = [each.ledger_id for each in FIVE]
    assert asked_of(asked) == [("b1", every), ("b2", every), ("b3", every)]
    for _ in range(3):
        asked.answer_all()
    assert asked.result == Checked({}, {}, 15)


def test_a_message_has_a_bound_of_questions_and_of_ids() -> None:
    """P11.4: a bookie counts so many ids for one message, however many ranges they stand in."""
    asked = Asked(*FIVE, together=2)
    assert [len(ledgers) for _, ledgers in asked_of(asked)] == [2, 2, 2, 2, 2, 2, 1, 1, 1]
    half = HOLDINGS_IDS_MAX // 2 + 1
    wide = [metadata(Quorum(1, 1, 1), half - 1, (0, (1,)), ledger_id=number) for number in (20, 21)]
    assert asked_of(Asked(*wide, together=64)) == [("b1", [20]), ("b1", [21])]


def test_what_is_asked_together_counts_in_the_bound_of_what_is_on_its_way() -> None:
    asked = Asked(*FIVE, together=2, at_once=4)
    seen = []
    while asked.out:
        seen.append(sum(len(ledgers) for _, ledgers in asked_of(asked)))
        asked.answer_all()
    assert asked.result == Checked({}, {}, 15)
    assert max(seen) <= 4


@pytest.mark.parametrize("is_late", [True, False])
def test_what_is_asked_together_is_unknown_together(is_late: bool) -> None:
    """P11.4: "cannot tell" is never "no", and never "yes" either, for each of the questions of a message."""
    asked = Asked(*FIVE, together=64)
    if is_late:
        asked.tick(6)
    else:
        for _ in range(3):
            asked.fail("no link")
    why = "no answer in time" if is_late else "no link"
    untold = {each.ledger_id: {"b1": why, "b2": why, "b3": why} for each in FIVE}
    assert asked.result == Checked({}, untold, 15)


def test_one_part_that_cannot_be_told_says_nothing_of_the_others() -> None:
    asked = Asked(*FIVE, together=64)
    asked.answer_all(b1=Status.UNKNOWN)
    asked.answer_all()
    asked.answer_all()
    assert asked.result == Checked({}, {each.ledger_id: {"b1": "UNKNOWN"} for each in FIVE}, 15)
    refusing = Asked(*FIVE, together=64)
    while refusing.out:
        send = refusing.out.pop(0)
        refusing.take(
            refusing.check.step(Answered(0, send.tag, send.member, ErrorAnswer("it does not serve yet")))
        )
    assert refusing.result is not None
    assert refusing.result.untold[24] == dict.fromkeys(("b1", "b2", "b3"), "it does not serve yet")


def test_a_bookie_of_a_build_before_is_asked_one_by_one() -> None:
    """P10.8: it passes over the field that it does not know, and answers for its own range alone."""
    asked = Asked(*FIVE, together=64)
    asked.answer_all(parts=1)
    asked.answer_all()
    asked.answer_all()
    assert asked_of(asked) == [("b1", [number]) for number in range(21, 25)]
    for _ in range(4):
        asked.answer_all()
    assert asked.result == Checked({}, {}, 19)
