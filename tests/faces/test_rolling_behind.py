"""What is appended while the ledger before is not done: kept, sent behind it, or moved behind what it left (P8.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import embedbk
from embedbk import aio
from embedbk.client.log_writer import LogWriter
from embedbk.client.placed import Appended
from embedbk.client.tickets import all_acknowledged
from embedbk.testing import Cluster
from tests.faces.test_replacing import Beside, many, one, read, stray
from tests.faces.test_rolling import NAME, NEVER, is_closed, knowing, listed


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=94, bookies=4) as cluster:
        yield cluster


class Rolled:
    """A writer that has rolled while entry b"1" of its ledger reaches no bookie. terms: of that one, whose caller gives
    up waiting."""

    def __init__(self, cluster: Cluster, **terms: Any) -> None:
        self.cluster = cluster
        self.client = cluster.client("w")
        self.writer: LogWriter = self.client.log(NAME).writer(roll=NEVER)
        self.epoch = self.writer.epoch
        self.before = self.writer.append(b"0").ledger_id
        self.reach = cluster.drop_messages("AddRequest", sender="w", ledger_id=self.before)
        if terms:
            appending = Beside(self.client, one(self.writer, b"1", timeout_s=0.05, **terms))
            cluster.run_for(0.1)
            assert isinstance(appending.error, embedbk.OperationTimeout)
            self.outstanding = appending.error.ticket
        else:
            self.outstanding = self.writer.append_nowait(b"1")
        self.rolling = Beside(self.client, self.writer._line.roll())
        cluster.run_for(0.2)
        self.kept_in = self.writer.ledger_id
        assert self.kept_in != self.before

    def is_over(self, *tickets: embedbk.Ticket) -> bool:
        return self.cluster.run_until(lambda: all(ticket.done() for ticket in tickets))


@pytest.fixture
def rolled(cluster: Cluster) -> Rolled:
    return Rolled(cluster)


def test_what_was_kept_goes_behind_what_was_outstanding(cluster: Cluster, rolled: Rolled) -> None:
    """P8.2: once, in order, ahead of what comes; in a ledger that is neither, so that a place names one entry only."""
    writer = rolled.writer
    kept = [writer.append_nowait(b"2"), writer.append_nowait(b"3")]
    last = writer.last_position
    assert last == embedbk.Position(rolled.kept_in, 1)
    by_producer = Beside(rolled.client, one(writer, b"4", producer=(7, 1)))
    run = Beside(rolled.client, many(writer, [b"5", b"6"]))
    by_place = Beside(rolled.client, one(writer, b"7", after=embedbk.Position(rolled.kept_in, 4)))
    by_id = Beside(rolled.client, one(writer, b"no", entry_id=6))
    cluster.run_for(0.1)
    assert not knowing(cluster, rolled.kept_in)
    stray(cluster, rolled.before)
    assert rolled.is_over(rolled.outstanding, *kept)
    assert cluster.run_until(lambda: all(call.is_over for call in (by_producer, run, by_id, by_place)))
    third = writer.ledger_id
    assert third not in (rolled.before, rolled.kept_in) and writer.epoch > rolled.epoch
    assert not knowing(cluster, rolled.kept_in) or is_closed(rolled.client, rolled.kept_in)
    assert rolled.outstanding.result() == embedbk.Position(third, 0)
    assert [ticket.result() for ticket in kept] == [embedbk.Position(third, 1), embedbk.Position(third, 2)]
    assert by_producer.result == embedbk.Position(third, 3)
    assert run.result == Appended(third, 4, 5)
    assert isinstance(by_id.error, embedbk.UsageError), "ids begin anew in the next ledger"
    assert by_place.error is None and by_place.result == embedbk.Position(third, 6)
    assert writer.append(b"4", producer=(7, 1)) == by_producer.result, "it is known where it stands"
    assert rolled.rolling.is_over and rolled.rolling.error is None
    writer.close()
    assert read(rolled.client) == [b"%d" % number for number in range(8)]
    assert rolled.kept_in not in [each.ledger_id for each in listed(rolled.client, NAME)]


@pytest.mark.parametrize(("fails", "keeps"), [(False, False), (True, False), (True, True)])
def test_a_repeat_waits_for_what_it_repeats(cluster: Cluster, fails: bool, keeps: bool) -> None:
    """P3.1, P3.2: a producer's entry is on its way in the ledger that is left: its repeat is answered when that is
    durable, with its place by then."""
    rolled = Rolled(cluster, producer=(7, 1))
    repeated = Beside(rolled.client, one(rolled.writer, b"1", producer=(7, 1)))
    late = Beside(rolled.client, one(rolled.writer, b"1", producer=(7, 1), timeout_s=0.1))
    cluster.run_for(0.3)
    assert not repeated.is_over and isinstance(late.error, embedbk.OperationTimeout)
    if keeps:
        rolled.writer.append_nowait(b"2")
    if fails:
        stray(cluster, rolled.before)
    else:
        rolled.reach()
    assert cluster.run_until(lambda: repeated.is_over)
    assert repeated.error is None
    assert repeated.result == rolled.outstanding.result()
    assert (repeated.result.ledger_id == rolled.before) is not fails
    rolled.writer.close()
    assert read(rolled.client) == [b"0", b"1", b"2"][: 3 if keeps else 2]


def test_what_was_to_stand_behind_a_refused_one_is_refused(cluster: Cluster) -> None:
    """P8.2: "it fails, definitely, in no ledger, and so does one `after=` it", also where that is kept behind it."""
    rolled = Rolled(cluster, entry_id=1)
    behind = Beside(rolled.client, one(rolled.writer, b"2", after=embedbk.Position(rolled.before, 1)))
    cluster.run_for(0.1)
    kept = rolled.writer.append_nowait(b"3")
    stray(cluster, rolled.before)
    assert rolled.is_over(kept)
    assert cluster.run_until(lambda: behind.is_over)
    with pytest.raises(embedbk.UsageError):
        rolled.outstanding.result()
    assert isinstance(behind.error, embedbk.AppendConflict)
    rolled.writer.close()
    assert read(rolled.client) == [b"0", b"3"]


def test_flush_waits_for_the_ledger_before_while_the_next_one_is_empty(
    cluster: Cluster, rolled: Rolled
) -> None:
    """Everything queued before is acknowledged when it returns, in both faces."""
    newest = rolled.writer._line.newest
    assert aio.LogWriter(NAME, rolled.writer._line)._newest is newest
    flushed = [
        Beside(rolled.client, all_acknowledged(newest, is_synced=is_synced)) for is_synced in (False, True)
    ]
    cluster.run_for(0.2)
    assert not any(call.is_over for call in flushed)
    with pytest.raises(embedbk.OperationTimeout):
        rolled.writer.flush(0.1)
    rolled.reach()
    assert cluster.run_until(lambda: all(call.is_over for call in flushed))
    assert [call.error for call in flushed] == [None, None]
    assert rolled.outstanding.done()
    assert rolled.writer.append(b"2").ledger_id == rolled.kept_in
    rolled.writer.close()


@pytest.mark.parametrize("ends", ["release", "client"])
def test_who_lets_go_meanwhile_sends_nothing_of_what_was_kept(
    cluster: Cluster, rolled: Rolled, ends: str
) -> None:
    """P3.6: both ledgers' appends fail; the next owner finds nothing of what was kept."""
    kept = rolled.writer.append_nowait(b"2")
    if ends == "release":
        rolled.writer.release()
    else:
        rolled.client.close()
    for ticket in (rolled.outstanding, kept):
        with pytest.raises(embedbk.LedgerClosed if ends == "release" else embedbk.MetadataUnavailable):
            ticket.result(0.5)
    rolled.reach()
    cluster.run_for(2.0)
    other = cluster.client("v")
    with other.log(NAME).writer() as after:
        after.append(b"3")
    assert read(other) == [b"0", b"3"]


def test_a_log_that_was_lost_meanwhile_keeps_nothing(cluster: Cluster, rolled: Rolled) -> None:
    """P8.1, P3.6: what was only kept is certainly nowhere."""
    kept = rolled.writer.append_nowait(b"2")
    with cluster.client("v").log(NAME).writer() as after:
        after.append(b"3")
    rolled.reach()
    assert rolled.is_over(rolled.outstanding, kept)
    for ticket in (rolled.outstanding, kept):
        with pytest.raises(embedbk.LedgerFenced) as found:
            ticket.result()
    assert found.value.definite, "nothing of it was sent"
    assert rolled.writer.lost(1.0)
    assert read(rolled.client) == [b"0", b"3"]


@pytest.mark.parametrize("which", ["the second", "both", "the second, then the first"])
def test_ledgers_that_fail_meanwhile_are_followed_by_one(
    cluster: Cluster, rolled: Rolled, which: str
) -> None:
    """P8.2: in either order, nothing is lost, or there twice, or before what was appended first."""
    kept = rolled.writer.append_nowait(b"2")
    if which != "both":
        stray(cluster, rolled.kept_in)
        cluster.run_for(1.0)
    if which == "the second":
        rolled.reach()
    else:
        stray(cluster, rolled.before, "q")
    if which == "both":
        stray(cluster, rolled.kept_in)
    assert rolled.is_over(rolled.outstanding, kept)
    assert kept.result().ledger_id == rolled.writer.ledger_id
    rolled.writer.append(b"3")
    rolled.writer.close()
    assert read(rolled.client) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_close_waits_for_both(cluster: Cluster, rolled: Rolled, fails: bool) -> None:
    """P8.2: what was kept is in the log when its writer is closed, whatever became of the ledger before."""
    kept = rolled.writer.append_nowait(b"2")
    closing = Beside(rolled.client, rolled.writer._line.close())
    cluster.run_for(0.2)
    assert not closing.is_over
    if fails:
        stray(cluster, rolled.before)
    else:
        rolled.reach()
    assert cluster.run_until(lambda: closing.is_over)
    assert closing.error is None
    of, last_entry = closing.result
    assert kept.result() == embedbk.Position(of.ledger_id, last_entry)
    assert read(rolled.client) == [b"0", b"1", b"2"]
    assert all(is_closed(rolled.client, each.ledger_id) for each in listed(rolled.client, NAME))
