"""The awaited face: the same names, on whichever loop runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import embedbk
from embedbk import aio


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


def test_a_log_is_written_read_and_followed(data: Path, settings: embedbk.Settings) -> None:
    async def story() -> None:
        async with aio.open(data, settings=settings) as bk:
            async with bk.log("orders").writer() as orders:
                assert (await orders.append(b"one")).entry_id == 0
                tickets = [orders.append_nowait(b"%d" % number) for number in range(100)]
                assert (await tickets[-1]).entry_id == 100
                assert [ticket.done() for ticket in tickets] == [True] * 100
                assert (await orders.append_many([b"x"] * 50)).entry_count == 50
                assert await orders.flush() == 150
            entries = [entry async for entry in bk.log("orders").read()]
            assert [entry.offset for entry in entries] == list(range(151))
            assert sum([batch.entry_count async for batch in bk.log("orders").read_batches()]) == 151
            assert [segment.last_entry for segment in await bk.log("orders").segments()] == [150]

            async def follow() -> list[bytes]:
                found: list[bytes] = []
                async for entry in bk.log("orders").tail(149, idle_s=20):
                    found.append(bytes(entry))
                    if found[-1] == b"last":
                        break
                return found

            follower = asyncio.create_task(follow())
            async with bk.log("orders").writer() as orders:
                await orders.append(b"last")
                assert await follower == [b"x", b"x", b"last"]

    run(story())


def test_a_log_is_deleted(data: Path, settings: embedbk.Settings) -> None:
    async def story() -> None:
        async with aio.open(data, settings=settings) as bk:
            async with bk.log("orders").writer() as writer:
                await writer.append(b"one")
                with pytest.raises(embedbk.UsageError, match="open writer"):
                    await bk.delete_log("orders")
            await bk.delete_log("orders")
            assert await bk.logs() == [] and not await bk.log_exists("orders")
            with pytest.raises(embedbk.NoSuchLedger):
                await bk.delete_log("orders")
            (deleted,) = await bk.deleted_logs()
            log = await bk.undelete_log("orders", new_name="bills")
            assert deleted.log_id == await log.log_id()
            watched = bk.watch_logs(idle_s=5.0)
            assert await anext(watched) == ["bills"]
            await log.rename("orders")
            assert await anext(watched) == ["orders"]
            await watched.aclose()  # type: ignore[attr-defined]
            assert [bytes(entry) async for entry in log.read()] == [b"one"]
            await log.delete()
            assert await bk.forget_deleted() == []

    asyncio.run(story())


def test_a_ledger_is_written_read_and_deleted(data: Path, settings: embedbk.Settings) -> None:
    async def story() -> None:
        bk = await aio.open(data, settings=settings)
        writer = await bk.create_ledger(password=b"p")
        assert await writer.add(b"a") == 0
        assert (await writer.add_nowait(b"b")).entry_id == 1
        async with bk.open_ledger(writer.ledger_id, recover=True, password=b"p") as reader:
            assert reader.is_closed
            assert await reader.last_add_confirmed() == 1
            assert [bytes(entry) async for entry in reader.read()] == [b"a", b"b"]
        with pytest.raises(embedbk.LedgerFenced):
            await writer.add(b"c")
        writer.release()
        assert await bk.ledgers() == [writer.ledger_id]
        assert await bk.is_closed(writer.ledger_id)
        assert (await bk.ledger_metadata(writer.ledger_id)).last_entry == 1
        await bk.delete_ledger(writer.ledger_id, password=b"p")
        with pytest.raises(embedbk.NoSuchLedger):
            await bk.open_ledger(writer.ledger_id, password=b"p")
        await bk.close()

    run(story())


def test_many_tasks_share_one_writer(data: Path, settings: embedbk.Settings) -> None:
    """One wake-up per batch and loop: a thousand waiters are no thousand futures."""

    async def story() -> None:
        async with aio.open(data, settings=settings) as bk, bk.log("busy").writer() as writer:
            positions = await asyncio.gather(*(writer.append(b"%d" % number) for number in range(1000)))
            assert sorted(position.entry_id for position in positions) == list(range(1000))

    run(story())


def test_blocking_calls_are_refused_where_a_loop_runs(bk: embedbk.Client, log_name: str) -> None:
    """They would stop every task of that thread; the sentence names the twin."""

    async def story() -> None:
        for call, twin in (
            (lambda: bk.create_ledger(), "aio.Client.create_ledger"),
            (lambda: bk.log(log_name).writer(), "aio.Log.writer"),
            (lambda: list(bk.log(log_name).read()), "aio.Log.read"),
            (lambda: bk.ledgers(), "aio.Client.ledgers"),
        ):
            with pytest.raises(embedbk.UsageError, match="event loop") as refused:
                call()
            assert twin in refused.value.hint

    run(story())
    assert bk.ledgers() is not None


def test_a_blocking_call_beside_the_first_import_of_asyncio(
    bk: embedbk.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread, a client's background work say, imports it: the module is listed before it has anything."""
    monkeypatch.setitem(sys.modules, "asyncio.events", ModuleType("asyncio.events"))
    assert bk.ledgers() is not None


def test_a_cancelled_append_may_still_happen_and_harms_nothing(
    data: Path, settings: embedbk.Settings
) -> None:
    async def story() -> None:
        async with aio.open(data, settings=settings) as bk, bk.log("c").writer() as writer:
            task = asyncio.create_task(writer.append(b"maybe"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await writer.append(b"surely")).entry_id in (0, 1)

    run(story())


def test_a_failed_block_releases_the_writer(data: Path, settings: embedbk.Settings) -> None:
    async def story() -> None:
        async with aio.open(data, settings=settings) as bk:
            writer = await bk.log("f").writer()

            async def fail() -> None:
                async with writer:
                    await writer.append(b"kept")
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            with pytest.raises(embedbk.UsageError):
                await writer.append(b"late")
            assert not (await bk.log("f").segments())[0].is_closed

    run(story())


def test_a_directory_that_nobody_got_is_free_again(data: Path, settings: embedbk.Settings) -> None:
    """Whoever opened it was cancelled while a thread started it."""

    async def story() -> None:
        opening = asyncio.ensure_future(_opened(data, settings))
        while not (data / "OWNER").exists():  # noqa: ASYNC110  The thread that starts it tells nobody.
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await asyncio.get_running_loop().shutdown_default_executor()

    run(story())
    with embedbk.open(data, settings=settings) as bk:
        assert bk.logs() == []


async def _opened(data: Path, settings: embedbk.Settings) -> aio.Client:
    return await aio.open(data, settings=settings)
