"""What does appending to a log cost beyond the device? One writer, three bookies, 3/3/2, every entry synced.

`many`: batches through `append_many`. Its ceiling is the device: three files written at once in synced blocks of
512 KiB, counted as entries with their headers, three copies each. What is left out: every copy, checksum, thread and
message between the caller and the files. Expect the copies to matter at 1 KiB and the work per frame at 100 B.

`depth1_p50`: one entry at a time, the median of the caller's wait. Its ceiling is a bare probe of the same processes,
threads and syncs without any protocol (`_bare.py`): hand over to a host thread, append the bytes to three journals,
wake the caller when two are durable. Both are measured in turns, A B B A; the row is the pair with the median ratio.

`local`: the bookies are in this process. `zmq`: each is a process of its own, reached over tcp on loopback.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import embedbk
from benchmarks import Row
from benchmarks._bare import BareLocal, BareProcesses
from embedbk.cluster import Cluster
from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES
from embedbk.storage.probe import DeviceProbe

COPIES = 3
BLOCK_BYTES = 512 << 10
BLOCK_COUNT = 60  # Per file and measurement: 90 MiB in all.
MANY_BYTES = 48 << 20  # Payload of one measurement of `many`.
MANY_BATCH_BYTES = 4 << 20  # Of one append_many.
MANY_RUNS = 5
DEPTH1_COUNT = 200  # Appends of one side before the other has its turn.
DEPTH1_PAIRS = 11
SIZES = {"1KiB": 1024, "100B": 100}


def measure() -> Iterator[Row]:
    place = Path(__file__).parents[1] / ".run"  # In the project: a temporary directory may be no real disk.
    place.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-append-", dir=place))
    try:
        yield from local(directory)
        yield from over_zmq(directory)
    finally:
        shutil.rmtree(directory)


def local(directory: Path) -> Iterator[Row]:
    with embedbk.open(directory / "local", bookies=COPIES) as bk:
        yield from many_rows("append/local", bk, directory)
        bare = BareLocal(directory / "bare", COPIES, acks=2)
        try:
            yield depth1_row("append/local", bk, bare.append)
        finally:
            bare.close()


def over_zmq(directory: Path) -> Iterator[Row]:
    with Cluster(directory / "zmq", bookies=COPIES) as cluster, embedbk.open(cluster.url) as bk:
        yield from many_rows("append/zmq", bk, directory)
        bare = BareProcesses(directory / "bare-zmq", COPIES, acks=2)
        try:
            yield depth1_row("append/zmq", bk, bare.append)
        finally:
            bare.close()


# --- Many ------------------------------------------------------------------------------------------------


def many_rows(work: str, bk: embedbk.Client, directory: Path) -> Iterator[Row]:
    place = Path(tempfile.mkdtemp(dir=directory))
    probes = [DeviceProbe(place / f"probe-{number}", write_bytes=BLOCK_BYTES) for number in range(COPIES)]
    device_rate(probes)  # Once for its blocks to be mapped.
    try:
        for name, size in SIZES.items():
            with bk.log(f"many-{name}").writer() as writer:
                append_rate(writer, size)
                pairs = [(append_rate(writer, size), device_rate(probes)) for _ in range(MANY_RUNS)]
            entry_bytes = COPIES * (size + ENTRY_OVERHEAD_BYTES)
            rates = [(value, device / entry_bytes) for value, device in pairs]
            yield median_row(f"{work}/{name}/many", "entries/s", rates)
    finally:
        for probe in probes:
            probe.close()


def append_rate(writer: embedbk.LogWriter, size: int) -> float:
    """Entries per second, each batch waited for behind the one after it."""
    batch = [bytes(size)] * (MANY_BATCH_BYTES // size)
    rounds = MANY_BYTES // MANY_BATCH_BYTES
    begin = time.perf_counter()
    writer.append_many(batch * rounds)
    return len(batch) * rounds / (time.perf_counter() - begin)


def device_rate(probes: list[DeviceProbe]) -> float:
    """Bytes per second of synced blocks into all files at once."""
    threads = [threading.Thread(target=probe.writes, args=(BLOCK_COUNT,)) for probe in probes]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(probes) * BLOCK_COUNT * BLOCK_BYTES / (time.perf_counter() - begin)


# --- One at a time ---------------------------------------------------------------------------------------


def depth1_row(work: str, bk: embedbk.Client, bare_append: Callable[[bytes], None]) -> Row:
    payload = bytes(SIZES["1KiB"])
    with bk.log("depth1").writer() as writer:

        def ours() -> float:
            return p50_us(lambda: writer.append(payload))

        def bare() -> float:
            return p50_us(lambda: bare_append(payload))

        ours(), bare()
        pairs: list[tuple[float, float]] = []
        for number in range(DEPTH1_PAIRS):
            if number % 2:
                ceiling, value = bare(), ours()
            else:
                value, ceiling = ours(), bare()
            pairs.append((value, ceiling))
    return median_row(f"{work}/1KiB/depth1_p50", "us", pairs)


def p50_us(append: Callable[[], object]) -> float:
    times: list[int] = []
    for _ in range(DEPTH1_COUNT):
        begin = time.perf_counter_ns()
        append()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1000


def median_row(work: str, unit: str, pairs: list[tuple[float, float]]) -> Row:
    """The pair with the median ratio; all ratios on stderr."""
    ratios = [value / ceiling for value, ceiling in pairs]
    print(f"{work}: ratios " + " ".join(f"{ratio:.2f}" for ratio in ratios), file=sys.stderr)
    value, ceiling = pairs[ratios.index(statistics.median_low(ratios))]
    return Row(work, round(value, 1), unit, round(ceiling, 1))
