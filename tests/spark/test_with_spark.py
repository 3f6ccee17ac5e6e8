"""Real sessions over one real cluster: what Spark says of a log is what its reader says, in batches and in streams."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import embedbk

ENTRIES = 5_000
LINES = [f"line {number}".encode() for number in range(2 * ENTRIES)]

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = embedbk.spark.session("embedbk tests", master="local[2]")
    yield session
    session.stop()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A cluster with a log of two ledgers: one is closed, the other still written, and read up to its LAC (P6.2)."""
    with embedbk.open(tmp_path / "data", bookies=3, listen="tcp://127.0.0.1:0") as bk:
        with bk.log("lines").writer() as writer:
            writer.append_many(LINES[:ENTRIES])
        with bk.log("lines").writer() as writer:
            writer.append_many(LINES[ENTRIES:])
            assert bk.url is not None
            yield bk.url


def test_spark_reads_a_log_of_two_ledgers_straight_from_the_bookies(spark: Any, url: str) -> None:
    log = spark.read.format("embedbk").option("cluster", url).option("log", "lines")
    log.option("maxRowsPerPartition", "2000").load().createOrReplaceTempView("lines")
    rows = spark.sql("SELECT offset, value FROM lines ORDER BY offset").collect()
    groups = spark.sql(
        "SELECT ledgerId, count(*), min(entryId), max(entryId), min(offset) FROM lines "
        "WHERE log = 'lines' GROUP BY ledgerId ORDER BY ledgerId"
    ).collect()
    pruned = log.option("pushdown", "true").option("payload", "string").load().where("offset >= 9999")
    text = [tuple(row) for row in pruned.select("offset", "slot", "value").collect()]
    with embedbk.open(url) as bk:
        read = [(entry.position, bytes(entry.data)) for entry in bk.log("lines").read()]

    assert [row.offset for row in rows] == list(range(2 * ENTRIES))
    assert [bytes(row.value) for row in rows] == LINES == [data for _, data in read]
    ledgers = sorted({position.ledger_id for position, _ in read})
    assert [tuple(group) for group in groups] == [
        (ledgers[0], ENTRIES, 0, ENTRIES - 1, 0),
        (ledgers[1], ENTRIES, 0, ENTRIES - 1, ENTRIES),
    ]
    assert text == [(9999, 0, "line 9999")]


def test_a_stream_goes_on_behind_its_checkpoint_and_has_every_row_once(
    spark: Any, url: str, tmp_path: Path
) -> None:
    """A query that takes what is there now, in bounded micro-batches; the next one takes what has come since."""

    def take() -> None:
        stream = spark.readStream.format("embedbk").option("cluster", url).option("log", "lines")
        stream = stream.option("startingOffsets", "earliest").option("maxRowsPerTrigger", "3000").load()
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
    assert taken() == list(enumerate(LINES))
    with embedbk.open(url) as bk, bk.log("lines").writer() as writer:  # It takes the log over.
        writer.append_many([b"more", b"and more"])
        take()
    assert taken() == list(enumerate([*LINES, b"more", b"and more"]))


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


COPIES = """
import os, signal, sys
import embedbk
from embedbk.spark.sink import EmbedbkStreamWriter
from embedbk.spark.source import EmbedbkSource

url, checkpoint, dies_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = embedbk.spark.session("copies", master="local[2]")
jvm = spark.sparkContext._gateway.proc.pid


class DyingWriter(EmbedbkStreamWriter):
    def commit(self, messages, batchId):
        super().commit(messages, batchId)
        if batchId == dies_at:
            os.kill(jvm, signal.SIGKILL)


class Dying(EmbedbkSource):
    def streamWriter(self, schema, overwrite):
        return DyingWriter(super().streamWriter(schema, overwrite).options)


spark.dataSource.register(Dying)
lines = spark.readStream.format("embedbk").option("cluster", url).option("log", "lines")
lines = lines.option("startingOffsets", "earliest").option("maxRowsPerTrigger", "3000").load()
query = lines.select("value").writeStream.format("embedbk").option("cluster", url).option("log", "copy")
query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination(200)
"""


def test_a_driver_killed_between_both_commits_doubles_and_loses_nothing(url: str, tmp_path: Path) -> None:
    """I98: the same micro-batch runs again, and is recognised."""
    script = tmp_path / "copies.py"
    script.write_text(COPIES)
    command = [sys.executable, str(script), url, str(tmp_path / "checkpoint")]
    killed = subprocess.run([*command, "1"], capture_output=True, text=True, timeout=250, check=False)
    assert killed.returncode != 0
    with embedbk.open(url) as bk:
        assert [bytes(entry) for entry in bk.log("copy").read()] == LINES[:6000], killed.stderr[-3000:]
    again = subprocess.run([*command, "-1"], capture_output=True, text=True, timeout=250, check=False)
    assert again.returncode == 0, again.stderr[-3000:]
    with embedbk.open(url) as bk:
        assert [bytes(entry) for entry in bk.log("copy").read()] == LINES


def test_spark_finds_the_format_by_itself(url: str) -> None:
    """The package `pyspark_embedbk`, at the top, is all that Spark asks for."""
    import pyspark_embedbk

    from embedbk.spark.source import EmbedbkSource

    assert pyspark_embedbk.DefaultSource is EmbedbkSource
