"""What does reading cost beyond the wire and the file? One closed ledger on three bookies, or the end of an open one.

`catchup`: the whole ledger in batches of buffers, from entry logs that the page cache holds. Its ceiling over `zmq` is
a bare pyzmq transfer of the same bytes in blocks of a full frame, several asked for at a time; `local`, where the
bookies are in this process, it is `pread` of the same bytes from the same file. What both leave out: lookups, digests
(twice), frames, the cutting of payloads out of entries. `memoryviews`: the same with an `Entry` object for each.
`catchup_cold`: the page cache was emptied first; the ceiling is `pread` of a file's bytes after the same.

`random_depth1_p50`: one entry at a time, at random places, page cache emptied first; the ceiling is a bare peer that
answers each question over pyzmq with a `pread` at a random place.

`tail/.../p50 p99`: from the moment in which the writer's append returned until a reader in another process, which
follows the log, has the entry in its hands. The ceiling is a bare relay: from a send to the arrival in another process
by way of a third. Appends come at a fixed pace, so a row says nothing of throughput.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._bare_reads import NUMBER, BarePeer, arrivals, ended, reader
from benchmarks._load import Load
from benchmarks.append import Measured, Place, alternate, median_row
from embedbk.cluster import Cluster
from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES
from embedbk.config import FRAME_BYTES_MAX

COPIES = 3
CATCHUP_COUNT = 200_000
CATCHUP_BYTES = 1 << 10
PAIRS = 5
WINDOW = 4  # Blocks of the bare transfer on their way at a time.
RANDOM_BYTES = 4 << 10
RANDOM_ENTRIES = 40_000
RANDOM_COUNT = 300  # Reads of one side before the other has its turn.
TAIL_COUNT = 1000
TAIL_PAUSE_S = 0.002
TAIL_SKIPPED = 100  # The first ones: links are dialled, memory is touched.

CATCHUP = ("1KiB/catchup", "1KiB/memoryviews", "1KiB/catchup_cold")
RANDOM = "4KiB/random_depth1_p50"
TAIL = ("tail/zmq/1KiB/p50", "tail/zmq/1KiB/p99")


def measure() -> Iterator[Row]:
    with workplace("reading") as directory:
        if is_wanted(*(f"read/local/{name}" for name in CATCHUP)):
            with embedbk.open(directory / "local", bookies=COPIES) as bk:
                yield from catchup_rows("read/local", bk, Place(directory), directory / "local")
        zmq = [*(f"read/zmq/{name}" for name in (*CATCHUP, RANDOM)), *TAIL]
        if is_wanted(*zmq):
            with Cluster(directory / "zmq", bookies=COPIES) as cluster:
                place = Place(directory, [peer.pid for peer in cluster.processes.values()])
                with embedbk.open(cluster.url) as bk:
                    if is_wanted(*(f"read/zmq/{name}" for name in CATCHUP)):
                        yield from catchup_rows("read/zmq", bk, place, directory / "zmq")
                    if is_wanted(f"read/zmq/{RANDOM}"):
                        yield random_row(f"read/zmq/{RANDOM}", bk, place, directory / "zmq")
                    if is_wanted(*TAIL):
                        yield from tail_rows(bk, cluster.url, place)


def filled(bk: embedbk.Client, count: int, size: int) -> int:
    """A closed ledger of so many entries."""
    with bk.create_ledger() as writer:
        for _ in range(10):
            writer.add_many([os.urandom(size)] * (count // 10))
    return writer.ledger_id


def entry_logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("b*/entries/*.elog"))


def empty_page_cache(directory: Path) -> None:
    for path in entry_logs(directory):
        file = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


# --- A whole ledger --------------------------------------------------------------------------------------


def catchup_rows(work: str, bk: embedbk.Client, place: Place, directory: Path) -> Iterator[Row]:
    ledger_id = filled(bk, CATCHUP_COUNT, CATCHUP_BYTES)
    entry_bytes = CATCHUP_BYTES + ENTRY_OVERHEAD_BYTES
    block_bytes = FRAME_BYTES_MAX // entry_bytes * entry_bytes
    block_count = CATCHUP_COUNT * entry_bytes // block_bytes

    def batches() -> int:
        with bk.open_ledger(ledger_id) as ledger:
            return sum(batch.entry_count for batch in ledger.read_batches())

    def views() -> int:
        with bk.open_ledger(ledger_id) as ledger:
            return sum(1 for _ in ledger.read())

    def ours(read: Callable[[], int]) -> Measured:
        with Load(pids=place.pids) as load:
            count = read()
        assert count == CATCHUP_COUNT
        return Measured(count / load.wall_s, load.cpu_s * 1e6 / count, load.foreign)

    def cold() -> Measured:
        empty_page_cache(directory)
        return ours(batches)

    def from_file(*, is_cold: bool) -> float:
        path = entry_logs(directory)[0]
        if is_cold:
            empty_page_cache(directory)
        return pread_rate(path, block_bytes) / entry_bytes

    peer = BarePeer() if "zmq" in work else None

    def ceiling() -> float:
        if peer is None:
            return from_file(is_cold=False)
        begin = time.perf_counter()
        peer.blocks(block_count, block_bytes, WINDOW)
        return block_count * block_bytes / entry_bytes / (time.perf_counter() - begin)

    try:
        for name, read in ((CATCHUP[0], batches), (CATCHUP[1], views)):
            if is_wanted(f"{work}/{name}"):
                pairs = alternate(PAIRS, partial(ours, read), ceiling)
                yield median_row(f"{work}/{name}", "entries/s", pairs)
    finally:
        if peer is not None:
            peer.close()
    if is_wanted(f"{work}/{CATCHUP[2]}"):
        pairs = alternate(PAIRS, cold, lambda: from_file(is_cold=True))
        yield median_row(f"{work}/{CATCHUP[2]}", "entries/s", pairs)


def pread_rate(path: Path, block_bytes: int) -> float:
    """Bytes per second of reading a file from its begin to its end into one buffer."""
    file = os.open(path, os.O_RDONLY)
    try:
        buffer = memoryview(bytearray(block_bytes))
        size = os.fstat(file).st_size
        begin = time.perf_counter()
        for offset in range(0, size, block_bytes):
            os.preadv(file, [buffer], offset)
        return size / (time.perf_counter() - begin)
    finally:
        os.close(file)


# --- One entry -------------------------------------------------------------------------------------------


def random_row(work: str, bk: embedbk.Client, place: Place, directory: Path) -> Row:
    ledger_id = filled(bk, RANDOM_ENTRIES, RANDOM_BYTES)
    chance = random.Random(1)
    file = max(entry_logs(directory), key=lambda path: path.stat().st_size)
    places = file.stat().st_size // RANDOM_BYTES
    peer = BarePeer(file)
    try:
        with bk.open_ledger(ledger_id) as ledger:

            def read_one() -> None:
                entry_id = chance.randrange(RANDOM_ENTRIES)
                assert [entry.entry_id for entry in ledger.read(entry_id, entry_id)] == [entry_id]

            def ours() -> Measured:
                empty_page_cache(directory)
                with Load(pids=place.pids) as load:
                    value = p50_us(read_one)
                return Measured(value, load.cpu_s * 1e6 / RANDOM_COUNT, load.foreign)

            def ceiling() -> float:
                empty_page_cache(directory)
                return p50_us(lambda: peer.pread(RANDOM_BYTES * chance.randrange(places), RANDOM_BYTES))

            return median_row(work, "us", alternate(PAIRS, ours, ceiling))
    finally:
        peer.close()


def p50_us(read: Callable[[], None]) -> float:
    times = []
    for _ in range(RANDOM_COUNT):
        begin = time.perf_counter_ns()
        read()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1000


# --- The end of an open ledger ---------------------------------------------------------------------------


def tail_rows(bk: embedbk.Client, url: str, place: Place) -> Iterator[Row]:
    peer = BarePeer()
    bare = started(["listen", str(peer.port), str(TAIL_COUNT)])
    sent: list[int] = []
    acked: list[int] = []

    def relay(body: bytes) -> None:
        sent.append(time.perf_counter_ns())
        peer.relay(body)

    with bk.log("tail").writer() as writer:
        writer.append(NUMBER.pack(0))
        ours = started(["tail", url, "tail", str(TAIL_COUNT)])

        def append(body: bytes) -> None:
            writer.append(body)
            acked.append(time.perf_counter_ns())

        filler = os.urandom(CATCHUP_BYTES - NUMBER.size)
        with Load(pids=[*place.pids, ours.pid]) as load:
            for number in range(TAIL_COUNT):
                for say in (relay, append):
                    time.sleep(TAIL_PAUSE_S)
                    say(NUMBER.pack(number) + filler)
            heard, relayed = latencies(arrivals(ours), acked), latencies(arrivals(bare), sent)
    peer.close()
    ended(ours)
    ended(bare)
    for work, share in zip(TAIL, (0.5, 0.99), strict=True):
        if is_wanted(work):
            value, ceiling = heard[int(len(heard) * share)], relayed[int(len(relayed) * share)]
            yield Row(
                work,
                round(value, 1),
                "us",
                round(ceiling, 1),
                round(load.cpu_s * 1e6 / TAIL_COUNT, 2),
                foreign=round(load.foreign, 3),
            )


def started(arguments: list[str]) -> subprocess.Popen[bytes]:
    """A reader that stands where the next body comes to it."""
    popen = reader(arguments)
    assert popen.stdout is not None
    assert popen.stdout.readline() == b"joined\n"
    return popen


def latencies(got: list[tuple[int, int]], begun: list[int]) -> list[float]:
    """Microseconds, ascending. What came before its own acknowledgement took none."""
    return sorted(max(0, when - begun[number]) / 1000 for number, when in got[TAIL_SKIPPED:])
