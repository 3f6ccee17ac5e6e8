"""P2.2: what metadata refuses for good. Who asked ends with it at once, or goes on without; nobody asks without end."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.ledger_metadata import LedgerState
from embedbk.config import Quorum
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import MetadataUnavailable, NotEnoughBookies
from tests.rules.scenes import Scene, overwrite, scene
from tests.rules.world import MS, Client

FULL = "the catalog holds 9 bytes and 1 more were asked for: delete ledgers or logs that nobody needs"
SECOND = 1_000 * MS


def transactions(it: Scene, client: Client, seconds: int) -> int:
    """How many transactions are answered in that time."""
    world, count = it.world, 0
    answer = world.catalog.answer

    def counting(operation):  # type: ignore[no-untyped-def]
        nonlocal count
        count += type(operation.effect).__name__ == "Transact"
        return answer(operation)

    world.catalog.answer = counting  # type: ignore[method-assign]
    until_ns = world.now_ns + seconds * SECOND
    world.run(until=lambda: world.now_ns >= until_ns)
    world.catalog.answer = answer  # type: ignore[method-assign]
    return count


# The writer.


def test_a_close_that_is_refused_ends_at_once_and_says_what_is_full() -> None:
    """P2.2: nothing was done; what is acknowledged is in the ledger, which a recovery closes when there is room."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.refuses = FULL
    world.close(writer)
    world.settle()
    error = writer.ended.error
    assert isinstance(error, MetadataUnavailable)
    assert FULL in str(error)
    assert "make room" in error.hint
    assert error.definite
    assert world.catalog.metadata(it.ledger_id)[0].state == LedgerState.OPEN
    world.catalog.refuses = ""
    assert it.recover().ended.error is None
    assert it.last_entry == 0


@pytest.mark.parametrize("lands", [True, False])
def test_a_refused_close_behind_an_unknown_one_is_not_definite(lands: bool) -> None:
    """P2.2: the first may have landed, or may land yet."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.is_held = True
    world.close(writer)
    first = it.change()
    world.catalog.tell_unknown(first)
    world.catalog.refuses = FULL
    world.catalog.is_held = False
    world.settle()
    error = writer.ended.error
    assert isinstance(error, MetadataUnavailable)
    assert not error.definite
    if lands:
        assert world.catalog.land(first)
        assert it.last_entry == 0


def test_a_change_that_is_refused_for_a_moment_is_tried_again_while_adds_wait_for_it() -> None:
    """P2.2, P4.5: "for a quarter of the time that they have": the handle failed as the second try was sent."""
    world, writer, pen = it = scene(Quorum(2, 2, 2), bookies=4)
    world.catalog.refuses = FULL
    world.down.add("b2")
    world.tell_bookies()
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.refuses = ""
    world.run(until=lambda: writer.confirmed == 0, seconds=5)
    assert writer.failure is None and writer.confirmed == 0
    assert "b2" not in it.ensembles()[-1][1]


def test_a_change_that_is_refused_is_dropped_where_a_quorum_is_left() -> None:
    """P2.2, P4.5: as where nobody can be found; tried again when there may be room, and not before."""
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.refuses = FULL
    world.down.add("b3")
    world.add(writer, pen, b"one")
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 1)
    assert len(it.ensembles()) == 1
    assert transactions(it, writer, 20) <= 4
    world.catalog.refuses = ""
    world.run(until=lambda: len(it.ensembles()) == 2)
    world.add(writer, pen, b"two")
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 2)
    world.close(writer)
    world.settle()
    assert world.check_end(it.ledger_id).last_entry == 2


def test_without_a_quorum_the_handle_fails_in_its_time_and_says_what_is_full() -> None:
    """P2.2, P4.5: adds wait for a bookie as long as they do where nobody can be found; the error names the refusal."""
    world, writer, pen = it = scene(bookies=6)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.refuses = FULL
    world.down |= {"b2", "b3"}
    world.add(writer, pen, b"one")
    began_ns = world.now_ns
    world.run(until=lambda: writer.failure is not None)
    assert isinstance(writer.failure, NotEnoughBookies)
    assert FULL in str(writer.failure)
    assert "make room" in str(writer.failure)
    assert not writer.failure.definite  # The add is stored by one bookie.
    assert world.now_ns - began_ns <= WriterOptions().quorum_wait_ns + 2 * SECOND
    assert it.ensembles() == [(0, ["b1", "b2", "b3"])]


def test_a_bookie_that_is_back_ends_the_shortage_though_metadata_refuses() -> None:
    """P4.5: who failed goes on where it sits, for which nothing has to be published."""
    world, writer, pen = scene(bookies=6)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.refuses = FULL
    world.down |= {"b2", "b3"}
    world.add(writer, pen, b"one")
    world.settle()
    assert writer.confirmed == 0
    world.down.clear()
    world.run(until=lambda: writer.confirmed == 1)
    assert writer.failure is None


@pytest.mark.parametrize("lands", [True, False])
def test_a_refused_change_behind_an_unknown_one_settles_nothing(lands: bool) -> None:
    """P2.2, P4.2: the first may land yet, so an add needs its quorum in both ensembles until metadata says more. Else
    recovery reads the seats that were published, and finds no acknowledged entry there."""
    world, writer, pen = it = scene(Quorum(2, 2, 1), bookies=4)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.is_held = True
    world.down.add("b2")
    world.add(writer, pen, b"one")
    world.settle()
    first = it.change()
    world.catalog.tell_unknown(first)
    world.catalog.refuses = FULL
    world.catalog.is_held = False
    world.settle()
    assert it.core.changes.proposal is not None
    assert transactions(it, writer, 20) <= 5
    world.catalog.refuses = ""
    if lands:
        assert world.catalog.land(first)
    world.run(until=lambda: it.core.changes.proposal is None)
    world.add(writer, pen, b"two")
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 2)
    assert "b2" not in it.ensembles()[-1][1]


def test_a_handle_that_was_refused_rests_again() -> None:
    """Of very many open ledgers nearly all are idle: a refusal that is over keeps none of them awake."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    it.core.ensemble.refusal = (0, FULL)
    world.add(writer, pen, b"one")
    world.settle()
    assert writer.confirmed == 1
    assert it.core.ensemble.refusal is None


# Recovery, and taking over.


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_recovery_that_is_refused_ends_at_once(is_marked: bool) -> None:
    """P2.2, P5.2: at its mark, and at its close; whoever tries again goes on from what stands."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    if is_marked:
        overwrite(world, it.ledger_id, state=LedgerState.IN_RECOVERY)
    world.catalog.refuses = FULL
    began_ns = world.now_ns
    error = it.recover().ended.error
    assert isinstance(error, MetadataUnavailable)
    assert ("ended" if is_marked else "begun") in str(error)
    assert FULL in str(error)
    assert error.definite
    assert world.now_ns - began_ns < SECOND
    world.catalog.refuses = ""
    assert it.recover(name="again").ended.error is None
    assert it.last_entry == 0


def test_a_recovery_that_is_refused_behind_an_unknown_close_is_not_definite() -> None:
    """P2.2: the ledger may be closed all the same."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    world.catalog.is_held = True
    world.settle()
    world.catalog.tell_unknown(it.change())
    world.catalog.refuses = FULL
    world.catalog.is_held = False
    world.settle()
    assert isinstance(recovery.ended.error, MetadataUnavailable)
    assert not recovery.ended.error.definite
