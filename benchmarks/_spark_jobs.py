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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import embedbk
from benchmarks import Row
from benchmarks._load import Load
from embedbk.cluster import Cluster
from embedbk.config import FRAME_BYTES_MAX

__all__ = ["archive_row", "digests_row", "write_row"]

SIZE = 1 << 10
TASKS = 8
WRITE_ROWS = 120_000
ARCHIVE_ROWS, LEDGERS = 240_000, 4
PAIRS = 5
DIGEST_ENTRIES, DIGEST_ROUNDS = 960, 400  # About the largest frame, again and again.


def write_row(spark: Any, cluster: Cluster, work: str) -> Row:
    from benchmarks._bare_jobs import BareSink

    spark.dataSource.register(BareSink)
    rows = spark.read.format("bare_arrow").option("rows", str(WRITE_ROWS)).option("size", str(SIZE))
    rows = rows.option("tasks", str(TASKS)).option("rowsPerBatch", str(FRAME_BYTES_MAX // SIZE))
    values = rows.load().select("value")

    def ours() -> float:
        sink = values.write.format("embedbk").option("cluster", cluster.url).option("log", "written")
        return seconds(sink.mode("append").save)

    def bare() -> float:
        return seconds(values.write.format("bare_sink").mode("append").save)

    return paired(work, ours, bare, WRITE_ROWS, "rows/s", WRITE_ROWS)


def archive_row(spark: Any, cluster: Cluster, directory: Path, work: str) -> Row:
    from benchmarks._bare_jobs import BareFile, write_bare_file
    from embedbk.archive.jobs import set_place
    from embedbk.archive.place import create_place
    from embedbk.spark import archiving
    from embedbk.spark.tasks import each

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
        return taken

    def bare() -> float:
        shutil.rmtree(bare_place, ignore_errors=True)
        bare_place.mkdir()
        tasks = [BareFile(str(bare_place / str(at)), ARCHIVE_ROWS // LEDGERS, SIZE) for at in range(LEDGERS)]
        return seconds(lambda: list(each(spark, write_bare_file, tasks)))

    megabytes = ARCHIVE_ROWS * SIZE / 1e6
    return paired(work, ours, bare, megabytes, "MB/s", ARCHIVE_ROWS)


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
    ours: Callable[[], float],
    bare: Callable[[], float],
    amount: float,
    unit: str,
    entries: int,
) -> Row:
    """Both sides in turns; the pair with the median ratio. entries: of one turn, for the processor time of each."""
    ours()  # Workers are started, links dialled.
    bare()
    pairs = []
    for _ in range(PAIRS):
        with Load(has_tree=True) as spent:
            taken = ours()
        pairs.append((amount / taken, amount / bare(), spent))
    value, most, spent = sorted(pairs, key=lambda each: each[0] / each[1])[PAIRS // 2]
    cpu_us = round(spent.cpu_s * 1e6 / entries, 2)
    return Row(work, round(value), unit, round(most), cpu_us, foreign=round(spent.foreign, 3))
