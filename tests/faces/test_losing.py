"""The owner of a log hears that it lost it, also one that appends nothing (P8.4)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

import embedbk
from embedbk import aio
from embedbk.testing import Cluster
from tests.scenarios.test_log_without_empties import NAME, take_over_soon


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=92, bookies=3) as cluster:
        yield cluster


def test_an_idle_owner_hears_that_its_log_was_taken_over(cluster: Cluster) -> None:
    """P8.4: "by the epoch, which its watch shows"."""
    writer = cluster.client("w").log(NAME).writer()
    assert writer.lost(1.0) is False
    take_over_soon(cluster, "v", b"new")
    began = cluster.now_s
    assert writer.lost(60.0) is True
    assert cluster.now_s - began < 3.0
    assert writer.lost() is True
    cluster.run_for(3.0)  # Whoever takes the log says so first, and fences then.
    with pytest.raises(embedbk.LedgerFenced):
        writer.append(b"late")


def test_what_an_owner_does_itself_is_no_loss(cluster: Cluster) -> None:
    """P8.1, P8.2: it renews, which gives it another epoch, and rolls."""
    with cluster.client("w").log(NAME).writer() as writer:
        for go_over in (writer.renew, writer.roll, writer.renew):
            writer.append(b"one")
            go_over()
            assert writer.lost(0.2) is False
    assert writer.lost() is False, "closed by itself"


def test_an_owner_whose_metadata_is_away_hears_it_from_a_bookie(cluster: Cluster) -> None:
    """P8.4: "or by a bookie that refuses it"."""
    writer = cluster.client("w").log(NAME).writer()
    writer.append(b"one")
    cluster.partition(["w"], [cluster.leader()])
    with cluster.client("v").log(NAME).writer() as other:
        other.append(b"two")
    with pytest.raises(embedbk.LedgerFenced):
        writer.append(b"late")
    assert writer.lost() is True


def test_a_log_that_is_deleted_is_lost(cluster: Cluster) -> None:
    client = cluster.client("w")
    writer = client.log(NAME).writer()
    writer.append(b"one")
    with client.log(NAME).writer() as other:
        other.append(b"two")
    cluster.client("v").delete_log(NAME)
    assert writer.lost(5.0) is True


def test_whoever_waits_for_the_loss_goes_when_the_writer_is_closed(bk: embedbk.Client, log_name: str) -> None:
    """In threads and tasks; and when another writer takes the log."""
    told: list[bool] = []
    writer = bk.log(log_name).writer()
    waiting = threading.Thread(target=lambda: told.append(writer.lost()))
    waiting.start()
    writer.append(b"one")
    writer.close()
    waiting.join()
    assert told == [False]

    async def both() -> tuple[bool, bool]:
        log = aio.Client(bk).log(log_name)
        first = await log.writer()
        is_lost = asyncio.ensure_future(first.lost())
        async with log.writer() as second:
            await second.append(b"two")
            return await is_lost, await second.lost(0.0)

    assert asyncio.run(both()) == (True, False)


def test_seconds_that_are_none_are_refused(bk: embedbk.Client, log_name: str) -> None:
    with bk.log(log_name).writer() as writer, pytest.raises(embedbk.UsageError, match="timeout_s=-1"):
        writer.lost(-1)
