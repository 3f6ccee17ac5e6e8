"""The reads of a scrub as tasks of Spark, by bookie and range of ledgers (scrub/SCRUB.md).

Decides how tasks are grouped, and how fast each may read: the tasks of one bookie share its rate. Judging stays on the
driver, which gets a sum of digests for each 4,096 entries and no entry. It goes the way of a data source, which Spark
Connect has as well; the ledgers are read in order within each task.
"""

from __future__ import annotations

import base64
import pickle
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from embedbk.client.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.ids import Member
from embedbk.repair.copy_check import CopyBlock, CopyCheckOptions, CopyTask
from embedbk.scrub.options import ScrubOptions, ScrubResult
from embedbk.scrub.scrubbing import CheckCopies, OnFinding, check_here, check_options, scrub_cluster
from embedbk.spark.clients import client_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ScrubSource", "check_on", "partitions_of", "scrub_on"]

TASKS_PER_BOOKIE = 2  # Spark tasks at once; each reads the bookie in order.
_SCHEMA = StructType([StructField("block", BinaryType())])


@dataclass(frozen=True)
class CopiesPartition(InputPartition):
    """What one task of Spark reads: of one bookie, ledgers ascending."""

    tasks: tuple[CopyTask, ...]
    options: CopyCheckOptions


class ScrubSource(DataSource):
    """Reads copies: option `cluster`, and `work`, which `check_on` makes. Not for people."""

    @classmethod
    def name(cls) -> str:
        return "embedbk-scrub"

    def schema(self) -> StructType:
        return _SCHEMA

    def reader(self, schema: StructType) -> CopiesReader:
        return CopiesReader(self.options["cluster"], self.options["work"])


class CopiesReader(DataSourceReader):
    def __init__(self, cluster: str, work: str) -> None:
        self.cluster, self.work = cluster, work

    def partitions(self) -> list[InputPartition]:
        found: list[InputPartition] = pickle.loads(base64.b64decode(self.work))
        return found

    def read(self, partition: InputPartition | None) -> Iterator[tuple[bytes]]:
        if isinstance(partition, CopiesPartition):
            runtime = client_of(self.cluster)._runtime
            blocks = run_blocking(
                check_here(runtime, partition.options)(list(partition.tasks)), "embedbk spark scrub"
            )
            yield from ((pickle.dumps(block),) for block in blocks)


def partitions_of(tasks: list[CopyTask], options: CopyCheckOptions) -> list[CopiesPartition]:
    """By bookie, in ranges of ledgers; those of one bookie share its bytes per second."""
    by_bookie: dict[Member, list[CopyTask]] = defaultdict(list)
    for task in tasks:
        by_bookie[task.member].append(task)
    found: list[CopiesPartition] = []
    for mine in by_bookie.values():
        mine.sort(key=lambda each: (each.ledger_id, each.owed.first))
        size = -(-len(mine) // TASKS_PER_BOOKIE)
        parts = [mine[begin : begin + size] for begin in range(0, len(mine), size)]
        shared = replace(options, bytes_per_s=-(-options.bytes_per_s // len(parts)))
        found += [CopiesPartition(tuple(part), shared) for part in parts]
    return found


def check_on(spark: SparkSession, cluster: str, options: CopyCheckOptions) -> CheckCopies:
    """Reads by tasks of this session. A task that fails is run again by Spark, or fails the scrub."""
    spark.dataSource.register(ScrubSource)

    async def check(tasks: list[CopyTask]) -> list[CopyBlock]:
        work = base64.b64encode(pickle.dumps(partitions_of(tasks, options))).decode()
        rows = spark.read.format("embedbk-scrub").option("cluster", cluster).option("work", work).load()
        return [pickle.loads(row.block) for row in rows.collect()]

    return check


def scrub_on(
    spark: SparkSession, client: Client, options: ScrubOptions, on_finding: OnFinding | None = None
) -> ScrubResult:
    """As `embedbk.scrub.scrub`, with the reads on Spark. Raises UsageError, too, where other processes do not reach the
    cluster."""
    check = check_on(spark, client.url, check_options(options))
    return run_blocking(
        scrub_cluster(client._runtime, options, check, on_finding), "embedbk spark scrub --on-spark"
    )
