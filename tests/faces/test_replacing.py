"""A ledger of a log that failed is replaced, and what was outstanding is sent again once, in order (P8.2)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import embedbk
from embedbk import aio
from embedbk.client import placed
from embedbk.client.log_writer import LogWriter
from embedbk.client.placed import Appended
from embedbk.client.tickets import AppendTerms, all_acknowledged
from embedbk.codec.ledger_metadata import Begun
from embedbk.host.writing import HandedOver
from embedbk.metadata.levels import LEVEL_OF_LOGS
from embedbk.testing import Cluster
from embedbk.testing.sim_runtime import Narrow
from tests.faces.test_rolling import NAME, NEVER, is_closed, listed


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=93, bookies=4) as cluster:
        yield cluster


def stray(cluster: Cluster, ledger_id: int, name: str = "r") -> None:
    """Somebody opens the ledger by its id and recovers it; nobody took the log over."""
    with cluster.client(name).open_ledger(ledger_id, recover=True):
        pass


def read(client: embedbk.Client) -> list[bytes]:
    entries = list(client.log(NAME).read())
    assert [entry.offset for entry in entries] == list(range(len(entries))), "offsets are dense"
    return [bytes(entry) for entry in entries]


class Beside:
    """A call in another thread or task of the writer's process."""

    def __init__(self, client: embedbk.Client, steps: Coroutine[Any, Any, Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_over = False

        async def run() -> None:
            try:
                self.result = await steps
            except BaseException as error:  # noqa: BLE001  Shown by the test.
                self.error = error
            self.is_over = True

        client._runtime.behind(run())


def many(writer: LogWriter, items: list[bytes]) -> Coroutine[Any, Any, Appended]:
    return writer._line.through(lambda now, left: now.append_many(items, left.timeout_s), AppendTerms())


def one(writer: LogWriter, item: bytes, **terms: Any) -> Coroutine[Any, Any, embedbk.Position]:
    return writer._line.through(lambda now, left: now.append(item, left), AppendTerms(**terms))


def test_an_append_does_not_fail_because_its_ledger_did(cluster: Cluster) -> None:
    """P8.2: "so that an append does not fail because a ledger did": under the same epoch; the list says why (P8.6)."""
    client = cluster.client("w")
    with client.log(NAME).writer(roll=NEVER) as writer:
        epoch, first = writer.epoch, writer.append(b"one")
        stray(cluster, first.ledger_id)
        second = writer.append(b"two")
        assert (writer.epoch, second.entry_id, writer.first_offset) == (epoch, 0, 1)
        assert second.ledger_id == writer.ledger_id != first.ledger_id
        assert writer.lost(0.5) is False
        assert writer.append(b"three", after=second).entry_id == 1
    assert read(client) == [b"one", b"two", b"three"]
    assert [(each.first_offset, each.begun) for each in listed(client, NAME)] == [
        (0, Begun.TAKEOVER),
        (1, Begun.FAILURE),
    ]


def test_what_is_outstanding_goes_to_the_next_ledger_once_and_ahead_of_what_comes(cluster: Cluster) -> None:
    """P8.2: in order; a ticket that was given out is of the same entry there, with its position."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    end = cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    tickets = []
    for number in range(1, 4):
        tickets.append(writer.append_nowait(b"%d" % number))
        cluster.run_for(0.01)  # Two of them leave, each in a frame of its own.
    assert [ticket.position.ledger_id for ticket in tickets] == [before] * 3
    cluster.run_for(0.1)
    stray(cluster, before)
    late = Beside(client, one(writer, b"4"))
    assert cluster.run_until(lambda: late.is_over)
    end()
    assert late.error is None and late.result.entry_id == 3
    assert [ticket.result() for ticket in tickets] == [
        embedbk.Position(writer.ledger_id, number) for number in range(3)
    ]
    assert [ticket.position for ticket in tickets] == [ticket.result(1.0) for ticket in tickets]
    assert {ticket.fate() for ticket in tickets} == {embedbk.Fate.SURVIVED}
    assert all(ticket.done() and ticket.durability == "synced" for ticket in tickets)
    writer.close()
    assert read(client) == [b"%d" % number for number in range(5)]


def test_what_a_recovery_kept_counts_as_appended_there(cluster: Cluster) -> None:
    """P8.2: "closed at an entry beyond this writer's LAC": what it kept is acknowledged at its place, and not sent
    again; what it did not keep goes to the next ledger."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    cluster.drop_messages("AddAnswer", ledger_id=before, receiver="w")
    kept = writer.append_nowait(b"1")
    cluster.run_for(0.1)
    end = cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    lost = writer.append_nowait(b"2")
    cluster.run_for(0.1)
    assert writer.lac == 0
    stray(cluster, before)
    end()
    assert cluster.run_until(lambda: kept.done() and lost.done())
    assert kept.result() == embedbk.Position(before, 1)
    assert lost.result() == embedbk.Position(writer.ledger_id, 0)
    assert (kept.fate(), lost.fate()) == (embedbk.Fate.SURVIVED, embedbk.Fate.SURVIVED)
    with client.open_ledger(before, recover=False) as reader:
        assert reader.last_entry == 1
    writer.close()
    assert read(client) == [b"0", b"1", b"2"]


def test_too_few_bookies_for_a_while_fail_no_append(cluster: Cluster) -> None:
    """P8.2, P4.5: NotEnoughBookies ends the ledger after `quorum_wait_s`; its writer closes it, and goes on in the next
    one when there are bookies."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    ticket = writer.append_nowait(b"1")
    waiting = Beside(client, one(writer, b"2"))
    cluster.run_for(15)
    assert is_closed(cluster.client("r"), before)
    assert not ticket.done() and ticket.fate() is embedbk.Fate.UNKNOWN
    with pytest.raises(embedbk.OperationTimeout) as late:
        writer.append(b"mine", timeout_s=0.5)
    assert late.value.definite, "a caller's own time ends its own wait; nothing of this one was queued"
    for name in ("b1", "b2", "b3"):
        cluster.restart(name)
    assert cluster.run_until(lambda: waiting.is_over)
    assert ticket.result() == embedbk.Position(writer.ledger_id, 0)
    assert (waiting.error, waiting.result) == (None, embedbk.Position(writer.ledger_id, 1))
    writer.close()
    assert read(client) == [b"0", b"1", b"2"]


def test_a_cluster_that_is_gone_is_told_by_its_true_reason_and_definitely(cluster: Cluster) -> None:
    """P8.2: the failed ledger is closed, so that it is certain that nothing of this is in any; `renew` goes on."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    ticket = writer.append_nowait(b"1")
    with pytest.raises(embedbk.NotEnoughBookies, match="no next ledger") as failed:
        ticket.result()
    assert failed.value.definite and failed.value.ticket.fate() is embedbk.Fate.LOST
    with pytest.raises(embedbk.NotEnoughBookies) as refused:
        writer.append(b"1")
    assert refused.value.definite
    assert len(listed(client, NAME)) == 1, "no ledgers without end"
    assert writer.lost(0.5) is False
    for name in ("b1", "b2", "b3"):
        cluster.restart(name)
    cluster.run_for(5)
    writer.renew()
    assert writer.append(b"1").ledger_id != before
    writer.close()
    assert read(client) == [b"0", b"1"]


def test_nothing_moves_while_the_close_has_no_outcome(cluster: Cluster) -> None:
    """P8.2: "where the close's outcome is unknown nothing moves until it is settled"; then it is not definite."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    cluster.partition(["w"], [cluster.leader()])
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    ticket = writer.append_nowait(b"1")
    cluster.run_for(20)
    for name in ("b1", "b2", "b3"):
        cluster.restart(name)
    cluster.run_for(5)
    assert not ticket.done() and writer.ledger_id == before
    with pytest.raises(embedbk.NotEnoughBookies) as failed:
        ticket.result()
    assert not failed.value.definite and writer.ledger_id == before
    cluster.heal()
    cluster.run_for(5)
    assert ticket.fate() is embedbk.Fate.LOST
    writer.renew()
    writer.append(b"2")
    writer.close()
    assert read(client) == [b"0", b"2"]


def test_a_log_that_was_lost_stays_lost(cluster: Cluster) -> None:
    """P8.4, P3.6: fencing by a new owner is the loss of the log: nothing is sent again."""
    client, other = cluster.client("w"), cluster.client("v")
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    ticket = writer.append_nowait(b"late")
    cluster.run_for(0.1)
    with other.log(NAME).writer(roll=NEVER) as after:
        after.append(b"1")
        with pytest.raises(embedbk.LedgerFenced) as failed:
            ticket.result()
        assert failed.value.definite and ticket.fate() is embedbk.Fate.LOST, "its ledger is closed before it"
        assert writer.lost() is True
        with pytest.raises(embedbk.LedgerFenced):
            writer.append(b"later")
    writer.release()
    assert read(other) == [b"0", b"1"]
    assert len(listed(other, NAME)) == 2


def test_a_run_of_one_call_stays_together(cluster: Cluster) -> None:
    """P3.1: nobody's entry comes between those of one call, also where its rest waited for room when the ledger failed;
    the call says in which ledgers they stand."""
    client = cluster.client("w")
    client._runtime.settings = Narrow()
    writer = client.log(NAME).writer(roll=NEVER)
    run = [b"%d " % number + b"x" * 500 for number in range(30)]
    first = Beside(client, many(writer, run))
    assert cluster.run_until(lambda: writer.lac >= 2)
    before = writer.ledger_id
    end = cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    between = [Beside(client, one(writer, b"between")), Beside(client, many(writer, [b"and", b"and"]))]
    cluster.run_for(0.1)
    lac = writer.lac
    assert 2 <= lac < 23, "some are outstanding, and some have no room"
    stray(cluster, before)
    assert cluster.run_until(lambda: first.is_over and all(each.is_over for each in between))
    end()
    assert first.error is None and [each.error for each in between] == [None, None]
    told: Appended = first.result
    assert told.parts == (Appended(before, 0, lac), Appended(writer.ledger_id, 0, 28 - lac))
    assert (told.entry_count, told.first, told.last) == (
        30,
        embedbk.Position(before, 0),
        embedbk.Position(writer.ledger_id, 28 - lac),
    )
    writer.close()
    assert read(client)[:30] == run
    assert sorted(read(client)[30:]) == [b"and", b"and", b"between"]


def test_a_run_whose_rest_waits_while_the_next_ledger_fails_too_is_there_once(cluster: Cluster) -> None:
    """P3.1, P8.2: "sent again once, in order, without duplicates": the rest of one call found no room in the ledger
    that took the failed one's place, and goes to the one that follows it; the call is not made again as a whole."""
    client = cluster.client("w")
    client._runtime.settings = Narrow()
    writer = client.log(NAME).writer(roll=NEVER)
    ledgers = [writer.append(b"0").ledger_id]
    end = cluster.drop_messages("AddRequest", sender="w")
    run = [b"%d " % number + b"x" * 500 for number in range(9)]
    first = Beside(client, many(writer, run))
    for number in range(2):
        cluster.run_for(0.1)
        stray(cluster, ledgers[-1], f"r{number}")
        assert cluster.run_until(lambda: writer.ledger_id != ledgers[-1], 8)
        ledgers.append(writer.ledger_id)
    assert not first.is_over
    end()
    assert cluster.run_until(lambda: first.is_over, 30)
    assert first.error is None
    assert first.result.parts == (Appended(ledgers[-1], 0, 8),)
    writer.close()
    assert read(client) == [b"0", *run]


def test_the_rest_of_a_run_is_taken_by_a_ledger_that_the_log_is_about_to_leave(cluster: Cluster) -> None:
    """P3.1, P8.2: a log at its bound refuses appends while it leaves its ledger, for which it waits until no call is in
    its middle: one of which a part stands in the failed ledger goes on."""
    client = cluster.client("w")
    client._runtime.settings = Narrow()
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    end = cluster.drop_messages("AddRequest", sender="w")
    run = [b"%d " % number + b"x" * 500 for number in range(9)]
    first = Beside(client, many(writer, run))
    cluster.run_for(0.1)
    stray(cluster, before)
    assert cluster.run_until(lambda: writer.ledger_id != before, 8)
    assert not first.is_over
    leaves = "the log is on its way to a next ledger; nothing was appended"
    writer._line.appending.shut_out(lambda: HandedOver(leaves))
    end()
    assert cluster.run_until(lambda: first.is_over, 30)
    assert first.error is None
    writer._line.appending.let_in()
    writer.close()
    assert read(client) == [b"0", *run]


@pytest.mark.parametrize("count", [7, 9])
def test_a_run_that_began_is_not_told_to_be_nowhere(cluster: Cluster, count: int) -> None:
    """P8.2: "definite where what is outstanding is certainly in no ledger": the first entries of this call are in one,
    whether all of the others were queued behind them or not."""
    client = cluster.client("w")
    client._runtime.settings = Narrow()
    writer = client.log(NAME).writer(roll=NEVER)
    run = [b"%d " % number + b"x" * 600 for number in range(count)]
    first = Beside(client, many(writer, run))
    assert cluster.run_until(lambda: writer.lac >= 2)
    end = cluster.drop_messages("AddRequest", sender="w")
    assert cluster.run_until(lambda: first.is_over, 120)
    end()
    assert isinstance(first.error, embedbk.NotEnoughBookies) and first.error.ticket is not None
    assert not first.error.definite
    there = read(client)
    assert 3 <= len(there) < count
    assert there == run[: len(there)]


def test_who_gives_up_the_rest_of_a_run_lets_others_append(cluster: Cluster) -> None:
    """P3.1: also when its ledger failed under it, and what it had queued is in the next one."""
    client = cluster.client("w")
    client._runtime.settings = Narrow()
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    run = [b"%d " % number + b"x" * 500 for number in range(9)]
    first = Beside(
        client, writer._line.through(lambda now, left: now.append_many(run, left.timeout_s), AppendTerms(0.5))
    )
    cluster.run_for(0.1)
    for name in ("b1", "b2", "b3", "b4"):
        cluster.partition(["w"], [name])
    cluster.run_for(2)
    assert first.is_over and isinstance(first.error, embedbk.OperationTimeout) and first.error.ticket
    stray(cluster, before)
    cluster.heal()
    assert writer.append(b"behind").ledger_id == writer.ledger_id != before
    assert first.error.ticket.result().ledger_id == writer.ledger_id
    writer.close()
    whole = read(client)
    assert whole[0] == b"0" and whole[-1] == b"behind" and whole[1:-1] == run[: len(whole) - 2]


def test_who_gives_up_the_rest_in_the_next_ledger_lets_others_append(cluster: Cluster) -> None:
    """P3.1: the rest of a run waits for room in the ledger that took the failed one's place, until its time is over."""
    client = cluster.client("w")
    client._runtime.settings = Narrow()
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    end = cluster.drop_messages("AddRequest", sender="w")
    run = [b"%d " % number + b"x" * 500 for number in range(9)]
    first = Beside(
        client, writer._line.through(lambda now, left: now.append_many(run, left.timeout_s), AppendTerms(8.0))
    )
    cluster.run_for(0.1)
    stray(cluster, before)
    assert cluster.run_until(lambda: writer.ledger_id != before, 7)
    assert not first.is_over
    cluster.run_for(4)
    assert isinstance(first.error, embedbk.OperationTimeout) and first.error.ticket
    end()
    behind = Beside(client, one(writer, b"behind"))
    assert cluster.run_until(lambda: behind.is_over, 30)
    assert behind.error is None and first.error.ticket.result() < behind.result
    writer.close()
    assert read(client)[-1] == b"behind"


def test_conditions_hold_by_order_and_those_on_an_id_by_their_ledger(cluster: Cluster) -> None:
    """P8.2: `after=` is about what stands before, which stays so; `entry_id=` names an id of the ledger that failed:
    such an entry is in neither ledger, definitely, and so is one that was to stand behind it. Offsets stay dense."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    zero = writer.append(b"0")
    before = zero.ledger_id
    cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    behind = Beside(client, one(writer, b"1", after=zero))
    cluster.run_for(0.05)
    bound = Beside(client, one(writer, b"bound", entry_id=2))
    cluster.run_for(0.05)
    lost = Beside(client, one(writer, b"behind it", after=embedbk.Position(before, 2)))
    cluster.run_for(0.05)
    plain = writer.append_nowait(b"2")
    last = writer.last_position
    assert last == embedbk.Position(before, 4)
    cluster.run_for(0.1)
    stray(cluster, before)
    calls = (behind, bound, lost)
    assert cluster.run_until(lambda: all(call.is_over for call in calls) and plain.done())
    assert (behind.error, behind.result) == (None, embedbk.Position(writer.ledger_id, 0))
    assert isinstance(bound.error, embedbk.UsageError) and bound.error.definite
    assert "expected by its id" in str(bound.error)
    assert isinstance(lost.error, embedbk.AppendConflict) and lost.error.definite
    assert bound.error.ticket.fate() is lost.error.ticket.fate() is embedbk.Fate.LOST
    assert plain.result() == embedbk.Position(writer.ledger_id, 1)
    assert writer.append(b"3", after=last).entry_id == 2, "a place in the ledger that failed is known"
    with pytest.raises(embedbk.AppendConflict):
        writer.append(b"x", after=embedbk.Position(before, 2))
    writer.close()
    assert read(client) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("forces", [True, False])
def test_a_flush_passes_what_was_refused_and_waits_for_the_rest(cluster: Cluster, forces: bool) -> None:
    """P8.2: the entry that named an id of the failed ledger is in no ledger, which its caller is told, and nobody
    else."""
    client = cluster.client("w")
    writer = client.log(NAME).writer()
    before = writer.append(b"zero").ledger_id
    cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    ticket = writer.append_nowait(b"one")
    bound = Beside(client, one(writer, b"bound", entry_id=2))
    cluster.run_for(0.1)
    newest = writer._line.newest
    flushed = Beside(client, all_acknowledged(newest, is_synced=forces))
    stray(cluster, before)
    assert cluster.run_until(lambda: bound.is_over and flushed.is_over)
    assert isinstance(bound.error, embedbk.UsageError)
    assert flushed.error is None and flushed.result == 0
    assert ticket.done() and ticket.position == embedbk.Position(writer.ledger_id, 0)
    writer.close()
    assert read(client) == [b"zero", b"one"]


def test_what_was_queued_is_not_appended_again_when_its_ledger_is_not_replaced(
    bk: embedbk.Client, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3.6: no memory is left for what was outstanding. Its fate is not known, and its caller is given its ticket."""

    def no_memory(*_: object) -> None:
        raise MemoryError("no memory for it")

    writer = bk.log(log_name).writer()
    writer.append(b"zero")
    monkeypatch.setattr(placed, "_append_again", no_memory)
    bk.open_ledger(writer.ledger_id, recover=True).close()
    with pytest.raises(embedbk.UsageError, match="no memory for it") as told:
        writer.append(b"one")
    assert not told.value.definite and told.value.ticket.entry_id == 1
    writer.release()


def test_producers_and_batches_go_along(cluster: Cluster) -> None:
    """P3.1: an append that is repeated is found where it is by now; a batch stays one entry."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0", producer=(7, 0)).ledger_id
    cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    first = Beside(client, one(writer, b"1", producer=(7, 1)))
    cluster.run_for(0.05)
    batch = Beside(
        client, writer._line.through(lambda now, _: now.append_batch([b"a", b"", b"bc"]), AppendTerms())
    )
    cluster.run_for(0.1)
    stray(cluster, before)
    assert cluster.run_until(lambda: first.is_over and batch.is_over)
    assert first.result == embedbk.Position(writer.ledger_id, 0)
    assert writer.append(b"1", producer=(7, 1)) == first.result
    assert writer.append(b"0", producer=(7, 0)) == embedbk.Position(before, 0)
    writer.close()
    entries = list(client.log(NAME).read())
    assert [entry.parts for entry in entries][2] == [b"a", b"", b"bc"]
    assert len(entries) == 3
    with client.log(NAME).writer() as after:
        assert after.append(b"1", producer=(7, 1)) == first.result


@pytest.mark.parametrize("digest", ["xxh3", "hmac"])
def test_tags_are_made_anew(cluster: Cluster, digest: str) -> None:
    """P3.1: a ledger may ask for a second digest, which covers its ids."""
    client = cluster.client("w")
    writer = client.log(NAME, password=b"sesame").writer(roll=NEVER, digest=digest)
    before = writer.append(b"0").ledger_id
    cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    ticket = writer.append_nowait(b"1")
    cluster.run_for(0.1)
    with cluster.client("r").open_ledger(before, password=b"sesame", recover=True):
        pass
    assert ticket.result().ledger_id != before
    writer.close()
    assert [bytes(entry) for entry in client.log(NAME, password=b"sesame").read()] == [b"0", b"1"]


def test_deferred_appends_go_along_and_force_waits_for_them(cluster: Cluster) -> None:
    """P3.2: what was told before it was synced keeps its offset; it stands in the next ledger, and `force` waits for
    that."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER, durability="deferred")
    writer.append(b"0")
    writer.force()
    before = writer.ledger_id
    end = cluster.drop_messages("AddAnswer", ledger_id=before, receiver="w")
    ticket = writer.append_nowait(b"1")
    cluster.run_for(0.05)
    end()
    cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    other = writer.append_nowait(b"2")
    stray(cluster, before)
    writer.force()
    assert {ticket.durability, other.durability} == {"synced"}
    assert other.position.ledger_id == writer.ledger_id != before
    writer.close()
    assert read(client) == [b"0", b"1", b"2"]


def test_a_roll_and_a_close_wait_for_the_ledger_that_replaces_theirs(cluster: Cluster) -> None:
    """P8.2 (ii): the ledger fails while a roll waits until all of it is done; a close behind that."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    before = writer.append(b"0").ledger_id
    cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    ticket = writer.append_nowait(b"1")
    rolling = Beside(client, writer._line.roll())
    cluster.run_for(0.2)
    prepared = listed(client, NAME)[-1]
    assert prepared.first_offset is None and not rolling.is_over
    stray(cluster, before)
    assert cluster.run_until(lambda: rolling.is_over)
    assert rolling.error is None
    assert ticket.result() == embedbk.Position(prepared.ledger_id, 0), "what was prepared takes its place"
    segments = listed(client, NAME)
    assert [(each.first_offset, each.begun) for each in segments] == [(0, Begun.TAKEOVER), (1, Begun.FAILURE)]
    cluster.drop_messages("AddRequest", sender="w", ledger_id=prepared.ledger_id)
    last = writer.append_nowait(b"2")
    closing = Beside(client, writer._line.close())
    cluster.run_for(0.2)
    stray(cluster, prepared.ledger_id, "q")
    assert cluster.run_until(lambda: closing.is_over)
    assert closing.error is None
    of, last_entry = closing.result
    assert last.result() == embedbk.Position(of.ledger_id, last_entry)
    assert is_closed(client, of.ledger_id)
    with pytest.raises(embedbk.UsageError, match="was closed"):
        writer.append(b"3")
    assert read(client) == [b"0", b"1", b"2"]


def test_below_its_level_the_log_is_taken_over_from_itself(cluster: Cluster) -> None:
    """P10.8: with what is outstanding, and what is known of producers."""
    client = cluster.client("w")
    client._runtime.has_level = lambda level: level < LEVEL_OF_LOGS  # type: ignore[method-assign]
    writer = client.log(NAME).writer(roll=NEVER)
    epoch, before = writer.epoch, writer.append(b"0").ledger_id
    cluster.drop_messages("AddRequest", sender="w", ledger_id=before)
    moved = Beside(client, one(writer, b"1", producer=(7, 1)))
    cluster.run_for(0.1)
    stray(cluster, before)
    assert cluster.run_until(lambda: moved.is_over)
    assert moved.error is None and moved.result.ledger_id == writer.ledger_id != before
    assert writer.epoch > epoch
    assert writer.append(b"1", producer=(7, 1)) == moved.result
    writer.close()
    assert read(client) == [b"0", b"1"]


def test_ledgers_that_fail_one_behind_the_other_are_followed(cluster: Cluster) -> None:
    """P8.2: an entry goes over as often as it has to."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    writer.append(b"0")
    cluster.drop_messages("AddRequest", sender="w", ledger_id=writer.ledger_id)
    ticket = writer.append_nowait(b"1")
    for number in range(3):
        cluster.run_for(0.1)
        ledger_id = writer.ledger_id
        following = max(each.ledger_id for each in listed(client, NAME)) + 1
        if number < 2:
            cluster.drop_messages("AddRequest", sender="w", ledger_id=following)
        stray(cluster, ledger_id, f"r{number}")
        assert cluster.run_until(lambda ledger_id=ledger_id: writer.ledger_id != ledger_id)  # type: ignore[misc]
    assert ticket.result() == embedbk.Position(writer.ledger_id, 0)
    writer.append(b"2")
    writer.close()
    assert read(client) == [b"0", b"1", b"2"]
    assert [each.last_entry for each in listed(client, NAME)][:3] == [0, -1, -1]
    with client.log(NAME).writer() as after:
        assert after.first_offset == 3
    assert len(listed(client, NAME)) == 3, "what closed empty leaves the list"


@pytest.mark.parametrize("calls", ["threads", "tasks"])
def test_both_faces_go_on_while_ledgers_fail(bk: embedbk.Client, log_name: str, calls: str) -> None:
    """P8.2: no append fails, none is doubled, each caller's order is kept."""
    counts = [0] * 4
    is_over = threading.Event()
    failed: list[BaseException] = []
    writer = bk.log(log_name).writer(roll=NEVER)

    def in_a_thread(number: int) -> None:
        try:
            while not is_over.is_set():
                text = b"%d %d" % (number, counts[number])
                if number == 0:
                    writer.append(text)
                elif number == 1:
                    writer.append(text, timeout_s=60)
                elif number == 2:
                    writer.append_many([text])
                else:
                    writer.append_nowait(text).result()
                counts[number] += 1
        except BaseException as error:  # noqa: BLE001  Shown by the test.
            failed.append(error)

    async def in_tasks() -> None:
        awaited = aio.Client(bk)
        line = aio.LogWriter(log_name, writer._line)

        async def run(number: int) -> None:
            while not is_over.is_set():
                text = b"%d %d" % (number, counts[number])
                if number == 0:
                    await line.append(text)
                elif number == 1:
                    await line.append(text, timeout_s=60)
                elif number == 2:
                    await line.append_many([text])
                else:
                    await line.append_batch([text])
                counts[number] += 1

        assert awaited is not None
        await asyncio.gather(*(run(number) for number in range(4)))

    def all_tasks() -> None:
        try:
            asyncio.run(in_tasks())
        except BaseException as error:  # noqa: BLE001  Shown by the test.
            failed.append(error)

    targets: list[Callable[[], None]] = (
        [lambda n=n: in_a_thread(n) for n in range(4)] if calls == "threads" else [all_tasks]  # type: ignore[misc]
    )
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    ledgers = {writer.ledger_id}
    for _ in range(4):
        ledger_id, seen = writer.ledger_id, sum(counts)
        with bk.open_ledger(ledger_id, recover=True):
            pass
        while not failed and (writer.ledger_id == ledger_id or sum(counts) < seen + 20):
            is_over.wait(0.01)
        ledgers.add(writer.ledger_id)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(ledgers) == 5
    writer.close()
    read_back: list[list[int]] = [[] for _ in range(4)]
    for entry in bk.log(log_name).read():
        number, count = bytes(entry).split()
        read_back[int(number)].append(int(count))
    assert read_back == [list(range(count)) for count in counts]
