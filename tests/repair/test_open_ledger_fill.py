"""P8.7: a ledger that an application created, and of which a bookie missed acknowledged entries, is filled up by the
client that writes it, while it is written to."""

from __future__ import annotations

from typing import Any

import pytest

import embedbk
from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import HoldingsAnswer, HoldingsRequest
from embedbk.core.client_words import BELOW_LEVEL, Answered, BookieInfo, Send, SendFailed
from embedbk.core.vocabulary import Ended, Started
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.open_ledger_fill import FillOutcome, OpenLedgerFill
from tests.repair.healed import Healed, healed
from tests.repair.test_auditor import ledger
from tests.repair.test_repaired import holders_hold


def come_back(story: Healed, bookie_id: str = "b1") -> None:
    story.cluster.restart(bookie_id)
    assert story.cluster.run_until(lambda: story.world.nodes[bookie_id].is_registered)


@pytest.mark.parametrize("password", [b"", b"secret"])
@pytest.mark.parametrize("sizes", [(3, 3, 2), (4, 3, 2)])
def test_who_was_away_gets_what_it_missed_while_the_ledger_is_written_to(
    sizes: tuple[int, int, int], password: bytes
) -> None:
    """P8.7: "the client that writes it ... sends it again what it lacks". No repair runs here."""
    named = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    with healed(bookies=sizes[0]) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger(password=password, **named)
        writer.add(b"zero")
        story.cluster.crash("b1")
        writer.add_many([b"missed %d" % number for number in range(20)])
        come_back(story)
        assert not bk.can_i_lose(["b2"]).is_safe
        story.cluster.run_for(12.0)  # It is avoided for 10 s.
        writer.add(b"behind")
        story.cluster.run_for(2.0)
        holders_hold(story, writer.ledger_id, 22)
        assert not writer._appending.writing.has_missed
        assert bk.can_i_lose(["b2"]).is_safe
        assert len(story.metadata(writer.ledger_id).fragments) == 1
        writer.add(b"more")
        assert writer.close() == 22
        reader = bk.open_ledger(writer.ledger_id, password=password)
        assert [bytes(each) for each in reader.read(20)] == [b"missed 19", b"behind", b"more"]


def test_a_bookie_that_was_replaced_gets_what_it_missed_of_its_own_fragment_alone() -> None:
    """P4.1, P8.7: e1 was acknowledged by b2 and b3 before b1 lost its seat; only b1 has its third copy to make."""
    with healed(bookies=4) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger()
        writer.add(b"zero")
        ensemble = [member.bookie_id for member in story.metadata(writer.ledger_id).fragments[0].members]
        lost = ensemble[0]
        stop = story.cluster.drop_messages("AddRequest", receiver=lost)
        writer.add(b"one")
        story.cluster.crash(lost)
        stop()
        assert story.cluster.run_until(lambda: len(story.metadata(writer.ledger_id).fragments) == 2)
        come_back(story, lost)
        story.cluster.run_for(15.0)
        writer.add(b"two")
        story.cluster.run_for(1.0)
        holders_hold(story, writer.ledger_id, 2)
        assert lost not in [
            member.bookie_id for member in story.metadata(writer.ledger_id).fragments[1].members
        ]
        assert story.world.nodes[lost].storage.read(writer.ledger_id, 2, 2, 1 << 20).frame is None


def test_where_nothing_was_missed_nobody_is_asked() -> None:
    """P8.7: a bookie that restarts beside idle ledgers costs them nothing."""
    with healed(bookies=3) as story:
        writer = story.cluster.client().create_ledger()
        writer.add(b"zero")
        story.cluster.run_for(1.0)
        sends = story.sends_of("client")
        story.cluster.crash("b1")
        come_back(story)
        story.cluster.run_for(15.0)
        writer.add(b"one")
        story.cluster.run_for(15.0)
        assert not [each for each in sends if isinstance(each.control, HoldingsRequest)]


def test_a_bookie_that_stays_away_is_tried_again_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    """P8.7: "where some copies cannot be made it tries again, after twice as long each time", and says so once."""
    with healed(bookies=4) as story:
        bk = story.cluster.client()
        bk._runtime.fill_look_s = 1.0
        writer = bk.create_ledger()
        writer.add(b"zero")
        lost = story.metadata(writer.ledger_id).fragments[0].members[0].bookie_id
        stop = story.cluster.drop_messages("AddRequest", receiver=lost)
        writer.add(b"one")
        story.cluster.crash(lost)
        stop()
        assert story.cluster.run_until(lambda: len(story.metadata(writer.ledger_id).fragments) == 2)
        sends = story.sends_of("client")

        def rounds(seconds: float) -> int:
            sends.clear()
            story.cluster.run_for(seconds)
            asked = [each for each in sends if isinstance(each.control, HoldingsRequest)]
            return len([each for each in asked if each.member == stays and each.control.first_entry == 0])

        stays = story.metadata(writer.ledger_id).fragments[0].members[1]
        first, then = rounds(8.0), rounds(64.0)
        assert (first, then) == (3, 3)  # After 1, 2, 4 s; then after 8, 16 and 32 s.
        assert writer._appending.writing.has_missed
        told = [each.getMessage() for each in caplog.records if "keeps fewer copies" in each.getMessage()]
        assert len(told) == 1
        assert f"from entry 0 on: cannot tell: {lost}: " in told[0]
        come_back(story, lost)
        story.cluster.run_for(70.0)
        holders_hold(story, writer.ledger_id, 2)
        assert not writer._appending.writing.has_missed


def test_what_is_missed_while_copies_are_made_is_not_forgotten() -> None:
    """P8.7: what became missing since the bookies were asked is asked for in the next round."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger()
        writing = writer._appending.writing
        writer.add(b"zero")
        story.cluster.crash("b1")
        writer.add(b"one")
        come_back(story)
        sends = story.sends_of("client")
        assert story.cluster.run_until(
            lambda: any(isinstance(each.control, HoldingsRequest) for each in sends)
        )
        bk._runtime.missed_copies.notice(writing)  # Another bookie came back just now.
        sends.clear()
        story.cluster.run_for(10.0)
        asked = [
            each
            for each in sends
            if isinstance(each.control, HoldingsRequest) and each.member.bookie_id == "b3"
        ]
        assert len(asked) == 2
        assert not writing.has_missed


@pytest.mark.parametrize("ends", ["close", "fence"])
def test_a_ledger_that_was_closed_or_that_failed_is_left_to_others(ends: str) -> None:
    """P8.7: repair looks after what is closed (P11.4); a handle that was fenced does not know what the ledger holds."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger()
        writer.add(b"zero")
        story.cluster.crash("b1")
        writer.add(b"one")
        come_back(story)
        assert story.cluster.run_until(lambda: writer._appending.writing.has_missed, 20.0)
        if ends == "close":
            writer.close()
        else:
            story.cluster.client("other").open_ledger(writer.ledger_id, recover=True)
            with pytest.raises(embedbk.EmbedbkError):
                writer.add(b"two")
        sends = story.sends_of("client")
        story.cluster.run_for(30.0)
        assert not [each for each in sends if isinstance(each.control, HoldingsRequest)]


def info(number: int, *, is_writable: bool = True, is_leaving: bool = False) -> BookieInfo:
    member = ledger(1, 1, 2, 3).fragments[0].members[number - 1]
    return BookieInfo(member, is_writable, is_leaving=is_leaving)


def begun(lac: int, bookies: list[BookieInfo]) -> tuple[OpenLedgerFill, list[Send], list[FillOutcome]]:
    core = OpenLedgerFill(ledger(1, 1, 2, 3), lac, bookies, 7, CopyPace(0))
    sends: list[Send] = []
    ends: list[FillOutcome] = []
    take(core.step(Started(0)), sends, ends)
    return core, sends, ends


def take(effects: list[Any], sends: list[Send], ends: list[FillOutcome]) -> None:
    sends += [each for each in effects if isinstance(each, Send)]
    ends += [each.result for each in effects if isinstance(each, Ended)]


def test_who_takes_no_entries_is_left_out_and_named() -> None:
    """P7.8, P11.3: no copies go to a bookie that is read-only, leaving or away."""
    core, sends, ends = begun(5, [info(1), info(2, is_writable=False), info(3, is_leaving=True)])
    assert [each.member.bookie_id for each in sends] == ["b1"]
    take(core.step(SendFailed(1, sends[0].tag, sends[0].member, "the link ended")), sends, ends)
    assert len(ends) == 1
    assert ends[0].copies == 0
    assert [each.split(": ", 1)[1] for each in ends[0].left] == [
        "cannot tell: b1: the link ended",
        "b2 takes no entries now",
        "b3 takes no entries now",
    ]


def test_before_the_first_acknowledged_entry_nobody_owes_any() -> None:
    """P3.3: only what is acknowledged is owed."""
    _, sends, ends = begun(-1, [info(1), info(2), info(3)])
    assert (sends, ends) == ([], [FillOutcome(0, ())])


def test_nobody_is_asked_for_more_than_was_acknowledged() -> None:
    """P3.3: what is on its way may come to nothing; a copy of it is nobody's business."""
    core, sends, _ = begun(5, [info(1), info(2), info(3)])
    assert (sends[0].control.first_entry, sends[0].control.last_entry) == (0, 5)
    assert core.metadata.last_entry == 5


def test_below_the_level_nobody_can_be_asked() -> None:
    """P10.8: bookies of a build before know no such question; nothing is missing then, as far as can be told."""
    core, sends, ends = begun(5, [info(1), info(2), info(3)])
    for _ in range(3):
        last = sends[-1]
        take(core.step(SendFailed(1, last.tag, last.member, BELOW_LEVEL)), sends, ends)
    assert ends == [FillOutcome(0, ())]


def test_a_late_answer_counts_for_nothing() -> None:
    """P3.8: behind its end, or to an earlier question."""
    core, sends, ends = begun(5, [info(1)])
    first = sends[0]
    take(core.step(SendFailed(1, first.tag, first.member, "the link ended")), sends, ends)
    assert len(ends) == 1
    answer = HoldingsAnswer(Status.OK, 1, 0, 5, 6)
    assert core.step(Answered(2, first.tag, first.member, answer)) == []
    assert core.deadline_ns is None
