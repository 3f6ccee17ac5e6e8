"""Bookies are asked for the numbers of many ledgers at once: the machine alone (P11.4)."""

from __future__ import annotations

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import BLOCKS_MAX, LedgerBlocksAnswer, LedgerBlocksRequest
from embedbk.codec.messages import ErrorAnswer
from embedbk.core.client_words import BELOW_LEVEL, Answered, Send, SendFailed
from embedbk.core.machine import Effect
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member
from embedbk.repair.block_questions import TIMEOUT_NS, BlockQuestions, Numbered

B1, B2, B3 = (Member(f"b{number}", bytes([number]) * 16) for number in (1, 2, 3))


def asking(blocks: int, *members: Member, there: tuple[Member, ...] = (B1, B2, B3)) -> BlockQuestions:
    asked = {block: (1_024 * block, dict.fromkeys(members, b"\x07")) for block in range(blocks)}
    return BlockQuestions(asked, frozenset(there))


def sent(effects: list[Effect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def ended(effects: list[Effect]) -> Numbered:
    (found,) = effects
    assert isinstance(found, Ended) and isinstance(found.result, Numbered)
    return found.result


def told(core: BlockQuestions, send: Send, now_ns: int = 1) -> list[Effect]:
    request = send.control
    assert isinstance(request, LedgerBlocksRequest)
    numbers: list[int | None] = [each.first_ledger + 1 for each in request.blocks]
    return core.step(Answered(now_ns, send.tag, send.member, LedgerBlocksAnswer(Status.OK, numbers)))


def test_one_message_at_a_time_to_each_bookie_with_as_many_blocks_as_it_takes() -> None:
    """P11.4: what a bookie looks at in one go is bounded."""
    core = asking(BLOCKS_MAX + 3, B1, B2)
    first, other = sent(core.step(Started(0)))
    assert (first.member, other.member) == (B1, B2)
    assert isinstance(first.control, LedgerBlocksRequest)
    assert first.control.incarnation == B1.incarnation and len(first.control.blocks) == BLOCKS_MAX
    (rest,) = sent(told(core, first))
    assert isinstance(rest.control, LedgerBlocksRequest)
    assert [each.first_ledger for each in rest.control.blocks] == [1_024 * (BLOCKS_MAX + n) for n in range(3)]
    assert told(core, rest) == []
    (last,) = sent(told(core, other))
    found = ended(told(core, last))
    assert found.numbers == {n: {B1: 1_024 * n + 1, B2: 1_024 * n + 1} for n in range(BLOCKS_MAX + 3)}
    assert told(core, last) == []


def test_who_is_not_there_is_not_asked() -> None:
    assert ended(asking(2, B1, there=(B2,)).step(Started(0))) == Numbered({}, False)


def test_what_is_no_answer_tells_nothing_and_that_bookie_is_asked_no_more() -> None:
    """P11.4: of another length, unknown, or of a build that does not know the question."""
    for answer in (
        LedgerBlocksAnswer(Status.OK, [1]),
        LedgerBlocksAnswer(Status.UNKNOWN),
        LedgerBlocksAnswer(Status.WRONG_INCARNATION, [1] * BLOCKS_MAX),
        ErrorAnswer("a bookie does not take this kind of message"),
    ):
        core = asking(BLOCKS_MAX + 1, B1)
        (send,) = sent(core.step(Started(0)))
        assert ended(core.step(Answered(1, send.tag, B1, answer))) == Numbered({}, False)


def test_a_number_that_is_not_told_leaves_the_others() -> None:
    core = asking(2, B1)
    (send,) = sent(core.step(Started(0)))
    found = ended(core.step(Answered(1, send.tag, B1, LedgerBlocksAnswer(Status.OK, [None, 4]))))
    assert found.numbers == {1: {B1: 4}}


def test_who_is_silent_or_away_tells_nothing_and_keeps_nobody_waiting() -> None:
    core = asking(BLOCKS_MAX + 1, B1, B2, B3)
    one, other, third = sent(core.step(Started(5)))
    assert core.deadline_ns == 5 + TIMEOUT_NS
    assert core.step(SendFailed(6, other.tag, B2, "the link was lost")) == []
    (more,) = sent(told(core, third, now_ns=7))
    assert core.step(Tick(4 + TIMEOUT_NS)) == []
    assert core.step(Tick(5 + TIMEOUT_NS)) == []
    assert told(core, one) == []  # Too late.
    found = ended(told(core, more))
    assert found.numbers == {n: {B3: 1_024 * n + 1} for n in range(BLOCKS_MAX + 1)}
    assert core.deadline_ns is None


def test_the_last_silent_bookie_ends_it() -> None:
    core = asking(1, B1)
    core.step(Started(0))
    assert ended(core.step(Tick(TIMEOUT_NS))) == Numbered({}, False)


def test_below_the_level_that_is_said() -> None:
    """P10.8."""
    core = asking(1, B1)
    (send,) = sent(core.step(Started(0)))
    assert ended(core.step(SendFailed(1, send.tag, B1, BELOW_LEVEL))) == Numbered({}, True)
