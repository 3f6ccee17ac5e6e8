"""Reads and copies of several small ledgers in one message: what travels together, and what fails alone (P11.2)."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest, CopiesAnswer, CopyTaken
from embedbk.codec.bookie_fields import Status
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.read_messages import ReadAnswer, ReadClass, ReadPart, ReadRequest
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Event
from embedbk.repair.copy_gathering import CopyGathering
from embedbk.repair.fragment_copy import CopyOptions
from tests.repair.test_small_repairs import MEMBERS, PAYLOAD, SECOND, Shelf, ledger

SIZE = len(PAYLOAD) + 64  # What a ledger counts for.


def reads(shelf: Shelf) -> list[list[int]]:
    """The ledgers of each message that reads, in the order of sending."""
    asked = (each.control for each in shelf.of(Send) if isinstance(each.control, ReadRequest))
    return [[each.ledger_id, *(other.ledger_id for other in each.others)] for each in asked]


def copies(shelf: Shelf) -> list[list[int]]:
    sent = (each for each in shelf.of(Send) if isinstance(each.control, AddRequest))
    return [[frame.ledger_id for _, frame in each.frames] for each in sent]


def some(count: int = 5, **options: object) -> Shelf:
    return Shelf([ledger(each) for each in range(1, count + 1)], **options)


def moved(shelf: Shelf) -> list[int]:
    return [each.ledger_id for each in shelf.core.ledgers if shelf.has_moved(each.ledger_id)]


def test_one_message_reads_all_of_one_bookie_and_one_brings_all_copies() -> None:
    """P11.2, issue 15: "many small ledgers per round trip"."""
    shelf = some(40).run()
    everything = list(range(1, 41))
    assert (reads(shelf), copies(shelf), moved(shelf)) == ([everything], [everything], everything)
    (read, _) = shelf.of(Send)
    assert read.control.bytes_max == FRAME_BYTES_MAX  # For all of them together.


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"together": 2}, [[1, 2], [3, 4], [5]]),
        ({"together": 1}, [[1], [2], [3], [4], [5]]),
        ({"together_bytes": 3 * SIZE}, [[1, 2, 3], [4, 5]]),
        ({"together_bytes": 1}, [[1], [2], [3], [4], [5]]),
    ],
)
def test_a_message_has_a_bound_of_ledgers_and_of_bytes(
    options: dict[str, int], parts: list[list[int]]
) -> None:
    """P11.2: a larger one would be no message any more."""
    shelf = some(**options).run()
    assert reads(shelf) == parts
    assert moved(shelf) == [1, 2, 3, 4, 5]
    assert all(len(each) <= options.get("together", 64) for each in copies(shelf))


@pytest.mark.parametrize("what", ["damaged", "not there", "unknown", "no such ledger", "refused"])
def test_one_that_fails_fails_alone(what: str) -> None:
    """P11.2: of five ledgers in one message one is damaged, or not there, or is refused by the target."""
    shelf = some()
    if what == "damaged":
        shelf.rotten = {3}
    elif what == "not there":
        shelf.gone = {3}
    elif what == "refused":
        shelf.verdicts["copy", 3] = Status.CONFLICT
    else:
        shelf.verdicts["read", 3] = Status.UNKNOWN if what == "unknown" else Status.NO_SUCH_LEDGER
    shelf.run()
    assert (shelf.alone, moved(shelf), shelf.ended) == ([3], [1, 2, 4, 5], [1, 2, 4, 5])
    assert reads(shelf)[0] == [1, 2, 3, 4, 5]
    # The other bookies that should have it were asked, for this one alone.
    assert reads(shelf)[1:] == ([] if what == "refused" else [[3]])


def test_a_copy_that_is_damaged_in_one_place_is_read_in_another_with_its_like() -> None:
    """P11.2: what failed at one source goes on together as well."""
    shelf = some()
    first = shelf.rotten = {2, 4}

    def heal(effect: Effect) -> None:
        if isinstance(effect, Send) and effect.member != MEMBERS[1]:
            shelf.rotten = set()

    shelf.answer_of = heal  # type: ignore[assignment]
    shelf.run()
    assert reads(shelf) == [[1, 2, 3, 4, 5], sorted(first)]
    assert moved(shelf) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["source", "target"])
def test_a_bookie_of_the_build_before_is_asked_one_by_one(kind: str) -> None:
    """P11.2: a source of it answers for the first ledger alone; a target of it refuses the message, and stores nothing.
    What was not answered is sent again, and nothing more is sent together to this bookie."""
    shelf = some(5, together=3)
    shelf.older = {MEMBERS[1] if kind == "source" else MEMBERS[3]}
    shelf.run()
    assert moved(shelf) == [1, 2, 3, 4, 5] == shelf.ended
    if kind == "source":
        assert sorted(reads(shelf)) == [[1, 2, 3], [2], [3], [4, 5], [5]]
    else:
        assert [each for each in copies(shelf) if len(each) == 1] == [[1], [2], [3], [4], [5]]
        assert len(copies(shelf)) == 7  # Both messages were on their way.


def test_a_bookie_is_known_to_be_of_the_build_before_from_its_first_answer_on() -> None:
    """P11.2: what is asked later goes one by one at once."""
    shelf = some(5, together=3)
    shelf.older = {MEMBERS[3]}
    shelf.is_silent = lambda effect: (
        isinstance(effect, Send)
        and isinstance(effect.control, ReadRequest)
        and (effect.member, effect.control.ledger_id) == (MEMBERS[1], 4)
    )
    shelf.run().tick(CopyOptions().read_timeout_ns)
    assert reads(shelf) == [[1, 2, 3], [4, 5], [4, 5]]
    assert copies(shelf) == [[1, 2, 3], [1], [2], [3], [4], [5]]
    assert moved(shelf) == [1, 2, 3, 4, 5]


def test_a_copy_that_finds_its_bookie_busy_is_sent_again() -> None:
    """P7.8: alone, or with others that found it busy."""
    shelf = some()
    shelf.verdicts = {("copy", 2): Status.BUSY, ("copy", 4): Status.BUSY}
    shelf.run()
    shelf.verdicts = {}
    shelf.tick(CopyOptions().busy_ns)
    assert copies(shelf) == [[1, 2, 3, 4, 5], [2, 4]]
    assert moved(shelf) == [1, 2, 3, 4, 5]


def test_a_lost_message_is_that_of_each_of_its_ledgers() -> None:
    """P11.2: another source is asked; where copies got no answer nobody knows what is durable."""
    shelf = some()
    shelf.answer_of = lambda effect: (
        SendFailed(0, effect.tag, effect.member, "gone")
        if isinstance(effect, Send) and effect.member == MEMBERS[1]
        else None
    )
    shelf.run()
    assert reads(shelf) == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]
    assert moved(shelf) == [1, 2, 3, 4, 5]
    shelf = some()
    shelf.is_silent = lambda effect: isinstance(effect, Send) and isinstance(effect.control, AddRequest)
    shelf.run().tick(20 * SECOND)
    assert (moved(shelf), shelf.alone) == ([], [1, 2, 3, 4, 5])


def answered_otherwise(shelf: Shelf, how: str) -> None:
    """The answers of a bookie that lies."""

    def lie(effect: Effect) -> Event | None:
        if not isinstance(effect, Send):
            return None
        told = shelf.bookie(effect)
        control, frames = told.control, told.frames
        if isinstance(control, ReadAnswer) and control.others:
            if how == "another ledger":
                other = ReadPart(Status.NO_SUCH_LEDGER, 99)
                control = ReadAnswer(control.status, control.ledger_id, others=[other, *control.others[1:]])
                frames = [each for each in frames if each[0].ledger_id != 2]
            elif how == "two frames":
                frames = [*frames, frames[1]]
        elif isinstance(control, CopiesAnswer):
            if how == "another message":
                control = CopiesAnswer(control.nonce, control.seating + 1, control.copies)
            elif how == "another nonce":
                control = CopiesAnswer(control.nonce + 1, control.seating, control.copies)
            elif how == "another entry":
                wrong = CopyTaken(Status.OK, 2, 1, 1)
                control = CopiesAnswer(
                    control.nonce, control.seating, [control.copies[0], wrong, *control.copies[2:]]
                )
            elif how == "in another order":
                control = CopiesAnswer(control.nonce, control.seating, control.copies[::-1])
        return Answered(0, told.tag, told.member, control, frames)

    shelf.answer_of = lie


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ("another ledger", []),  # The next source has it.
        ("two frames", []),
        ("another entry", [2]),
        ("in another order", [1, 2, 4, 5]),  # The one in the middle is as it was.
        ("another nonce", [1, 2, 3, 4, 5]),
        ("another message", [1, 2, 3, 4, 5]),
    ],
)
def test_an_answer_counts_for_what_it_is_about_and_nothing_else(how: str, left: list[int]) -> None:
    """P3.8, I36: nothing is published for an answer about another ledger, entry, message or handle."""
    shelf = some()
    answered_otherwise(shelf, how)
    shelf.run()
    if left == [1, 2, 3, 4, 5]:  # As if there were none.
        assert moved(shelf) == []
        shelf.tick(20 * SECOND)
    assert (moved(shelf), shelf.alone) == ([each for each in range(1, 6) if each not in left], left)
    if how in ("another ledger", "two frames"):
        assert reads(shelf)[1:] == [[2]]


def test_a_verdict_on_another_ledger_is_none() -> None:
    """P7.1: else "no such ledger", said of another one, would be a "no" about this one."""
    disk = MEMBERS[1].incarnation
    sends = [
        Send(MEMBERS[1], ReadRequest(disk, each, 0, 0, 99, reads_as=ReadClass.UPKEEP), ("read", each))
        for each in (1, 2)
    ]
    gathering = CopyGathering(5)
    (sent,) = gathering.gathered((each, SIZE) for each in sends)
    assert isinstance(sent, Send)
    other = ReadPart(Status.NO_SUCH_LEDGER, 99)
    told = Answered(0, sent.tag, MEMBERS[1], ReadAnswer(Status.OK, 1, others=[other]))
    parts, left = gathering.taken_apart(told)
    assert not left
    assert [(part.tag, type(part.control)) for part in parts if isinstance(part, Answered)] == [
        (("read", 1), ReadAnswer),
        (("read", 2), ErrorAnswer),
    ]


def test_what_a_bookie_says_of_one_that_was_not_read_for_lack_of_room_is_no_verdict() -> None:
    """P7.1: it is read again a little later."""
    shelf = some()
    shelf.verdicts = {("read", 4): Status.BUSY, ("read", 5): Status.BUSY}
    shelf.run()
    assert shelf.core.deadline_ns is not None
    shelf.verdicts = {}
    shelf.tick(shelf.core.deadline_ns)
    assert reads(shelf) == [[1, 2, 3, 4, 5], [4, 5]]
    assert moved(shelf) == [1, 2, 3, 4, 5]
