"""Counting common answers (native/road/answers.h): both forms say the same, and count nothing else (P3.8)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from embedbk._native import lib
from embedbk.codec import kernels
from embedbk.codec.add_messages import AddAnswer
from embedbk.codec.answers import Answers
from embedbk.codec.answers_twin import ANSWERS_SLOTS_MAX, ANSWERS_UNTOLD_MAX, Asked, Counting, TwinAnswers
from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacAnswer
from embedbk.codec.messages import MESSAGE_HEADER_BYTES, ErrorAnswer, encode_add_answers, encode_message

NONCE, LEDGER = 2**64 - 5, 2**63 - 1


def asked(request_id: int, **changes: Any) -> Asked:
    usual = Asked(1, request_id, request_id, 1, NONCE, 300, LEDGER, request_id * 2, request_id * 2 + 1)
    return usual._replace(**changes)


def answer_to(question: Asked, **changes: Any) -> AddAnswer:
    said: dict[str, Any] = {
        "status": Status.OK, "nonce": question.nonce, "seating": question.seating, "recovery": False,
        "ledger_id": question.ledger_id, "first_entry": question.first_entry, "last_entry": question.last_entry,
    }  # fmt: skip
    return AddAnswer(**{**said, **changes})


def message(*answers: tuple[int, AddAnswer]) -> bytes:
    return b"".join(bytes(piece) for piece in encode_add_answers(answers))


def yes(*questions: Asked) -> bytes:
    return message(*((question.request_id, answer_to(question)) for question in questions))


@pytest.fixture(params=[Answers, TwinAnswers])
def counting(request: pytest.FixtureRequest) -> Counting:
    made: Counting = request.param()
    return made


def test_what_was_asked_is_counted_once(counting: Counting) -> None:
    """P3.8: an answer is to one request; the second to it counts for nothing."""
    counting.expect(asked(7))
    assert not counting.is_due
    assert counting.take(1, yes(asked(7)))
    assert (counting.is_due, counting.untold, counting.counted) == (True, 1, 1)
    assert not counting.take(1, yes(asked(7)))
    assert counting.tell() == [(1, 7, False)]
    assert (counting.is_due, counting.untold, counting.counted) == (False, 0, 1)
    assert not counting.take(1, yes(asked(7)))


def test_a_frame_is_news_with_its_quorum_and_not_before_or_after(counting: Counting) -> None:
    """P3.3: Qa of three answers; the third waits until something else is told."""
    parts = [
        asked(7 + seat, link=seat, group=7, needed=2, seating=seat, first_entry=3, last_entry=9)
        for seat in range(3)
    ]
    for part in parts:
        counting.expect(part)
    assert counting.take(2, yes(parts[2])) and not counting.is_due
    assert counting.take(0, yes(parts[0])) and counting.is_due
    assert counting.tell() == [(2, 9, False), (0, 7, False)]
    assert counting.take(1, yes(parts[1])) and not counting.is_due
    assert counting.tell() == [(1, 8, False)]


def test_one_that_was_told_by_itself_counts_for_its_frame(counting: Counting) -> None:
    """P3.3: an answer that came among others that were passed is one of the Qa."""
    for seat in range(3):
        counting.expect(asked(7 + seat, group=7, needed=2))
    counting.answered(9)
    counting.answered(9)
    counting.answered(1000)
    assert (counting.is_due, counting.untold) == (False, 0)
    assert not counting.take(1, yes(asked(9)))
    assert counting.take(1, yes(asked(7))) and counting.is_due


def test_in_doubt_every_answer_is_news(counting: Counting) -> None:
    counting.expect(asked(7, needed=2))
    counting.expect(asked(8, group=7, needed=2))
    counting.is_eager = True
    assert counting.take(1, yes(asked(8))) and counting.is_due


@pytest.mark.parametrize(
    "changes",
    [
        {"status": Status.UNKNOWN}, {"status": Status.RECEIVED}, {"nonce": NONCE - 1}, {"seating": 301},
        {"recovery": True}, {"ledger_id": LEDGER - 1}, {"first_entry": 15}, {"last_entry": 14}, {"last_entry": 16},
    ],
)  # fmt: skip
def test_any_other_answer_is_passed(counting: Counting, changes: dict[str, Any]) -> None:
    """P3.7, P3.8: not to all of the part, to another handle, another seating, a recovery add, or not OK."""
    for question in (asked(7), asked(8)):
        counting.expect(question)
    other = (7, answer_to(asked(7), **changes))
    assert not counting.take(1, message(other))
    assert not counting.take(1, message((8, answer_to(asked(8))), other)), "all of a message or nothing"
    assert counting.untold == 0
    assert not counting.take(2, yes(asked(7))), "another link"
    assert not counting.take(1, yes(asked(9))), "nobody asked"
    assert counting.take(
        1, message((8, answer_to(asked(8))), (7, answer_to(asked(7))), (8, answer_to(asked(8))))
    )
    assert counting.tell() == [(1, 8, False), (1, 7, False)]


def test_where_a_reader_waits_is_told_with_the_answer(counting: Counting) -> None:
    """P6.2: also of several answers in one message, each for itself."""
    for request_id in (7, 8, 9):
        counting.expect(asked(request_id))
    assert counting.take(1, message((7, answer_to(asked(7), is_followed=True))))
    both = (8, answer_to(asked(8))), (9, answer_to(asked(9), is_followed=True))
    assert counting.take(1, message(*both))
    assert counting.tell() == [(1, 7, True), (1, 8, False), (1, 9, True)]


def test_an_answer_of_before_it_said_so_is_counted(counting: Counting) -> None:
    """WIRE.md 3: fields are appended with a default, and who misses them takes it."""
    counting.expect(asked(7))
    whole = msgspec.msgpack.encode(answer_to(asked(7)))
    assert whole[:1] == b"\x98" and whole[-1:] == b"\xc2"
    older = bytes(kernels.message_head(2, 0, b"\x97" + whole[1:-1], 0, 7))
    assert counting.take(1, older)
    assert counting.tell() == [(1, 7, False)]


def test_other_messages_are_passed(counting: Counting) -> None:
    counting.expect(asked(7))
    for control in (LacAnswer(Status.OK, 1), ErrorAnswer("what?")):
        assert not counting.take(1, b"".join(bytes(piece) for piece in encode_message(7, control)))
    for size in range(len(yes(asked(7)))):
        assert not counting.take(1, yes(asked(7))[:size])
    assert not counting.take(1, yes(asked(7)) + b"\0")


@pytest.mark.parametrize("is_resealed", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_no_bit_is_overlooked(is_resealed: bool, several: bool) -> None:
    """P3.8: with any bit turned over nothing is counted, also when its sum was made anew; both forms agree."""
    questions = [asked(7, nonce=70_000, ledger_id=300), asked(8)][: 2 if several else 1]
    whole = yes(*questions)
    # Where a reader waits is no part of what was asked, and a sum made anew hides its damage.
    others = [
        message(*((each.request_id, answer_to(each, is_followed=each is followed)) for each in questions))
        for followed in (None, *questions)
    ]
    for at in range(len(whole)):
        for bit in range(8):
            body = bytearray(whole)
            body[at] ^= 1 << bit
            if is_resealed:
                crc = kernels.crc32c(bytes(body[MESSAGE_HEADER_BYTES:]), kernels.crc32c(bytes(body[:24])))
                body[24:28] = crc.to_bytes(4, "little")
            taken = []
            for made in (Answers(), TwinAnswers()):
                for question in questions:
                    made.expect(question)
                taken.append(made.take(1, bytes(body)))
            # Nor means the request id of a message with several answers anything.
            is_said = bytes(body) in others or (several and 16 <= at < 24)
            assert taken[0] == taken[1] == (is_resealed and is_said), at


def test_numbers_are_read_in_any_width(counting: Counting) -> None:
    """WIRE 3: MessagePack's numbers have many lengths."""
    edges = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1]
    request_id = 0
    for nonce in [*edges, 2**63, 2**64 - 1]:
        for number in edges:
            request_id += 1
            question = asked(
                request_id,
                nonce=nonce,
                seating=number,
                ledger_id=number,
                first_entry=number,
                last_entry=number,
            )
            counting.expect(question)
            assert counting.take(1, yes(question))


def test_bounds(counting: Counting) -> None:
    """Older unanswered requests give way, and their answers are passed; many untold answers are news by themselves."""
    assert (ANSWERS_SLOTS_MAX, ANSWERS_UNTOLD_MAX) == (lib.EBK_ANSWERS_SLOTS_MAX, lib.EBK_ANSWERS_UNTOLD_MAX)
    for request_id in range(1, ANSWERS_SLOTS_MAX + 3):
        counting.expect(asked(request_id, needed=2))
    assert not counting.take(1, yes(asked(1))) and not counting.take(1, yes(asked(2)))
    for request_id in range(3, 3 + ANSWERS_UNTOLD_MAX):
        assert not counting.is_due
        assert counting.take(1, yes(asked(request_id)))
    assert counting.is_due
    counting.tell()
    counting.expect(asked(ANSWERS_SLOTS_MAX + 3, group=1, needed=2))
    assert counting.take(1, yes(asked(ANSWERS_SLOTS_MAX + 3))) and counting.is_due, (
        "the count of its group is gone"
    )


@pytest.mark.parametrize("seed", range(8))
def test_both_forms_say_the_same(seed: int) -> None:
    """The same questions and answers, in any order, doubled, damaged, late."""
    chance = random.Random(f"answers {seed}")
    sides: list[Counting] = [Answers(), TwinAnswers()]
    open_questions: list[Asked] = []
    next_id = 0

    def both(do: Callable[[Counting], Any]) -> Any:
        found, twin = (do(side) for side in sides)
        assert found == twin
        return found

    def ask() -> None:
        nonlocal next_id
        group, needed = next_id + 1, chance.randint(1, 3)
        for seat in range(chance.randint(1, 3)):
            next_id += chance.choice([1, 1, 1, 64, 5000])
            group = next_id if seat == 0 else group
            question = asked(
                next_id, link=seat + 1, group=group, needed=needed, seating=seat, nonce=chance.getrandbits(40)
            )
            both(lambda side, question=question: side.expect(question))  # type: ignore[misc]
            open_questions.append(question)

    def answer() -> None:
        if not open_questions:
            return
        link = chance.randint(1, 3)
        of_link = [question for question in open_questions[-60:] if question.link == link] or open_questions[
            -1:
        ]
        chosen = chance.choices(of_link, k=chance.choice([1, 1, 2, 5]))
        followed = chance.random() < 0.3
        body = bytearray(
            message(*((each.request_id, answer_to(each, is_followed=followed)) for each in chosen))
        )
        if chance.random() < 0.1:
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        if both(lambda side: side.take(link, bytes(body))) and chance.random() < 0.7:
            for question in set(chosen):
                open_questions.remove(question)

    def tell_by_itself() -> None:
        if open_questions:
            request_id = chance.choice(open_questions[-20:]).request_id
            both(lambda side: side.answered(request_id))

    def set_eager() -> None:
        is_eager = chance.random() < 0.3
        for side in sides:
            side.is_eager = is_eager

    for act in chance.choices([ask, answer, tell_by_itself, set_eager], [40, 100, 3, 3], k=1500):
        act()
        if both(lambda side: (side.is_due, side.untold, side.counted))[0] and chance.random() < 0.8:
            both(lambda side: side.tell())
    assert sides[0].counted > 300
