"""A real session over a real cluster: what Spark says of a log is what its reader says, in batches, streams and jobs.

One of each for all tests here: a JVM, and each kind of its Python workers, take seconds to start. The driver that is
killed between the sink's commit and Spark's own is the demonstration's (tests/demo/test_with_spark.py).
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.archive.jobs import directory_of, set_place
from embedbk.archive.place import create_place
from embedbk.archive.verifying import verify_archive
from embedbk.client.client import Client
from embedbk.spark import archiving
from embedbk.spark.clients import close_clients
from embedbk.spark.session import SHORT_LIVED
from embedbk.spark.sink import EmbedbkWriter
from embedbk.spark.source import EmbedbkSource
from tests.spark import copy_program
from tests.spark.copy_program import ROWS_PER_BATCH

ENTRIES = 3_000
SILENCE_S = 300.0  # A driver that starts on a machine that others use is silent for so long at most.
LINES = [f"line {number}".encode() for number in range(2 * ENTRIES)]

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    # Tasks that fail are tried again: `local[2]` would try each once.
    session = embedbk.spark.session("embedbk tests", master="local[2,4]", config=SHORT_LIVED | warehouse)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def bk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """With a log of two ledgers: one is closed, the other still written, and read up to its LAC (P6.2)."""
    data = tmp_path_factory.mktemp("spark") / "data"
    with embedbk.open(data, bookies=3, listen="tcp://127.0.0.1:0") as client:
        with client.log("lines").writer() as writer:
            writer.append_many(LINES[:ENTRIES])
        with client.log("lines").writer() as writer:
            writer.append_many(LINES[ENTRIES:])
            yield client
            close_clients()


@pytest.fixture
def url(bk: Client) -> str:
    return bk.url


def test_spark_reads_a_log_of_two_ledgers_straight_from_the_bookies(spark: Any, bk: Client, url: str) -> None:
    log = spark.read.format("embedbk").option("cluster", url).option("log", "lines")
    log.option("maxRowsPerPartition", "1200").load().createOrReplaceTempView("lines")
    rows = spark.sql("SELECT offset, value FROM lines ORDER BY offset").collect()
    groups = spark.sql(
        "SELECT ledgerId, count(*), min(entryId), max(entryId), min(offset) FROM lines "
        "WHERE log = 'lines' GROUP BY ledgerId ORDER BY ledgerId"
    ).collect()
    pruned = (
        log.option("pushdown", "true")
        .option("payload", "string")
        .load()
        .where(f"offset >= {2 * ENTRIES - 1}")
    )
    text = [tuple(row) for row in pruned.select("offset", "slot", "value").collect()]
    read = [(entry.position, bytes(entry.data)) for entry in bk.log("lines").read()]

    assert [row.offset for row in rows] == list(range(2 * ENTRIES))
    assert [bytes(row.value) for row in rows] == LINES == [data for _, data in read]
    ledgers = sorted({position.ledger_id for position, _ in read})
    assert [tuple(group) for group in groups] == [
        (ledgers[0], ENTRIES, 0, ENTRIES - 1, 0),
        (ledgers[1], ENTRIES, 0, ENTRIES - 1, ENTRIES),
    ]
    assert text == [(2 * ENTRIES - 1, 0, LINES[-1].decode())]


def test_a_stream_goes_on_behind_its_checkpoint_and_has_every_row_once(
    spark: Any, bk: Client, url: str, tmp_path: Path
) -> None:
    """A query that takes what is there now, in bounded micro-batches; the next one takes what has come since."""

    with bk.log("followed").writer() as writer:
        writer.append_many(LINES[:1000])

    def take() -> None:
        stream = spark.readStream.format("embedbk").option("cluster", url).option("log", "followed")
        stream = stream.option("startingOffsets", "earliest").option("maxRowsPerTrigger", "700").load()
        query = (
            stream.select("offset", "value")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)

    def taken() -> list[tuple[int, bytes]]:
        rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
        return [(row.offset, bytes(row.value)) for row in rows]

    take()
    assert taken() == list(enumerate(LINES[:1000]))
    with bk.log("followed").writer() as writer:
        writer.append_many([b"more", b"and more"])
        take()
    assert taken() == list(enumerate([*LINES[:1000], b"more", b"and more"]))


def test_keys_timestamps_and_headers_go_through_spark_both_ways(spark: Any, url: str) -> None:
    """SPARK.md, columns: "null where they have not"; `timestamp_millis(timestamp)` is the moment."""
    frame = spark.sql(
        "select cast(id as string) as value, if(id % 2 = 0, cast(cast(id as string) as binary), null) as key, "
        "timestamp_millis(1764115200000 + id) as timestamp, map('n', cast(id as string)) as headers "
        "from range(0, 1000, 1, 3)"
    )
    frame.write.format("embedbk").option("cluster", url).option("log", "records").mode("append").save()
    read = spark.read.format("embedbk").option("cluster", url).option("log", "records")
    table = read.option("columns", "offset,value,key,timestamp,headers").option("payload", "string").load()
    table.createOrReplaceTempView("records")
    told = spark.sql(
        "select value, key, timestamp_millis(timestamp) = timestamp_millis(1764115200000 + cast(value as bigint)) "
        "as fits, cast(headers['n'] as string) as n from records order by offset"
    ).collect()
    assert [(row.value, row.n, row.fits) for row in told] == [(str(n), str(n), True) for n in range(1000)]
    assert [row.key is None for row in told] == [n % 2 == 1 for n in range(1000)]


def test_a_batch_is_written_and_read_back(spark: Any, url: str) -> None:
    """In partition order, small outputs and large ones; a number that was written is not written again."""
    frame = spark.range(0, 20_000, numPartitions=4).selectExpr("cast(id AS string) AS value")
    sink = frame.write.format("embedbk").option("cluster", url).option("log", "numbers").mode("append")
    for _ in range(2):
        sink.option("txnAppId", "nightly").option("txnVersion", "1").option("inlineMaxBytes", "60000").save()
    read = spark.read.format("embedbk").option("cluster", url).option("log", "numbers")
    rows = read.option("payload", "string").load().orderBy("offset").select("value").collect()
    assert [row.value for row in rows] == [str(number) for number in range(20_000)]
    with pytest.raises(Exception, match="columns offset would be lost"):
        spark.range(3).selectExpr("cast(id AS string) AS value", "id AS offset").write.format(
            "embedbk"
        ).option("cluster", url).option("log", "numbers").mode("append").save()


def test_a_table_of_sql_is_read_and_inserted_into(spark: Any, bk: Client, url: str) -> None:
    """SPARK.md, tables: it is planned at each query, so it grows with the log."""
    spark.sql(
        f"CREATE TABLE told USING embedbk OPTIONS (cluster '{url}', log 'told', columns 'value', payload 'string')"
    )
    try:
        with bk.log("told").writer() as writer:
            writer.append(b"one")
        assert [row.value for row in spark.sql("SELECT value FROM told").collect()] == ["one"]
        spark.sql("INSERT INTO told VALUES ('two'), ('three')")
        assert sorted(row.value for row in spark.sql("SELECT value FROM told").collect()) == [
            "one",
            "three",
            "two",
        ]
        # Rows that were read say where they come from, and Spark passes that on as if it were the table's.
        spark.sql(
            f"CREATE TABLE copy USING embedbk OPTIONS (cluster '{url}', log 'copy', columns 'value', payload 'string')"
        )
        told = {"cluster": url, "log": "told", "columns": "value", "payload": "string"}
        read = spark.read.format("embedbk").options(**told).load()
        with pytest.raises(Exception, match="nothing says which log these rows are for"):
            read.writeTo("copy").append()
        with pytest.raises(Exception, match="nothing says which log these rows are for"):
            read.write.format("embedbk").mode("append").save()
        with pytest.raises(Exception, match="nothing says which log these rows are for"):
            spark.sql("INSERT INTO told SELECT value FROM told")
        spark.sql("INSERT INTO copy SELECT value AS v FROM told")
        assert len(list(bk.log("copy").read())) == 3
    finally:
        spark.sql("DROP TABLE told")
        spark.sql("DROP TABLE IF EXISTS copy")
    assert len(list(bk.log("told").read())) == 3  # A table that is dropped leaves its log alone.


def failing_source(marker: str) -> type[EmbedbkSource]:
    """The format whose sink fails once, with all rows of a task staged. Classes of a function: tasks get them whole."""

    def through(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        yield from batches
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise RuntimeError("this task fails once")

    class FailingWriter(EmbedbkWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            return super().write(through(iterator))

    class FailingSource(EmbedbkSource):
        def writer(self, schema: Any, overwrite: bool) -> EmbedbkWriter:
            return FailingWriter(super().writer(schema, overwrite).options)

    return FailingSource


def test_a_task_that_fails_and_runs_again_is_written_once(
    spark: Any, bk: Client, url: str, tmp_path: Path
) -> None:
    """I98: what its first attempt staged is part of nothing, and is given up."""
    before, failed = len(bk.ledgers()), tmp_path / "failed"
    spark.dataSource.register(failing_source(str(failed)))
    try:
        frame = spark.range(0, 3_000, numPartitions=3).selectExpr("cast(id AS string) AS value")
        sink = frame.write.format("embedbk").options(cluster=url, log="failing", inlineMaxBytes="0")
        sink.mode("append").save()
    finally:
        spark.dataSource.register(EmbedbkSource)
    assert failed.exists()
    assert [bytes(entry) for entry in bk.log("failing").read()] == [b"%d" % number for number in range(3_000)]
    assert len(bk.ledgers()) == before + 3


@pytest.mark.timeout(7200)
def test_drivers_killed_anywhere_lose_double_and_reorder_nothing(
    spark: Any, bk: Client, url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """I98. `--spark-kills` says how many; each is killed before a commit of its sink or behind it, by chance."""
    kills, chance = request.config.getoption("--spark-kills"), random.Random(16)
    values = [b"%06d" % number for number in range(ROWS_PER_BATCH * (4 * kills + 1))]
    for begin in range(0, len(values), 250):
        with bk.log("long").writer() as writer:
            writer.append_many(values[begin : begin + 250])
    checkpoint, fifo = str(tmp_path / "checkpoint"), tmp_path / "told"
    os.mkfifo(fifo)
    told = os.open(fifo, os.O_RDWR)  # A writer, too: else there is an end behind each line.
    try:
        for _ in range(kills):
            kill_driver_after(chance.randint(1, 6), told, [copy_program.__file__, url, checkpoint, str(fifo)])
    finally:
        os.close(told)
    assert copy_program.begin_copy(spark, url, checkpoint).awaitTermination(200)
    assert [bytes(entry) for entry in bk.log("long-copy").read()] == values


def kill_driver_after(lines: int, told: int, words: list[str]) -> None:
    """SIGKILL a driver, Python and JVM, as soon as it has told so many lines; or when all is copied: a kill that came
    late has let the one before get further."""
    driver = subprocess.Popen([sys.executable, "-P", *words], stdout=subprocess.PIPE, process_group=0)
    assert driver.stdout is not None
    try:
        heard = b""
        while heard.count(b"\n") < lines:
            ready, _, _ = select.select([told, driver.stdout], [], [], SILENCE_S)
            assert ready, "the driver said nothing for long"
            if told in ready:
                heard += os.read(told, 1000)
            elif not driver.stdout.read1():
                assert driver.wait() == 0
                return
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.stdout.read()  # Its JVM holds it, too: at its end both are gone.
        driver.wait()
        driver.stdout.close()


def test_spark_finds_the_format_by_itself(url: str) -> None:
    """The package `pyspark_embedbk`, at the top, is all that Spark asks for."""
    import pyspark_embedbk

    assert pyspark_embedbk.DefaultSource is EmbedbkSource


def test_executors_copy_verify_and_restore(spark: Any, bk: Client, url: str, tmp_path: Path) -> None:
    """What the jobs of an archive leave on Spark is what the same jobs leave without it (P8.14)."""
    for _ in range(2):
        with bk.log("kept").writer() as writer:
            writer.append_many(LINES[:1000])
    place = tmp_path / "archive"
    create_place(place)
    set_place(bk, "kept", place)
    report = archiving.archive(spark, url, "kept", slice_bytes=5_000)
    assert report.is_whole and [each.entries for each in report.ledgers] == [1_000, 1_000]
    assert sum(each.files for each in report.ledgers) == len(list(place.rglob("*.parquet"))) > 2
    found = archiving.verify_archive(spark, url, "kept", against_bookies=True)
    assert (found.code, found.entries, len(found.verified)) == (0, 2_000, 2)

    rows = spark.read.parquet(str(place)).select("offset", "value").orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == list(enumerate(LINES[:1000] * 2))

    reading, directory = directory_of(bk, "kept", b"")
    done = archiving.restore(spark, url, "again", directory, str(reading.name), application="a", number=1)
    assert done.entries == 2_000
    assert [bytes(entry) for entry in bk.log("again").read()] == LINES[:1000] * 2

    path = next(place.rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    found = archiving.verify_archive(spark, url, "kept")
    assert {each.file for each in found.findings} == {path.name} and found.code == 2
    assert verify_archive(bk, "kept").findings == found.findings
