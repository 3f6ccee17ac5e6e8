"""How far ledgers that are written to are known to be acknowledged (P6.1): so much their seats owe by now (P11.3)."""

from __future__ import annotations

from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import METADATA_VERSION, Fragment, LedgerMetadata, LedgerState
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.known_lacs import KnownLacs
from embedbk.core.machine import Effect
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member

SECOND = 1_000_000_000
B1, B2, B3, B4 = (Member(f"b{number}", bytes([number]) * 16) for number in (1, 2, 3, 4))
ALL = frozenset({B1, B2, B3, B4})


def ledger(ledger_id: int, *starts: int) -> LedgerMetadata:
    """With a fragment for each of these first entries, the last of them on b1, b2 and b3."""
    ensembles = [(B1, B2, B4)] * (len(starts) - 1) + [(B1, B2, B3)]
    fragments = tuple(
        Fragment(first, 0, tuple((each.bookie_id, each.incarnation) for each in members))
        for first, members in zip(starts, ensembles, strict=True)
    )
    return LedgerMetadata(
        METADATA_VERSION, ledger_id, 3, 3, 2, LedgerState.OPEN, None, None, b"v", 1, {}, fragments
    )


def asked(effects: list[Effect]) -> list[Send]:
    return [each for each in effects if isinstance(each, Send)]


def told(core: KnownLacs, send: Send, lac: int, status: Status = Status.OK, now_ns: int = 0) -> list[Effect]:
    assert isinstance(send.control, LacRequest)
    answer = LacAnswer(status, send.control.ledger_id, lac)
    return core.step(Answered(now_ns, send.tag, send.member, answer, []))


def ended(effects: list[Effect]) -> dict[int, int]:
    (end,) = (each for each in effects if isinstance(each, Ended))
    assert end.error is None
    found: dict[int, int] = end.result
    return found


def test_the_highest_lac_of_the_last_fragment_counts() -> None:
    """P6.1: a LAC is never more than what is acknowledged."""
    core = KnownLacs({7: ledger(7, 0)}, ALL)
    first, second, third = asked(core.step(Started(0)))
    assert {each.member for each in (first, second, third)} == {B1, B2, B3}
    told(core, first, 4)
    told(core, second, 9)
    assert ended(told(core, third, 8)) == {7: 9}


def test_what_lies_before_the_last_fragment_is_acknowledged_whatever_anybody_says() -> None:
    """P4.2: a fragment starts behind what was acknowledged. A ledger that nobody has written to owes nothing."""
    core = KnownLacs({7: ledger(7, 0, 20), 8: ledger(8, 0)}, ALL)
    effects: list[Effect] = []
    for each in asked(core.step(Started(0))):
        effects = told(core, each, 50, Status.NO_SUCH_LEDGER)
    assert ended(effects) == {7: 19, 8: -1}


def test_who_is_not_there_is_not_asked_and_who_does_not_answer_is_asked_no_more() -> None:
    """P11.3: a bookie that is away keeps nobody waiting: its copies do not count anyway."""
    core = KnownLacs({each: ledger(each, 0) for each in range(1, 5)}, ALL - {B3}, at_once=2)
    first, second = asked(core.step(Started(0)))
    assert {first.member, second.member} == {B1, B2}
    (third,) = asked(told(core, first, 3, now_ns=SECOND))
    assert third.member == B1
    assert core.deadline_ns == 2 * SECOND
    (fourth,) = asked(core.step(Tick(2 * SECOND)))  # b2 is silent; of it nothing else is asked.
    assert fourth.member == B1
    assert told(core, second, 99, now_ns=2 * SECOND) == []  # Too late.
    (fifth,) = asked(told(core, third, 5, now_ns=2 * SECOND))
    told(core, fourth, 6, now_ns=2 * SECOND)
    assert ended(told(core, fifth, 7, now_ns=2 * SECOND)) == {1: 3, 2: 5, 3: 6, 4: 7}


def test_a_link_that_is_lost_is_no_answer() -> None:
    """P6.1: nor is an answer about another ledger."""
    core = KnownLacs({1: ledger(1, 0)}, ALL)
    first, second, third = asked(core.step(Started(0)))
    core.step(SendFailed(0, first.tag, first.member, "link lost"))
    core.step(Answered(0, second.tag, second.member, LacAnswer(Status.OK, 2, 40), []))
    assert ended(told(core, third, 1)) == {1: 1}


def test_of_no_ledger_nothing_is_asked() -> None:
    assert ended(KnownLacs({}, ALL).step(Started(0))) == {}
