"""Marks for repair as a leader serves them: time that passes, repeats, a new leader (METADATA.md, 11)."""

from __future__ import annotations

from embedbk.codec.metadata_messages import OpenSession, SessionOpened
from embedbk.codec.repair_messages import (
    EndRepairs,
    FailRepairs,
    MarkRepairs,
    RepairsEnded,
    RepairsMarked,
    RepairsTaken,
    TakeRepairs,
)
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.levels import LEVEL
from embedbk.metadata.raft_vocabulary import Persist
from embedbk.metadata.vocabulary import MemberStarted
from tests.metadata.test_member import Desk
from tests.metadata.test_repairing import mark_of, raised

SECOND = 1_000_000_000


def opened(desk: Desk) -> int:
    result = desk.do(OpenSession(600_000, "test", 0, LEVEL))
    assert isinstance(result, SessionOpened)
    desk.secrets[result.session] = result.secret
    return result.session


def taken(desk: Desk, session: int, asked: int = 0) -> RepairsTaken:
    result = desk.do(TakeRepairs(1 if not asked else 0, (), asked), session)
    assert isinstance(result, RepairsTaken)
    return result


def fail(desk: Desk, session: int, ledger_id: int, epoch: int) -> None:
    assert isinstance(desk.do(FailRepairs(((ledger_id, epoch),)), session), RepairsEnded)


def goes_on_after(desk: Desk, seconds: int) -> None:
    """Neither before, nor later: one command says so, and no other comes before that is committed."""
    persisted = [each for each in desk.tick(seconds * SECOND - SECOND // 5) if isinstance(each, Persist)]
    assert persisted == [], "too early"
    assert len([each for each in desk.tick(SECOND // 2) if isinstance(each, Persist)]) == 1
    assert [each for each in desk.tick(3 * SECOND) if isinstance(each, Persist)] == []
    desk.sync()


def test_the_leader_lets_a_failed_mark_go_on_and_who_waits_has_it() -> None:
    """METADATA.md, 11: "a command of the leader", after 5 s, then 10 s; handed on in that very command."""
    desk = Desk(raised())
    one, two = opened(desk), opened(desk)
    desk.do(MarkRepairs(((7, ("b1",)),)), one)
    fail(desk, one, 7, taken(desk, one).epoch)
    asked = taken(desk, two).asked
    goes_on_after(desk, 5)
    held = taken(desk, two, asked)
    assert (held.epoch, held.marks[0][0]) == (desk.member.catalog.revision, 7)
    fail(desk, two, 7, held.epoch)
    goes_on_after(desk, 10)
    assert not mark_of(desk.member.catalog, 7).is_postponed
    assert taken(desk, one).marks[0][0] == 7
    assert desk.tick(400 * SECOND) is not None
    assert desk.member.catalog.record_table.repairs.counts() == (0, 0, 0)


def test_who_begins_to_lead_begins_anew_with_what_is_postponed() -> None:
    """METADATA.md, 11: "Who leads anew begins anew": it cannot tell how long the marks have waited."""
    desk = Desk(raised())
    one = opened(desk)
    desk.do(MarkRepairs(((7, ("b1",)), (8, ("b1",)))), one)
    fail(desk, one, 7, taken(desk, one).epoch)
    desk.tick(4 * SECOND)
    catalog: Catalog = desk.member.catalog.copy()
    next_leader = Desk(catalog, now_ns=9_000 * SECOND)
    next_leader.step(MemberStarted(next_leader.now_ns))
    next_leader.sync()
    goes_on_after(next_leader, 5)
    assert not mark_of(catalog, 7).is_postponed


def test_a_repeat_gets_its_first_answer_and_changes_nothing() -> None:
    """I74: "a repeated command runs once": none is taken, ended or failed twice because an answer was lost."""
    desk = Desk(raised())
    one = opened(desk)
    for operation in (
        MarkRepairs(tuple((n, ("b1",)) for n in range(3))),
        TakeRepairs(1),
        TakeRepairs(2),
        EndRepairs(((0, 2, 1),)),
        FailRepairs(((1, 3),)),
        TakeRepairs(1),
    ):
        first = desk.do(operation, one)
        assert isinstance(first, RepairsMarked | RepairsTaken | RepairsEnded)
        revision = desk.member.catalog.revision
        assert desk.do(operation, one, repeat=desk.sequences[one]) == first
        assert desk.member.catalog.revision == revision
    assert desk.member.catalog.record_table.repairs.counts() == (0, 1, 1)
