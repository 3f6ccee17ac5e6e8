"""The owner of a log hears that it lost it, also one that appends nothing (P8.4)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

import embedbk
from embedbk import aio
from embedbk.client.runtime import _SLOW_S
from embedbk.client.waiting import drive_waits, run_blocking
from embedbk.codec.metadata_messages import Put
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


@pytest.mark.parametrize("is_late", [True, False])
def test_who_gives_a_takeover_up_takes_nothing_later(cluster: Cluster, is_late: bool) -> None:
    """P8.4: a caller whose time is over, or that was cancelled or interrupted, wants the log no more: else its takeover
    goes on by itself, and fences whoever has the log when the metadata can be reached again."""
    client = cluster.client("w", embedbk.Settings(operation_timeout_s=_SLOW_S + 0.1))
    cluster.client("v").log(NAME).writer().append(b"one")
    driver = drive_waits.get()
    assert driver is not None

    def cut(predicate: Callable[[], bool], timeout_s: float | None) -> bool:
        if timeout_s == _SLOW_S:  # It waits for a core: the takeover has begun.
            cluster.partition(["w"], ["metadata"])
            if not is_late:
                driver(lambda: False, 1.0)
                raise KeyboardInterrupt
        return driver(predicate, timeout_s)

    token = drive_waits.set(cut)
    with pytest.raises(embedbk.OperationTimeout if is_late else KeyboardInterrupt):
        client.log(NAME).writer()
    drive_waits.reset(token)
    owner = cluster.client("u").log(NAME).writer()
    owner.append(b"two")
    cluster.heal()
    cluster.run_for(30.0)
    assert not owner.lost(0.0)
    owner.append(b"three")


def test_who_is_interrupted_before_it_has_asked_ends_no_host(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come between any two steps of a call: there is nothing to give up then, and all others go on."""
    client = cluster.client("w")
    runtime, comes = client._runtime, iter([True])
    call = runtime.call

    def interrupted(function: Callable[[], None]) -> None:
        if next(comes, False):
            raise KeyboardInterrupt
        call(function)

    monkeypatch.setattr(runtime, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.log_exists(NAME)
    cluster.run_for(1.0)
    assert not client.log_exists(NAME)


def test_a_change_that_was_given_up_is_not_asked_for_again(cluster: Cluster) -> None:
    """The request of a caller that was cancelled or interrupted goes with it, as that of one whose time was over."""
    client = cluster.client("w")
    with client.log(NAME).writer() as writer:
        writer.append(b"one")
    cluster.partition(["w"], ["metadata"])
    driver = drive_waits.get()
    assert driver is not None

    def cut(predicate: Callable[[], bool], timeout_s: float | None) -> bool:
        driver(predicate, 1.0)
        raise KeyboardInterrupt

    token = drive_waits.set(cut)
    with pytest.raises(KeyboardInterrupt):
        run_blocking(client._runtime.transact([], [Put("/given up", b"x")], "a test"), "")
    with pytest.raises(KeyboardInterrupt):
        run_blocking(client._runtime.follow("/given up"), "")
    drive_waits.reset(token)
    assert not client._runtime.followed, "nobody ends what was never returned"
    cluster.heal()
    cluster.run_for(30.0)
    assert run_blocking(client._runtime.get("/given up", "a test"), "") == (None, 0)


def test_a_writer_that_nobody_got_is_let_go(cluster: Cluster) -> None:
    """Its caller was interrupted behind the takeover: else its client looks after the log for ever, and says of it that
    it is written."""
    client = cluster.client("w")
    driver = drive_waits.get()
    assert driver is not None

    def cut(predicate: Callable[[], bool], timeout_s: float | None) -> bool:
        keeper = client._runtime.keeper
        if keeper is not None and list(keeper.lines()):
            raise KeyboardInterrupt
        return driver(predicate, timeout_s)

    token = drive_waits.set(cut)
    with pytest.raises(KeyboardInterrupt):
        client.log(NAME).writer(ensemble_size=3, write_quorum=3, ack_quorum=2)
    drive_waits.reset(token)
    assert client.handles() == []
    with client.log(NAME).writer() as writer:
        writer.append(b"one")
    assert client.handles() == []
