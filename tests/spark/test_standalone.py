"""The same source and sink on a standalone cluster of Spark: executors in processes of their own, killed and doubled.

Two executors of one core and 512 MB each (issue 16, point 1). What does not go through the driver is shown by a bound:
results of a job above `RESULTS_MAX` end it, and the logs here have many times as many bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.client.client import Client
from embedbk.cluster import Cluster
from embedbk.spark.clients import close_clients
from embedbk.spark.session import SHORT_LIVED
from embedbk.spark.sink import EmbedbkStreamWriter, EmbedbkWriter
from embedbk.spark.source import EmbedbkReader, EmbedbkSource
from tests.spark.standalone import WORKER_HOSTS, StandaloneSpark

ROWS = 60_000
PARTITIONS = 4
RESULTS_MAX = 1 << 20  # Bytes that all tasks of a job together may send to the driver.
MEET_S = 100.0  # Without a second attempt by then the test fails.
INLINE_MAX = 1 << 16  # A task that has more than this gets a ledger.
TOO_LARGE = r"is bigger than spark\.driver\.maxResultSize"
KILLED_IN = 1  # The partition in which is killed: of a batch, of four; of a micro-batch, of two.
OF_SOURCE = {"maxRowsPerPartition": str(ROWS // PARTITIONS)}
OF_SINK = {"inlineMaxBytes": str(INLINE_MAX)}
# Nothing that could be compressed much: results are, on their way to the driver.
VALUE = "concat(id, '-', sha2(cast(id AS string), 512))"
VALUES = [f"{n}-{hashlib.sha512(str(n).encode()).hexdigest()}".encode() for n in range(ROWS)]

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with StandaloneSpark(tmp_path_factory.mktemp("standalone")) as standalone:
        config = {
            **SHORT_LIVED,
            "spark.executor.extraJavaOptions": SHORT_LIVED["spark.driver.extraJavaOptions"],
            "spark.executor.cores": "1",
            # No task before both executors are there.
            "spark.cores.max": str(len(WORKER_HOSTS)),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
            "spark.executor.memory": "512m",
            "spark.driver.maxResultSize": str(RESULTS_MAX),
            "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
            # A task that stands still is run once more, on the other executor, beside the first attempt.
            "spark.speculation": "true",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.interval": "100ms",
            "spark.speculation.minTaskRuntime": "1s",
        }
        session = embedbk.spark.session("embedbk standalone", master=standalone.url, config=config)
        yield session
        session.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)
    with Cluster(bookies=4, members=3, settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def bk(cluster: Cluster, spark: Any) -> Iterator[Client]:
    """With a log of a ledger for each of four tasks, written by them."""
    with embedbk.open(cluster.url) as client:
        write(spark, client, "lines")
        yield client
        close_clients()


@pytest.fixture
def own_source(spark: Any) -> Iterator[Any]:
    """Registers another source for one test."""
    yield spark.dataSource.register
    spark.dataSource.register(EmbedbkSource)


def write(spark: Any, bk: Client, log: str, **more: str) -> None:
    frame = spark.range(0, ROWS, numPartitions=PARTITIONS).selectExpr(f"{VALUE} AS value")
    frame.write.format("embedbk").options(cluster=bk.url, log=log, **{**OF_SINK, **more}).mode(
        "append"
    ).save()


def read(spark: Any, bk: Client, log: str) -> Any:
    return spark.read.format("embedbk").options(cluster=bk.url, log=log, **OF_SOURCE).load()


def copy(spark: Any, bk: Client, log: str) -> None:
    sink = read(spark, bk, "lines").select("value").write.format("embedbk")
    sink.options(cluster=bk.url, log=log, **OF_SINK).mode("append").save()


def copy_as_stream(spark: Any, bk: Client, log: str, tmp_path: Path) -> None:
    """In two micro-batches."""
    stream = spark.readStream.format("embedbk").options(cluster=bk.url, log="lines", **OF_SOURCE)
    stream = stream.options(startingOffsets="earliest", maxRowsPerTrigger=str(ROWS // 2)).load()
    query = stream.select("value").writeStream.format("embedbk").options(cluster=bk.url, log=log, **OF_SINK)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert query.start().awaitTermination(300)


def values_of(bk: Client, log: str) -> list[bytes]:
    return [bytes(entry) for entry in bk.log(log).read()]


def killing_source(marker: str, kills: str, victims: tuple[int, ...] = ()) -> type[EmbedbkSource]:
    """The format whose reader or writer kills behind its second batch of one partition, once: the processes that
    are named, or else its executor, JVM and all. Classes of a function: executors get them whole."""

    def kill_once() -> None:
        """As `kill -9` by anybody. An executor's Python worker ends with it."""
        import os
        import signal

        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        if victims:
            return
        with open(f"/proc/{os.getppid()}/stat") as daemon:
            os.kill(int(daemon.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
        signal.pause()

    def through(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        is_there = context.partitionId() == KILLED_IN
        for number, batch in enumerate(batches):
            if number == 2 and is_there:
                kill_once()
            yield batch

    class KillingReader(EmbedbkReader):
        def read(self, partition: Any) -> Iterator[Any]:
            yield from through(super().read(partition))

    class KillingStreamWriter(EmbedbkStreamWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            return super().write(through(iterator))

    class KillingSource(EmbedbkSource):
        def reader(self, schema: Any) -> Any:
            made = super().reader(schema)
            return KillingReader(made.options) if kills == "reader" else made

        def streamWriter(self, schema: Any, overwrite: bool) -> EmbedbkStreamWriter:  # noqa: N802
            made = super().streamWriter(schema, overwrite)
            return KillingStreamWriter(made.options) if kills == "writer" else made

    return KillingSource


def meeting_source(fifo: str) -> type[EmbedbkSource]:
    """The format whose sink has two attempts of the last partition meet, each with some rows staged and some not."""

    def through(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import select

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 2 and context.partitionId() == PARTITIONS - 1:
                attempt = min(1, context.attemptNumber())
                end = os.open(fifo, os.O_WRONLY if attempt else os.O_RDONLY | os.O_NONBLOCK)
                if attempt:
                    os.write(end, b"here")
                else:
                    select.select([end], [], [], MEET_S)
                os.close(end)
                os.close(os.open(f"{fifo}-{attempt}", os.O_CREAT))
            yield batch

    class MeetingWriter(EmbedbkWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            return super().write(through(iterator))

    class MeetingSource(EmbedbkSource):
        def writer(self, schema: Any, overwrite: bool) -> EmbedbkWriter:
            return MeetingWriter(super().writer(schema, overwrite).options)

    return MeetingSource


def test_executors_write_and_read_logs_that_never_pass_through_the_driver(spark: Any, bk: Client) -> None:
    assert sum(map(len, VALUES)) > 7 * RESULTS_MAX
    assert values_of(bk, "lines") == VALUES
    assert len(bk.log("lines").segments()) == PARTITIONS
    copy(spark, bk, "copy")
    assert values_of(bk, "copy") == VALUES
    seen = read(spark, bk, "copy").selectExpr("count(*)", "sum(octet_length(value))").collect()
    assert [tuple(row) for row in seen] == [(ROWS, sum(map(len, VALUES)))]
    # The bound is one: what does go through the driver ends by it.
    with pytest.raises(Exception, match=TOO_LARGE):
        read(spark, bk, "copy").collect()
    with pytest.raises(Exception, match=TOO_LARGE):
        write(spark, bk, "sent", inlineMaxBytes=str(1 << 30))
    assert not bk.log_exists("sent") or values_of(bk, "sent") == []


def test_an_executor_killed_in_the_middle_of_a_read_loses_doubles_and_reorders_nothing(
    spark: Any, bk: Client, own_source: Any, tmp_path: Path
) -> None:
    """Its task runs again on another executor, from the first row of its partition on."""
    killed = tmp_path / "killed"
    own_source(killing_source(str(killed), "reader"))
    copy(spark, bk, "read-killed")
    assert killed.exists()
    assert values_of(bk, "read-killed") == VALUES


def test_an_executor_killed_in_the_middle_of_a_write_loses_doubles_and_reorders_nothing(
    spark: Any, bk: Client, own_source: Any, tmp_path: Path
) -> None:
    """I98, of a micro-batch: nobody names the ledger that it had staged."""
    killed = tmp_path / "killed"
    own_source(killing_source(str(killed), "writer"))
    copy_as_stream(spark, bk, "streamed", tmp_path)
    assert killed.exists()
    assert values_of(bk, "streamed") == VALUES


def test_an_attempt_that_runs_twice_at_once_is_written_once(
    spark: Any, bk: Client, own_source: Any, tmp_path: Path
) -> None:
    """Speculation: the first attempt stands still in the middle until the second one is there, too, which Spark runs on
    another host: both executors are at work."""
    met = tmp_path / "met"
    os.mkfifo(met)
    own_source(meeting_source(str(met)))
    copy(spark, bk, "speculated")
    assert met.with_name("met-0").exists() and met.with_name("met-1").exists()
    assert values_of(bk, "speculated") == VALUES


def test_a_bookie_and_the_leader_of_the_metadata_killed_in_a_micro_batch_change_nothing(
    spark: Any, bk: Client, cluster: Cluster, own_source: Any, tmp_path: Path
) -> None:
    """The last test of this cluster: three bookies and two members are left, which are enough."""
    victims = [cluster.processes[name] for name in ("b1", cluster.leader())]
    own_source(killing_source(str(tmp_path / "killed"), "writer", tuple(each.pid for each in victims)))
    copy_as_stream(spark, bk, "survived", tmp_path)
    assert all(each.wait(60) for each in victims)
    assert values_of(bk, "survived") == VALUES
