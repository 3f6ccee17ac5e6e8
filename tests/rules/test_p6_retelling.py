"""LACs of idle writers are told again until they are answered, where they may have been lost
(P6.2; core/lac_retelling.py)."""

from __future__ import annotations

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import ExplicitLacAnswer, ExplicitLacRequest
from embedbk.codec.messages import ErrorAnswer
from embedbk.core.client_words import Answered, LacsInDoubt, Send, SendFailed
from embedbk.core.lac_retelling import (
    ASKED_MAX,
    GIVEN_UP_NS,
    LACS_MAX,
    PAUSE_NS_MAX,
    PAUSE_NS_MIN,
    LacRetelling,
)
from embedbk.core.machine import Effect
from embedbk.core.vocabulary import Ended, Tick
from embedbk.ids import Member

SECOND = 1_000_000_000
B1 = Member("b1", b"1" * 16)


def lac(ledger_id: int, entry: int = 0) -> ExplicitLacRequest:
    return ExplicitLacRequest(B1.incarnation, ledger_id, bytes(16), entry, 4, wants_answer=False)


def doubt(core: LacRetelling, now_ns: int, *lacs: ExplicitLacRequest) -> None:
    assert core.step(LacsInDoubt(now_ns, list(lacs))) == []


def tick(core: LacRetelling) -> tuple[int, list[Effect]]:
    """At its deadline."""
    assert core.deadline_ns is not None
    now_ns = core.deadline_ns
    return now_ns, core.step(Tick(now_ns))


def sent(effects: list[Effect]) -> list[Send]:
    assert all(isinstance(each, Send) for each in effects)
    return [each for each in effects if isinstance(each, Send)]


def answer(core: LacRetelling, now_ns: int, send: Send, status: Status = Status.OK) -> list[Effect]:
    assert isinstance(send.control, ExplicitLacRequest) and send.control.wants_answer
    control = ExplicitLacAnswer(status, send.control.ledger_id)
    return core.step(Answered(now_ns, send.tag, send.member, control))


def is_at_rest(core: LacRetelling) -> bool:
    return not core.lacs and not core.asked and core.deadline_ns is None


def test_each_is_told_until_it_is_answered() -> None:
    """P6.2: a LAC that was lost, or refused by a bookie that starts, is told again, with an answer."""
    core = LacRetelling(B1)
    doubt(core, SECOND, lac(1, 5), lac(2))
    assert core.deadline_ns == SECOND + PAUSE_NS_MIN
    assert core.step(Tick(core.deadline_ns - 1)) == []
    now_ns, effects = tick(core)
    first, second = sent(effects)
    assert first.control == ExplicitLacRequest(B1.incarnation, 1, bytes(16), 5, 4, wants_answer=True)
    assert core.deadline_ns is None
    assert answer(core, now_ns, first, Status.BUSY) == []
    assert answer(core, now_ns, second) == []
    now_ns, effects = tick(core)
    (again,) = sent(effects)
    assert again.control == first.control
    assert answer(core, now_ns, again) == []
    assert is_at_rest(core)


@pytest.mark.parametrize("status", [Status.BUSY, Status.UNKNOWN, Status.IN_LIMBO])
def test_what_is_not_known_yet_is_no_answer(status: Status) -> None:
    """P6.2, P7.4: a bookie that cannot tell is asked later."""
    core = LacRetelling(B1)
    doubt(core, SECOND, lac(1))
    now_ns, (send,) = tick(core)
    assert isinstance(send, Send)
    assert answer(core, now_ns, send, status) == [] and core.deadline_ns == now_ns + PAUSE_NS_MIN


def test_an_error_is_no_answer() -> None:
    core = LacRetelling(B1)
    doubt(core, SECOND, lac(1))
    now_ns, (send,) = tick(core)
    assert isinstance(send, Send)
    assert core.step(Answered(now_ns, send.tag, B1, ErrorAnswer("not yet"))) == []
    assert core.deadline_ns is not None


@pytest.mark.parametrize("status", [Status.FENCED, Status.WRONG_KEY])
def test_what_will_never_be_taken_is_not_told_again(status: Status) -> None:
    """P3.4a: behind a fence a recovery says how far the ledger goes."""
    core = LacRetelling(B1)
    doubt(core, SECOND, lac(1))
    now_ns, (send,) = tick(core)
    assert isinstance(send, Send)
    assert answer(core, now_ns, send, status) == []
    assert is_at_rest(core)


def test_another_disk_is_told_nothing() -> None:
    """P7.2: by its answer, or by its registration."""
    for of_link in (True, False):
        core = LacRetelling(B1)
        doubt(core, SECOND, lac(1), lac(2))
        now_ns, effects = tick(core)
        first = sent(effects)[0]
        if of_link:
            ended = core.step(SendFailed(now_ns, first.tag, B1, "other", is_other_disk=True))
        else:
            ended = answer(core, now_ns, first, Status.WRONG_INCARNATION)
        assert ended == [Ended()]


def test_a_newer_lac_takes_the_place_of_the_one_before() -> None:
    """P3.3: and the answer to the older one does not settle it."""
    core = LacRetelling(B1)
    doubt(core, SECOND, lac(1, 5))
    now_ns, effects = tick(core)
    (old,) = sent(effects)
    doubt(core, now_ns, lac(1, 9))
    doubt(core, now_ns, lac(1, 7))
    assert core.deadline_ns is None
    (new,) = sent(answer(core, now_ns, old))
    assert isinstance(new.control, ExplicitLacRequest) and new.control.lac == 9
    assert answer(core, now_ns, new) == []
    assert is_at_rest(core)


def test_the_pause_grows_while_nothing_is_taken_until_the_bookie_is_given_up() -> None:
    """P6.2: nothing is kept for ever for one that does not come back."""
    core, pauses = LacRetelling(B1), []
    doubt(core, SECOND, lac(1))
    while True:
        now_ns, effects = tick(core)
        if not effects:
            break
        core.step(SendFailed(now_ns, sent(effects)[0].tag, B1, "not registered"))
        assert core.deadline_ns is not None
        pauses.append(core.deadline_ns - now_ns)
    assert pauses[:3] == [PAUSE_NS_MIN, 2 * PAUSE_NS_MIN, 4 * PAUSE_NS_MIN] and max(pauses) == PAUSE_NS_MAX
    assert SECOND + GIVEN_UP_NS <= now_ns <= SECOND + GIVEN_UP_NS + PAUSE_NS_MAX
    assert is_at_rest(core)


def test_a_bookie_is_not_given_up_beside_a_fresh_doubt() -> None:
    """P6.2, P4.1: a writer without another bookie keeps its seat, and goes on telling it."""
    core = LacRetelling(B1)
    doubt(core, SECOND, lac(1))
    now_ns = SECOND
    while now_ns < SECOND + GIVEN_UP_NS - 2 * PAUSE_NS_MAX:
        now_ns, effects = tick(core)
        core.step(SendFailed(now_ns, sent(effects)[0].tag, B1, "not registered"))
    doubt(core, now_ns, lac(2))
    while now_ns < SECOND + GIVEN_UP_NS + PAUSE_NS_MAX:
        now_ns, effects = tick(core)
        for send in sent(effects):
            core.step(SendFailed(now_ns, send.tag, B1, "not registered"))
    assert set(core.lacs) == {1, 2}


def test_what_comes_to_be_in_doubt_in_the_turn_of_the_last_answer_is_told() -> None:
    """P6.2: an answer and the end of its link come in one turn, and a LAC was told in between."""
    core = LacRetelling(B1)
    doubt(core, SECOND, lac(1))
    now_ns, effects = tick(core)
    assert answer(core, now_ns, sent(effects)[0]) == []
    doubt(core, now_ns, lac(2))
    now_ns, effects = tick(core)
    assert [each.tag for each in sent(effects)] == [("lac again", 2)]


def test_one_that_is_taken_ends_the_growth() -> None:
    """P6.2: a bookie that answers is there."""
    core = LacRetelling(B1)
    doubt(core, SECOND, lac(1), lac(2))
    for _ in range(5):
        now_ns, effects = tick(core)
        for send in sent(effects):
            core.step(SendFailed(now_ns, send.tag, B1, "link lost"))
    now_ns, effects = tick(core)
    first, second = sent(effects)
    answer(core, now_ns, first)
    assert answer(core, now_ns, second, Status.BUSY) == []
    assert core.deadline_ns == now_ns + PAUSE_NS_MIN


def test_so_many_are_asked_at_a_time_and_all_in_the_end() -> None:
    """P6.2: a bookie that comes back is not flooded."""
    core, told = LacRetelling(B1), set[int]()
    doubt(core, SECOND, *(lac(ledger_id) for ledger_id in range(3 * ASKED_MAX)))
    now_ns, effects = tick(core)
    under_way = sent(effects)
    assert len(under_way) == ASKED_MAX
    while under_way:
        send = under_way.pop()
        assert isinstance(send.control, ExplicitLacRequest)
        told.add(send.control.ledger_id)
        under_way += sent(answer(core, now_ns, send))
        assert len(under_way) <= ASKED_MAX
    assert told == set(range(3 * ASKED_MAX)) and is_at_rest(core)


def test_of_very_many_ledgers_the_newest_are_told() -> None:
    """P6.2: LACS_MAX, however many doubts it takes."""
    core = LacRetelling(B1)
    for begin in (0, 4000, 8000):
        doubt(core, SECOND, *(lac(ledger_id) for ledger_id in range(begin, begin + 4000)))
    assert list(core.lacs) == list(range(12_000 - LACS_MAX, 12_000))
