"""What does appending to a log cost beyond the wire and the device? One writer, three bookies, 3/3/2, all synced.

`many`: batches through `append_many`. Its ceiling is a bare probe of the same processes, threads, sockets and syncs
without any protocol (`_bare.py`), fed with blocks of the size of a full frame; counted in entries with their headers.
What the probe leaves out: checksums, ids, quorums, metadata, and the making of entries out of payloads.

`depth1_p50`: one entry at a time, the median of the caller's wait. Its ceiling is the same probe with one entry at a
time: hand over to a host thread, append the bytes to three journals, wake the caller when two are durable.

`pipelined`: one call an entry, `append_nowait`, with two thousand of them outstanding; beside the probe of `many`.

`one_copy`: one bookie in this process and 1/1/1, beside the probe with one journal. It is what SQLite and Redis do, and
`peers` has it beside them.

`slow_seat_p99`: ten thousand appends a second on a schedule (`latency`), one of the three bookies stopped for 200 ms of
each second. Its ceiling is the same schedule in the same run with nobody stopped; a smaller value is better.

`aio/.../outstanding1000`: a thousand tasks, each of which awaits one append after the other. Its ceiling is asyncio:
the same tasks, each awaiting a future that a callback resolves together with all others of the turn.

Both sides take turns, A B B A; the row is the pair with the median ratio. `local`: the bookies are in this process.
`zmq`: each is a process of its own, reached over tcp on loopback.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._bare import Bare, BareLocal, BareProcesses
from benchmarks._load import Load
from benchmarks.latency import on_schedule
from embedbk import aio
from embedbk.cluster import Cluster
from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES
from embedbk.config import FRAME_BLOCK_BYTES

COPIES, ACKS = 3, 2
SIZES = {"100B": 100, "1KiB": 1 << 10, "4KiB": 4 << 10, "64KiB": 64 << 10}
LOCAL_SIZES = ("100B", "1KiB")
MANY_BYTES = 48 << 20  # Payload of one measurement of `many`.
MANY_ENTRIES_MAX = 200_000
MANY_PAIRS = 5
BARE_WINDOW = 32  # Blocks of the probe on their way at a time: 8 MiB.
DEPTH1_COUNT = 200  # Appends of one side before the other has its turn.
DEPTH1_PAIRS = 11
PIPELINED_OUTSTANDING = 2000
PIPELINED_COUNT = 60_000
PIPELINED_PAIRS = 5
SLOW_RUN_S = 4.0
SLOW_PAIRS = 5
STOPPED_S, EACH_S = 0.2, 1.0  # So long a bookie is stopped, of so long.
AIO_OUTSTANDING = 1000
AIO_COUNT = 60_000
AIO_PAIRS = 5


def measure() -> Iterator[Row]:
    with workplace("append") as directory:
        if is_wanted(*works("append/local", LOCAL_SIZES)):
            with embedbk.open(directory / "local", bookies=COPIES) as bk:
                bare = BareLocal(directory / "bare", COPIES, acks=ACKS)
                yield from rows("append/local", bk, bare, Place(directory), LOCAL_SIZES)
        if is_wanted(*works("append/one_copy", ("1KiB",))):
            with embedbk.open(directory / "one", bookies=1) as bk:
                bare = BareLocal(directory / "bare-one", 1, acks=1)
                yield from rows("append/one_copy", bk, bare, Place(directory), ("1KiB",))
        if is_wanted(*works("append/zmq", SIZES), PIPELINED_WORK, SLOW_WORK, AIO_WORK):
            with Cluster(directory / "zmq", bookies=COPIES) as cluster:
                place = Place(directory, [peer.pid for peer in cluster.processes.values()])
                with embedbk.open(cluster.url) as bk:
                    bare = BareProcesses(directory / "bare-zmq", COPIES, acks=ACKS)
                    yield from rows("append/zmq", bk, bare, place, SIZES)
                    if is_wanted(SLOW_WORK):
                        yield slow_seat_row(bk, place, cluster.processes["b3"].pid)
                if is_wanted(AIO_WORK):
                    yield asyncio.run(awaited_row(cluster.url, place))


def works(place: str, sizes: Sequence[str] | dict[str, int]) -> list[str]:
    return [*(f"{place}/{size}/many" for size in sizes), f"{place}/1KiB/depth1_p50"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where it runs: a directory of the device, and the processes beside this one."""

    directory: Path
    pids: Sequence[int] = ()

    def load(self) -> Load:
        return Load(self.directory, self.pids)


def rows(
    work: str, bk: embedbk.Client, bare: Bare, place: Place, sizes: Sequence[str] | dict[str, int]
) -> Iterator[Row]:
    try:
        for size in sizes:
            if is_wanted(f"{work}/{size}/many"):
                yield many_row(f"{work}/{size}/many", bk, bare, place, SIZES[size])
        if f"{work}/1KiB/pipelined" == PIPELINED_WORK and is_wanted(PIPELINED_WORK):
            yield pipelined_row(bk, bare, place)
        if is_wanted(f"{work}/1KiB/depth1_p50"):
            yield depth1_row(f"{work}/1KiB/depth1_p50", bk, bare, place)
    finally:
        bare.close()


@dataclass(frozen=True, slots=True)
class Measured:
    """One turn of our side."""

    value: float
    cpu_us_per_entry: float
    foreign: float


Pairs = list[tuple[Measured, float]]


def alternate(pair_count: int, ours: Callable[[], Measured], ceiling: Callable[[], float]) -> Pairs:
    """Pairs of both sides, in the order A B B A, after one turn of each that does not count."""
    ours()
    ceiling()
    pairs: Pairs = []
    for number in range(pair_count):
        if number % 2:
            bare = ceiling()
            pairs.append((ours(), bare))
        else:
            pairs.append((ours(), ceiling()))
    return pairs


def median_row(work: str, unit: str, pairs: Pairs) -> Row:
    """The pair with the median ratio, and the median cost; all ratios on stderr."""
    ratios = [measured.value / ceiling for measured, ceiling in pairs]
    print(f"{work}: ratios " + " ".join(f"{ratio:.2f}" for ratio in ratios), file=sys.stderr)
    measured, ceiling = pairs[ratios.index(statistics.median_low(ratios))]
    cpu_us = statistics.median(each.cpu_us_per_entry for each, _ in pairs)
    foreign = statistics.median(each.foreign for each, _ in pairs)
    return Row(
        work, round(measured.value, 1), unit, round(ceiling, 1), round(cpu_us, 2), foreign=round(foreign, 3)
    )


# --- Many ------------------------------------------------------------------------------------------------


def many_row(work: str, bk: embedbk.Client, bare: Bare, place: Place, size: int) -> Row:
    count = min(MANY_BYTES // size, MANY_ENTRIES_MAX)
    items = [os.urandom(size)] * count
    with bk.log(work.replace("/", "-")).writer() as writer:

        def ours() -> Measured:
            return append_many(writer, items, place)

        return median_row(work, "entries/s", alternate(MANY_PAIRS, ours, lambda: streamed(bare, size, count)))


def streamed(bare: Bare, size: int, count: int) -> float:
    """Entries of this size per second that the probe carries, in blocks of a full frame."""
    entry_bytes = size + ENTRY_OVERHEAD_BYTES
    block = os.urandom(FRAME_BLOCK_BYTES // entry_bytes * entry_bytes)
    block_count = count * entry_bytes // len(block)
    begin = time.perf_counter()
    bare.stream(block, block_count, BARE_WINDOW)
    return block_count * len(block) / entry_bytes / (time.perf_counter() - begin)


def append_many(writer: embedbk.LogWriter, items: Sequence[bytes], place: Place) -> Measured:
    with place.load() as load:
        writer.append_many(items)
    load.check_flushes(1)
    return Measured(len(items) / load.wall_s, load.cpu_s * 1e6 / len(items), load.foreign)


# --- One call an entry -----------------------------------------------------------------------------------

PIPELINED_WORK = "append/zmq/1KiB/pipelined"


def pipelined_row(bk: embedbk.Client, bare: Bare, place: Place) -> Row:
    size = SIZES["1KiB"]
    with bk.log("pipelined").writer() as writer:
        pairs = alternate(
            PIPELINED_PAIRS,
            lambda: append_pipelined(writer, os.urandom(size), place),
            lambda: streamed(bare, size, PIPELINED_COUNT),
        )
        return median_row(PIPELINED_WORK, "entries/s", pairs)


def append_pipelined(writer: embedbk.LogWriter, payload: bytes, place: Place) -> Measured:
    outstanding: deque[embedbk.Ticket] = deque()
    with place.load() as load:
        for _ in range(PIPELINED_COUNT):
            if len(outstanding) == PIPELINED_OUTSTANDING:
                outstanding.popleft().result()
            outstanding.append(writer.append_nowait(payload))
        while outstanding:
            outstanding.popleft().result()
    load.check_flushes(PIPELINED_COUNT // PIPELINED_OUTSTANDING)
    return Measured(PIPELINED_COUNT / load.wall_s, load.cpu_s * 1e6 / PIPELINED_COUNT, load.foreign)


# --- One seat that stands still --------------------------------------------------------------------------

SLOW_WORK = "append/zmq/1KiB/slow_seat_p99"


def slow_seat_row(bk: embedbk.Client, place: Place, pid: int) -> Row:
    payload = os.urandom(SIZES["1KiB"])
    with bk.log("slow-seat").writer() as writer:

        def stopped() -> Measured:
            is_over = threading.Event()
            stopping = threading.Thread(target=stop_now_and_then, args=(pid, is_over))
            with place.load() as load:
                stopping.start()
                try:
                    taken = on_schedule(writer, payload, SLOW_RUN_S)
                finally:
                    is_over.set()
                    stopping.join()
            load.check_flushes(int(SLOW_RUN_S))
            return Measured(p99_us(taken), load.cpu_s * 1e6 / len(taken), load.foreign)

        return median_row(
            SLOW_WORK,
            "us",
            alternate(SLOW_PAIRS, stopped, lambda: p99_us(on_schedule(writer, payload, SLOW_RUN_S))),
        )


def stop_now_and_then(pid: int, is_over: threading.Event) -> None:
    while not is_over.wait(EACH_S - STOPPED_S):
        os.kill(pid, signal.SIGSTOP)
        is_over.wait(STOPPED_S)
        os.kill(pid, signal.SIGCONT)


def p99_us(taken: array[int]) -> float:
    return sorted(taken)[int(0.99 * len(taken))] / 1000


# --- One at a time ---------------------------------------------------------------------------------------


def depth1_row(work: str, bk: embedbk.Client, bare: Bare, place: Place) -> Row:
    payload = os.urandom(SIZES["1KiB"])
    with bk.log(work.replace("/", "-")).writer() as writer:

        def ours() -> Measured:
            return append_each(writer, payload, place)

        return median_row(
            work, "us", alternate(DEPTH1_PAIRS, ours, lambda: p50_us(lambda: bare.append(payload)))
        )


def append_each(writer: embedbk.LogWriter, payload: bytes, place: Place) -> Measured:
    with place.load() as load:
        value = p50_us(lambda: writer.append(payload))
    load.check_flushes(DEPTH1_COUNT)
    return Measured(value, load.cpu_s * 1e6 / DEPTH1_COUNT, load.foreign)


def p50_us(append: Callable[[], object]) -> float:
    times: list[int] = []
    for _ in range(DEPTH1_COUNT):
        begin = time.perf_counter_ns()
        append()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1000


# --- Awaited one by one ----------------------------------------------------------------------------------

AIO_WORK = f"aio/zmq/1KiB/outstanding{AIO_OUTSTANDING}"


async def awaited_row(url: str, place: Place) -> Row:
    payload = os.urandom(SIZES["1KiB"])
    async with aio.open(url) as bk, bk.log("awaited").writer() as writer:

        async def ours() -> Measured:
            with place.load() as load:
                await outstanding(lambda: writer.append(payload))
            load.check_flushes(AIO_COUNT // AIO_OUTSTANDING)
            return Measured(AIO_COUNT / load.wall_s, load.cpu_s * 1e6 / AIO_COUNT, load.foreign)

        async def ceiling() -> float:
            begin = time.perf_counter()
            await outstanding(Turn().append)
            return AIO_COUNT / (time.perf_counter() - begin)

        await ours()
        await ceiling()
        pairs: Pairs = []
        for number in range(AIO_PAIRS):
            if number % 2:
                bare = await ceiling()
                pairs.append((await ours(), bare))
            else:
                pairs.append((await ours(), await ceiling()))
        return median_row(AIO_WORK, "entries/s", pairs)


async def outstanding(append: Callable[[], object]) -> None:
    """So many tasks at a time, each of which awaits one append after the other."""

    async def append_all() -> None:
        for _ in range(AIO_COUNT // AIO_OUTSTANDING):
            await append()  # type: ignore[misc]

    await asyncio.gather(*(append_all() for _ in range(AIO_OUTSTANDING)))


class Turn:
    """Futures that are resolved together, at the next turn of the loop."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def append(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._resolve)
        future = loop.create_future()
        self._waiting.append(future)
        await future

    def _resolve(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(None)
