"""A writer that closes hands its log over without a recovery (P8.1): nobody has to fence it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedbk.testing import Cluster

NAME = "one"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=91, bookies=3) as cluster:
        yield cluster


def fenced(cluster: Cluster, ledger_id: int) -> set[str]:
    """The bookies on which a recovery fenced a ledger."""
    rows = {name: cluster.world.nodes[name].storage.table.get(ledger_id) for name in cluster.world.disks}
    return {name for name, row in rows.items() if row is not None and row.is_fenced}


def take_over(cluster: Cluster) -> None:
    with cluster.log(NAME, client="next").writer() as following:
        assert following.append(b"behind").entry_id == 0


def test_whoever_takes_over_behind_a_close_recovers_nothing(cluster: Cluster) -> None:
    """P8.1: every ledger that is recorded as closed is left alone; a close records it."""
    with cluster.log(NAME, client="first").writer() as writer:
        writer.append(b"0")
        writer.append(b"1")
    take_over(cluster)
    assert not fenced(cluster, writer.ledger_id)
    assert [bytes(entry) for entry in cluster.log(NAME).read()] == [b"0", b"1", b"behind"]


def test_a_prepared_ledger_is_closed_with_the_writer(cluster: Cluster) -> None:
    """P8.2: what was prepared and not used needs no recovery either, and leaves the list."""
    with cluster.log(NAME, client="first").writer() as writer:
        writer.append(b"0")
        writer.roll()
        writer.append(b"1")
    take_over(cluster)
    ledgers = {entry.ledger_id for entry in cluster.log(NAME).read()}
    assert len(ledgers) == 3
    assert not any(fenced(cluster, ledger_id) for ledger_id in ledgers)


def test_whoever_takes_over_from_one_that_let_go_recovers(cluster: Cluster) -> None:
    """P8.1, the other side: what nobody closed is fenced on its bookies first."""
    writer = cluster.log(NAME, client="first").writer()
    writer.append(b"0")
    writer.append(b"1")
    writer.release()
    take_over(cluster)
    assert fenced(cluster, writer.ledger_id)
