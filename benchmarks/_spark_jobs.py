"""The rows of `spark.py` that write: a batch to a log, an archive to Parquet; and the sums that a scrub makes.

    spark/write/1KiB      rows of `_bare_arrow` to a log of three copies; the ceiling is a sink that throws them away
    spark/archive         payload of closed ledgers, read from bookies and written as Parquet by tasks; the ceiling is
                          as many tasks that write as many rows of the same size from memory, and sync them, too
    spark/scrub_digests   what a scrub does with each frame that it has read, in C on one thread: every entry is
                          checked, and their digests are summed; the ceiling is one CRC32C over the same bytes.
                          Both in processor time of that thread

Values are random bytes: nothing is gained by compressing them.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import embedbk
from benchmarks import Row
from benchmarks._load import Load
from embedbk.cluster import Cluster
from embedbk.config import FRAME_BYTES_MAX

__all__ = [
    "SIZE",
    "TASKS",
    "WRITE_ROWS",
    "archive_row",
    "digests_row",
    "log_sink",
    "paired",
    "rows_to_write",
    "seconds",
    "write_row",
]

SIZE = 1 << 10
TASKS = 8
WRITE_ROWS = 120_000
ARCHIVE_ROWS, LEDGERS = 240_000, 4
PAIRS = 5
DIGEST_ENTRIES, DIGEST_ROUNDS = 960, 400  # About the largest frame, again and again.


def write_row(spark: Any, cluster: Cluster, work: str) -> Row:
    from benchmarks._bare_jobs import BareSink

    spark.dataSource.register(BareSink)
    values = rows_to_write(spark)
    return paired(
        work,
        "rows/s",
        lambda: WRITE_ROWS / seconds(log_sink(values, cluster.url).save),
        lambda: WRITE_ROWS / seconds(values.write.format("bare_sink").mode("append").save),
        WRITE_ROWS,
    )


def rows_to_write(spark: Any) -> Any:
    rows = spark.read.format("bare_arrow").option("rows", str(WRITE_ROWS)).option("size", str(SIZE))
    rows = rows.option("tasks", str(TASKS)).option("rowsPerBatch", str(FRAME_BYTES_MAX // SIZE))
    return rows.load().select("value")


def log_sink(values: Any, url: str) -> Any:
    return values.write.format("embedbk").option("cluster", url).option("log", "written").mode("append")


def archive_row(spark: Any, cluster: Cluster, directory: Path, work: str) -> Row:
    from benchmarks._bare_jobs import BareFile, write_bare_file
    from embedbk.archive.jobs import set_place
    from embedbk.archive.place import create_place
    from embedbk.spark import archiving
    from embedbk.spark.tasks import each

    megabytes = ARCHIVE_ROWS * SIZE / 1e6
    place, bare_place = directory / "archive", directory / "bare"
    create_place(place)
    with embedbk.open(cluster.url) as bk:
        pool = os.urandom(ARCHIVE_ROWS // LEDGERS * SIZE)
        values = [pool[at : at + SIZE] for at in range(0, len(pool), SIZE)]
        for _ in range(LEDGERS):
            with bk.log("archived").writer() as writer:
                writer.append_many(values)
        set_place(bk, "archived", place)
        ledgers = [segment.ledger_id for segment in bk.log("archived").segments()]

    def ours() -> float:
        for old in place.glob("log=*"):
            shutil.rmtree(old)
        began = time.perf_counter()
        report = archiving.archive(spark, cluster.url, "archived", anew=ledgers)
        taken = time.perf_counter() - began
        assert report.is_whole and len(report.ledgers) == LEDGERS
        return megabytes / taken

    def bare() -> float:
        shutil.rmtree(bare_place, ignore_errors=True)
        bare_place.mkdir()
        tasks = [BareFile(str(bare_place / str(at)), ARCHIVE_ROWS // LEDGERS, SIZE) for at in range(LEDGERS)]
        return megabytes / seconds(lambda: list(each(spark, write_bare_file, tasks)))

    return paired(work, "MB/s", ours, bare, ARCHIVE_ROWS)


def digests_row(work: str) -> Row:
    from embedbk.codec import kernels
    from embedbk.codec.frame import frame_of
    from embedbk.codec.packer import Packer

    packer = Packer(1)
    packer.append_many([os.urandom(SIZE) for _ in range(DIGEST_ENTRIES)])
    sealed = packer.seal()
    assert sealed is not None
    body = sealed.body

    def ours() -> None:
        for _ in range(DIGEST_ROUNDS):
            frame = frame_of(body, 1)
            kernels.digests(body, frame.first_entry, frame.last_entry, 3)

    def bare() -> None:
        for _ in range(DIGEST_ROUNDS):
            kernels.crc32c(body)

    ours()
    bare()
    pairs = [(thread_seconds(ours), thread_seconds(bare)) for _ in range(PAIRS)]
    taken, least = sorted(pairs, key=lambda each: each[0] / each[1])[PAIRS // 2]
    megabytes = DIGEST_ROUNDS * len(body) / 1e6
    cpu_us = round(taken * 1e6 / (DIGEST_ROUNDS * DIGEST_ENTRIES), 3)
    return Row(work, round(megabytes / taken), "MB/s", round(megabytes / least), cpu_us)


def thread_seconds(call: Callable[[], object]) -> float:
    """Processor seconds of this thread in the call: what it would take on an idle core."""
    began = time.thread_time()
    call()
    return time.thread_time() - began


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def paired(
    work: str,
    unit: str,
    ours: Callable[[], float],
    other: Callable[[], float],
    entries: int | None = None,
    rest: Callable[[], object] = lambda: None,
    warm_up: int = 1,
) -> Row:
    """Both sides in turns, each of which returns its value in `unit`; the pair with the median ratio.

    Args:
        entries: of one turn of ours, for the processor time of each; None: that says nothing here.
        rest: called before each turn, outside of what is measured.
        warm_up: turns of each side that do not count: workers are started, links dialled.
    """
    for _ in range(warm_up):
        ours()
        other()
    pairs = []
    for _ in range(PAIRS):
        rest()
        with Load(has_tree=True) as spent:
            value = ours()
        rest()
        pairs.append((value, other(), spent))
    print(f"{work}: ratios " + " ".join(f"{value / most:.2f}" for value, most, _ in pairs), file=sys.stderr)
    value, most, spent = sorted(pairs, key=lambda each: each[0] / each[1])[PAIRS // 2]
    cpu_us = None if entries is None else round(spent.cpu_s * 1e6 / entries, 2)
    return Row(work, round(value), unit, round(most), cpu_us, foreign=round(spent.foreign, 3))
