"""What does a log cost beyond its ledgers, and Arrow beyond a list? One writer, three bookies over ZeroMQ, synced.

`append_many`: batches of 1 KiB into a log, rolling as by default. Its ceiling is `add_many` of the same batches into a
bare ledger: what names, lists, rolls and places cost. At most 3 % is the aim.

`append_arrow/100B`: rows of an Arrow array by `append_arrow`. Its ceiling is `append_many` of as many entries that are
one and the same buffer: what looking through the array, and its bytes, which are in no cache, cost. At most 15 % is
the aim.

`read_bulk/1KiB`: a reader that takes what is there call by call, as buffers. Its ceiling is `read_batches` over the
same log, which is one walk.

Both sides take turns, A B B A; the row is the pair with the median ratio.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._many_logs import MEMORY, VISITED, many_logs_rows
from benchmarks._rolls import (
    ROLLING,
    ROLLING_P99,
    TAIL_ROLL,
    rolling_p99_row,
    rolling_row,
    tail_roll_row,
)
from benchmarks._takeovers import TAKEOVER, takeover_row
from benchmarks.append import MANY_BYTES, MANY_ENTRIES_MAX, MANY_PAIRS, Measured, Place, alternate, median_row
from embedbk.cluster import Cluster
from embedbk.testing.arrow_bytes import ArrowBytes

COPIES = 3
MANY, ARROW, BULK = "log/append_many", "log/append_arrow/100B", "log/read_bulk/1KiB"
WORKS = (MANY, ARROW, BULK, TAKEOVER, ROLLING, ROLLING_P99, TAIL_ROLL, MEMORY, VISITED)
READ_COUNT = 100_000
PER_CALL = 5_000


def measure() -> Iterator[Row]:
    with workplace("log") as directory:
        if is_wanted(*(work for work in WORKS if work not in (MEMORY, VISITED))):
            yield from one_log_rows(directory)
        yield from many_logs_rows(directory / "many")


def one_log_rows(directory: Path) -> Iterator[Row]:
    with Cluster(directory / "zmq", bookies=COPIES) as cluster:
        place = Place(directory, [peer.pid for peer in cluster.processes.values()])
        with embedbk.open(cluster.url) as bk:
            if is_wanted(MANY):
                yield many_row(bk, place)
            if is_wanted(ARROW):
                yield arrow_row(bk, place)
            if is_wanted(BULK):
                yield bulk_row(bk, place)
            if is_wanted(TAKEOVER):
                yield takeover_row(cluster, bk, place)
            if is_wanted(ROLLING):
                yield rolling_row(bk, place)
            if is_wanted(ROLLING_P99):
                yield rolling_p99_row(bk, place)
            if is_wanted(TAIL_ROLL):
                yield tail_roll_row(bk, cluster.url, place)


def measured(place: Place, count: int, work: Callable[[], object], *, syncs: bool = True) -> Measured:
    with place.load() as load:
        work()
    if syncs:
        load.check_flushes(1)
    return Measured(count / load.wall_s, load.cpu_s * 1e6 / count, load.foreign)


def many_row(bk: embedbk.Client, place: Place) -> Row:
    items = [os.urandom(1 << 10)] * (MANY_BYTES >> 10)
    with bk.log("many").writer() as writer, bk.create_ledger() as bare:
        return median_row(
            MANY,
            "entries/s",
            alternate(
                MANY_PAIRS,
                lambda: measured(place, len(items), lambda: writer.append_many(items)),
                lambda: measured(place, len(items), lambda: bare.add_many(items)).value,
            ),
        )


def arrow_row(bk: embedbk.Client, place: Place) -> Row:
    count = min(MANY_BYTES // 100, MANY_ENTRIES_MAX)
    items = [os.urandom(100)] * count
    rows = arrow_rows(count)
    with bk.log("arrow").writer() as writer:
        return median_row(
            ARROW,
            "entries/s",
            alternate(
                MANY_PAIRS,
                lambda: measured(place, count, lambda: writer.append_arrow(rows)),
                lambda: measured(place, count, lambda: writer.append_many(items)).value,
            ),
        )


def arrow_rows(count: int) -> object:
    """pyarrow's array where it is there; else one of the same layout, made by hand for each turn."""
    values = [os.urandom(100) for _ in range(count)]
    try:
        import pyarrow as pa
    except ImportError:
        return ArrowBytes(values)
    return pa.array(values, pa.binary())


def bulk_row(bk: embedbk.Client, place: Place) -> Row:
    items = [os.urandom(1 << 10)] * (READ_COUNT // 10)
    with bk.log("bulk").writer(roll=embedbk.Roll(bytes=64 << 20)) as writer:
        for _ in range(10):
            writer.append_many(items)
    log = bk.log("bulk")

    def in_bulk() -> None:
        with log.reader() as reader:
            found = 0
            while bulk := reader.read_bulk(PER_CALL, 8 << 20):
                found += len(bulk)
        assert found == READ_COUNT

    def batches() -> None:
        assert sum(batch.entry_count for batch in log.read_batches()) == READ_COUNT

    return median_row(
        BULK,
        "entries/s",
        alternate(
            MANY_PAIRS,
            lambda: measured(place, READ_COUNT, in_bulk, syncs=False),
            lambda: measured(place, READ_COUNT, batches, syncs=False).value,
        ),
    )
