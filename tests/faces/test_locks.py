"""Locks and elections by both faces, in this process and over ZeroMQ (P9.3)."""

from __future__ import annotations

import asyncio
import pickle
import threading
from pathlib import Path

import pytest

import embedbk
from embedbk import aio
from embedbk.client.waiting import run_async


def test_a_lock_goes_from_client_to_client_in_order_of_asking(data: Path, settings: embedbk.Settings) -> None:
    """P9.3: handed over in order of asking, under epochs that rise; here from this process to one over ZeroMQ."""
    with (
        embedbk.open(data, bookies=1, listen="tcp://127.0.0.1:0", settings=settings) as here,
        embedbk.open(here.url) as there,
    ):
        mine, theirs = here.lock("billing", value=b"here"), there.lock("billing", value=b"there")
        first = mine.acquire()
        assert mine.is_held and theirs.holder() == embedbk.Holder(first, b"here")
        with pytest.raises(embedbk.OperationTimeout, match="held by others for more than 0 s") as late:
            theirs.acquire(timeout_s=0)
        assert late.value.definite and not theirs.is_held and theirs.epoch == 0
        told: list[int] = []
        waiter = threading.Thread(target=lambda: told.append(theirs.acquire(timeout_s=60)))
        waiter.start()
        holders = here.lock("billing").holders()
        assert next(holders) == embedbk.Holder(first, b"here")
        mine.release()
        waiter.join()
        assert not mine.is_held and theirs.is_held and told[0] == theirs.epoch > first
        seen = next(holders)
        while seen != embedbk.Holder(theirs.epoch, b"there"):  # It may have been free before there asked.
            seen = next(holders)
        holders.close()  # type: ignore[attr-defined]
        with pytest.raises(embedbk.UsageError, match="not held by this handle"):
            mine.release()


def test_a_client_has_a_lock_once_and_its_close_gives_it_away(bk: embedbk.Client, log_name: str) -> None:
    lock = bk.lock(log_name)
    with lock:
        first = lock.epoch
        lock.check()
        with pytest.raises(embedbk.UsageError, match="this client holds lock") as refused:
            bk.lock(log_name).acquire()
        assert "open another client" in refused.value.hint
        assert lock.is_held and not lock.until_lost(timeout_s=0)
    assert lock.holder() is None and not lock.is_held and lock.until_lost()

    def fail() -> None:
        with lock:
            assert lock.epoch > first
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    with lock:  # What the failed block gave away is asked for behind that.
        assert lock.is_held


def test_an_elected_task_is_watched_and_cancelled_waiting_leaves_no_place(
    data: Path, settings: embedbk.Settings
) -> None:
    async def story() -> None:
        async with (
            aio.open(data, bookies=1, listen="tcp://127.0.0.1:0", settings=settings) as here,
            aio.open(here.url) as there,
            aio.open(here.url) as third,
        ):
            async with here.lock("leader", value=b"here") as leading:
                waiting = asyncio.create_task(there.lock("leader").acquire())
                while not await run_async(there._runtime.list_keys("/waiting/leader/", "who waits")):  # noqa: ASYNC110
                    await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                behind = third.lock("leader", value=b"third")
                asked = asyncio.create_task(behind.acquire(60))
                async for holder in there.lock("leader").holders():
                    assert holder == embedbk.Holder(leading.epoch, b"here")
                    break
            assert await asked == behind.epoch and behind.is_held
            await behind.release()
            assert await behind.holder() is None

    asyncio.run(asyncio.wait_for(story(), 300))


@pytest.mark.parametrize("name", ["", "a/b", "a" * 128, 7])
def test_a_lock_is_named_as_logs_are(bk: embedbk.Client, name: str) -> None:
    with pytest.raises(embedbk.UsageError, match="lock name"):
        bk.lock(name)


def test_what_a_lock_is_given_is_judged_at_once(bk: embedbk.Client) -> None:
    with pytest.raises(embedbk.UsageError, match="bytes are allowed, up to 262144"):
        bk.lock("orders", value="here")  # type: ignore[arg-type]
    with pytest.raises(embedbk.UsageError, match="allowed are seconds from 0 on"):
        bk.lock("orders").acquire(timeout_s=-1)
    with pytest.raises(embedbk.UsageError, match="was not acquired"):
        bk.lock("orders").check()
    with pytest.raises(embedbk.UsageError, match="cannot be pickled"):
        pickle.dumps(bk.lock("orders"))
