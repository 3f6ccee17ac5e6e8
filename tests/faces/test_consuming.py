"""Consuming by a cursor in threads, event loops and processes: whoever waits is woken, who died is followed."""

from __future__ import annotations

import asyncio
import math
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import embedbk
from embedbk import aio

SETTINGS = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0, session_ttl_ms=1_000)


def test_a_waiting_consumer_is_woken_by_entries_and_by_whoever_moves_its_cursor(tmp_path: Path) -> None:
    seen: queue.Queue[int] = queue.Queue()
    with embedbk.open(tmp_path / "data", bookies=1, settings=SETTINGS) as bk:
        log = bk.log("orders")
        with log.writer() as orders:
            orders.append_many([b"%d" % number for number in range(4)])

            def consume() -> None:
                with log.cursor("billing").consume(commit_s=math.inf) as entries:
                    for entry in entries:
                        assert bytes(entry) == b"%d" % entry.offset
                        seen.put(entry.offset)
                        if entry.offset == 6:
                            break

            consumer = threading.Thread(target=consume)
            consumer.start()
            assert [seen.get(timeout=60) for _ in range(4)] == [0, 1, 2, 3]
            orders.append(b"4")
            assert seen.get(timeout=60) == 4
            assert log.cursor("billing").set(2).offset == 2
            assert [seen.get(timeout=60) for _ in range(3)] == [2, 3, 4]
            with pytest.raises(embedbk.UsageError, match="by this client already"):
                log.cursor("billing").consume().__enter__()
            orders.append_many([b"5", b"6"])
            consumer.join(60)
        state = log.cursor("billing").get()
        assert (state.offset, state.holds) == (6, True), (
            "the one that the loop was at when it was left comes again"
        )
        assert [(each.lag_entries, each.lag_bytes, each.consumer) for each in log.cursors()] == [(1, 1, "")]


def test_the_awaited_face_consumes_alike(tmp_path: Path) -> None:
    async def consume(log: aio.Log, seen: asyncio.Queue[int]) -> None:
        async with log.cursor("billing").consume(commit_s=0.0) as entries:
            async for entry in entries:
                await seen.put(entry.offset)
                if entry.offset == 3:
                    break

    async def main() -> None:
        async with aio.open(tmp_path / "data", bookies=1, settings=SETTINGS) as bk:
            log = bk.log("orders")
            async with log.writer() as orders:
                await orders.append_many([b"0", b"1"])
                seen: asyncio.Queue[int] = asyncio.Queue()
                consuming = asyncio.create_task(consume(log, seen))
                assert [await seen.get() for _ in range(2)] == [0, 1]
                await log.cursor("billing").set(1)
                assert await seen.get() == 1
                await orders.append_many([b"2", b"3"])
                await consuming
            state = await log.cursor("billing").get()
            assert state.offset == 3
            with pytest.raises(embedbk.NotTruncated):
                await log.truncate(4)
            assert [each.name for each in await log.cursors()] == ["billing"]
            has_begun = asyncio.Event()

            async def waits() -> None:
                async with log.cursor("billing").consume() as entries:
                    async for entry in entries:
                        if entry.offset == 3:
                            has_begun.set()

            stopped = asyncio.create_task(waits())
            await has_begun.wait()
            assert (await log.cursors())[0].consumer
            stopped.cancel()  # Where it waits for what comes behind the last entry, or on its way there.
            with pytest.raises(asyncio.CancelledError):
                await stopped
            async with log.cursor("billing").consume(timeout_s=60.0, idle_s=0.2) as entries:
                assert [entry.offset async for entry in entries] == [3]
            assert await log.cursor("billing").delete()

    asyncio.run(main())


CONSUMER = """
import sys, embedbk
with embedbk.open(sys.argv[1]) as bk:
    with bk.log("orders").cursor("billing").consume(commit_s=0.0) as entries:
        for entry in entries:
            print(entry.offset, flush=True)
"""


def test_a_consumer_that_is_killed_is_followed_by_the_next_one(tmp_path: Path) -> None:
    """ "A consumer that died frees the lease with its session": at least once, and nothing is left out."""
    with embedbk.open(tmp_path / "data", bookies=1, listen="tcp://127.0.0.1:0", settings=SETTINGS) as bk:
        log = bk.log("orders")
        with log.writer() as orders:
            orders.append_many([b"%d" % number for number in range(5)])
            process = subprocess.Popen(
                [sys.executable, "-c", CONSUMER, bk.url], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            seen = [int(process.stdout.readline()) for _ in range(5)]
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            orders.append(b"5")
        with log.cursor("billing").consume(timeout_s=60.0, idle_s=1.0) as entries:
            seen += [entry.offset for entry in entries]
    assert seen[:5] == [0, 1, 2, 3, 4] and seen[-1] == 5
    assert seen[5] in (4, 5), "the last one was not asked to be committed when it was killed"
