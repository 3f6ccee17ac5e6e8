"""`Ticket.copies` and `Ticket.at_least`: on how many disks an entry is, as its bookies say (P3.6, P11.4)."""

from __future__ import annotations

from collections.abc import Generator

import pytest

import embedbk
from embedbk.testing import Cluster


@pytest.fixture
def cluster() -> Generator[Cluster]:
    with Cluster(seed=9, bookies=3) as cluster:
        yield cluster


def test_more_copies_than_the_ack_quorum_are_waited_for(cluster: Cluster) -> None:
    """P3.6: nothing is known before the ack quorum has it; then so many copies are, and more when bookies say so. Who
    stands still is named, and is asked again."""
    with cluster.log("orders").writer() as orders:
        orders.append(b"zero")
        cluster.run_for(1)
        cluster.pause("b3")
        ticket = orders.append_nowait(b"one")
        assert ticket.copies == 0
        assert ticket.at_least(2) == ticket.copies == 2
        with pytest.raises(
            embedbk.OperationTimeout, match=r"2 copies are known .* 3 were asked for \(b3: "
        ) as late:
            ticket.at_least(3, timeout_s=1.0)
        assert late.value.ticket is not None and late.value.ticket.copies == 2
        assert ticket.copies == 2
        cluster.world.after(2_000_000_000, lambda: cluster.resume("b3"))
        assert ticket.at_least(3) == ticket.copies == 3
    assert ticket.at_least(3, timeout_s=0.0) == 3  # It knows by now, and the ledger is closed.


def test_a_copy_that_was_lost_is_not_counted(cluster: Cluster) -> None:
    """P11.4: a bookie says what it holds durably; one with an empty disk, or none, is no copy."""
    ledger = cluster.client().create_ledger()
    ticket = ledger.add_nowait(b"zero")
    ticket.result()
    cluster.run_for(1)
    ledger.close()
    cluster.lose_disk("b2")
    with pytest.raises(embedbk.OperationTimeout, match=r"3 were asked for .b2: "):
        ticket.at_least(3, timeout_s=0.5)
    again = embedbk.client.tickets.Ticket(ledger._appending, 0)
    assert again.copies == 2


def test_a_bookie_with_an_empty_disk_is_no_copy() -> None:
    """P11.4: it answers, and it holds nothing; so does one that never got its copy."""
    with Cluster(seed=9, bookies=3) as cluster, cluster.client().create_ledger() as ledger:
        ledger.add(b"zero")
        cluster.run_for(1)
        stop = cluster.drop_messages("AddRequest", receiver="b3")
        ticket = ledger.add_nowait(b"one")
        with pytest.raises(embedbk.OperationTimeout, match=r"3 were asked for .b3: it lacks it"):
            ticket.at_least(3, timeout_s=1.0)
        stop()


def test_what_cannot_be_asked_for_is_refused(cluster: Cluster) -> None:
    """Nothing is asked, and the entry goes on."""
    with cluster.client().create_ledger() as ledger:
        ticket = ledger.add_nowait(b"zero")
        for copies in (0, 4, True, "3", 2.0):
            with pytest.raises(embedbk.UsageError, match=r"allowed are 1 to 3, the write quorum"):
                ticket.at_least(copies)  # type: ignore[arg-type]
        with pytest.raises(embedbk.UsageError):
            ticket.at_least(2, timeout_s=-1.0)
        assert ticket.at_least(1, timeout_s=5.0) == 2


def test_below_the_level_bookies_are_not_asked(cluster: Cluster) -> None:
    """P10.8: bookies of a build before would end their link for it. What is known without them is told."""
    bk = cluster.client()
    with bk.create_ledger() as ledger:
        ticket = ledger.add_nowait(b"zero")
        bk._runtime.node.metadata.client.cluster_level = 9
        assert ticket.at_least(2) == 2
        with pytest.raises(embedbk.UsageError, match="level is too low to ask; 2 copies are known"):
            ticket.at_least(3)


def test_the_entry_is_asked_for_where_it_stands_by_now(cluster: Cluster) -> None:
    """P8.2: the ledger failed, and what was outstanding went to the next one; there it is asked for."""
    orders = cluster.log("orders").writer()
    orders.append(b"zero")
    first = orders.ledger_id
    for name in ("b1", "b2", "b3"):
        cluster.crash(name)
    ticket = orders.append_nowait(b"one")
    cluster.run_for(8)
    cluster.heal()
    assert ticket.at_least(3, timeout_s=60.0) == 3
    assert ticket.position.ledger_id != first
    orders.close()
