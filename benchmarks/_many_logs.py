"""What do 10,000 open logs cost one client process? Three bookie processes, 3/3/2, all synced.

`log/10k/memory`: resident memory that each log with an open writer adds, idle after one entry; the second half of the
logs is counted, as in `ledgers`. At most 4 KB is the aim.

`log/10k/visits`: visits that append 64 KiB to one log each, the logs taking turns. Its ceiling is the same visits of as
many ledgers, which is `ledgers/zmq/10k` in turns with it. At most 3 % is the aim.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks import Row, is_wanted
from benchmarks._load import Load
from benchmarks.ledgers import (
    COPIES,
    CREATED_AT_A_TIME,
    IDLE_S,
    ITEMS,
    SINGLES_AT_A_TIME,
    VISIT_ENTRIES,
    VISITS,
    VISITS_AT_A_TIME,
    compare,
    create,
    resident_bytes,
    visit,
    visits,
)
from embedbk import aio
from embedbk.cluster import Cluster

__all__ = ["MEMORY", "VISITED", "many_logs_rows"]

MEMORY, VISITED = "log/10k/memory", "log/10k/visits"
COUNT = 10_000


def many_logs_rows(directory: Path) -> Iterator[Row]:
    if is_wanted(MEMORY, VISITED):
        yield from asyncio.run(rows(directory))


async def rows(directory: Path) -> list[Row]:
    found: list[Row] = []
    with Cluster(directory, bookies=COPIES) as cluster:
        pids = [peer.pid for peer in cluster.processes.values()]
        async with aio.open(cluster.url) as bk:
            logs: list[aio.LogWriter] = []
            resident = []
            for half in (range(COUNT // 2), range(COUNT // 2, COUNT)):
                began = time.monotonic()
                fresh = await taken_over(bk, half)
                print(f"{len(half)} logs made in {time.monotonic() - began:.1f} s", file=sys.stderr)
                await visits(fresh, len(half), SINGLES_AT_A_TIME, append_one)
                logs += fresh
                await asyncio.sleep(IDLE_S)
                resident.append(resident_bytes(os.getpid()))
            found.append(Row(MEMORY, round((resident[1] - resident[0]) / (COUNT // 2), 1), "bytes"))
            if is_wanted(VISITED):
                ledgers = await create(bk, COUNT)
                found.append(
                    await compare(
                        VISITED,
                        partial(visits, logs, VISITS, VISITS_AT_A_TIME, append_visit),
                        partial(visits, ledgers, VISITS, VISITS_AT_A_TIME, visit),
                        VISITS,
                        VISITS_AT_A_TIME,
                        VISIT_ENTRIES,
                        lambda: Load(directory, pids),
                    )
                )
                for ledger in ledgers:
                    ledger.release()
            for log in logs:
                log.release()
    return found


async def taken_over(bk: aio.Client, numbers: range) -> list[aio.LogWriter]:
    """The writers of new logs of these numbers."""
    writers: list[aio.LogWriter] = []

    async def take_over(share: range) -> None:
        writers.extend([await bk.log(f"log-{number}").writer() for number in share])

    await asyncio.gather(*(take_over(numbers[at::CREATED_AT_A_TIME]) for at in range(CREATED_AT_A_TIME)))
    return writers


async def append_one(writer: aio.LogWriter) -> None:
    await writer.append(ITEMS[0])


async def append_visit(writer: aio.LogWriter) -> None:
    await writer.append_many(ITEMS)
