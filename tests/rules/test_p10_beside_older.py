"""P10.5: a bookie that met newer metadata than what answers now denies nothing: nobody goes by the older one.

Also in the moment in which the client has met it, and the bookie has not: a "no" to a recovery leaves behind the answer
to a question that was sent when the recovery's request had come.
"""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import HoldingsAnswer, HoldingsRange, HoldingsRequest
from embedbk.codec.ledger_metadata import LedgerState, ledger_key_path
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.core.bookie_words import (
    EntriesRead,
    LossFound,
    OlderMetadata,
    ReadEntries,
    Reply,
    RequestReceived,
)
from embedbk.core.denials import DENIAL
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import MetadataFailed
from embedbk.core.upkeep_words import AskMetadata, MetadataTold
from embedbk.core.vocabulary import Tick
from embedbk.errors import RecoveryInconclusive
from tests.rules.world import KEY, MS, TOLD, Pen, World

OLD, NEW = ("b1", "b2", "b3"), ("b4", "b5", "b6")


def meet(world: World, *, is_older: bool) -> None:
    for node in world.nodes.values():
        assert node.core.step(OlderMetadata(world.now_ns, is_older)) == []


Value = tuple[bytes, int]


def with_older_metadata() -> tuple[World, int, Value]:
    """e0 is on b1 to b3, and e1 acknowledged by b4 to b6, which took all seats. Then the metadata of before the change
    is put back: a copy. Also returns the newest."""
    world = World(6)
    metadata, revision = world.create()
    assert {member.bookie_id for member in metadata.fragments[0].members} == {*OLD}
    writer, pen = world.writer(metadata, revision), Pen(metadata.ledger_id)
    world.add(writer, pen, b"zero")
    world.settle()
    key = ledger_key_path(metadata.ledger_id)
    copy = world.catalog.values[key]
    world.down.update(OLD)
    world.add(writer, pen, b"one")
    world.run(until=lambda: writer.confirmed == 1)
    assert {each.bookie_id for each in world.catalog.metadata(pen.ledger_id)[0].fragments[-1].members} == {
        *NEW
    }
    world.down.clear()
    writer.is_gone = True
    newest, world.catalog.values[key] = world.catalog.values[key], copy
    del world.catalog.history[key][1:]
    return world, pen.ledger_id, newest


def test_no_recovery_ends_by_what_older_metadata_says() -> None:
    """P10.5: "a recovery asks the bookies that the copy names, which do not have what was acknowledged in other seats
    since, the ledger is closed before that": all of them are there, and none says no."""
    world, ledger_id, _ = with_older_metadata()
    meet(world, is_older=True)
    recovery = world.recovery(ledger_id)
    recovery.start()
    world.run(until=lambda: recovery.has_ended)
    assert isinstance(recovery.ended.error, RecoveryInconclusive)
    assert world.catalog.metadata(ledger_id)[0].state == LedgerState.IN_RECOVERY


def test_when_the_newer_is_back_they_say_no_again() -> None:
    """P10.5: "until the newer is put back or an operator begins a generation"."""
    world, ledger_id, newest = with_older_metadata()
    meet(world, is_older=True)
    key = ledger_key_path(ledger_id)
    world.catalog.values[key] = newest
    meet(world, is_older=False)
    recovery = world.recovery(ledger_id)
    recovery.start()
    world.run(until=lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert world.catalog.metadata(ledger_id)[0].last_entry == 1


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_older", [True, False])
def test_in_a_question_for_many_ledgers_each_without_a_trace_is_unknown(
    is_older: bool, is_first: bool
) -> None:
    """P10.5, P11.4: wherever it stands among them; of those that it has it tells what it holds. Else it lacks all of
    a ledger, or nothing is told of the others, as they happened to be asked."""
    world, ledger_id, _ = with_older_metadata()
    meet(world, is_older=is_older)
    asked = [(77, 0, 1), (ledger_id, 1, 1)][:: 1 if is_first else -1]
    first, other = asked
    incarnation = world.nodes["b4"].member.incarnation
    world.ask("b4", HoldingsRequest(incarnation, *first, others=[HoldingsRange(*other)]))
    (answer,) = world.heard()
    assert isinstance(answer, HoldingsAnswer)
    told = {each.ledger_id: (each.status, each.count) for each in (answer, *answer.others)}
    unknown = Status.UNKNOWN if is_older else Status.NO_SUCH_LEDGER
    assert told == {77: (unknown, 0), ledger_id: (Status.OK, 1)}


@pytest.mark.parametrize("kind", ["read", "fence", "holdings"])
def test_what_it_has_no_trace_of_is_neither_denied_nor_taken(kind: str) -> None:
    """P10.5: "denies no entry and takes no ledger of which it has no trace"; what it has it gives as ever."""
    world, ledger_id, _ = with_older_metadata()
    node = world.nodes["b4"]
    meet(world, is_older=True)
    asked = {
        "read": ReadRequest(node.core.incarnation, 77, 0, 5, 1 << 20),
        "fence": FenceRequest(node.core.incarnation, 77, KEY),
        "holdings": HoldingsRequest(node.core.incarnation, 77, 0, 5),
    }[kind]
    (reply,) = node.core.step(RequestReceived(world.now_ns, 1, 1, asked, []))
    assert isinstance(reply, Reply) and isinstance(reply.control, ErrorAnswer)
    assert "met newer metadata" in reply.control.text
    assert node.core.table.get(77) is None
    row = node.core.table.get(ledger_id)
    assert row is not None and row.last_entry == 1


@pytest.mark.parametrize("kind", ["read", "fence", "add"])
def test_a_full_ledger_table_is_an_answer_to_who_asks_beside_older_metadata(kind: str) -> None:
    """P7.3, P10.5: a ledger that was dropped gets its row back when it is asked for. Where there is none left nothing
    is done, as by any other bookie, and the bookie goes on."""
    world, ledger_id, _ = with_older_metadata()
    node = world.nodes["b4"]
    meet(world, is_older=True)
    node.core.table.drop_range(70, 80)
    node.storage.table.ledgers_max = -16
    asked = {
        "read": ReadRequest(node.core.incarnation, 77, 0, 5, 1 << 20),
        "fence": FenceRequest(node.core.incarnation, 77, KEY),
        "add": AddRequest(node.core.incarnation, 1, 1, False),
    }[kind]
    world.ask("b4", asked, Pen(77).frame(b"x") if kind == "add" else None)
    (answer,) = world.heard()
    assert isinstance(answer, ErrorAnswer) and "full" in answer.text
    row = node.core.table.get(ledger_id)
    assert row is not None and row.last_entry == 1


# A bookie that has not met it yet.


def hold_questions(world: World) -> None:
    for node in world.nodes.values():
        node.holds_questions = True


def test_what_a_client_has_met_first_every_bookie_hears_of_before_it_denies() -> None:
    """P10.5: "a recovery asks the bookies that the copy names": none of them has heard of the copy when it is asked."""
    world, ledger_id, _ = with_older_metadata()
    hold_questions(world)
    recovery = world.recovery(ledger_id)
    recovery.start()
    world.settle()
    assert not recovery.has_ended
    asking = [node for node in world.nodes.values() if node.questions]
    assert len(asking) >= 2
    for node in world.nodes.values():
        node.tell_metadata(doubt="it is older")
    world.run(until=lambda: recovery.has_ended)
    assert isinstance(recovery.ended.error, RecoveryInconclusive)
    assert world.catalog.metadata(ledger_id)[0].state == LedgerState.IN_RECOVERY


def test_a_recovery_ends_when_its_bookies_have_heard_that_nothing_is_older() -> None:
    """P10.5: held, not refused: no second question of the recovery is needed."""
    world, ledger_id, newest = with_older_metadata()
    world.catalog.values[ledger_key_path(ledger_id)] = newest
    hold_questions(world)
    recovery = world.recovery(ledger_id)
    recovery.start()
    world.settle()
    assert not recovery.has_ended
    while not recovery.has_ended:
        assert any(node.questions for node in world.nodes.values())
        for node in world.nodes.values():
            node.tell_metadata()
        world.settle()
    assert world.now_ns == 0
    assert world.catalog.metadata(ledger_id)[0].last_entry == 1


def test_a_bookie_that_metadata_does_not_answer_says_neither_yes_nor_no() -> None:
    """P10.5: for half a second; it may be cut off, and the recovery's client not."""
    world, ledger_id, _ = with_older_metadata()
    hold_questions(world)
    recovery = world.recovery(ledger_id)
    recovery.start()
    world.run(until=lambda: recovery.has_ended)
    assert world.now_ns >= 500 * MS
    assert isinstance(recovery.ended.error, RecoveryInconclusive)


def looked_up(world: World, number: int, *, fence: bool) -> list[Effect]:
    """b1 was asked for e5, which nobody has; what it does when it has looked."""
    core = world.nodes["b1"].core
    read = ReadRequest(core.incarnation, 1, 5, 5, 1 << 20, fence, KEY)
    world.nodes["b1"].holds_reads = True
    effects = core.step(RequestReceived(world.now_ns, 1, number, read, []))
    (look,) = (effect for effect in effects if isinstance(effect, ReadEntries))
    return core.step(EntriesRead(world.now_ns, look.read_id, None, [(5, 5)]))


def absents(effects: list[Effect]) -> list[tuple[int, list[tuple[int, int]]]]:
    return [
        (effect.request_id, effect.control.absent)
        for effect in effects
        if isinstance(effect, Reply) and isinstance(effect.control, ReadAnswer)
    ]


def fenced_world() -> World:
    """b1 has e0 of ledger 1, and its fence is durable."""
    world = World(3)
    metadata, revision = world.create()
    writer, pen = world.writer(metadata, revision), Pen(metadata.ledger_id)
    world.add(writer, pen, b"zero")
    world.settle()
    node = world.nodes["b1"]
    node.perform(
        node.core.step(
            RequestReceived(0, 1, 1, FenceRequest(node.core.incarnation, metadata.ledger_id, KEY), [])
        )
    )
    world.settle()
    return world


def told(world: World, doubt: str = "") -> list[Effect]:
    return world.nodes["b1"].core.step(MetadataTold(world.now_ns, DENIAL, TOLD, doubt))


def test_a_question_that_was_sent_before_a_request_came_answers_nothing_for_it() -> None:
    """P10.5: "behind the coming of the request": metadata may have been put back in between."""
    world = fenced_world()
    assert looked_up(world, 2, fence=True) == [AskMetadata(DENIAL)]
    assert looked_up(world, 3, fence=True) == []
    effects = told(world)
    assert absents(effects) == [(2, [(5, 5)])]
    assert effects[-1] == AskMetadata(DENIAL)
    assert absents(told(world, "it is older")) == [(3, [])]
    assert absents(looked_up(world, 4, fence=False)) == [(4, [(5, 5)])], (
        "only a recovery ends a ledger by a no"
    )


def test_what_is_held_for_too_long_denies_nothing_and_is_answered_once() -> None:
    """P10.5: the answer that comes late is for nobody; the next request asks anew."""
    world = fenced_world()
    core = world.nodes["b1"].core
    looked_up(world, 2, fence=True)
    assert core.deadline_ns == 500 * MS
    assert absents(core.step(Tick(499 * MS))) == []
    assert absents(core.step(Tick(500 * MS))) == [(2, [])]
    assert core.deadline_ns is None
    assert looked_up(world, 3, fence=True) == [], "the question is still under way"
    assert told(world) == [AskMetadata(DENIAL)]
    assert absents(core.step(MetadataFailed(0, DENIAL, "no member"))) == [(3, [])]


def test_what_is_lost_meanwhile_is_not_denied() -> None:
    """P7.9, P10.5: the bookie learns that it may have lost entries, while its answer is held."""
    world = fenced_world()
    looked_up(world, 2, fence=True)
    world.nodes["b1"].core.step(LossFound(0))
    assert absents(told(world)) == [(2, [])]
