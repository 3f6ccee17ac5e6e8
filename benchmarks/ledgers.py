"""What do many open ledgers cost? One client process, three bookie processes, 3/3/2, all synced.

`ledgers/zmq/10k` and `/100k`: visits that append 64 KiB to one ledger each, the ledgers taking turns, so many visits at
a time. The ceiling is the same visits with one ledger for all of them, in turns with it. `/single`: one entry of 1 KiB
per visit.

`memory/ledger/client` and `/bookie`: resident memory that each open ledger adds, idle after one entry. The second half
of the ledgers is counted: the first has gone through the same, so what grows is the ledgers and not the buffers.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarks import Row, is_wanted, workplace
from benchmarks._load import Load
from embedbk import aio
from embedbk.cluster import Cluster

COPIES = 3
COUNTS = {"10k": 10_000, "100k": 100_000}
ENTRY_BYTES = 1 << 10
VISIT_ENTRIES = 64
VISITS_AT_A_TIME = 64
SINGLES_AT_A_TIME = 1000
VISITS = 4_000  # Visits in one measurement: 250 MiB.
SINGLES = 20_000
PAIRS = 3
CREATED_AT_A_TIME = 200
IDLE_S = 2.0  # Until the last LACs are told and nothing is waited for.

Visited = TypeVar("Visited", aio.LedgerWriter, aio.LogWriter)


def measure() -> Iterator[Row]:
    """In steps: the ledgers of one row are kept for the next, since making them takes longer than the rows."""
    for name, count in COUNTS.items():
        works = [f"ledgers/zmq/{name}", f"ledgers/zmq/{name}/single"]
        if count == min(COUNTS.values()):
            works += ["memory/ledger/client", "memory/ledger/bookie"]
        if is_wanted(*works):
            with workplace("ledgers") as directory:
                yield from asyncio.run(rows(directory, name, count))


async def rows(directory: Path, name: str, count: int) -> list[Row]:
    found: list[Row] = []
    with Cluster(directory / "zmq", bookies=COPIES) as cluster:
        bookies = [peer.pid for who, peer in cluster.processes.items() if who not in cluster.members]
        pids = [peer.pid for peer in cluster.processes.values()]
        async with aio.open(cluster.url) as bk, bk.create_ledger() as one:
            await visits([one], VISITS, VISITS_AT_A_TIME, visit)
            writers: list[aio.LedgerWriter] = []
            resident: list[list[int]] = []
            for half in (count // 2, count - count // 2):
                began = time.monotonic()
                fresh = await create(bk, half)
                print(f"{half} ledgers made in {time.monotonic() - began:.1f} s", file=sys.stderr)
                await visits(fresh, half, SINGLES_AT_A_TIME, add_one)
                writers += fresh
                await asyncio.sleep(IDLE_S)
                resident.append([resident_bytes(pid) for pid in (os.getpid(), *bookies)])
            if count == min(COUNTS.values()):
                grown = [(after - before) / half for before, after in zip(*resident, strict=True)]
                found.append(Row("memory/ledger/client", round(grown[0], 1), "bytes"))
                found.append(Row("memory/ledger/bookie", round(statistics.median(grown[1:]), 1), "bytes"))
            for work, total, at_a_time, do in (
                (f"ledgers/zmq/{name}", VISITS, VISITS_AT_A_TIME, visit),
                (f"ledgers/zmq/{name}/single", SINGLES, SINGLES_AT_A_TIME, add_one),
            ):
                if is_wanted(work):
                    found.append(
                        await compare(
                            work,
                            partial(visits, writers, total, at_a_time, do),
                            partial(visits, [one], total, at_a_time, do),
                            total,
                            at_a_time,
                            VISIT_ENTRIES if do is visit else 1,
                            lambda: Load(directory, pids),
                        )
                    )
            for writer in writers:
                writer.release()
    return found


async def create(bk: aio.Client, count: int) -> list[aio.LedgerWriter]:
    writers: list[aio.LedgerWriter] = []

    async def create_some(share: int) -> None:
        writers.extend([await bk.create_ledger() for _ in range(share)])

    await asyncio.gather(*(create_some(count // CREATED_AT_A_TIME) for _ in range(CREATED_AT_A_TIME)))
    return writers


async def compare(
    work: str,
    many: Callable[[], Awaitable[object]],
    ceiling: Callable[[], Awaitable[object]],
    total: int,
    at_a_time: int,
    per_visit: int,
    make_load: Callable[[], Load],
) -> Row:
    """The pair with the median ratio of many ledgers to what they are compared with: both are so many visits."""
    pairs: list[tuple[Load, Load]] = []
    for number in range(PAIRS):
        sides = [many, ceiling]
        loads: list[Load] = []
        for side in sides if number % 2 else reversed(sides):
            with make_load() as load:
                await side()
            load.check_flushes(total // at_a_time)
            loads.append(load)
        pairs.append((loads[0], loads[1]) if number % 2 else (loads[1], loads[0]))
    ratios = [other.wall_s / ours.wall_s for ours, other in pairs]
    costs = [ours.cpu_s / other.cpu_s for ours, other in pairs]
    print(
        f"{work}: ratios {' '.join(f'{ratio:.2f}' for ratio in ratios)}; processor time, to its ceiling's: "
        f"{' '.join(f'{cost:.2f}' for cost in costs)}",
        file=sys.stderr,
    )
    ours, other = pairs[ratios.index(statistics.median_low(ratios))]
    entries = total * per_visit
    return Row(
        work,
        round(entries / ours.wall_s, 1),
        "entries/s",
        round(entries / other.wall_s, 1),
        round(ours.cpu_s * 1e6 / entries, 2),
        foreign=round(ours.foreign, 3),
    )


async def visits(
    writers: list[Visited], total: int, at_a_time: int, do: Callable[[Visited], Awaitable[object]]
) -> None:
    """So many visits, the ledgers taking turns, at most so many at a time."""
    numbers = iter(range(total))

    async def go_round() -> None:
        for number in numbers:
            await do(writers[number % len(writers)])

    await asyncio.gather(*(go_round() for _ in range(at_a_time)))


ITEMS = [os.urandom(ENTRY_BYTES)] * VISIT_ENTRIES


async def visit(writer: aio.LedgerWriter) -> None:
    await writer.add_many(ITEMS)


async def add_one(writer: aio.LedgerWriter) -> None:
    await writer.add(ITEMS[0])


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
